"""Where the noised top-k loss is top-k calibrated: its minimizers for known class probabilities, by noise."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import check_count, check_k
from shortlist.losses import calibrated_topk_hinge_loss, noised_topk_loss
from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure, with_progress
from shortlist.papers.figures._lists import check_numbers

_CASES = ((3, 1), (4, 1), (4, 2), (5, 1), (5, 2), (5, 3))
_APART = 1e-2  # scores closer than this are not told apart
_ALIKE = 1e-4  # losses closer than this count as the same minimum


def sorted_distributions(num_classes: int, parts: int, k: int) -> Tensor:
    """Return all distributions in parts of 1/parts, largest first, whose first k classes are known (n, c).

    Example:
        >>> (6 * sorted_distributions(3, 6, 1)).round().int().tolist()
        [[3, 2, 1], [4, 1, 1], [4, 2, 0], [5, 1, 0], [6, 0, 0]]
    """

    def partitions(left: int, places: int, most: int) -> Iterator[list[int]]:
        if places == 1:
            if left <= most:
                yield [left]
            return
        for first in range(min(left, most), -1, -1):
            for rest in partitions(left - first, places - 1, first):
                yield [first, *rest]

    distinct = [p for p in partitions(parts, num_classes, parts) if p[k - 1] > p[k]]
    return torch.tensor(sorted(distinct), dtype=torch.float64) / parts


def risk_minimizers(
    shares: Tensor, k: int, noise_std: float, *, starts: int, steps: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Return for rows of class probabilities (n, c) the scores (starts, n, c) and mean losses (starts, n).

    Adam from several random starts, and from the hinge's own solution: 1 for the first k classes, else 0.
    """
    n, c = shares.shape
    generator = torch.Generator().manual_seed(seed)
    begin = torch.randn(starts, n, c, dtype=torch.float64, generator=generator)
    begin[0] = (torch.arange(c) < k).double()
    scores = begin.flatten(0, 1).requires_grad_()
    target = shares.expand(starts, n, c).flatten(0, 1)
    optimizer = torch.optim.Adam([scores], lr=0.1 * max(1.0, noise_std))
    fall = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def risks() -> Tensor:
        if noise_std == 0:
            return calibrated_topk_hinge_loss(scores, target, k=k, reduction="none")
        return noised_topk_loss(scores, target, k=k, noise_std=noise_std, num_samples=None, reduction="none")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of noise that leaves no gradient: that is to be seen
        for _ in range(steps):
            optimizer.zero_grad()
            risks().sum().backward()
            optimizer.step()
            fall.step()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scores.detach().view(starts, n, c), risks().view(starts, n)


def measure(
    *,
    noise_std: float | Sequence[float] = (0.0, 0.1, 0.3, 1.0, 1.5, 2.0, 3.0, 10.0),
    cases: Sequence[Sequence[int]] = _CASES,
    parts: int = 10,
    starts: int = 4,
    steps: int = 600,
    seed: int = 0,
    progress: Progress | None = None,
) -> Numbers:
    """Minimize the expected loss for each distribution of a grid, and look whether the first k come first.

    A loss is top-k calibrated if for every distribution all minimizers rank the k likeliest classes first.
    The loss does not depend on the order of the classes: distributions in falling order stand for all.

    Args:
        noise_std: Amounts of noise; 0 is the calibrated hinge.
        cases: Pairs of number of classes and k.
        parts: The grid has probabilities in multiples of 1 / parts.
        starts: Starts of the minimization; all that end within 1e-4 of the least loss count as minima.
        steps: Steps of the minimization.
        seed: Seed of the starts.
        progress: Called after each amount of noise and case.

    Returns:
        ``cells``: for each case and noise the number of distributions, the share whose first k come first by
        more than 0.01 at every minimum found (``kept``), and the mean loss there.
    """
    amounts = check_numbers("noise_std", noise_std)
    for name, count in (("parts", parts), ("starts", starts), ("steps", steps)):
        check_count(name, count)
    check_count("seed", seed, low=0)
    for num_classes, k in cases:
        check_k(k, num_classes)
    cells: list[dict[str, Any]] = []
    places = [(num_classes, k, amount) for num_classes, k in cases for amount in amounts]
    for num_classes, k, amount in with_progress(places, "minimizations", progress):
        shares = sorted_distributions(num_classes, parts, k)
        scores, risks = risk_minimizers(shares, k, amount, starts=starts, steps=steps, seed=seed)
        gap = scores[..., :k].amin(-1) - scores[..., k:].amax(-1)
        least = risks.amin(0)
        worse = risks > least + _ALIKE
        kept = float(((gap > _APART) | worse).all(0).double().mean())
        cell = {"num_classes": num_classes, "k": k, "noise_std": amount, "distributions": len(shares)}
        cells.append(cell | {"kept": kept, "mean_loss": float(least.mean())})
    about = {"noise_std": amounts, "cases": [list(case) for case in cases], "parts": parts}
    return about | {"starts": starts, "steps": steps, "seed": seed, "cells": cells}


def draw(numbers: Numbers) -> Figure:
    """Draw a table of shares: a row for each case, a column for each noise."""
    amounts, cases = numbers["noise_std"], numbers["cases"]
    kept = {(c["num_classes"], c["k"], c["noise_std"]): c["kept"] for c in numbers["cells"]}
    shares = [[kept[c, k, amount] for amount in amounts] for c, k in cases]
    figure = new_figure(1.2 + 0.7 * len(amounts), 1.0 + 0.4 * len(cases))
    axes = figure.add_subplot()
    axes.imshow(shares, vmin=0, vmax=1, cmap="cividis", aspect="auto")
    for row, line in enumerate(shares):
        for column, share in enumerate(line):
            color = "black" if share > 0.6 else "white"
            axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7, color=color)
    axes.set_xticks(range(len(amounts)), [f"{amount:g}" for amount in amounts], fontsize=7)
    axes.set_yticks(range(len(cases)), [f"k = {k} of {c}" for c, k in cases], fontsize=7)
    axes.set_xlabel("noise (standard deviation)", fontsize=7)
    axes.set_title("distributions whose k likeliest classes come first at every minimum (%)", fontsize=7)
    return figure
