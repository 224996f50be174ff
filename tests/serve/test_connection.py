"""Clients that are slow, silent, too talkative or gone, against a server on a real socket."""

import json
import socket
import threading
import time

import httpx
import pytest

from shortlist.serve import connection
from shortlist.serve.app import make_app
from shortlist.serve.limits import HEAD_BYTES, Limits
from shortlist.serve.service import Service
from tests.serve.parts import png, tree_model
from tests.serve.running import running

FORM = (
    b'--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n' + png(1) + b"\r\n--b--\r\n"
)


def head(length: int, *more: str) -> bytes:
    lines = ("Content-Type: multipart/form-data; boundary=b", f"Content-Length: {length}", *more)
    return "\r\n".join(["POST /v1/identify?top=1 HTTP/1.1", "Host: x", *lines, "", ""]).encode()


REQUEST = head(len(FORM)) + FORM


@pytest.fixture
def service(tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "SILENT_SECONDS", 0.5)
    return Service(tree_model(), feedback=tmp_path / "f", limits=Limits(body_seconds=0.5))


@pytest.fixture(params=["httptools", "h11"])
def port(request, service, monkeypatch):
    if request.param == "h11":
        monkeypatch.setitem(__import__("sys").modules, "uvicorn.protocols.http.httptools_impl", None)
    with running(make_app(service), http=connection.connection_class()) as address:
        yield int(address.rsplit(":", 1)[1])


def opened(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def all_of(one: socket.socket) -> bytes:
    """Read until the server closes the connection, or cuts it."""
    found = b""
    try:
        while piece := one.recv(65536):
            found += piece
    except ConnectionError:
        pass
    return found


def status(answer: bytes) -> int:
    return int(answer.split(None, 2)[1])


@pytest.mark.errors
@pytest.mark.parametrize("sent", [b"", b"G", b"POST /v1/identify HTTP/1.1\r\nHost: x\r\nX-A"])
def test_a_head_that_does_not_come_is_not_waited_for(port, sent):
    with opened(port) as one:
        one.sendall(sent)
        assert status(all_of(one)) == 408


@pytest.mark.errors
def test_a_head_that_comes_byte_by_byte_is_not_waited_for(port):
    with opened(port) as one:
        begun = time.monotonic()
        answer = b""
        try:
            for byte in REQUEST:
                one.sendall(bytes([byte]))
                time.sleep(0.02)
                if time.monotonic() > begun + 5:
                    break
        except ConnectionError:
            pass
        answer = all_of(one)
        assert answer == b"" or status(answer) == 408
        assert time.monotonic() < begun + 5
    assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200


@pytest.mark.errors
def test_heads_without_end_are_refused(port):
    with opened(port) as one:
        try:
            one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
            for number in range(3000):
                one.sendall(b"X-%d: " % number + 100 * b"a" + b"\r\n")
        except ConnectionError:
            pass
        answer = all_of(one)
    assert answer == b"" or status(answer) in (400, 431)


@pytest.mark.errors
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_head_is_bounded_also_if_it_comes_at_once(port, pieces, request):
    """In one piece, or with its end in the next one and much of a body behind it."""
    body = FORM + bytes(100_000)
    most = HEAD_BYTES if request.node.callspec.params["port"] == "httptools" else 16_000  # h11 takes less
    for size, expected in ((most, 200), (HEAD_BYTES + 1, 431)):
        sent = head(len(body), "X: ")
        sent = sent.replace(b"X: ", b"X: " + (size - len(sent)) * b"a")
        assert len(sent) == size
        with opened(port) as one:
            cut = {1: 0, 2: size - 2}[pieces]
            try:
                one.sendall(sent[:cut])
                time.sleep(0.1 * (pieces - 1))
                one.sendall(sent[cut:] + body)
                one.settimeout(5)
                answer = one.recv(65536)
            except ConnectionError:
                answer = b""
            refused = (b"", 431) if most == HEAD_BYTES else (b"", 400, 431)
            assert (answer and status(answer)) in (refused if expected == 431 else (200,))
            if answer and status(answer) == 431:
                message = "The address and the headers of a request must have at most 65,536 bytes."
                body = {"error": {"code": "too_large", "message": message}}
                assert json.loads(answer.split(b"\r\n\r\n")[1]) == body


@pytest.mark.errors
def test_a_body_that_does_not_come_is_not_waited_for(port):
    with opened(port) as one:
        one.sendall(head(len(FORM) + 10) + FORM)  # it says more than there is
        assert status(one.recv(65536)) == 408


def test_requests_in_one_go_are_answered_in_order(port):
    last = REQUEST.replace(b"?top=1", b"?top=3")
    with opened(port) as one:
        one.sendall(REQUEST * 3 + last.replace(b"Host: x", b"Host: x\r\nConnection: close"))
        answers = all_of(one).split(b"HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == [b"200"] * 4
    assert [b'"top":3,"average":null,"coverage":null' in answer for answer in answers] == [False] * 3 + [True]


@pytest.mark.slow
@pytest.mark.errors
def test_a_body_longer_than_it_says_is_no_second_answer(port):
    with opened(port) as one:
        one.sendall(head(len(FORM)) + FORM + b"<html>")
        first, *others = [answer[:3] for answer in all_of(one).split(b"HTTP/1.1 ")[1:]]
    assert first in (b"200", b"400") and set(others) <= {b"400", b"408"}


def test_work_for_a_client_that_went_away_is_dropped(service, port):
    """While the model is busy with one request, another one is sent and given up: the model never sees it."""
    go, seen, answer = threading.Event(), [], service.batcher._answer

    def slow(queries):
        seen.append([query.choice.top for query in queries])
        assert go.wait(20)
        return answer(queries)

    service.batcher._answer = slow
    with opened(port) as first, opened(port) as third:
        first.sendall(REQUEST)
        wait_for(lambda: seen == [[1]])
        with opened(port) as second:
            second.sendall(REQUEST.replace(b"?top=1", b"?top=2"))
            wait_for(lambda: service.batcher.waiting == 1)
        wait_for(lambda: service.admission.requests.used == 1)  # the first one
        third.sendall(REQUEST.replace(b"?top=1", b"?top=3"))
        wait_for(lambda: service.batcher.waiting == 2)
        go.set()
        assert status(first.recv(65536)) == status(third.recv(65536)) == 200
    assert seen == [[1], [3]]
    wait_for(lambda: service.admission.bytes.used == 0 and service.admission.requests.used == 0)


def wait_for(condition) -> None:
    stop = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < stop
        time.sleep(0.01)


def test_a_client_that_does_not_read_is_cut_off(service, port):
    """The answers are more than the buffers of both ends hold."""
    body = FORM.replace(b"--b--\r\n", b"") * 64 + b"--b--\r\n"
    request = head(len(body)).replace(b"identify?top=1", b"identify/batch?top=6") + body
    one = opened(port)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    one.settimeout(0.2)
    try:
        for _ in range(200):
            one.sendall(request)
    except (TimeoutError, ConnectionError):
        pass
    wait_for(lambda: service.admission.requests.used == 0)
    one.close()
    assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
