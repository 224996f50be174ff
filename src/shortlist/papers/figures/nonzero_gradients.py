"""How many scores of a row get a gradient, against the noise (Garcin et al., ICML 2022, figure 2)."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from shortlist._checks import check_count, check_k, check_number
from shortlist.losses import (
    calibrated_topk_hinge_loss,
    convex_topk_hinge_loss,
    noised_topk_loss,
    smooth_topk_loss,
    topk_hinge_loss,
)
from shortlist.palette import PRINT
from shortlist.papers.figures._first_epoch import first_epoch_counts, first_epoch_recipe
from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure, with_progress
from shortlist.papers.figures._lists import check_integers, check_numbers

_AMOUNTS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
# sizes that count as zero: ten tenths less one are not quite 0; the error of the exact mode
_ROUNDING, _INTEGRATION = 1e-6, 1e-4
_MARKS = "osD^vP"
_TRAINED_CLASSES = 150  # of the demonstration


def measure(
    *,
    noise_std: float | Sequence[float] = _AMOUNTS,
    num_draws: int | Sequence[int] = (1, 3, 10, 100),
    k: int = 5,
    num_classes: int = 100,
    num_rows: int = 500,
    score_std: float = 1.0,
    first_epoch: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Numbers:
    """Count the entries of the gradient that are not zero, in rows of normal scores with random targets.

    The draws are the same for every amount of noise, and the first of the many are the few.

    Args:
        noise_std: Amounts of noise, > 0.
        num_draws: Numbers of draws; the exact expectation is always measured as well.
        k: Number of guesses.
        num_classes: Scores in a row.
        num_rows: Rows over which the mean is taken.
        score_std: Standard deviation of the scores.
        first_epoch: Whether to count in the first epoch of a training of the demonstration's network too, for
            each amount of noise and number of draws; it has 150 classes and 6,000 rows.
        seed: Seed of scores, targets and draws.
        progress: Called after each amount of noise.

    Returns:
        ``lines``: for each number of draws (``null``: the expectation) the mean number of entries that are
        not zero, against ``noise_std``. ``references``: the same for losses without noise. A row whose loss
        is 0 counts with 0 entries; ``share_at_work`` is the share of the others. Entries of up to
        ``threshold`` count as zero: for draws, those of rounding; for the expectation, those below its error.
        ``first_epoch``: lines of the training, if asked for.
    """
    amounts, draws = check_numbers("noise_std", noise_std, above=0.0), check_integers("num_draws", num_draws)
    for name, value in {"num_classes": num_classes, "num_rows": num_rows}.items():
        check_count(name, value)
    check_k(k, num_classes)
    check_number("score_std", score_std, above=0.0)
    check_count("seed", seed, low=0)
    generator = torch.Generator().manual_seed(seed)
    scores = score_std * torch.randn(num_rows, num_classes, generator=generator)
    target = torch.randint(num_classes, (num_rows,), generator=generator)
    noise = torch.randn(max(draws), num_rows, num_classes, generator=generator)
    lines: dict[int | None, list[dict[str, float]]] = {count: [] for count in [*draws, None]}
    for amount in with_progress(amounts, "amounts of noise", progress):
        for count, line in lines.items():
            options: dict[str, Any] = {"k": k, "noise_std": amount}
            options |= {"num_samples": None} if count is None else {"noise": noise[:count]}
            threshold = _INTEGRATION if count is None else _ROUNDING
            line.append(_count(noised_topk_loss, scores, target, threshold=threshold, **options))
    about = {"noise_std": amounts, "k": k, "num_classes": num_classes, "num_rows": num_rows}
    about |= {"score_std": score_std, "seed": seed}
    about |= {"threshold": _ROUNDING, "threshold_of_expectation": _INTEGRATION}
    trained = _first_epoch(amounts, draws, k, seed, progress) if first_epoch else []
    return about | {
        "lines": [{"num_draws": count, **_columns(line)} for count, line in lines.items()],
        "references": _references(scores, target, k),
        "first_epoch": trained,
    }


def _first_epoch(
    amounts: Sequence[float], draws: Sequence[int], k: int, seed: int, progress: Progress | None
) -> list[Numbers]:
    """Count the entries of each row while a network learns, the mean over all rows of the first epoch."""
    check_k(k, _TRAINED_CLASSES)
    lines: dict[int, list[float]] = {count: [] for count in draws}
    cases = [(count, amount) for count in draws for amount in amounts]
    for count, amount in with_progress(cases, "trainings", progress):
        recipe = first_epoch_recipe(k, amount, count, seed)
        nonzero = first_epoch_counts(recipe, lambda gradient: (gradient.abs() > _ROUNDING).sum(1))
        lines[count].append(float(nonzero.double().mean()))
    return [{"num_draws": count, "nonzero": line} for count, line in lines.items()]


def _references(scores: Tensor, target: Tensor, k: int) -> dict[str, dict[str, float]]:
    """Count the entries for the losses without noise."""
    return {
        "calibrated hinge": _count(calibrated_topk_hinge_loss, scores, target, k=k),
        "top-k hinge": _count(topk_hinge_loss, scores, target, k=k),
        "convex top-k hinge": _count(convex_topk_hinge_loss, scores, target, k=k),
        "smooth top-k": _count(smooth_topk_loss, scores, target, k=k, temperature=1.0),
        "cross-entropy": _count(cross_entropy, scores, target),
    }


def _count(
    loss: Callable[..., Tensor],
    scores: Tensor,
    target: Tensor,
    *,
    threshold: float = _ROUNDING,
    **options: Any,
) -> dict[str, float]:
    leaf = scores.clone().requires_grad_()
    rows = loss(leaf, target, reduction="none", **options)
    (gradient,) = torch.autograd.grad(rows.sum(), leaf)
    counts = (gradient.abs() > threshold).sum(1).double()
    return {"nonzero": float(counts.mean()), "share_at_work": float((rows > 0).double().mean())}


def _columns(entries: list[dict[str, float]]) -> dict[str, list[float]]:
    return {key: [entry[key] for entry in entries] for key in entries[0]}


def draw(numbers: Numbers) -> Figure:
    """Draw lines by number of draws, and the losses without noise as dashed levels with their names."""
    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    amounts, c = numbers["noise_std"], numbers["num_classes"]
    for line, color, mark in zip(numbers["lines"], _spread(PRINT), _spread(_MARKS), strict=False):
        count = line["num_draws"]
        label = "expectation" if count is None else f"{count} draw{'s' if count > 1 else ''}"
        axes.plot(amounts, line["nonzero"], color=color, marker=mark, markersize=3.5, label=label)
        end = (amounts[-1], line["nonzero"][-1])
        axes.annotate(label, end, (7, 0), textcoords="offset points", va="center", fontsize=8, color=color)
        for trained in (entry for entry in numbers["first_epoch"] if entry["num_draws"] == count):
            axes.plot(amounts, trained["nonzero"], color=color, marker=mark, markersize=3.5, linestyle=":",
                      markerfacecolor="white", label=f"{label}, first epoch")  # fmt: skip
    levels: dict[float, list[str]] = {}
    for name, reference in numbers["references"].items():
        levels.setdefault(round(reference["nonzero"], 1), []).append(name)
    for level, names in levels.items():
        axes.hlines(level, min(amounts), max(amounts), color="0.45", linewidth=0.8, linestyle="--", zorder=0)
        words = f"{', '.join(names)}: {level:g}"
        above = level > 3  # the lines all start at about 2
        shift, side = ((0, 2), "bottom") if above else ((0, -3), "top")
        place = {"textcoords": "offset points", "fontsize": 7.5, "color": "0.3", "va": side}
        axes.annotate(words, (min(amounts), level), shift, **place)
    axes.set(xscale="log", yscale="log", xlabel="noise_std (standard deviation of the noise)")
    axes.set_ylabel(f"scores of a row with a gradient, of {c}")
    axes.set_ylim(1.5, 1.35 * c)
    ticks = [tick for tick in (2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10000) if tick <= c]
    axes.set_yticks(ticks, [f"{tick:,}" for tick in ticks], minor=False)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    about = f"noised top-{numbers['k']} loss, {numbers['num_rows']:,} rows of normal scores"
    axes.set_title(f"{about} with standard deviation {numbers['score_std']:g}", fontsize=8, loc="left")
    return figure


def _spread(styles: Sequence[str]) -> list[str]:
    """Repeat the styles, for more lines than styles."""
    return list(styles) * 20
