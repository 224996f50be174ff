"""The demo: four trainings on the embedded glyphs, a table of their sets, and sentences about it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._progress import Progress
from shortlist._text import format_percent
from shortlist.metrics import PopulationResults
from shortlist.recipes import Recipe, make_recipe
from shortlist.runs import Run
from shortlist.sentences import promise_words
from shortlist.training import resume, train

K = 5
BASE: dict[str, Any] = {
    "name": "demo",
    "data": {"name": "glyphs", "max_classes": 150, "train_images": 6000, "photos": 4},
    "model": {"name": "small_cnn"},
    "optimizer": {"lr": 0.2},
    "schedule": {"name": "cosine", "warm_up": 0.5},
    "epochs": 15,
    "batch_size": 128,
    "selection": {"metric": "top5"},
    "predictors": {
        "top5": {"name": "topk", "k": K},
        "top5_macro": {"name": "topk", "k": K, "macro": True},
        "average5": {"name": "average_k", "k": K},
        "average5_macro": {"name": "average_k", "k": K, "macro": True},
        "conformal90": {"name": "conformal", "coverage": 0.9},
    },
    "novelty": {"strangeness": "distance", "level": 0.05},
    "loggers": [],
}
NOISE = "data.label_noise=0.4"
# folder, name in the table, what is changed
METHODS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("cross_entropy", "cross-entropy", ()),
    ("average_k", f"average-{K} loss", ("loss=average_k", f"loss.k={K}")),
    ("cross_entropy_noise", "cross-entropy, noisy", (NOISE,)),
    (
        "noised_topk_noise",
        f"noised top-{K}, noisy",
        (NOISE, "loss=noised_topk", f"loss.k={K}", "loss.noise_std=1.0"),
    ),
)


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


def demo_recipe(changes: tuple[str, ...], seed: int) -> Recipe:
    """Return the recipe of one of the trainings."""
    return make_recipe(BASE, [*changes, f"seed={seed}"])


def run_demo(
    out: Path,
    *,
    seed: int = 0,
    progress: Callable[[str], Progress],
    methods: Sequence[tuple[str, str, tuple[str, ...]]] = METHODS,
) -> dict[str, Run]:
    """Train all models that are missing; ``progress(name)`` makes the progress callback of each training.

    On one thread, which for so small a network is as fast as two and gives the same numbers each time.
    """
    torch.set_num_threads(1)
    runs = {}
    for folder, name, changes in methods:
        path = out / folder
        if path.exists():
            runs[name] = resume(path, progress=progress(name))
        else:
            runs[name] = train(demo_recipe(changes, seed), path, progress=progress(name))
    return runs


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


def demo_words(runs: dict[str, Run]) -> list[str]:
    """Return sentences about the metrics, each with the comparison on which it is based."""
    plain, two_heads, noisy, noised = runs.values()
    results = plain.results
    conformal = results.sets["conformal90"]
    words = [
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
        f"A promise of conformal sets. {promise_words(conformal.promise) if conformal.promise else ''}",
    ]
    return words + _photo_words(results.populations)


def _photo_words(found: PopulationResults | None) -> list[str]:
    """Say what further photos of the same glyph are worth."""
    lines = {} if found is None else {number: line for number, line in found.photos.items() if line.own}
    if found is None or len(lines) < 2:
        return []
    several = list(lines)[-1]
    sizes = [f"{line.own.size:.1f}" for line in (lines["1"], lines[several]) if line.own]
    return [
        f"Several photos: a list that promises {format_percent(found.level)} % has {sizes[0]} names from one "
        f"photo and {sizes[1]} from {several}, or {lines[several].common.size:.1f} with the threshold of one."
    ]
