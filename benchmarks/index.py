"""Time and memory of the search for similar images inside candidate classes, in a large index.

An index of random unit vectors is written to a folder that is removed afterwards. Another process opens it
and asks for the images most like a photo in some candidate classes. In the first part the system is told to
forget the files before; in the second they are in its memory, but new to the process. In each part the
process asks twice: the first time it checks all that it sees. Time is by the clock, and of the processor: on
a busy machine the clock also counts the waiting for others.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from shortlist.index import NewRows

_GOAL_MS = 10


def write_index(folder: Path, rows: int, per_class: int, dimension: int) -> None:
    """Write an index of random vectors, without a network."""
    from shortlist import ClassTable, Model
    from shortlist.index import IndexWriter

    torch.set_num_threads(1)
    count = rows // per_class
    model = Model.from_parts(nn.Identity(), ClassTable([str(c) for c in range(count)]))
    classes = np.repeat(np.arange(count), per_class)
    generator = torch.Generator().manual_seed(0)
    with IndexWriter.open(folder, model=model) as writer:
        step = 8192 // per_class * per_class
        for start in range(0, len(classes), step):
            writer.append(made_up(classes[start : start + step], start, dimension, generator))
        writer.finish()


def made_up(classes: np.ndarray, first: int, dimension: int, generator: torch.Generator) -> "NewRows":
    """Random vectors of some classes, numbered from ``first`` on."""
    from shortlist.index import NewRows

    vectors = torch.randn(len(classes), dimension, generator=generator)
    vectors = torch.nn.functional.normalize(vectors).half().numpy()
    digests = np.array([f"{row:016d}" for row in range(first, first + len(classes))], dtype="S16")
    about, thumbnail = b'{"author": "nobody"}', b"\xff\xd8" + bytes(98)
    return NewRows(classes, digests, vectors, [about] * len(classes), [thumbnail] * len(classes))


def append(folder: Path, count: int, *, at_a_time: int = 100) -> None:
    """Append images of random classes, some at a time, as a server does."""
    from shortlist.index import ImageIndex, IndexWriter

    torch.set_num_threads(1)
    index, generator = ImageIndex.open(folder), torch.Generator().manual_seed(2)
    first, classes = len(index), torch.randint(len(index.classes), (count,), generator=generator).numpy()
    for start in range(0, count, at_a_time):
        own = classes[start : start + at_a_time]
        with IndexWriter.open(folder) as writer:
            writer.append(made_up(own, first + start, index.dimension, generator))
    with IndexWriter.open(folder) as writer:
        writer.compact()


def ask_while_appending(folder: Path, count: int, candidates: int, limit: int) -> str:
    """Ask while another process appends and compacts, and say how long it took."""
    from shortlist.index import ImageIndex

    torch.set_num_threads(1)
    index, generator = ImageIndex.open(folder), torch.Generator().manual_seed(3)
    before, refreshed, times = len(index), [], []
    command = [sys.executable, __file__, "--append", str(count), "--ask", str(folder)]
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            classes = torch.randperm(len(index.classes), generator=generator)[:candidates].tolist()
            start = time.process_time()
            if index.refresh():
                refreshed.append(1e3 * (time.process_time() - start))
            start = time.process_time()
            index.similar(torch.randn(index.dimension, generator=generator), classes, limit)
            times.append(1e3 * (time.process_time() - start))
    index.refresh()
    assert process.returncode == 0 and len(index) == before + count
    used, followed = median(times), median(refreshed)
    return (
        f"while another process appends {count:,} images, 100 at a time, and compacts: "
        f"{len(times)} questions, median processor ms {used:.2f}; "
        f"{len(refreshed)} refreshes, median processor ms {followed:.2f}"
    )


def forget(folder: Path) -> None:
    """Ask the system to drop what it has of the files in memory."""
    os.sync()
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory() -> dict[str, float]:
    """Resident megabytes of this process: of its own, and of files that it has mapped."""
    lines = Path("/proc/self/status").read_text().splitlines()
    known = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Rss")}
    return {"own MB": int(known["RssAnon"]) / 1024, "mapped MB": int(known["RssFile"]) / 1024}


def ask(folder: Path, questions: int, candidates: int, limit: int, *, is_cold: bool) -> dict[str, Any]:
    """Open the index, and time questions about random classes."""
    from shortlist.index import ImageIndex

    torch.set_num_threads(2)
    warm_up = torch.randn(400, 768) @ torch.randn(768)  # loads what torch needs
    assert warm_up.isfinite().all()
    start = time.perf_counter()
    index = ImageIndex.open(folder)
    opened = 1e3 * (time.perf_counter() - start)
    generator = torch.Generator().manual_seed(1)
    asked = []
    for _ in range(questions):
        classes = torch.randperm(len(index.classes), generator=generator)[:candidates].tolist()
        asked.append((torch.randn(index.dimension, generator=generator), classes))
    before = memory()
    passes = {}
    for name in ("first", "again"):
        times, used = [], []
        for features, classes in asked:
            start, before_it = time.perf_counter(), time.process_time()
            index.similar(features, classes, limit)
            times.append(1e3 * (time.perf_counter() - start))
            used.append(1e3 * (time.process_time() - before_it))
        p99 = quantiles(times, n=100)[-1]
        passes[name] = {"median ms": median(times), "fastest tenth ms": quantiles(times, n=10)[0]}
        passes[name] |= {"p99 ms": p99, "median processor ms": median(used)}
    touched = len({c for _, classes in asked for c in classes})
    grown = {key: value - before[key] for key, value in memory().items()}
    vectors = touched * int(index.classes[0]) * index.dimension * 2 / 2**20
    found = {
        "open ms": opened,
        **passes,
        "grown": grown,
        "vectors asked for MB": vectors,
        "images": len(index),
    }
    return {"on disk" if is_cold else "in memory": found}


def in_its_own_process(folder: str, *words: str) -> dict[str, Any]:
    """Ask questions in another process."""
    command = [sys.executable, __file__, "--ask", folder, *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000, help="images in the index")
    parser.add_argument("--per-class", type=int, default=200)
    parser.add_argument("--dimension", type=int, default=768)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--limit", type=int, default=5, help="images of each candidate")
    parser.add_argument("--folder", type=Path, help="where to put the index; of the system by default")
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cold", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--append", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    asked = (options.questions, options.candidates, options.limit)
    if options.append:
        append(options.ask, options.append)
        return
    if options.ask:
        print(json.dumps(ask(options.ask, *asked, is_cold=options.cold)))
        return
    words = [f"--{name}={getattr(options, name)}" for name in ("questions", "candidates", "limit")]
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        folder, start = Path(place) / "index", time.perf_counter()
        write_index(folder, options.rows, options.per_class, options.dimension)
        size = sum(path.stat().st_size for path in folder.iterdir())
        took = time.perf_counter() - start
        print(
            f"{options.rows:,} vectors of {options.dimension}, {options.per_class} a class: "
            f"{size / 2**30:.2f} GB written in {took:.0f} s"
        )
        forget(folder)
        found = in_its_own_process(str(folder), *words, "--cold") | in_its_own_process(str(folder), *words)
        appended = ask_while_appending(folder, 10_000, options.candidates, options.limit)
    for name, numbers in found.items():
        print(
            f"files {name}, {options.candidates} candidates (goal: median {_GOAL_MS} ms), opened in ", end=""
        )
        print(f"{numbers['open ms']:.0f} ms")
        for part in ("first", "again"):
            said = ", ".join(f"{key} {value:.2f}" for key, value in numbers[part].items())
            print(f"  asked {part:6} {said}")
        grown = ", ".join(f"{key} +{value:.0f}" for key, value in numbers["grown"].items())
        print(f"  resident: {grown}; vectors asked for: {numbers['vectors asked for MB']:.0f} MB", flush=True)
    print(appended)


if __name__ == "__main__":
    main()
