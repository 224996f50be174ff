"""Speed of the metrics on one thread: an update with a batch of scores, beside torchmetrics' own accuracy.

Each number is the median over calls made in turns with the peer's on the same batches; see ``--help``.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from shortlist.class_table import ClassTable
from shortlist.metrics import evaluate

_POOL = 8  # batches to go round, so that none stays in the caches
_GOAL = 2.5  # milliseconds for ten K and per-class sums, on 1000 x 1000 scores

Update = Callable[[Tensor, Tensor], Any]


def load_torchmetrics() -> None:
    """Import torchmetrics; with a torch that lacks two operators of torchvision, declare them first."""
    try:
        import torchmetrics
    except RuntimeError:  # "operator torchvision::nms does not exist"
        for operator in ("nms", "qnms"):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{operator}", schema)
        import torchmetrics  # noqa: F401


def make_updates(c: int) -> dict[str, Update]:
    """What is measured; the first one has the goal, the last ones are the peer's."""
    from torchmetrics.classification import MulticlassAccuracy

    from shortlist.metrics.modules import CalibrationError, SetCoverage, SetSize, TopKAccuracy, TopKCurve

    ks = tuple(range(1, 11))
    coverage, size = SetCoverage(num_classes=c), SetSize(num_classes=c)
    return {
        "TopKAccuracy, 10 K": TopKAccuracy(num_classes=c, k=ks).update,
        "TopKAccuracy, 10 K, ties expected": TopKAccuracy(num_classes=c, k=ks, ties="expected").update,
        "TopKAccuracy, K=5": TopKAccuracy(num_classes=c, k=5).update,
        "TopKCurve, all K": TopKCurve(num_classes=c).update,
        "CalibrationError": CalibrationError().update,
        "SetCoverage (with making the sets)": lambda scores, target: coverage.update(scores > 2, target),
        "SetSize (with making the sets)": lambda scores, target: size.update(scores > 2, target),
        "torchmetrics accuracy, K=5": MulticlassAccuracy(
            num_classes=c, top_k=5, average="macro", validate_args=False
        ).update,
        "torchmetrics accuracy, K=5, checked": MulticlassAccuracy(
            num_classes=c, top_k=5, average="macro"
        ).update,
    }


def measure(updates: dict[str, Update], n: int, c: int, budget: float) -> dict[str, float]:
    """Median milliseconds of each, called in turns."""
    pool = [(torch.randn(n, c), torch.randint(c, (n,))) for _ in range(_POOL)]
    times: dict[str, list[float]] = {name: [] for name in updates}
    for update in updates.values():
        update(*pool[0])
    stop, turn = perf_counter() + budget, 0
    while perf_counter() < stop or turn < 10:
        for name, update in updates.items():
            scores, target = pool[turn % _POOL]
            start = perf_counter()
            update(scores, target)
            times[name].append(perf_counter() - start)
        turn += 1
    return {name: 1e3 * median(some) for name, some in times.items()}


def measure_evaluation(n: int, c: int) -> dict[str, float]:
    """Seconds of a whole evaluation with five predictors, without and with intervals."""
    scores, target = torch.randn(n, c), torch.randint(c, (n,))
    table = ClassTable(names=[str(j) for j in range(c)], counts=[j % 200 for j in range(c)])
    predictors = {f"above {t}": lambda scores, t=t: scores > t for t in (1.0, 1.5, 2.0, 2.5, 3.0)}
    seconds = {}
    for num_resamples in (0, 1000):
        start = perf_counter()
        evaluate(scores, target, predictors, table, num_resamples=num_resamples)
        seconds[f"{num_resamples} resamples"] = perf_counter() - start
    return seconds


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1000, help="number of rows in a batch")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--budget", type=float, default=5.0, help="seconds for all updates together")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    return parser.parse_args(arguments)


def main() -> None:
    arguments = parse_arguments(sys.argv[1:])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    load_torchmetrics()
    n, c = arguments.rows, arguments.classes
    found = measure(make_updates(c), n, c, arguments.budget)
    peer = found["torchmetrics accuracy, K=5"]
    print(
        f"update with {n} x {c} scores, 1 thread: milliseconds, and torchmetrics' accuracy with one K over it"
    )
    for name, ms in found.items():
        goal = f"  goal {_GOAL} ms" if name == "TopKAccuracy, 10 K" and (n, c) == (1000, 1000) else ""
        print(f"{name:<40}{ms:>9.2f}{peer / ms:>9.1f}x{goal}")
    seconds = measure_evaluation(31118, 1081)
    print("evaluate on 31118 x 1081 scores, 5 predictors: ", end="")
    print(", ".join(f"{value:.1f} s with {name}" for name, value in seconds.items()))
    machine = {
        "platform": platform.platform(),
        "torch": torch.__version__,
        "torchmetrics": version("torchmetrics"),
    }
    print("\n".join(f"{name}: {value}" for name, value in machine.items()))
    if arguments.json:
        content = {"machine": machine, "shape": [n, c], "ms": found, "evaluate_seconds": seconds}
        arguments.json.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
