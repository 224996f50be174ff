"""What scoring, calibrating and evaluating many rows will take: measured on few rows, extrapolated to many.

For each number of classes, a process scores rows of embeddings by a linear head. Another one calibrates
AverageK and Conformal on what was scored, and evaluates it; this depends on the rows and hardly on the
classes, so it is measured with the fewest classes and the most rows. The cost of a row is the difference
between two numbers of rows, so that starting has no part in it; times are the processor's, on one thread. The
memory of a worker does not grow with the rows, that of ``evaluate`` does. The table is in
docs/guides/cluster.md.

    python benchmarks/sizing.py   # two minutes on a quiet machine
"""

import argparse
import multiprocessing
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from score import FEATURES, make_world, measure

ROWS = (1_000_000, 10_000_000)
SAMPLES = {1_000: (16_384, 98_304), 10_000: (4_096, 16_384), 50_000: (2_048, 6_144)}
"""By number of classes, the two numbers of rows that are measured."""
_RESAMPLES = (20, 120)  # of intervals, whose time grows with them

Numbers = dict[str, float]
"""Seconds of the processor and bytes, by name."""
Step = Callable[[Path], Numbers]


def growth(step: Step, before: tuple[Step, ...], classes: int) -> Numbers:
    """What one more row costs, and as ``peak`` the bytes of the process with more rows."""
    few, many = SAMPLES[classes]
    less, more = (_numbers(step, before, rows, classes) for rows in (few, many))
    costs = {name: max(0.0, more[name] - less[name]) / (many - few) for name in more}
    return costs | {"peak": more["bytes"]}


def _numbers(step: Step, before: tuple[Step, ...], rows: int, classes: int) -> Numbers:
    context, found = multiprocessing.get_context("spawn"), {}
    with tempfile.TemporaryDirectory() as name:
        make_world(Path(name), rows, classes)
        for one in (*before, step):  # each in a new process, whose memory is its own
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                found = pool.submit(one, Path(name)).result()
    return found


def score_here(folder: Path) -> dict[str, float]:
    """Score as a worker does; the seconds of the processor, and the peak of memory."""
    from shortlist.passes.local import keep_memory
    from shortlist.passes.planning import find_shards
    from shortlist.passes.score import ModelSource, score_shards

    keep_memory()
    torch.set_num_threads(1)
    source = ModelSource(str(folder / "model"))
    classes = source.open().classes
    shards = [one for file in sorted((folder / "rows").iterdir()) for one in find_shards(file, classes)]
    used = measure(lambda: score_shards(source, shards, folder / "scores", workers=1))[1]
    return {"score": used, "bytes": peak_memory()}


def evaluate_here(folder: Path) -> dict[str, float]:
    """Calibrate, and evaluate with few resamples and with many."""
    from shortlist.passes.reading import calibrate_from_scores, evaluate_scores
    from shortlist.passes.score import ModelSource
    from shortlist.predictors import AverageK, Conformal

    torch.set_num_threads(1)
    table, scores = ModelSource(str(folder / "model")).open().classes, folder / "scores"
    again = {"average1": AverageK(1), "conformal90": Conformal(coverage=0.9)}
    steps = {
        "calibrate": lambda: calibrate_from_scores(scores, again),
        "short": lambda: evaluate_scores(scores, again, table, num_resamples=_RESAMPLES[0]),
        "long": lambda: evaluate_scores(scores, again, table, num_resamples=_RESAMPLES[1]),
    }
    times = {step: measure(function)[1] for step, function in steps.items()}
    return times | {"bytes": peak_memory()}


def peak_memory() -> float:
    """The most bytes that this process has had, without those of the one that started it (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1e3 * next(float(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def minutes(score: Numbers, evaluate: Numbers, rows: int, workers: int) -> tuple[float, float, float]:
    """Extrapolate to many rows: scoring is divided among workers, one process calibrates and evaluates."""
    resamples = min(1000, max(100, 200_000_000 // rows))  # as evaluate_scores has it
    one = (evaluate["long"] - evaluate["short"]) / (_RESAMPLES[1] - _RESAMPLES[0])
    intervals = evaluate["short"] + (resamples - _RESAMPLES[0]) * max(0.0, one)
    return rows * score["score"] / workers / 60, rows * evaluate["calibrate"] / 60, rows * intervals / 60


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    evaluate = growth(evaluate_here, (score_here,), min(SAMPLES))
    print("a row:", ", ".join(f"{name} {value:.3g}" for name, value in evaluate.items()), flush=True)
    scores = {}
    for classes in SAMPLES:
        scores[classes] = growth(score_here, (), classes)
        print(f"a row of {classes:,} scores: {1e3 * scores[classes]['score']:.3f} ms of a core", flush=True)
    print(f"\nExtrapolated, {FEATURES} features, {given.workers} workers:\n")
    print("| rows | classes | score | calibrate | evaluate | memory of a worker | of evaluate |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for rows in ROWS:
        for classes, score in scores.items():
            times = " | ".join(f"{one:.1f} min" for one in minutes(score, evaluate, rows, given.workers))
            whole = evaluate["peak"] + (rows - SAMPLES[min(SAMPLES)][1]) * evaluate["bytes"]
            memory = f"{score['peak'] / 1e9:.1f} GB | {whole / 1e9:.1f} GB"
            print(f"| {rows:,} | {classes:,} | {times} | {memory} |")


if __name__ == "__main__":
    main()
