"""The noised top-k loss on the scores of three classes, by noise and draws (Garcin 2022, figures 4, 5)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import check_count, check_number
from shortlist.losses import calibrated_topk_hinge_loss, noised_topk_loss
from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure, with_progress
from shortlist.papers.figures._lists import check_integers, check_numbers
from shortlist.papers.figures._simplex import draw_bar, draw_levels, simplex_grid


def measure(
    *,
    k: int | Sequence[int] = (1, 2),
    noise_std: float | Sequence[float] = (0.0, 0.1, 0.3, 1.0),
    num_draws: int | Sequence[int] = (1, 10, 100),
    resolution: int = 60,
    scale: float = 2.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Numbers:
    """Compute the loss at all points of a grid over scores >= 0 of three classes that add up to ``scale``.

    Each point has draws of its own, as each row of a batch has; the same for every amount of noise and every
    k, and the first of the many are the few. The exact expectation is always measured as well.

    Args:
        k: Numbers of guesses, 1 or 2.
        noise_std: Amounts of noise; 0 is the calibrated hinge.
        num_draws: Numbers of draws.
        resolution: Steps along an edge of the triangle.
        scale: Sum of the scores.
        seed: Seed of the draws.
        progress: Called after each landscape.

    Returns:
        ``panels``: for each k, noise and number of draws (``null`` for the expectation) the values, with the
        root mean square of their difference from the expectation (``draw_error``) and, for the expectation,
        of its difference from the loss without noise (``smoothing``).
    """
    ks = check_integers("k", k, below=3)
    amounts = check_numbers("noise_std", noise_std)
    draws = check_integers("num_draws", num_draws)
    check_count("resolution", resolution)
    check_number("scale", scale, above=0.0)
    check_count("seed", seed, low=0)
    grid = simplex_grid(resolution, total=scale)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(max(draws), *grid.shape, dtype=grid.dtype, generator=generator)
    panels, cases = [], [(guesses, amount) for guesses in ks for amount in amounts]
    for guesses, amount in with_progress(cases, "landscapes", progress):
        panels += _panels(grid, noise, guesses, amount, draws)
    about = {"k": ks, "noise_std": amounts, "num_draws": draws, "resolution": resolution, "scale": scale}
    return about | {"seed": seed, "margin": 1.0, "panels": panels}


def _panels(grid: Tensor, noise: Tensor, k: int, amount: float, draws: list[int]) -> list[dict[str, Any]]:
    """Make panels of the expectation, then of the draws; without noise all are the same: there is one."""
    target = torch.zeros(len(grid), dtype=torch.int64)

    def panel(values: Tensor, num_draws: int | None, **more: float) -> dict[str, Any]:
        listed = [round(value, 6) for value in values.tolist()]
        labels = {"k": k, "noise_std": amount, "num_draws": num_draws, **more}
        return labels | {"low": min(listed), "high": max(listed), "values": listed}

    options: dict[str, Any] = {"k": k, "noise_std": amount, "reduction": "none"}
    exact = noised_topk_loss(grid, target, num_samples=None, **options)
    hard = calibrated_topk_hinge_loss(grid, target, k=k, reduction="none")
    panels = [panel(exact, None, smoothing=_root_mean_square(exact - hard))]
    for count in draws if amount > 0 else []:
        drawn = noised_topk_loss(grid, target, noise=noise[:count], **options)
        panels.append(panel(drawn, count, draw_error=_root_mean_square(drawn - exact)))
    return panels


def _root_mean_square(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def draw(numbers: Numbers) -> Figure:
    """Draw a block of triangles for each k: noise from left to right, draws from few to the expectation."""
    rows = [*numbers["num_draws"], None]
    columns = [(k, amount) for k in numbers["k"] for amount in numbers["noise_std"]]
    panels = {(p["k"], p["noise_std"], p["num_draws"]): p for p in numbers["panels"]}
    figure = new_figure(max(1.02 * len(columns) + 0.3, 3.6), 0.98 * len(rows) + 0.8)
    grid = figure.add_gridspec(len(rows), len(columns))
    filled = None
    for column, (k, amount) in enumerate(columns):
        exact = panels[k, amount, None]
        for row, count in enumerate(rows):
            axes = figure.add_subplot(grid[row, column])
            axes.axis("off")
            if column == 0:
                words = "expectation" if count is None else f"{count} draw{'s' if count > 1 else ''}"
                axes.text(-0.12, 0.5, words, rotation=90, ha="center", va="center", fontsize=7,
                          transform=axes.transAxes)  # fmt: skip
            if (k, amount, count) not in panels:
                continue
            if (k, amount, rows[row - 1]) not in panels or row == 0:
                words = "no noise" if amount == 0 else f"noise {amount:g}"
                axes.set_title(f"k = {k}, {words}", fontsize=7, pad=3)
            shown = _between(panels[k, amount, count]["values"], exact["low"], exact["high"])
            filled = draw_levels(axes, shown, resolution=numbers["resolution"], grainy=count is not None)
    draw_bar(figure, filled, "loss, rescaled to [0, 1] by the range of the expectation")
    return figure


def _between(values: Sequence[float], low: float, high: float) -> list[float]:
    """Rescale values so that ``low`` is 0 and ``high`` is 1; what is beyond is cut."""
    span = high - low or 1.0
    return [min(max((value - low) / span, 0.0), 1.0) for value in values]
