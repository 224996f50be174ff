"""The server beside calling the model directly: throughput, latency, overload, and its end.

A process of its own serves the network of the demo (150 classes, images of 32 x 32) at an address of this
machine. The clients are plain sockets of this process, which send finished bytes and look at no more of an
answer than its status and its length. Three things are done directly, on one thread, in batches of 64:

- the network: scores of inputs that are ready;
- the lists: ``Model.short_lists`` of the same encoded images, 20 classes each, as ``shortlist predict`` does;
- the same work: all that the server does for an image but HTTP and the queue: decoding with its limits, the
  answer with promise and steps of the control, and its JSON.

Direct calls and loads take turns in one run. Times are by the clock and of the processor: server, clients and
whatever else runs share the cores, and the clock counts the waiting for them.
"""

import argparse
import gc
import io
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import torch
from PIL import Image

from shortlist import ClassTable, Model, Preprocessing
from shortlist.model import CalibrationSummary
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.predictors import Conformal
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.serve.decoding import decode
from shortlist.serve.exchange import Query
from shortlist.serve.service import Service

CLASSES, SIDE, BATCH = 150, 32, 64


def demo_model() -> Model:
    """A model of the demo's shape; its weights are random, which costs the same."""
    torch.manual_seed(0)
    table = ClassTable([f"class {i}" for i in range(CLASSES)], counts=range(1, CLASSES + 1))
    score_map = ScoreMap(CLASSES, contains=PriorRecord.training(table.class_counts))
    spec = NetworkSpec(name="small_cnn", num_classes=CLASSES, input_shape=(1, SIDE, SIDE))
    network = build_network(spec)
    scores = 3 * torch.randn(1000, CLASSES)
    target = torch.multinomial(scores.softmax(1), 1).squeeze(1)
    return Model.from_parts(
        network,
        table,
        preprocessing=Preprocessing(
            height=SIDE, width=SIDE, resize=None, mean=(0.5,), std=(0.25,), color="L"
        ),
        score_map=score_map,
        predictors={"conformal90": Conformal(coverage=0.9).calibrate(scores, target)},
        spec=spec,
        about={"name": "benchmark"},
        summary=CalibrationSummary.of_rows(scores, target, score_map, table),
    )


def some_images(number: int) -> list[bytes]:
    found = []
    for _ in range(number):
        file = io.BytesIO()
        Image.fromarray(torch.randint(256, (SIDE, SIDE), dtype=torch.uint8).numpy()).save(file, "PNG")
        found.append(file.getvalue())
    return found


@dataclass
class Rate:
    """Images per second by the clock, and microseconds of the processor for each."""

    per_second: float
    processor: float


def rate_of(work: Callable[[], object], seconds: float) -> Rate:
    """Repeat some work on a batch for a while."""
    torch.set_num_threads(1)
    work()
    done, start, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() < start + seconds:
        work()
        done += BATCH
    return Rate(done / (time.perf_counter() - start), 1e6 * (time.process_time() - used) / done)


class Direct:
    """Calls without a server."""

    def __init__(self, model: Model, images: list[bytes]) -> None:
        self.model, self.images = model, images[:BATCH]
        self.inputs = model.prepare(map(self._opened, self.images))
        self.service = Service(model)

    @staticmethod
    def _opened(image: bytes) -> Image.Image:
        return Image.open(io.BytesIO(image))

    def network(self) -> None:
        """Score inputs that are ready."""
        self.model.scores(self.inputs)

    def lists(self) -> None:
        """Make the lists of encoded images."""
        self.model.short_lists(map(self._opened, self.images), at_least=20)

    def same_work(self) -> None:
        """Do all that the server does, but HTTP and the queue."""
        service = self.service
        queries = [Query(decode(image, self.model, service.limits)) for image in self.images]
        for answer in service.answerer.answer(queries):
            service.written(answer, start=0.0, images=1)

    def alone(self) -> float:
        """Milliseconds of one image alone, by the clock."""
        times = []
        for image in self.images[:50]:
            start = time.perf_counter()
            self.model.short_lists([self._opened(image)], at_least=20)
            times.append(1e3 * (time.perf_counter() - start))
        return median(times)


def request_bytes(path: str, images: list[bytes]) -> bytes:
    parts = b"".join(
        b'--b\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n' + image + b"\r\n"
        for image in images
    )
    body = parts + b"--b--\r\n"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass
class Load:
    """What came of some clients."""

    statuses: Counter = field(default_factory=Counter)
    accepted: list[float] = field(default_factory=list)
    lost: int = 0
    seconds: float = 0.0
    processor: float = 0.0

    def line(self, images: int = 1) -> str:
        """Return rate and latency as text."""
        rate = images * self.statuses[200] / self.seconds
        p99 = quantiles(self.accepted, n=100)[98] if len(self.accepted) > 1 else float("nan")
        return f"{rate:7.0f} images/s, p50 {median(self.accepted):6.1f} ms, p99 {p99:6.1f} ms"


class Client:
    """A connection that sends the next request as soon as the last one is answered."""

    def __init__(self, port: int, requests: list[bytes], first: int) -> None:
        self.port, self.requests, self.number = port, requests, first
        self.waits_until = 0.0
        self.connect()

    def connect(self) -> None:
        """Open a connection."""
        self.socket = socket.create_connection(("127.0.0.1", self.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.wanted = b"", 0

    def send(self) -> None:
        """Send the next request."""
        self.number += 1
        self.start, self.waits_until = time.perf_counter(), 0.0
        self.socket.sendall(self.requests[self.number % len(self.requests)])

    def receive(self) -> tuple[int, bool] | None:
        """Read on; at the end of an answer return its status, and whether the connection ends with it."""
        piece = self.socket.recv(1 << 18)
        if not piece:
            raise ConnectionError
        self.buffer += piece
        if not self.wanted:
            head, found, _ = self.buffer.partition(b"\r\n\r\n")
            if not found:
                return None
            self.head = head.lower()
            length = int(self.head.split(b"content-length:")[1].split(b"\r\n")[0])
            self.wanted = len(head) + 4 + length
        if len(self.buffer) < self.wanted:
            return None
        self.buffer, self.wanted = b"", 0
        return int(self.head.split(None, 2)[1]), b"connection: close" in self.head


def load_of(
    port: int,
    requests: list[bytes],
    clients: int,
    seconds: float,
    *,
    after: float | None = None,
    event: Callable[[], object] = lambda: None,
) -> Load:
    """Let clients ask for some seconds; ``event`` happens ``after`` some of them."""
    load, selector, ended = Load(), selectors.DefaultSelector(), False
    begun, used = time.perf_counter(), time.process_time()
    for first in range(clients):
        one = Client(port, requests, first)
        one.send()
        selector.register(one.socket, selectors.EVENT_READ, one)
    sleeping: list[Client] = []
    while selector.get_map() or sleeping:
        now = time.perf_counter() - begun
        if after is not None and not ended and now > after:
            ended = True
            event()
        for key, _ in selector.select(0.02 if after is not None or sleeping else None):
            turn(key.data, selector, sleeping, load, begun + seconds, may_close=ended)
        for one in [one for one in sleeping if one.waits_until < time.perf_counter()]:
            sleeping.remove(one)
            if time.perf_counter() < begun + seconds:
                one.connect()
                one.send()
                selector.register(one.socket, selectors.EVENT_READ, one)
    load.seconds, load.processor = time.perf_counter() - begun, time.process_time() - used
    return load


def turn(
    one: Client,
    selector: selectors.BaseSelector,
    sleeping: list[Client],
    load: Load,
    stop: float,
    *,
    may_close: bool,
) -> None:
    """Read what came for a client; if that was all of an answer, let it ask again."""
    try:
        found = one.receive()
        if found is None:
            return
        status, closes = found
        load.statuses[status] += 1
        if status == 200:
            load.accepted.append(1e3 * (time.perf_counter() - one.start))
        if status == 200 and not closes and time.perf_counter() < stop:
            one.send()
            return
        if not may_close and status == 503:  # a client that heeds Retry-After would wait longer
            one.waits_until = time.perf_counter() + 0.02
            sleeping.append(one)
    except ConnectionError:
        load.lost += not may_close or bool(one.buffer)
    selector.unregister(one.socket)
    one.socket.close()


class Server:
    """A server in a process of its own."""

    def __init__(self, model: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "shortlist",
            "serve",
            str(model),
            "--port",
            str(self.port),
            "--quiet",
        ]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen([*command, *options], env=environment, stderr=subprocess.DEVNULL)
        stop = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > stop:
                    raise RuntimeError("the server did not start") from None
                time.sleep(0.1)

    def processor(self) -> float:
        """Seconds of the processor that it took."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def compare_loads(model: Model, folder: Path, seconds: float) -> None:
    images = some_images(256)
    server, direct = Server(folder), Direct(model, images)
    gc.collect()
    gc.freeze()  # as the server does
    single = [request_bytes("/v1/identify", [image]) for image in images]
    several = [request_bytes("/v1/identify/batch", images[i : i + 32]) for i in range(0, 256, 32)]
    load_of(server.port, single, 8, 1.0)  # to warm up
    for name in ("network", "lists", "same_work"):
        rate = rate_of(getattr(direct, name), seconds / 2)
        print(
            f"direct, {name:9}  {rate.per_second:7.0f} images/s, processor {rate.processor:4.0f} us an image"
        )
    for name, requests, size in (("identify", single, 1), ("batch of 32", several, 32)):
        for clients in (1, 8, 64):
            before = [rate_of(work, seconds / 4) for work in (direct.lists, direct.same_work)]
            used = server.processor()
            load = load_of(server.port, requests, clients, seconds)
            used = server.processor() - used
            after = [rate_of(work, seconds / 4) for work in (direct.lists, direct.same_work)]
            print(f"{name}, {clients:2} clients: {load.line(size)}", end="")
            pairs = list(zip(before, after, strict=True))
            done = size * load.statuses[200]
            clock = [2 * done / load.seconds / (a.per_second + b.per_second) for a, b in pairs]
            work = [(a.processor + b.processor) / 2 / (1e6 * used / done) for a, b in pairs]
            print(f"; processor us an image: server {1e6 * used / done:.0f}", end="")
            print(f", clients {1e6 * load.processor / done:.0f}; of lists and of the same work: ", end="")
            print(
                f"{clock[0]:.0%}, {clock[1]:.0%} by the clock, {work[0]:.0%}, {work[1]:.0%} by the processor"
            )
            if clients == size == 1:
                print(
                    f"  added to one image alone: {median(load.accepted) - direct.alone():.1f} ms", flush=True
                )
    print(f"ends with {server.end()}", flush=True)


def overload(folder: Path, seconds: float) -> None:
    """More clients than are let in, four times over."""
    server = Server(folder, "--max-requests", "32", "--queue", "64")
    single = [request_bytes("/v1/identify", [image]) for image in some_images(64)]
    full = load_of(server.port, single, 32, seconds)
    over = load_of(server.port, single, 128, seconds)
    print(f"32 clients, as many as are let in: {full.line()}, {dict(full.statuses)}")
    print(f"128 clients:                       {over.line()}, {dict(over.statuses)}, lost {over.lost}")
    print(f"ends with {server.end()}", flush=True)


def end_under_load(folder: Path) -> None:
    """SIGTERM while 64 clients wait: every request that was begun is answered."""
    server = Server(folder)
    single = [request_bytes("/v1/identify", [image]) for image in some_images(64)]
    load = load_of(
        server.port, single, 64, 20, after=1.5, event=lambda: server.process.send_signal(signal.SIGTERM)
    )
    code = server.process.wait(60)
    print(f"SIGTERM under 64 clients: {dict(load.statuses)}, lost {load.lost}, ends with {code}")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=4.0, help="time of each measurement")
    seconds = options.parse_args().seconds
    with tempfile.TemporaryDirectory() as place:
        made, folder = demo_model(), Path(place) / "model"
        made.save(folder)
        compare_loads(made, folder, seconds)
        overload(folder, seconds)
        end_under_load(folder)
