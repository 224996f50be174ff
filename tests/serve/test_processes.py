"""``shortlist serve --processes``: several processes behind one address, watched by their parent."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from shortlist.feedback.doctor import examine_store
from shortlist.feedback.store import read_events
from shortlist.releases import Releases
from tests.serve.parts import files, png, receipt_of
from tests.serve.test_process import Server, begun, folder as folder

pytestmark = pytest.mark.slow
TWO = ("--processes", "2")


def wait_until(is_so, seconds: float = 180) -> None:
    stop = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < stop
        time.sleep(0.1)


def serving(server: Server) -> set[str]:
    """The numbers of the processes that tell their counters."""
    try:
        return set(re.findall(r'pid="(\d+)"', httpx.get(f"{server.address}/metrics").text))
    except httpx.TransportError:
        return set()


def children(server: Server) -> list[int]:
    """The processes that serve: all below the parent but the one that cleans up after it."""
    pid = server.process.pid
    found = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [one for one in found if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]


@pytest.fixture
def start(folder, tmp_path):
    started = []

    def begin(model: Path = folder, **options) -> Server:
        started.append(Server(model, tmp_path, *TWO, **options))
        wait_until(lambda: len(re.findall(r"process \d+ serves", started[-1].log.read_text())) == 2)
        return started[-1]

    yield begin
    for server in started:
        server.process.terminate()
        server.process.wait(120)


def test_both_answer_and_people_s_answers_are_in_one_store(start, tmp_path):
    server = start()
    post, ids = httpx.post, []

    def ask(number: int) -> tuple[list, bool]:
        """Ask and answer over new connections, which go to one process or the other."""
        got = post(f"{server.address}/v1/identify?receipt=true", files=files(png(1)), timeout=60).json()
        said = {"verb": "none_of_these", "receipt": got["receipt"], "id": f"r{number}", "person": "p"}
        kept = post(f"{server.address}/v1/feedback", json=said, timeout=60)
        assert kept.status_code == 201, kept.text
        ids.append(kept.json()["number"])
        return got["candidates"], kept.json()["new"]

    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(ask, range(60)))
    assert all(candidates == answers[0][0] and new for candidates, new in answers)
    assert sorted(ids) == list(range(1, 61)) and len(list(read_events(tmp_path / "feedback"))) == 60
    receipt = receipt_of(post, address=server.address, timeout=60)
    again = {"verb": "do_not_know", "receipt": receipt, "id": "r7"}
    statuses = {post(f"{server.address}/v1/feedback", json=again).status_code for _ in range(8)}
    assert statuses == {409}  # whichever process is asked
    assert httpx.get(f"{server.address}/v1/feedback/stats").json()["events"] == 60

    counted = 'shortlist_requests_total{route="/v1/identify",status="200"} 61.0'
    assert all(counted in httpx.get(f"{server.address}/metrics").text for _ in range(8))
    server.process.terminate()
    assert server.process.wait(120) == 0
    assert examine_store(tmp_path / "feedback") == [] and "Traceback" not in server.log.read_text()


PART = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'
BODY = PART + png(1) + b"\r\n--b--\r\n"


def begin_requests(server: Server, number: int) -> list[socket.socket]:
    """Connections with requests of which a part was sent, and all of which are worked on."""
    connections = [begun(server.port, BODY) for _ in range(number)]

    def under_way() -> int:
        text = httpx.get(f"{server.address}/metrics").text
        return sum(map(int, re.findall(r'requests_under_way{pid="\d"} (\d+)', text)))

    wait_until(lambda: under_way() == number)
    return connections


def finish_requests(connections: list[socket.socket]) -> None:
    """Send the rest, and check the answers."""
    for connection in connections:
        connection.sendall(BODY[40:])
    for connection in connections:
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
            if answer.endswith(b"}"):
                break
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"}")
        connection.close()


@pytest.mark.parametrize("to_all", [False, True])  # as a terminal does, and a manager of services
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_begun_is_answered_at_the_end(start, number, to_all):
    server = start()
    connections = begin_requests(server, 40)
    for one in [server.process.pid, *(children(server) if to_all else [])]:
        os.kill(one, number)
    time.sleep(0.5)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{server.address}/health")  # nobody new is let in
    finish_requests(connections)
    assert server.process.wait(120) == 0
    assert "Traceback" not in server.log.read_text()


def test_a_second_sigint_does_not_wait_for_what_was_begun(start):
    server = start()
    connections = begin_requests(server, 4)
    server.process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(20) == 0  # and not the 30 s that bodies may take
    assert "works: it is killed" in server.log.read_text()
    for connection in connections:
        connection.close()


def test_a_process_that_is_told_to_end_or_killed_while_it_starts_is_replaced(start):
    server = start()
    connections, before = begin_requests(server, 20), children(server)
    os.kill(before[0], signal.SIGTERM)
    time.sleep(0.5)
    finish_requests(connections)  # it ends when it has answered
    wait_until(lambda: set(children(server)) - set(before))
    (new,) = set(children(server)) - set(before)
    os.kill(new, signal.SIGKILL)  # it is still loading
    wait_until(lambda: len(set(children(server)) - {*before, new}) == 1)
    wait_until(lambda: serving(server) == {"0", "1"})
    for _ in range(8):
        assert httpx.post(f"{server.address}/v1/identify", files=files(png(1))).status_code == 200
    log = server.log.read_text()
    assert "ended with code -15: another one" in log and "ended with code -9: another one" in log


def test_no_answer_that_was_acknowledged_is_lost(start, tmp_path):
    """People answer all the time, while one process is killed, and then the server is told to end."""
    server, ended, kept = start(), threading.Event(), []
    receipt = receipt_of(httpx.post, address=server.address, timeout=60)

    def answer(person: int) -> None:
        number = 0
        while not ended.is_set():
            said = {"verb": "do_not_know", "receipt": receipt, "person": f"{person}-{number}"}
            try:
                if httpx.post(f"{server.address}/v1/feedback", json=said, timeout=60).status_code == 201:
                    kept.append(said["person"])
            except httpx.TransportError:
                pass  # it may be kept, or not: nobody said so
            number += 1

    with ThreadPoolExecutor(6) as people:
        jobs = [people.submit(answer, person) for person in range(6)]
        try:
            wait_until(lambda: len(kept) > 30)
            os.kill(children(server)[0], signal.SIGKILL)
            before = len(kept)
            wait_until(lambda: len(kept) > before + 30)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(120) == 0
        finally:
            ended.set()
        for job in jobs:
            job.result()
    written = [one.person for one in read_events(tmp_path / "feedback")]
    assert len(set(written)) == len(written) and set(kept) <= set(written)
    assert len(kept) > 60 and examine_store(tmp_path / "feedback") == []


def test_a_process_that_dies_is_replaced_but_not_for_ever(start):
    # five deaths, however long they take on a busy machine
    always = "import shortlist.serve.processes as p; p._WITHIN = 1e6; from shortlist.cli import main; main()"
    server = start(program=("-c", always))
    for death in range(4):
        before = children(server)
        os.kill(before[death % 2], signal.SIGKILL)
        wait_until(lambda before=before: len(children(server)) == 2 and children(server) != before)
        wait_until(lambda: serving(server) == {"0", "1"})
        assert httpx.post(f"{server.address}/v1/identify", files=files(png(1))).status_code == 200
    os.kill(children(server)[0], signal.SIGKILL)
    assert server.process.wait(120) == 2
    log = server.log.read_text()
    assert log.count("ended with code -9: another one is started") == 4
    assert "shortlist: processes died 5 times within 1e+06 s, the last one with code -9" in log


def test_processes_end_with_their_parent(start, monkeypatch):
    with tempfile.TemporaryDirectory() as place:
        monkeypatch.setenv("TMPDIR", place)
        server = start()
        assert len(list(Path(place).glob("shortlist-*"))) == 1
        _kill_parent(server)
        assert not list(Path(place).glob("shortlist-*"))


def _kill_parent(server: Server) -> None:
    own = children(server)
    assert len(own) == 2
    server.process.kill()
    server.process.wait()
    wait_until(lambda: not any(Path(f"/proc/{one}").exists() for one in own))
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{server.address}/health")


def test_a_model_that_was_changed_is_not_served_beside_the_first(folder, start, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    server = start(own)
    description = own / "model.json"
    description.write_text(description.read_text() + "\n")
    os.kill(children(server)[0], signal.SIGKILL)
    assert server.process.wait(120) == 2
    assert f"{own}" in server.log.read_text().splitlines()[-1]


def test_both_follow_a_release(folder, start, tmp_path):
    place = Releases(tmp_path / "releases")
    first = place.add(folder, who="ann")
    server = start(tmp_path / "releases")

    def versions() -> set[str]:
        return {httpx.get(f"{server.address}/v1/model").json()["version"] for _ in range(20)}

    assert versions() == {first.version}
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    change_about(other)
    second = place.add(other, who="ann")
    assert second.version != first.version
    wait_until(lambda: versions() == {second.version})


def change_about(model: Path) -> None:
    """Save a model again under another name."""
    from shortlist import Model

    found = Model.load(model)
    found.about["name"] = "other"
    shutil.rmtree(model)
    found.save(model)


def test_what_cannot_start_is_told_in_a_line(folder, tmp_path):
    def said(*options: str) -> str:
        command = [sys.executable, "-m", "shortlist", "serve", *options, *TWO]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2
        return done.stderr.splitlines()[-1]

    assert "is not a folder with a saved model" in said(str(tmp_path), "--port", "0")
    place = Releases(tmp_path / "releases")
    shutil.rmtree(place.model_path(place.add(folder, who="ann")))
    assert "releases" in said(str(tmp_path / "releases"), "--port", "0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"127.0.0.1:{port} cannot be listened at" in said(str(folder), "--port", port)
    assert "--processes is for --engine local" in said(str(folder), "--engine", "ray")
