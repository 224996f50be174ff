"""What the losses of the demo change: a table of four trainings, and sentences about it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist._text import format_percent
from shortlist.demo.run import K
from shortlist.runs import Run

# lines of the table of coverages: their words, the predictor, and over what the mean is taken
_LINES = (
    (f"{K} classes", "top5", "micro"),
    ("  mean over classes", "top5", "macro"),
    ("  ... with priors", "top5_macro", "macro"),
    (f"{K} classes on average", "average5", "micro"),
    ("  mean over classes", "average5", "macro"),
    ("  ... with priors", "average5_macro", "macro"),
    ("conformal, promised 90", "conformal90", "micro"),
)


def table_rows(runs: dict[str, Run]) -> list[list[str]]:
    """Return the table in percent of test rows: a line for each kind of sets, a column for each training."""
    results = [run.results.sets for run in runs.values()]
    rows = []
    for line, name, average in _LINES:
        coverages = [getattr(sets[name].coverage, average).value for sets in results]
        rows.append([line, *map(format_percent, coverages)])
    sizes = [f"{sets['conformal90'].size.micro.value:.1f}" for sets in results]
    return [*rows, ["  classes in the set", *sizes]]


@dataclass(frozen=True)
class Comparison:
    """The difference in coverage of two kinds of sets on the same rows, in points, with a 95 % interval."""

    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Say the result in words, no stronger than the interval allows."""
        bounds = f"{self.difference:+.1f} points, 95 % interval {self.low:+.1f} to {self.high:+.1f}"
        if self.low > 0:
            return f"more often ({bounds})"
        if self.high < 0:
            return f"less often ({bounds})"
        return f"no more and no less often, as far as these rows can tell ({bounds})"


def _hits(run: Run, predictor: str) -> tuple[Tensor, Tensor]:
    """Return whether each test row's set contains its class (n,), and the classes (n,)."""
    scores, target = run.scored("test")
    sets = run.predictors[predictor](scores)
    return sets.gather(1, target[:, None]).squeeze(1).double(), target


def compare_sets(first: tuple[Run, str], second: tuple[Run, str], *, macro: bool = False) -> Comparison:
    """Compare the coverage of two kinds of sets (second minus first), by a paired bootstrap over rows."""
    (before, target), (after, _) = _hits(*first), _hits(*second)
    weight = torch.ones_like(before)
    if macro:  # each class counts the same
        counts = target.bincount().double()
        weight = 1 / (counts[target] * (counts > 0).sum())
    else:
        weight = weight / len(weight)
    gain = 100 * (after - before) * weight
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(len(gain), (1000, len(gain)), generator=generator)
    drawn = gain[rows].sum(1).quantile(torch.tensor([0.025, 0.975], dtype=gain.dtype))
    return Comparison(float(gain.sum()), float(drawn[0]), float(drawn[1]))


def loss_words(runs: dict[str, Run]) -> list[str]:
    """Return sentences about the metrics, each with the comparison on which it is based."""
    plain, two_heads, noisy, noised = runs.values()
    return [
        f"Sets that adapt: with cross-entropy, {K} classes on average hold the right one "
        + compare_sets((plain, "top5"), (plain, "average5")).verdict
        + f" than {K} classes for every image.",
        f"Rare classes: with the class priors, at no training cost, lists of {K} hold the right class of the "
        "average class "
        + compare_sets((plain, "top5"), (plain, "top5_macro"), macro=True).verdict
        + " than without.",
        f"A loss for sets of {K} on average: with the two-head loss, average-{K} sets hold the right class "
        + compare_sets((plain, "average5"), (two_heads, "average5")).verdict
        + " than with cross-entropy.",
        f"40 % of the labels redrawn among look-alikes: with the noised top-{K} loss, lists of {K} hold the "
        "right class "
        + compare_sets((noisy, "top5"), (noised, "top5")).verdict
        + " than with cross-entropy.",
    ]
