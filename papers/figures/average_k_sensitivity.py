"""What alpha and the batch size make of the average-K loss (Garcin, thesis, figures 5.5 and 5.6)."""

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from papers.figures._frame import Numbers, PaperFigure, Progress, new_figure
from papers.figures._lines import COLOURS, fill_between, percent
from papers.figures._lists import check_integers, check_numbers, check_seed
from papers.figures._runs import mean_over_seeds
from shortlist._checks import check_average_size, check_k, check_number
from shortlist.datasets.gaussians import GaussianSplits, gaussian_genera
from shortlist.losses import AverageKLoss
from shortlist.models.classifiers import replace_classifier
from shortlist.models.heads import LinearHead, TwoHead, TwoHeadScores
from shortlist.models.mlp import mlp
from shortlist.predictors import AverageK, CalibrationWarning
from shortlist.scores import fit_temperature

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FIGURE", "draw", "measure", "train"]

HIDDEN = 64
MOMENTUM = 0.9
METHODS = {
    "average_k": "average-K loss",
    "cross_entropy": "cross-entropy",
    "cross_entropy_temperature": "cross-entropy with temperature",
}


Point = tuple[float | None, int]
"""Alpha, None for cross-entropy, and batch size."""


class Trained(NamedTuple):
    """Coverage on validation and on test rows of sets from each kind of scores; None if training diverged."""

    val: dict[str, float | None]
    test: dict[str, float | None]


class Found(NamedTuple):
    """What came of each seed at a point, and the learning rate it was trained with."""

    lr: float
    of_seeds: list[Trained]


def measure(
    *,
    k: float = 3.0,
    alphas: float | Sequence[float] = (0.1, 0.3, 1.0, 3.0, 10.0),
    batch_sizes: int | Sequence[int] = (16, 32, 64, 128, 256),
    alpha: float = 3.0,
    batch_size: int = 64,
    lrs: float | Sequence[float] = (0.03, 0.1),
    seeds: int = 3,
    epochs: int = 15,
    rows: int = 3000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Numbers:
    """Coverage of sets of k classes on average, after training with the average-K loss.

    A network of one hidden layer learns ``gaussian_genera``. Thresholds and temperature are set on its
    validation rows, and at each point the learning rate is taken that covers most of them; coverage is on
    test rows. All trainings have as many epochs, and a learning rate proportional to the batch size, which
    falls to 0 as a cosine.

    Args:
        k: Average size of the sets, in training and in the test.
        alphas: Weights of the loss to compare, at ``batch_size``.
        batch_sizes: Batch sizes to compare, at ``alpha``.
        alpha: The weight for the comparison of batch sizes.
        batch_size: The batch size for the comparison of weights.
        lrs: Learning rates to choose from, for batches of 64.
        seeds: Number of trainings for each point; they share the data.
        epochs: Of each training.
        rows: Training rows.
        seed: Of the data, and the first of the trainings.
        progress: See the frame.
    """
    weights = sorted(check_numbers("alphas", alphas, above=0.0))
    rates = sorted(check_numbers("lrs", lrs, above=0.0))
    sizes = sorted(check_integers("batch_sizes", batch_sizes))
    check_number("alpha", alpha, above=0.0)
    check_seed(seed)
    for name, count in (("batch_size", batch_size), ("seeds", seeds), ("epochs", epochs), ("rows", rows)):
        check_k(count, name=name)
    if rows < max(*sizes, batch_size):
        raise ValueError(f"rows must be >= the largest batch size ({max(*sizes, batch_size)}), got {rows}")
    data = gaussian_genera(num_rows=rows, seed=seed)
    check_average_size(k, len(data.class_table))
    by_alpha, by_size = [(a, batch_size) for a in weights], [(alpha, b) for b in sizes]
    plain = [(None, b) for b in (batch_size, *sizes)]
    points = list(dict.fromkeys([*by_alpha, *by_size, *plain]))
    found = _train_all(data, points, range(seed, seed + seeds), k, rates, epochs, progress)
    return {
        "k": k,
        "data": {"name": "gaussian_genera", "seed": seed, "num_classes": len(data.class_table)}
        | {f"{part}_rows": len(getattr(data, part)) for part in ("train", "val", "test")},
        "model": f"one hidden layer of {HIDDEN}",
        "optimiser": {"name": "sgd", "momentum": MOMENTUM, "nesterov": True, "schedule": "cosine to 0"}
        | {
            "lrs_at_64": rates,
            "lr": "proportional to batch size, chosen on validation rows",
        },
        "epochs": epochs,
        "seeds": list(range(seed, seed + seeds)),
        "limit": data.bayes_accuracy(k=k, num_samples=20_000).average_k.value,
        "alphas": {
            "batch_size": batch_size,
            "alpha": weights,
            "coverage": _lines(found, by_alpha, plain[:1]),
        },
        "batch_sizes": {"alpha": alpha, "batch_size": sizes, "coverage": _lines(found, by_size, plain[1:])},
    }


def _train_all(
    data: GaussianSplits,
    points: Sequence[Point],
    seeds: Sequence[int],
    k: float,
    rates: Sequence[float],
    epochs: int,
    progress: Progress | None,
) -> dict[Point, Found]:
    """Train at each point with all learning rates; the one of most coverage on validation rows counts."""
    found: dict[Point, Found] = {}
    for number, point in enumerate(points):
        alpha, batch_size = point
        loss = nn.CrossEntropyLoss() if alpha is None else AverageKLoss(k=k, alpha=alpha)
        tried = []
        for lr in rates:
            if progress is not None:
                progress("training", number * len(rates) + len(tried), len(points) * len(rates))
            options = {"batch_size": batch_size, "epochs": epochs, "lr": lr}
            scores = [train(data, loss, seed=seed, **options) for seed in seeds]
            tried.append([_coverages(data, of_seed, k, fit=alpha is None) for of_seed in scores])
        covered = [sum(one.val["plain"] or 0.0 for one in of_seeds) for of_seeds in tried]
        best = covered.index(max(covered))
        found[point] = Found(rates[best], tried[best])
    return found


def _coverages(data: GaussianSplits, scores: tuple[Tensor, Tensor], k: float, fit: bool) -> Trained:
    """Coverage of sets with the scores as they are; with ``fit`` also with a temperature of their own."""
    val, test = scores
    if not (val.isfinite().all() and test.isfinite().all()):
        return Trained({"plain": None, "temperature": None}, {"plain": None, "temperature": None})
    found = Trained({}, {})
    divisors = {"plain": 1.0}
    if fit:
        divisors["temperature"] = float(fit_temperature(val, data.val.targets))
    for name, divisor in divisors.items():
        found.val[name] = _average_coverage(val / divisor, val / divisor, data.val.targets, k)
        found.test[name] = _average_coverage(val / divisor, test / divisor, data.test.targets, k)
    return found


def _lines(found: dict[Point, Found], points: Sequence[Point], plain: Sequence[Point]) -> Numbers:
    """Of each method, means over seeds at its points."""
    lines: Numbers = {}
    for name in METHODS:
        chosen = [found[point] for point in (points if name == "average_k" else plain)]
        kind = "temperature" if name == "cross_entropy_temperature" else "plain"
        means = [mean_over_seeds([one.test[kind] for one in there.of_seeds]) for there in chosen]
        lines[name] = {end: [getattr(mean, end) for mean in means] for end in ("value", "low", "high")}
        lines[name]["diverged"] = [sum(one.test[kind] is None for one in there.of_seeds) for there in chosen]
        lines[name]["lr_at_64"] = [there.lr for there in chosen]
    return lines


def _average_coverage(held_out: Tensor, scores: Tensor, target: Tensor, k: float) -> float:
    with warnings.catch_warnings():  # of ties
        warnings.simplefilter("ignore", CalibrationWarning)
        sets = AverageK(k).calibrate(held_out)(scores)
    return float(sets.gather(1, target[:, None]).double().mean())


def train(
    data: GaussianSplits, loss: nn.Module, *, batch_size: int, lr: float, epochs: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Scores of validation and test rows (n, c) after training; ``lr`` is for batches of 64."""
    two = isinstance(loss, AverageKLoss)
    c, dim = len(data.class_table), data.train.inputs.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = mlp(c, in_channels=dim, hidden=(HIDDEN,))
        model = replace_classifier(model, lambda length: TwoHead(length, c) if two else LinearHead(length, c))
    generator = torch.Generator().manual_seed(seed)
    steps = epochs * (len(data.train) // batch_size)
    optimiser = torch.optim.SGD(model.parameters(), lr=lr * batch_size / 64, momentum=MOMENTUM, nesterov=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps))
    )
    for _ in range(epochs):
        order = torch.randperm(len(data.train), generator=generator)
        for batch in order[: len(order) // batch_size * batch_size].split(batch_size):
            output = model(data.train.inputs[batch])
            value = loss(tuple(output) if two else output, data.train.targets[batch])
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            schedule.step()
    with torch.inference_mode():
        outputs = [model(part.inputs) for part in (data.val, data.test)]
    val, test = (out.set_logits if isinstance(out, TwoHeadScores) else out for out in outputs)
    return val, test


def draw(numbers: Numbers) -> "Figure":
    """Coverage against alpha, and against the batch size."""
    figure = new_figure(8.4, 4.4)
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, key, x in ((left, "alphas", "alpha"), (right, "batch_sizes", "batch_size")):
        part = numbers[key]
        for number, (name, label) in enumerate(METHODS.items()):
            _draw_line(axes, part[x], part["coverage"][name], number, label)
        axes.axhline(100 * numbers["limit"], color="black", linestyle=":", linewidth=1, label="best possible")
        axes.set(xscale="log")
        axes.set_xticks(part[x], [f"{value:g}" for value in part[x]])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    left.set(xlabel=f"α, batches of {numbers['alphas']['batch_size']}")
    right.set(xlabel=f"batch size, α = {numbers['batch_sizes']['alpha']:g}")
    left.set(ylabel=f"coverage of {numbers['k']:g} classes on average (%)")
    handles = left.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    return figure


def _draw_line(axes: Any, xs: Sequence[float], found: Numbers, number: int, label: str) -> None:
    """A value for all x, as cross-entropy has at one batch size, is drawn from end to end."""
    constant = len(found["value"]) == 1 and len(xs) > 1
    value, low, high = (found[key] * (len(xs) if constant else 1) for key in ("value", "low", "high"))
    mark = {"marker": None} if constant else {"marker": "os^"[number], "markersize": 5}
    axes.plot(xs, percent(value), color=COLOURS[number], linestyle=("-", "--", "-.")[number], linewidth=1.8,
              label=label, **mark)  # fmt: skip
    fill_between(axes, xs, low, high, colour=COLOURS[number])


FIGURE = PaperFigure(measure, draw)
