"""The server beside calling the model directly: throughput, latency, overload, and its end.

Processes of their own serve the network of the demo (150 classes, images of 32 x 32) at an address of this
machine. The clients are plain sockets of this process; see ``serve_load.py``. Three things are done directly,
on one thread, in full batches of 64:

- the network: scores of inputs that are ready;
- the lists: ``Model.short_lists`` of the same encoded images, 20 classes each, as ``shortlist predict`` does;
- the same work: all that the server does for an image but HTTP and the queue: decoding with its limits, the
  answer with promise and steps of the control, and its JSON. This one also on two threads, and in two
  processes at a time, which is what two cores can do at most.

Clients that wait for their answers cannot fill a batch of 64: of n clients with one image each, at most n
images are there at a time, however fast the server is. So the same work is also done directly in batches as
large as the clients of a load can fill, and both shares are printed.

Direct calls and loads take turns in one run. Times are by the clock and of the processor: server, clients and
whatever else runs share the cores, and the clock counts the waiting for them.
"""

import argparse
import gc
import io
import multiprocessing
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from PIL import Image
from serve_load import Server, load_of, request_bytes

from shortlist import ClassTable, Model, Preprocessing
from shortlist.model import keep_rows
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
        calibration_rows=keep_rows(scores, target, score_map, table),
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

    def words(self) -> str:
        """Return both as text."""
        return f"{self.per_second:7.0f} images/s, processor {self.processor:4.0f} us an image"


def rate_of(work: Callable[[], object], seconds: float, *, images: int = BATCH) -> Rate:
    """Repeat some work on a batch of images for a while."""
    torch.set_num_threads(1)
    work()
    done, start, used = 0, time.perf_counter(), time.thread_time()
    while not done or time.perf_counter() < start + seconds:
        work()
        done += images
    return Rate(done / (time.perf_counter() - start), 1e6 * (time.thread_time() - used) / done)


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

    def same_work(self, images: int = BATCH) -> None:
        """Do all that the server does for a batch, but HTTP and the queue."""
        service = self.service
        queries = [Query(decode(image, self.model, service.limits)) for image in self.images[:images]]
        for answer in service.answerer.answer(queries):
            service.written(answer, "en", start=0.0, images=1)

    def alone(self) -> float:
        """Milliseconds of one image alone, by the clock."""
        times = []
        for image in self.images[:50]:
            start = time.perf_counter()
            self.model.short_lists([self._opened(image)], at_least=20)
            times.append(1e3 * (time.perf_counter() - start))
        return median(times)


_own: list[Direct] = []  # in a process that only calls directly


def _prepare(folder: Path) -> None:
    _own.append(Direct(Model.load(folder), some_images(BATCH)))


def _same_work(seconds: float) -> Rate:
    return rate_of(_own[0].same_work, seconds)


def together(rates: Iterable[Rate]) -> Rate:
    """Return the rate of what was done at the same time."""
    rates = list(rates)
    return Rate(sum(rate.per_second for rate in rates), sum(rate.processor for rate in rates) / len(rates))


def compare_loads(model: Model, folder: Path, seconds: float) -> None:
    """Print what is done directly, and what servers of one and of two processes do."""
    images = some_images(256)
    direct = Direct(model, images)
    gc.collect()
    gc.freeze()  # as the server does
    for name in ("network", "lists", "same_work"):
        print(f"direct, {name:9}  {rate_of(getattr(direct, name), seconds / 2).words()}")
    with ThreadPoolExecutor(2) as threads:
        both = together(threads.map(lambda _: rate_of(direct.same_work, seconds / 2), range(2)))
    print(f"direct, same_work on two threads   {both.words()}")
    with multiprocessing.get_context("spawn").Pool(2, _prepare, (folder,)) as pool:
        pool.map(_same_work, [0.5] * 2, chunksize=1)
        two = together(pool.map(_same_work, [seconds / 2] * 2, chunksize=1))
    print(f"direct, same_work in two processes {two.words()}", flush=True)
    for processes in (1, 2):
        # a queue that holds all that 64 clients send; that of a process may have to hold nearly all of it
        server = Server(folder, "--queue", "2048", processes=processes)
        load_of(
            server.port, [request_bytes("/v1/identify", [image]) for image in images], 8, 1.0
        )  # to warm up
        for size, path in ((1, "/v1/identify"), (32, "/v1/identify/batch")):
            requests = [request_bytes(path, images[i : i + size]) for i in range(0, 256, size)]
            for clients in (1, 8, 64):
                name = f"processes {processes}, images {size}, clients {clients}"
                compare(name, server, direct, two, (requests, size, clients), seconds)
        print(f"ends with {server.end()}", flush=True)
    refused = Server(folder)
    requests = [request_bytes("/v1/identify/batch", images[i : i + 32]) for i in range(0, 256, 32)]
    used, load = refused.processor(), load_of(refused.port, requests, 64, seconds)
    used = 1e6 * (refused.processor() - used) / (32 * load.statuses[200])
    print(f"64 clients, 32 images, a queue of 256: {load.line(32)}; processor {used:.0f} us an image")
    print(f"ends with {refused.end()}", flush=True)


def direct_rates(direct: Direct, most: int, seconds: float) -> list[Rate]:
    """Return what is done directly: the lists, the same work, and this in batches that can be filled."""
    found = [rate_of(work, seconds) for work in (direct.lists, direct.same_work)]
    if most < BATCH:
        return [*found, rate_of(lambda: direct.same_work(most), seconds, images=most)]
    return [*found, found[1]]


def compare(
    name: str,
    server: Server,
    direct: Direct,
    two: Rate,
    asked: tuple[list[bytes], int, int],
    seconds: float,
) -> None:
    """Print what a server does under a load, between two looks at what is done directly."""
    requests, size, clients = asked
    most = min(BATCH, size * clients)  # images that can be there at a time, and go into one batch
    before = direct_rates(direct, most, seconds / 4)
    used, batches = server.processor(), server.batches()
    load = load_of(server.port, requests, clients, seconds)
    used = server.processor() - used
    after = direct_rates(direct, most, seconds / 4)
    images, batches = (now - then for now, then in zip(server.batches(), batches, strict=True))
    done, rate = size * load.statuses[200], load.rate(size)
    lists, same, filled = ((a.per_second + b.per_second) / 2 for a, b in zip(before, after, strict=True))
    work = (before[1].processor + after[1].processor) / 2
    own, theirs = 1e6 * used / done, 1e6 * load.processor / done
    print(f"{name}: {load.line(size)}")
    print(f"  by the clock: {rate / same:.0%} of the same work on one thread in batches of {BATCH}", end="")
    print(f", {rate / filled:.0%} of it in batches of {most}, the largest that they can fill")
    print(f"  {rate / lists:.0%} of the lists, {rate / two.per_second:.0%} of the same work in two processes")
    print(
        f"  processor: server {own:.0f} us an image, {work / own:.0%} of it the same work; clients ", end=""
    )
    print(f"{theirs:.0f} us, {theirs / (own + theirs):.0%} of all; batches of {images / batches:.1f}")
    sys.stdout.flush()
    if clients == size == 1:
        alone, here = direct.alone(), median(load.accepted)
        print(
            f"  one image alone: {here:.1f} ms, directly {alone:.1f} ms, added {here - alone:.1f} ms",
            flush=True,
        )


def overload(folder: Path, seconds: float) -> None:
    """More clients than are let in, four times over."""
    server = Server(folder, "--max-requests", "32", "--queue", "64")
    single = [request_bytes("/v1/identify", [image]) for image in some_images(64)]
    full = load_of(server.port, single, 32, seconds)
    over = load_of(server.port, single, 128, seconds)
    print(f"32 clients, as many as are let in: {full.line()}, {dict(full.statuses)}")
    print(f"128 clients:                       {over.line()}, {dict(over.statuses)}, lost {over.lost}")
    print(f"ends with {server.end()}", flush=True)


def end_under_load(folder: Path, processes: int) -> None:
    """SIGTERM while 64 clients wait: every request that was begun is answered."""
    server = Server(folder, processes=processes)
    single = [request_bytes("/v1/identify", [image]) for image in some_images(64)]
    load = load_of(
        server.port, single, 64, 20, after=1.5, event=lambda: server.process.send_signal(signal.SIGTERM)
    )
    code = server.process.wait(60)
    answers = f"{dict(load.statuses)}, lost {load.lost}"
    print(f"SIGTERM, processes {processes}, 64 clients: {answers}, ends with {code}")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=4.0, help="time of each measurement")
    seconds = options.parse_args().seconds
    with tempfile.TemporaryDirectory() as place:
        made, folder = demo_model(), Path(place) / "model"
        made.save(folder)
        compare_loads(made, folder, seconds)
        overload(folder, seconds)
        for processes in (1, 2):
            end_under_load(folder, processes)
