"""Time from photos to lists, beside what this machine can do at best with these photos and this network.

Photos are made up, of 1,000 x 1,000 and of 4,000 x 3,000 pixels. The bound is what the two halves of the
work take alone, one after the other, each on all cores: to decode and resize the photos at the size that is
needed, and the network on inputs that are ready. Each command runs in a process of its own. The ratios are
its time without its start, which is measured on one photo, divided by the bound, and "with start" all of it.

    python benchmarks/photo_to_list.py                  # minutes
    python benchmarks/photo_to_list.py --number 200 --large 20 --network timm:efficientnet_lite0 --size 224
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import torch
from PIL import Image
from serve_load import request_bytes

from shortlist.class_table import ClassTable
from shortlist.model import Model
from shortlist.models import NetworkSpec, build_network
from shortlist.predictors import Conformal
from shortlist.preprocessing import Preprocessing, read_image
from shortlist.scores import PriorRecord, ScoreMap

CLASSES, DIFFERENT, BATCH = 30, 20, 32
SIZES = {"1000 x 1000": (1000, 1000), "4000 x 3000": (4000, 3000)}
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Spent:
    """What some work took: seconds of the clock, of the processor, and of the system in it."""

    clock: float
    user: float
    system: float

    @property
    def processor(self) -> float:
        """Seconds of all cores."""
        return self.user + self.system

    def less(self, other: "Spent") -> "Spent":
        """Return what is left without some other work."""
        return Spent(self.clock - other.clock, self.user - other.user, self.system - other.system)


def make_photos(folder: Path, number: int, size: tuple[int, int]) -> list[Path]:
    """Write smooth patches of color with noise, as JPEGs; a few different ones, again and again."""
    generator = np.random.default_rng(0)
    width, height = size
    paths = []
    for i in range(number):
        path = folder / f"{i % CLASSES:02d}" / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        if i >= DIFFERENT:
            shutil.copy(paths[i % DIFFERENT], path)
        else:
            coarse = Image.fromarray(
                generator.integers(0, 256, (height // 40, width // 40, 3), dtype=np.uint8)
            )
            pixels = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC)).astype(np.int16)
            pixels += generator.integers(-12, 13, (height, width, 1), dtype=np.int16)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=88)
        paths.append(path)
    return paths


def make_model(folder: Path, network: str, size: int) -> Model:
    """Save a model with random weights."""
    torch.manual_seed(0)
    spec = NetworkSpec(name=network, num_classes=CLASSES, input_shape=(3, size, size))
    table = ClassTable([f"{i:02d}" for i in range(CLASSES)], counts=[10] * CLASSES)
    score_map = ScoreMap(CLASSES, contains=PriorRecord.training(table.class_counts))
    scores, target = score_map(torch.randn(1000, CLASSES)), torch.randint(CLASSES, (1000,))
    rule = Preprocessing(height=size, width=size, resize=round(size / 0.875), mean=MEAN, std=STD)
    parts = {"conformal": Conformal(coverage=0.9).calibrate(scores, target)}
    Model.from_parts(
        build_network(spec, pretrained=False),
        table,
        preprocessing=rule,
        score_map=score_map,
        predictors=parts,
        spec=spec,
    ).save(folder)
    return Model.load(folder)


def spent_on(work: Callable[[], object]) -> Spent:
    """Measure some work in this process."""
    clock, before = time.perf_counter(), os.times()
    work()
    after = os.times()
    return Spent(time.perf_counter() - clock, after.user - before.user, after.system - before.system)


def bounds(model: Model, paths: Sequence[Path]) -> tuple[Spent, Spent, Spent]:
    """Measure decoding at full size, decoding at the size that is needed, and the network."""
    rule = model.preprocessing
    assert rule is not None
    inputs = rule.normalized(torch.stack([rule.bytes_of_file(paths[0])] * BATCH))
    some = paths[: max(1, len(paths) // 4)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        whole = spent_on(lambda: list(pool.map(lambda path: rule.bytes_of(read_image(path)), some)))
        list(pool.map(rule.bytes_of_file, paths[:BATCH]))
        scaled = spent_on(lambda: sum(len(part) for part in pool.map(rule.bytes_of_file, paths)))
    model.scores(inputs)
    network = spent_on(lambda: [model.scores(inputs) for _ in range(0, len(paths), BATCH)])
    times = len(paths) / len(some)
    return Spent(whole.clock * times, whole.user * times, whole.system * times), scaled, network


def run(*arguments: object) -> Spent:
    """Measure a command."""
    clock = time.perf_counter()
    command = [sys.executable, "-m", "shortlist", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        words = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command} failed: {words.decode()[-2000:]}")
    return Spent(time.perf_counter() - clock, used.ru_utime, used.ru_stime)


def measured(command: str, model: Path, photos: Path, one: Path, out: Path) -> tuple[Spent, Spent]:
    """Measure a command on one photo, and on all."""
    verbs: dict[str, Callable[[Path, Path], Sequence[object]]] = {
        "predict": lambda where, to: ("predict", model, where, "--out", f"{to}.csv"),
        "embed": lambda where, to: ("embed", model, where, "--out", to, "--workers", 1),
        "index": lambda where, to: ("index", model, "--images", where, "--out", to, "--workers", 1),
        "score": lambda where, to: ("score", model, where, "--out", to, "--workers", 1),
    }
    arguments = verbs[command]
    return run(*arguments(one, out / f"{command}-one")), run(*arguments(photos, out / command))


def serve(model: Path, paths: Sequence[Path], clients: int) -> Spent:
    """Measure photos that are sent to a server of two processes by some clients; no start is in it."""
    command = [sys.executable, "-m", "shortlist", "serve", str(model), "--processes", "2", "--port", "8763"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait("http://127.0.0.1:8763/v1/model")

            def send(path: Path) -> None:
                body = request_bytes("/v1/identify", [path.read_bytes()]).partition(b"\r\n\r\n")[2]
                kind = {"Content-Type": "multipart/form-data; boundary=b"}
                with urlopen(Request("http://127.0.0.1:8763/v1/identify", body, kind)) as answer:
                    answer.read()

            with ThreadPoolExecutor(clients) as pool:
                list(pool.map(send, paths[:8]))
                spent = spent_on(lambda: list(pool.map(send, paths)))
        finally:
            server.send_signal(signal.SIGINT)
    return spent


def _wait(address: str) -> None:
    for _ in range(600):
        try:
            with urlopen(address, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"{address} does not answer")


def report(name: str, spent: Spent, bound: Spent, whole: Spent | None = None) -> None:
    """Print a line."""
    share = f"{spent.system / max(spent.processor, 1e-9):6.0%}"
    start = "" if whole is None else f"{whole.clock / bound.clock:9.2f}x with start"
    ratios = f"{spent.clock / bound.clock:6.2f}x {spent.processor / bound.processor:6.2f}x"
    print(f"{name:<22}{spent.clock:8.2f} {spent.processor:8.2f} {share} {ratios}{start}", flush=True)


def measure_size(
    name: str, number: int, model_folder: Path, model: Model, options: argparse.Namespace
) -> None:
    """Print all lines for photos of one size."""
    with tempfile.TemporaryDirectory() as temporary:
        photos, one, out = (Path(temporary, part) for part in ("photos", "one", "out"))
        paths = make_photos(photos, number, SIZES[name])
        make_photos(one, 1, SIZES[name])
        out.mkdir()
        whole, scaled, network = bounds(model, paths)
        bound = Spent(*(getattr(scaled, key) + getattr(network, key) for key in ("clock", "user", "system")))
        load = os.getloadavg()[0]
        print(f"\n{number} photos of {name} pixels, {os.cpu_count()} cores, load {load:.1f}")
        print(f"{'':<22}{'clock s':>8} {'cpu s':>8} {'system':>6} {'clock':>7} {'cpu':>7}")
        for part, spent in (("decode, full size", whole), ("decode, scaled", scaled), ("network", network)):
            report(part, spent, bound)
        report("bound: both", bound, bound)
        for command in options.only:
            if command == "serve":
                report("serve --processes 2", serve(model_folder, paths, options.clients), bound)
            else:
                start, full = measured(command, model_folder, photos, one, out)
                report(command, full.less(start), bound, full)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=1000, help="photos of 1,000 x 1,000 pixels")
    parser.add_argument("--large", type=int, default=100, help="photos of 4,000 x 3,000 pixels")
    parser.add_argument("--network", default="small_cnn")
    parser.add_argument("--size", type=int, default=64, help="side of the network's inputs")
    parser.add_argument("--clients", type=int, default=4)
    every = ["predict", "embed", "index", "score", "serve"]
    parser.add_argument("--only", nargs="+", choices=every, default=every)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "model")
        model = make_model(folder, options.network, options.size)
        for name, number in zip(SIZES, (options.number, options.large), strict=True):
            if number:
                measure_size(name, number, folder, model, options)


if __name__ == "__main__":
    main()
