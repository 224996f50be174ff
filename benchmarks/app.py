"""An app in Chromium: its size, the time of lists on a slow processor, and whether they are those of Python.

``python benchmarks/app.py RUN``, where RUN is a run of glyphs such as ``runs/demo/cross_entropy``. The index
in RUN is part of the app if it is there. The browser is slowed down four times, as a phone of the middle
class is: its processes stand still for three quarters of the time. (The throttle of Chromium itself slows
down pages, and not the worker, which does most.) Starts are timed after the app was opened and used a few
times, so that the browser has kept its compiled code. Glyphs are of the test rows; photos are pieces of real
photos, for a network with random weights. Needs Chromium, and npm or ``--runtime FOLDER``.
"""

import argparse
import base64
import functools
import http.server
import io
import os
import shutil
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fastapi.testclient import TestClient
from PIL import Image
from playwright.sync_api import Page, sync_playwright
from torch import nn

from shortlist import ClassTable, Model, Preprocessing
from shortlist.app import write_app
from shortlist.datasets import row_image
from shortlist.model import Choice, export_lists, keep_rows
from shortlist.recipes import build_data
from shortlist.runs import Run
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.serve.app import make_app
from shortlist.serve.service import Service

CHOICES = {
    "coverage=0.9&at_least=1": Choice(coverage=0.9, at_least=1),
    "average=3": Choice(average=3),
    "top=5": Choice(top=5),
}
TURNS = 20  # photos that are timed
STARTS = 4  # of an app that is used, before its starts are timed
SLOWER = 4
PULSE = 0.005  # seconds in which a slowed browser works
ASK = """async ([path, photo]) => {
    const { send } = await import("./send.js");
    const bytes = Uint8Array.from(atob(photo), (letter) => letter.charCodeAt(0));
    const body = new FormData();
    body.append("images", new Blob([bytes]), "photo");
    const answer = await (await send(path, { body })).json();
    return answer.candidates.map((one) => [one.id, one.probability, one.in_set]);
}"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Gives files, and says nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def opened(folder: Path) -> Iterator[Page]:
    """Open an app, and wait until the browser keeps it."""
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as profile:
        # with a profile, as on a phone: without one, the browser keeps no code that it has compiled
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        yield page
        context.close()
    server.shutdown()


def png(image: Image.Image) -> bytes:
    """Return an image as the bytes of a PNG."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def glyphs(run: Run, number: int) -> list[bytes]:
    """Return test rows of a run as files."""
    split = build_data(run.recipe).test
    return [png(row_image(split, row)) for row in range(number)]


def photos(number: int, seed: int) -> list[bytes]:
    """Return pieces of real photos, of many sizes, as JPEG files."""
    from sklearn.datasets import load_sample_images

    generator, pieces = np.random.default_rng(seed), []
    sources = [Image.fromarray(image) for image in load_sample_images().images]
    for turn in range(number):
        source = sources[turn % len(sources)]
        width, height = (int(generator.integers(60, side)) for side in source.size)
        left, top = (
            int(generator.integers(0, side - used + 1))
            for side, used in zip(source.size, (width, height), strict=True)
        )
        file = io.BytesIO()
        source.crop((left, top, left + width, top + height)).save(file, "JPEG", quality=90)
        pieces.append(file.getvalue())
    return pieces


def photo_model(classes: int = 40) -> Model:
    """Return a network with random weights, calibrated on photos whose classes are drawn from its scores."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 24, 5, stride=2), nn.ReLU(), nn.Conv2d(24, 48, 3, stride=2), nn.ReLU())
    head = nn.Linear(432, classes)
    network = nn.Sequential(body, nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.BatchNorm1d(432), head)
    prepare = Preprocessing(
        height=112, width=112, resize=128, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
    )
    table = ClassTable(names=tuple(f"kind {number}" for number in range(classes)), counts=(50,) * classes)
    score_map = ScoreMap(classes, contains=PriorRecord.training(table.class_counts))
    inputs = torch.stack([prepare(Image.open(io.BytesIO(photo))) for photo in photos(400, seed=1)])
    with torch.no_grad():
        for _ in range(50):
            network(inputs)  # which sets the means of the normalization
        head.weight.mul_(4)
    scores = Model.from_parts(network, table, score_map=score_map).scores(inputs).clone()
    target = torch.multinomial(scores.softmax(1), 1).squeeze(1)
    rows = keep_rows(scores, target, score_map, table)
    return Model.from_parts(network, table, preprocessing=prepare, score_map=score_map, calibration_rows=rows)


def agreement(name: str, model: Model, page: Page, pictures: Sequence[bytes]) -> None:
    """Print how often the lists of Python, of a server and of the app are the same."""
    service = Service(model)
    images = [Image.open(io.BytesIO(content)) for content in pictures]
    with TestClient(make_app(service), base_url="http://127.0.0.1") as client:
        for options, choice in CHOICES.items():
            path = f"/v1/identify?{options}&limit=100"
            same = {"app": 0, "server": 0}
            largest = {"app": 0.0, "server": 0.0}
            lists = model.short_lists(images, choice, at_least=len(model.classes))
            for content, made in zip(pictures, lists, strict=True):
                answer = client.post(path, files={"images": content}).json()["candidates"]
                others = {"server": [(c["id"], c["probability"], c["in_set"]) for c in answer]}
                others["app"] = page.evaluate(ASK, [path, base64.b64encode(content).decode()])
                ours = {candidate.id: candidate.probability for candidate in made}
                inside = {candidate.id for candidate in made if candidate.in_set}
                for whose, listed in others.items():
                    same[whose] += {id for id, _, is_in in listed if is_in} == inside
                    apart = (abs(ours[id] - probability) for id, probability, _ in listed)
                    largest[whose] = max(largest[whose], *apart)
            for whose, count in same.items():
                share = f"{count} of {len(pictures)} lists as in Python"
                print(
                    f"{name:7s} {options:24s} {whose:6s} {share}, probabilities within {largest[whose]:.1e}",
                    flush=True,
                )
    service.close()


def timed(page: Page, contents: Sequence[bytes]) -> None:
    """Print how long lists take on a slowed processor: the first after a start, and the next ones."""
    page.context.set_offline(True)
    processes = Processes(page)
    for content in contents[:STARTS]:
        page.reload(wait_until="domcontentloaded")
        ask(page, content)
        page.wait_for_timeout(2500)  # in which the browser keeps the code that it has compiled
    for slower in (1, SLOWER):
        starts, nexts = [], []
        with processes.slowed(slower):
            for turn in range(5):
                with processes.measured(starts):
                    page.reload(wait_until="domcontentloaded")
                    ask(page, contents[turn])
            for content in contents[:TURNS]:
                page.locator("#again, #clear").first.click()
                with processes.measured(nexts):
                    ask(page, content)
        load = f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        print(f"{slower} times slower ({load})")
        for name, pairs in (("first list after a start", starts), ("each next photo", nexts)):
            seconds, work = (sorted(values) for values in zip(*pairs, strict=True))
            print(f"{name}: {spread(seconds)}, in which the processor works {spread(work)}", flush=True)
    page.context.set_offline(False)


def spread(seconds: Sequence[float]) -> str:
    """Say a median with the shortest and the longest time, of an ascending list."""
    return f"{statistics.median(seconds):.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f})"


def ask(page: Page, content: bytes) -> None:
    """Give the page a photo, and wait until its list is there."""
    page.locator("#files").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": content})
    page.wait_for_selector("#result:not([aria-busy]) li.candidate")


class Processes:
    """The processes of a browser."""

    def __init__(self, page: Page) -> None:
        browser = page.context.browser
        assert browser is not None
        self.session = browser.new_browser_cdp_session()

    def seconds(self) -> dict[int, float]:
        """Return the processor's time of each process so far."""
        processes = self.session.send("SystemInfo.getProcessInfo")["processInfo"]
        return {each["id"]: each["cpuTime"] for each in processes}

    @contextmanager
    def measured(self, pairs: list[tuple[float, float]]) -> Iterator[None]:
        """Append the seconds that a block takes, and those in which the processor works for the browser."""
        before, start = self.seconds(), time.perf_counter()
        yield
        seconds = time.perf_counter() - start
        work = sum(now - before.get(number, 0.0) for number, now in self.seconds().items())
        pairs.append((seconds, work))

    @contextmanager
    def slowed(self, times: int) -> Iterator[None]:
        """Let all processes stand still so long that they are as many times slower."""
        numbers, done = list(self.seconds()), threading.Event()

        def stop_and_go() -> None:
            while not done.is_set():
                for kind, wait in ((signal.SIGSTOP, (times - 1) * PULSE), (signal.SIGCONT, PULSE)):
                    for number in numbers:
                        with suppress(ProcessLookupError):
                            os.kill(number, kind)
                    time.sleep(wait)

        thread = threading.Thread(target=stop_and_go, daemon=True)
        if times > 1:
            thread.start()
        try:
            yield
        finally:
            done.set()
            if times > 1:
                thread.join()


def built(folder: Path, model: Model, **options: Any) -> Path:
    """Export a model and make its app."""
    export_lists(model, folder / "bundle", version="benchmark")
    write_app(folder / "bundle", folder / "site", model=model, **options)
    return folder / "site"


def main() -> None:
    """Print sizes, times and agreement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--runtime", type=Path, help="folder with the files of onnxruntime-web")
    parser.add_argument("--glyphs", type=int, default=500)
    parser.add_argument("--photos", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(1)
    run, model = Run.open(given.run), Model.load(given.run)
    index = given.run / "index" if (given.run / "index").is_dir() else None
    with tempfile.TemporaryDirectory() as place:
        site = built(Path(place, "glyphs"), model, source=given.run, index=index, runtime=given.runtime)
        size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
        runtime = sum(file.stat().st_size for file in (site / "runtime").iterdir())
        print(
            f"size of the app: {size / 1e6:.1f} MB, of which the runtime {runtime / 1e6:.1f} MB", flush=True
        )
        pictures = glyphs(run, given.glyphs)
        with opened(site) as page:
            timed(page, pictures)
            agreement("glyphs", model, page, pictures)
        model = photo_model()
        with opened(built(Path(place, "photos"), model, runtime=given.runtime)) as page:
            agreement("photos", model, page, photos(given.photos, seed=2))


if __name__ == "__main__":
    main()
