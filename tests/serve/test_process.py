"""The command itself, in a process of its own, at an address of this machine."""

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from PIL import Image
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from shortlist import ClassTable, Model
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.predictors import TopK
from shortlist.scores import PriorRecord, ScoreMap
from tests.serve.parts import PREPARE, encoded, files, png
from tests.serve.running import running
from tests.serve.test_bad_uploads import REFUSED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    table = ClassTable(("a", "b", "c"), counts=(10, 10, 10))
    spec = NetworkSpec(name="linear", num_classes=3, input_shape=(1, 2, 2))
    model = Model.from_parts(
        build_network(spec),
        table,
        preprocessing=PREPARE,
        score_map=ScoreMap(3, contains=PriorRecord.training(table.class_counts)),
        predictors={"top1": TopK(1)},
        spec=spec,
    )
    path = tmp_path_factory.mktemp("served") / "model"
    model.save(path)
    return path


class Server:
    def __init__(
        self, folder: Path, place: Path, *options: str, program: tuple[str, str] = ("-m", "shortlist")
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = place / "server.log"
        command = [
            sys.executable,
            *program,
            "serve",
            str(folder),
            "--port",
            str(self.port),
            *options,
        ]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, cwd=place)
        self.address = f"http://127.0.0.1:{self.port}"
        stop = time.monotonic() + 180  # other tests may run beside it
        while time.monotonic() < stop and self.process.poll() is None:
            try:
                if httpx.get(f"{self.address}/ready").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError(self.log.read_text())

    def peak_megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


@pytest.fixture
def server(folder, tmp_path):
    started = Server(folder, tmp_path)
    yield started
    if started.process.poll() is None:
        started.process.kill()
    started.process.wait()


def begun(port: int, body: bytes) -> socket.socket:
    """A connection that has sent the head of a request and a part of its body."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    head = (
        "POST /v1/identify HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection.sendall(head.encode() + body[:40])
    return connection


def test_what_was_begun_is_answered_at_sigterm(server):
    part = b'--b\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'
    body = part + png(1) + b"\r\n--b--\r\n"
    connections = [begun(server.port, body) for _ in range(40)]
    stop = time.monotonic() + 20
    while "shortlist_requests_under_way 40" not in httpx.get(f"{server.address}/metrics").text:
        assert time.monotonic() < stop
        time.sleep(0.05)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{server.address}/health")  # nobody new is let in
    for connection in connections:
        connection.sendall(body[40:])
    for connection in connections:
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"}")
        connection.close()
    assert server.process.wait(30) in (0, -signal.SIGTERM)
    assert "Traceback" not in server.log.read_text()


def test_memory_is_bounded_whatever_is_sent(server):
    httpx.post(f"{server.address}/v1/identify", files=files(png(1)))
    before = server.peak_megabytes()

    def send(content: bytes) -> int:
        return httpx.post(f"{server.address}/v1/identify", files=files(content), timeout=120).status_code

    bad = [content for content, _, _ in REFUSED.values()] * 8
    with ThreadPoolExecutor(8) as clients:
        assert all(400 <= status < 500 for status in clients.map(send, bad))
    after_bad = server.peak_megabytes()
    assert after_bad - before < 150
    large = encoded(Image.new("L", (7000, 7000), 99), "PNG")  # 49 million pixels
    with ThreadPoolExecutor(8) as clients:
        assert set(clients.map(send, [large] * 8)) == {200}
    # two are decoded at a time: gray, then in colors, at 4 bytes a pixel at most
    assert server.peak_megabytes() - after_bad < 2 * 49 * 8 + 100
    peak = server.peak_megabytes()
    print(f"MB: {before:.0f} at rest, {after_bad:.0f} after bad ones, {peak:.0f} after large ones")


def test_overload_is_answered_by_503_alone(folder, tmp_path):
    server = Server(folder, tmp_path, "--max-requests", "4", "--queue", "8")

    def send(number: int) -> tuple[int, str | None]:
        answer = httpx.post(f"{server.address}/v1/identify", files=files(png(number)), timeout=60)
        return answer.status_code, answer.headers.get("retry-after")

    try:
        with ThreadPoolExecutor(32) as clients:
            answers = list(clients.map(send, range(200)))
        assert {status for status, _ in answers} <= {200, 503}
        assert all(retry == "1" for status, retry in answers if status == 503)
        assert sum(status == 200 for status, _ in answers) >= 4
        assert httpx.get(f"{server.address}/ready").status_code == 200
    finally:
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(30)


def test_a_folder_that_is_no_model_is_refused_in_a_line(tmp_path):
    command = [sys.executable, "-m", "shortlist", "serve", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "is not a folder with a saved model" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_memory_does_not_grow_with_the_number_of_requests(server):
    contents = [png(1), png(2, (300, 200)), b"no image", png(3)[:40]]

    def send(number: int) -> int:
        some = files(*([contents[number % 4]] * (1 + number % 5)))
        path = "/v1/identify/batch" if number % 3 else "/v1/identify"
        options = {"top": 1 + number % 3, "limit": 1 + number % 100}
        return client.post(f"{server.address}{path}", params=options, files=some).status_code

    def resident() -> float:
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024

    with httpx.Client(timeout=60) as client, ThreadPoolExecutor(8) as clients:
        list(clients.map(send, range(500)))
        before = resident()
        statuses = set(clients.map(send, range(2000)))
    assert statuses <= {200, 415, 422}
    print(f"MB: {before:.0f} after 500 requests, {resident():.0f} after 2,500")
    assert resident() - before < 20


def test_a_model_that_is_replaced_changes_nothing_until_the_next_start(folder, tmp_path):
    own = tmp_path / "own"
    shutil.copytree(folder, own)
    server = Server(own, tmp_path)
    try:
        before = httpx.post(f"{server.address}/v1/identify", files=files(png(1))).json()
        shutil.rmtree(own)
        own.mkdir()
        (own / "model.json").write_text("{}")
        after = httpx.post(f"{server.address}/v1/identify", files=files(png(1))).json()
        assert {**after, "seconds": 0} == {**before, "seconds": 0}
        assert httpx.get(f"{server.address}/v1/model").status_code == 200
    finally:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) in (0, -signal.SIGTERM)


def test_the_options_for_clients_of_plantnets_api(folder, tmp_path):
    async def photo(_):
        return Response(png(), media_type="image/png")

    with running(Starlette(routes=[Route("/leaf.png", photo)])) as photos:
        hosts = ("--allow-urls", "photos.example", "--allow-urls", photos.removeprefix("http://"))
        server = Server(folder, tmp_path, "--any-project", *hosts)
        try:
            place = f"{server.address}/v2/identify/k-world-flora"
            answer = httpx.get(place, params={"images": f"{photos}/leaf.png"})
            assert answer.status_code == 200 and answer.json()["query"]["images"] == [f"{photos}/leaf.png"]
            other = httpx.get(place, params={"images": "http://127.0.0.1:1/leaf.png"})
            assert other.status_code == 400 and "may not ask its host" in other.json()["message"]
        finally:
            server.process.kill()
            server.process.wait()
    command = [
        sys.executable,
        "-m",
        "shortlist",
        "serve",
        str(folder),
        "--allow-urls",
        "http://photos.example",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert ended.returncode == 2 and "allow_urls must be names of hosts" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_checklist_is_an_option(folder, tmp_path):
    (tmp_path / "names.csv").write_text("id,name\n1,Quercus robur L.\n2,a\n")
    server = Server(folder, tmp_path, "--names", str(tmp_path / "names.csv"))
    try:
        body = httpx.get(f"{server.address}/v1/names", params={"q": "querc"}).json()
        assert body["total"] == 2 and [one["id"] for one in body["names"]] == ["1"]
    finally:
        server.process.kill()
        server.process.wait()
