"""Who gets the right class: conformal sets where the model is unsure, and where it is sure.

Takes folders of runs with the same data (``shortlist suite run recipes/real/birds_conformal.yaml`` makes
some). Their validation rows calibrate, and their test rows are split into quarters by the probability of the
best class. For each score it prints coverage (percent) and mean size in each quarter, from unsure to sure,
then over all rows, and the share of sets that are empty. Beside the scores of the library is one of our own:
APS without the class's own probability, so that the best class has the score 0 and is in every set.
"""

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist import Run
from shortlist.predictors import Conformal
from shortlist.predictors.conformity import OrderedScore


@dataclass(frozen=True)
class SumBefore(OrderedScore):
    """The sum of the probabilities before the class in their order: 0 for the best one."""

    def __call__(self, at: Any) -> Tensor:
        """Return the scores of classes at the given places."""
        return at.cumulative - at.probability


SCORES: dict[str, dict[str, Any]] = {
    "lac": {"score": "lac"},
    "saps": {"score": "saps"},
    "raps": {"score": "raps"},
    "aps": {"score": "aps"},
    "aps, randomized": {"score": "aps", "randomized": True},
    "sum before the class": {"score": SumBefore()},
}


def by_quarter(run: Run, options: dict[str, Any], coverage: float) -> Tensor:
    """Return coverage (percent) and size of each quarter and of all rows, and the share of empty sets."""
    (scores, target), (new, labels) = run.scored("val"), run.scored("test")
    if options.get("randomized"):
        options = options | {"generator": torch.Generator().manual_seed(0)}
    sets = Conformal(coverage=coverage, **options).calibrate(scores, target)(new)
    sure = new.softmax(1).amax(1)
    quarter = torch.bucketize(sure, torch.quantile(sure, torch.tensor([0.25, 0.5, 0.75])))
    hits, sizes = sets.gather(1, labels[:, None]).squeeze(1).double(), sets.sum(1).double()
    parts = [*(quarter == place for place in range(4)), torch.ones_like(quarter, dtype=torch.bool)]
    numbers = [number for part in parts for number in (100 * hits[part].mean(), sizes[part].mean())]
    return torch.stack([*numbers, 100 * (sizes == 0).double().mean()])


def main() -> None:
    """Print a line for each score: the means over the runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs with the same data")
    parser.add_argument("--coverage", type=float, default=0.9)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    runs = [Run.open(path) for path in options.runs]
    for name, score in SCORES.items():
        found = torch.stack([by_quarter(run, score, options.coverage) for run in runs]).mean(0).tolist()
        pairs = [
            f"{covered:.1f} ({size:.1f})" for covered, size in zip(found[:-1:2], found[1:-1:2], strict=True)
        ]
        print(f"{name:21} {' | '.join(pairs)} | empty {found[-1]:.1f} %")


if __name__ == "__main__":
    main()
