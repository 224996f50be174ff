"""What scoring, calibrating and evaluating many rows will take: measured on few rows, extrapolated to many.

For each number of classes, a process scores rows of embeddings by a linear head, and another one calibrates
AverageK and Conformal on them, and evaluates. The time of a row is the difference between two numbers of
rows, so that starting has no part in it; it is the processor's, on one thread. Time grows with the rows, and
memory only in ``evaluate``. The table is in docs/cluster.md.

    python benchmarks/sizing.py   # three minutes
"""

import argparse
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from score import FEATURES, make_world, measure

ROWS = (1_000_000, 10_000_000)
SAMPLES = {1_000: (16_384, 98_304), 10_000: (4_096, 16_384), 50_000: (2_048, 6_144)}
"""By number of classes, the two numbers of rows that are measured."""
_RESAMPLES = (20, 120)  # of intervals, whose time grows with them


@dataclass(frozen=True)
class Costs:
    """What was measured with some number of classes.

    Args:
        score: Seconds of a core for a row.
        calibrate: The same.
        evaluate: The same, without intervals.
        resample: The same, for one resample of the intervals.
        worker: Bytes of a process that scores, at most.
        row: Bytes of a row in ``evaluate``.
    """

    score: float
    calibrate: float
    evaluate: float
    resample: float
    worker: float
    row: float


def minutes_of(costs: Costs, rows: int, workers: int) -> tuple[float, float, float]:
    """Extrapolate to many rows: scoring is divided among workers, one process calibrates and evaluates."""
    resamples = min(1000, max(100, 200_000_000 // rows))  # as evaluate_scores has it
    evaluate = costs.evaluate + resamples * costs.resample
    return rows * costs.score / workers / 60, rows * costs.calibrate / 60, rows * evaluate / 60


def measure_costs(classes: int) -> Costs:
    """Score, calibrate and evaluate two numbers of rows, in processes of their own."""
    few, many = SAMPLES[classes]
    less, more = _numbers(few, classes), _numbers(many, classes)
    score, calibrate, short, long, held = (
        max(0.0, more[step] - less[step]) / (many - few)
        for step in ("score", "calibrate", "short", "long", "memory of evaluate")
    )
    resample = max(0.0, long - short) / (_RESAMPLES[1] - _RESAMPLES[0])
    evaluate = max(0.0, short - _RESAMPLES[0] * resample)
    return Costs(score, calibrate, evaluate, resample, more["memory of score"], held)


def _numbers(rows: int, classes: int) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        make_world(Path(name), rows, classes)
        found: dict[str, float] = {}
        for step in (score_here, evaluate_here):  # each in a new process, whose memory is its own
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                found |= pool.submit(step, Path(name)).result()
    return found


def score_here(folder: Path) -> dict[str, float]:
    """Score as a worker does; the seconds of the processor, and the peak of memory."""
    from shortlist.engine.inputs import find_shards
    from shortlist.engine.local import keep_memory
    from shortlist.engine.score import ModelSource, score_shards

    keep_memory()
    torch.set_num_threads(1)
    source = ModelSource(str(folder / "model"))
    ids = source.open().classes.ids
    shards = [one for file in sorted((folder / "rows").iterdir()) for one in find_shards(file, ids)]
    used = measure(lambda: score_shards(source, shards, folder / "scores", workers=1))[1]
    return {"score": used, "memory of score": peak_memory()}


def evaluate_here(folder: Path) -> dict[str, float]:
    """Calibrate, and evaluate with few resamples and with many."""
    from shortlist.engine.reading import calibrate_from_scores, evaluate_scores
    from shortlist.engine.score import ModelSource
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
    return times | {"memory of evaluate": peak_memory()}


def peak_memory() -> float:
    """The most bytes that this process has had, without those of the one that started it (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1e3 * next(float(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def print_table(found: dict[int, Costs], workers: int) -> None:
    """Print the extrapolation as it is in the docs."""
    row = max(costs.row for costs in found.values())  # with many classes, few rows cannot tell it
    print(f"\nExtrapolated, {FEATURES} features, {workers} workers:\n")
    print("| rows | classes | score | calibrate | evaluate | memory of a worker | of evaluate |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for rows in ROWS:
        for classes, costs in found.items():
            times = " | ".join(f"{one:.1f} min" for one in minutes_of(costs, rows, workers))
            memory = f"{costs.worker / 1e9:.1f} GB | {(costs.worker + rows * row) / 1e9:.1f} GB"
            print(f"| {rows:,} | {classes:,} | {times} | {memory} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    found: dict[int, Costs] = {}
    for classes in SAMPLES:
        found[classes] = one = measure_costs(classes)
        words = f"score {1e3 * one.score:.3f} ms, calibrate {1e3 * one.calibrate:.4f} ms, evaluate "
        words += f"{1e3 * one.evaluate:.4f} ms and {1e6 * one.resample:.3f} us for a resample"
        print(f"{classes:,} classes, a row: {words}, {one.row:.0f} bytes", flush=True)
    print_table(found, given.workers)


if __name__ == "__main__":
    main()
