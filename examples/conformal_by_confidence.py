"""Who gets the right class: conformal sets where the model is unsure, and where it is sure.

Takes folders of runs with the same data (``shortlist suite run recipes/real/birds_conformal.yaml`` makes
some). Their validation rows calibrate, and their test rows are split into quarters by the probability of the
best class. For each score it prints coverage (percent) and mean size in each quarter, from unsure to sure,
then over all rows, and the share of sets that are empty. With ``--draws`` the rows of both parts are mixed
and drawn anew so many times.

A score by rank may count a share of the class's own probability: none (the default of this library), all (as
other libraries have it without randomization), or a random one. MAPIE's default is a random one in
calibration and none in prediction.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from shortlist import Run
from shortlist.predictors import Conformal

Rows = tuple[Tensor, Tensor]
Share = Literal["none", "all", "random"]


class Form(NamedTuple):
    """A score, and the share of the class's own probability that counts in calibration and in prediction."""

    score: str
    calibration: Share = "none"
    prediction: Share = "none"


SHARES: dict[str, tuple[Share, Share]] = {  # in calibration and in prediction
    "": ("none", "none"),
    ", randomized": ("random", "random"),
    ", own probability in": ("all", "all"),
    ", as MAPIE": ("random", "none"),
}
FORMS = {"lac": Form("lac")} | {
    f"{score}{words}": Form(score, *shares)
    for score in ("saps", "raps", "aps")
    for words, shares in SHARES.items()
}


def make_sets(form: Form, calibration: Rows, new: Tensor, *, coverage: float, seed: int) -> Tensor:
    """Return the sets (m, c) of new scores."""
    generator = torch.Generator().manual_seed(seed)

    def shares(share: Share, *shape: int) -> Tensor:
        return torch.full(shape, float(share == "all")) if share != "random" else drawn(*shape)

    def drawn(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator)

    predictor = Conformal(coverage=coverage, score=form.score)
    predictor.update(*calibration, uniform=shares(form.calibration, len(calibration[1])))
    return predictor.finish()(new, uniform=shares(form.prediction, len(new), 1))


def by_quarter(form: Form, calibration: Rows, test: Rows, *, coverage: float, seed: int = 0) -> Tensor:
    """Return coverage (percent) and size of each quarter and of all rows, and the share of empty sets."""
    new, labels = test
    sets = make_sets(form, calibration, new, coverage=coverage, seed=seed)
    sure = new.softmax(1).amax(1)
    quarter = torch.bucketize(sure, torch.quantile(sure, torch.tensor([0.25, 0.5, 0.75])))
    hits, sizes = sets.gather(1, labels[:, None]).squeeze(1).double(), sets.sum(1).double()
    parts = [*(quarter == place for place in range(4)), torch.ones_like(quarter, dtype=torch.bool)]
    numbers = [number for part in parts for number in (100 * hits[part].mean(), sizes[part].mean())]
    return torch.stack([*numbers, 100 * (sizes == 0).double().mean()])


def mixed(calibration: Rows, test: Rows, seed: int) -> tuple[Rows, Rows]:
    """Return as many calibration and test rows, drawn anew from both."""
    scores, target = (torch.cat(pair) for pair in zip(calibration, test, strict=True))
    order = torch.randperm(len(target), generator=torch.Generator().manual_seed(seed))
    some, others = order[: len(calibration[1])], order[len(calibration[1]) :]
    return (scores[some], target[some]), (scores[others], target[others])


def main() -> None:
    """Print a line for each score: the means over the runs and draws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs with the same data")
    parser.add_argument("--coverage", type=float, default=0.9)
    parser.add_argument("--draws", type=int, default=0, help="times to draw calibration and test rows anew")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    parts: list[Any] = []
    for run in map(Run.open, options.runs):
        given = run.scored("val"), run.scored("test")
        parts += [mixed(*given, seed) for seed in range(options.draws)] or [given]
    for name, form in FORMS.items():
        lines = [
            by_quarter(form, *part, coverage=options.coverage, seed=seed) for seed, part in enumerate(parts)
        ]
        numbers = torch.stack(lines).mean(0).tolist()
        pairs = [
            f"{covered:.1f} ({size:.2f})"
            for covered, size in zip(numbers[:-1:2], numbers[1:-1:2], strict=True)
        ]
        print(f"{name:25} {' | '.join(pairs)} | empty {numbers[-1]:.1f} %")


if __name__ == "__main__":
    main()
