"""Time and memory of predictors at very many classes, as multiples of what ``AverageK`` takes.

Each case has a process of its own on one thread. ``both`` is to calibrate on all rows and then to predict
them. Time is processor time, the best of some calls; memory is the growth of the process's peak over its
input of n x c float32 scores, and the whole peak.
"""

import argparse
import json
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from time import process_time

import torch
from torch import Tensor

from shortlist.predictors import AverageError, AverageK, CalibrationWarning, Conformal, SetPredictor

PREDICTORS: dict[str, Callable[[], SetPredictor]] = {
    "AverageK(5)": lambda: AverageK(5),
    "AverageError(coverage=0.9)": lambda: AverageError(coverage=0.9),
    "Conformal(0.9, lac)": lambda: Conformal(coverage=0.9),
    "Conformal(0.9, aps)": lambda: Conformal(coverage=0.9, score="aps"),
    "Conformal(0.9, macro)": lambda: Conformal(coverage=0.9, score="lac", rule="macro"),
    "Conformal(0.9, votes)": lambda: Conformal(coverage=0.9),
}
ACTIONS = ("calibrate", "update", "predict", "both")
_GOAL = 2.0


def make_rows(n: int, c: int, spread: float) -> tuple[Tensor, Tensor]:
    """Normal scores (n, c) and classes (n,) drawn from their softmax, without a second copy of the scores."""
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.empty(n, c), torch.empty(n, dtype=torch.int64)
    for rows, classes in zip(scores.split(16), target.split(16), strict=True):
        rows.normal_(0.0, spread, generator=generator)
        classes.copy_(torch.multinomial(rows.softmax(1), 1, generator=generator).squeeze(1))
    return scores, target


def make_votes(target: Tensor, c: int) -> Tensor:
    """Votes (n, c): two for each row's class, one for another."""
    votes = torch.zeros(len(target), c)
    votes[torch.arange(len(target)), target] = 2
    votes[torch.arange(len(target)), (target + 1) % c] += 1
    return votes


def act(predictor: SetPredictor, action: str, scores: Tensor, target: Tensor) -> None:
    """Do what is measured."""
    if action == "calibrate":
        predictor.calibrate(scores, target)
    elif action == "update":
        for rows, classes in zip(scores.split(256), target.split(256), strict=True):
            predictor.update(rows, classes)
        predictor.finish()
    else:
        if action == "both":
            predictor.calibrate(scores, target)
        predictor(scores)


def measure_here(name: str, action: str, n: int, c: int, spread: float, repeats: int) -> dict[str, float]:
    """Measure one case in this process."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", CalibrationWarning)
    scores, target = make_rows(n, c, spread)
    if name.endswith("votes)"):
        target = make_votes(target, c)
    small = PREDICTORS[name]().calibrate(scores[:200], target[:200])  # with what the first call brings in
    small(scores[:2])
    before = _peak_megabytes()
    times = []
    for _ in range(repeats):
        start = process_time()
        act(small, action, scores, target)
        times.append(process_time() - start)
    peak = _peak_megabytes()
    return {"seconds": min(times), "extra MB": peak - before, "peak MB": peak}


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_apart(name: str, action: str, options: argparse.Namespace, spread: float) -> dict[str, float]:
    """Measure one case in a process of its own."""
    case = json.dumps([name, action, options.rows, options.classes, spread, options.repeats])
    command = [sys.executable, __file__, "--case", case]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _times(value: float, first: float) -> str:
    return f"{value / first:5.1f}x" if first else "    -"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--classes", type=int, default=50_000)
    parser.add_argument(
        "--spreads",
        type=float,
        nargs="+",
        default=[3.0, 1.0],
        help="standard deviations of the normal scores",
    )
    parser.add_argument("--actions", nargs="+", choices=ACTIONS, default=ACTIONS)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to this file")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure_here(*json.loads(options.case))))
        return
    found: dict[str, dict[str, float]] = {}
    print(f"{options.rows} x {options.classes} scores; goal: at most {_GOAL:g} times AverageK")
    for spread in options.spreads:
        for action in options.actions:
            first: dict[str, float] | None = None
            for name in PREDICTORS:
                numbers = measure_apart(name, action, options, spread)
                first = numbers if first is None else first
                found[f"{action}, spread {spread:g}, {name}"] = numbers
                parts = [
                    f"{key} {value:8.2f} ({_times(value, first[key])})" for key, value in numbers.items()
                ]
                print(f"spread {spread:g} {action:10}{name:28}{'  '.join(parts)}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
