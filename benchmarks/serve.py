"""The server beside calling the model directly: throughput, latency, overload, and its end.

A process of its own serves the network of the demo (150 classes, images of 32 x 32) at an address of this
machine; the clients are tasks of this process, which send finished bytes and read answers. Cores are shared.
Direct is ``Model.short_lists`` of the same encoded images in batches of 64, on one thread, as ``shortlist
predict`` does; all are measured in turns in one run.
"""

import argparse
import asyncio
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
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


def direct(model: Model, images: list[bytes], seconds: float) -> tuple[float, float]:
    """Images per second in batches, and the median milliseconds of one image alone."""
    torch.set_num_threads(1)
    opened = lambda some: [Image.open(io.BytesIO(image)) for image in some]  # noqa: E731
    model.short_lists(opened(images[:BATCH]), at_least=20)
    done, start = 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        model.short_lists(opened(images[:BATCH]), at_least=20)
        done += BATCH
    rate = done / (time.perf_counter() - start)
    alone = []
    for image in images[:50]:
        start = time.perf_counter()
        model.short_lists(opened([image]), at_least=20)
        alone.append(1e3 * (time.perf_counter() - start))
    return rate, median(alone)


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

    def line(self, images: int = 1) -> str:
        """Return rate and latency as text."""
        rate = images * self.statuses[200] / self.seconds
        p99 = quantiles(self.accepted, n=100)[98] if len(self.accepted) > 1 else float("nan")
        return f"{rate:7.0f} images/s, p50 {median(self.accepted):6.1f} ms, p99 {p99:6.1f} ms"


async def client(
    port: int, requests: list[bytes], stop: float, load: Load, *, until_closed: bool = False
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    number = 0
    try:
        while time.perf_counter() < stop:
            start = time.perf_counter()
            writer.write(requests[number % len(requests)])
            status, closes = await answer(reader)
            load.statuses[status] += 1
            if status == 200:
                load.accepted.append(1e3 * (time.perf_counter() - start))
            number += 1
            if closes and not until_closed:
                writer.close()
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            elif closes:
                return
            if status == 503:
                await asyncio.sleep(0.02)  # a client that heeds Retry-After would wait longer
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        partial = getattr(error, "partial", b"")
        load.lost += not until_closed or bool(partial)
    finally:
        writer.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bool]:
    """Read one answer: its status, and whether the connection ends with it."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head.split()[1]), b"connection: close" in head


def load_of(port: int, requests: list[bytes], clients: int, seconds: float) -> Load:
    load = Load()

    async def run() -> None:
        start = time.perf_counter()
        stop = start + seconds
        await asyncio.gather(*(client(port, requests[i:] + requests[:i], stop, load) for i in range(clients)))
        load.seconds = time.perf_counter() - start

    asyncio.run(run())
    return load


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

    def end(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def compare_loads(model: Model, folder: Path, seconds: float) -> None:
    images = some_images(256)
    server = Server(folder)
    single = [request_bytes("/v1/identify", [image]) for image in images]
    several = [request_bytes("/v1/identify/batch", images[i : i + 32]) for i in range(0, 256, 32)]
    load_of(server.port, single, 8, 1.0)  # to warm up
    rate, alone = direct(model, images, seconds)
    print(f"direct, batches of {BATCH}: {rate:7.0f} images/s; one image alone {alone:.1f} ms", flush=True)
    for clients in (1, 8, 64):
        load = load_of(server.port, single, clients, seconds)
        print(f"identify, {clients:3} clients:  {load.line()}", end="")
        more = f"; added to one alone: {median(load.accepted) - alone:.1f} ms" if clients == 1 else ""
        print(f"; {load.statuses[200] / load.seconds / rate:.0%} of direct{more}", flush=True)
    for clients in (1, 8, 64):
        load = load_of(server.port, several, clients, seconds)
        again, _ = direct(model, images, seconds / 2)
        share = 32 * load.statuses[200] / load.seconds / again
        print(f"batch of 32, {clients:2} clients: {load.line(32)}; {share:.0%} of direct", flush=True)
    print(f"ends with {server.end()}")


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
    load = Load()

    async def run() -> None:
        stop = time.perf_counter() + 20
        tasks = [
            asyncio.create_task(client(server.port, single, stop, load, until_closed=True)) for _ in range(64)
        ]
        await asyncio.sleep(1.5)
        server.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*tasks)

    asyncio.run(run())
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
