"""Level sets of every loss on the scores of three classes (Garcin et al., ICML 2022, figures 1 and 6)."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import check_count, check_number
from shortlist.losses import LOSSES, average_k_loss, expected_positive_loss, role_loss, sparse_top_loss
from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure, with_progress
from shortlist.papers.figures._lists import check_integers, check_names, check_numbers
from shortlist.papers.figures._loss_cases import make_loss, options_for, takes_k
from shortlist.papers.figures._simplex import draw_bar, draw_key, draw_levels, rescale, simplex_grid

_ERROR, _CE = "topk_error", "cross_entropy"
NAMES = (_ERROR, _CE, *LOSSES)
_COLUMNS = 6
# where the defaults would show little on three classes, or something must be chosen
_SETTINGS: dict[str, dict[str, Any]] = {
    "noised_topk": {"num_samples": None},
    "imbalanced_noised_topk": {"noise_std": 0.1, "num_samples": None},
    "ranked_topk": {"top1": "sort", "steepness": 10.0},
    "two_parameter_margin": {"tau_true": 1.0, "tau_others": 0.5},
    "pairwise_margin": {"margins": [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]},
}
_NOTES = {
    "average_k": "both heads have these scores; each point is a batch of its own",
    "expected_positive": "each point is a batch of its own",
    "role": "label estimates 0.995 (true class) and 0.5 (a, b); each point is a batch of its own",
    "sparse_top": "label set: the true class, and for k=2 also b",
    "ranked_topk": "all chance on k, ranks of the network for k=1 too",
}


def measure(
    *,
    k: int | Sequence[int] = (1, 2),
    resolution: int = 60,
    losses: str | Sequence[str] | None = None,
    scale: float = 2.0,
    temperature: float | Sequence[float] = (0.1, 1.0),
    noise_std: float | Sequence[float] = (0.3, 1.0),
    class_counts: Sequence[int] = (10, 100, 1000),
    progress: Progress | None = None,
) -> Numbers:
    """Compute each loss at all points of a grid over scores >= 0 of three classes that add up to ``scale``.

    The true class is the first, the others are called a and b. Losses for cosine scores see the same points
    divided by ``scale``: cosines that add up to 1.

    Args:
        k: Numbers of guesses, 1 or 2.
        resolution: Steps along an edge of the triangle.
        losses: Names of :data:`shortlist.losses.LOSSES`, ``cross_entropy`` or ``topk_error``; ``None``: all.
        scale: Sum of the scores.
        temperature: Temperatures of the smooth top-k loss, a panel each.
        noise_std: Amounts of noise of the noised top-k loss, a panel each.
        class_counts: Training counts of the true class, of a and of b.
        progress: Called after each loss.

    Returns:
        ``panels``, one for each loss, k (if it has one), temperature and noise, with the options, the loss's
        values rescaled to [0, 1], and the ``low`` and ``high`` that they were rescaled from.
    """
    ks = check_integers("k", k, below=3)
    check_count("resolution", resolution)
    names = check_names("losses", losses, NAMES)
    check_number("scale", scale, above=0.0)
    if not isinstance(class_counts, Sequence) or len(class_counts) != 3:
        raise ValueError(f"class_counts must have three entries, got {class_counts!r}")
    counts = torch.tensor([check_number("class_counts", count, above=0.0) for count in class_counts])
    swept = {
        "smooth_topk": [
            {"temperature": each} for each in check_numbers("temperature", temperature, above=0.0)
        ],
        "noised_topk": [{"noise_std": each} for each in check_numbers("noise_std", noise_std, above=0.0)],
    }
    cases = [
        (name, guesses, swept_options)
        for name in names
        for guesses in (ks if _depends(name) else [None])
        for swept_options in swept.get(name, [{}])
    ]
    grid = simplex_grid(resolution, total=scale)
    panels = [
        _panel(name, guesses, options, grid, scale, counts.double())
        for name, guesses, options in with_progress(cases, "losses", progress)
    ]
    return {
        "k": ks,
        "resolution": resolution,
        "scale": scale,
        "class_counts": list(class_counts),
        "corners": ["true class", "a", "b"],
        "points": [[round(score, 6) for score in row] for row in grid.tolist()],
        "panels": panels,
    }


def _panel(
    name: str, k: int | None, changed: dict[str, float], grid: Tensor, scale: float, counts: Tensor
) -> dict[str, Any]:
    """Compute a loss at all points of the grid; losses of cosines see points that add up to 1."""
    cosine = "cosine_scores" in getattr(LOSSES.get(name), "needs", ())
    options = _options(name, k or 1) | changed
    values = _evaluate(name, grid / scale if cosine else grid, options, counts).tolist()
    return {
        "loss": name,
        "k": k,
        "options": options,
        "note": _NOTES.get(name),
        "scores_sum": 1.0 if cosine else scale,
        "low": min(values),
        "high": max(values),
        "values": [round(value, 6) for value in rescale(values)],
    }


def _depends(name: str) -> bool:
    return name == _ERROR or takes_k(name)


def _options(name: str, k: int) -> dict[str, Any]:
    settings = dict(_SETTINGS.get(name, {}))
    if name == "ranked_topk":
        settings["distribution"] = [0.0] * (k - 1) + [1.0]
    if name in (_ERROR, "sparse_top"):
        return settings | {"k": k}
    return options_for(name, k=k, settings=settings)


def _evaluate(name: str, scores: Tensor, options: dict[str, Any], counts: Tensor) -> Tensor:
    """Compute the loss (m,) of each row of scores (m, 3), the first class being the true one."""
    target = torch.zeros(len(scores), dtype=torch.int64)
    k = options.get("k", 1)
    if name == _ERROR:
        return (scores.topk(k, dim=1).values[:, -1] > scores[:, 0]).double()
    if name == "sparse_top":
        labels = torch.tensor([[True, False, k > 1]]).expand(len(scores), 3)
        return sparse_top_loss(scores, labels, reduction="none")
    if name in ("average_k", "expected_positive", "role"):  # of the batch as a whole
        return torch.stack([_of_one(name, row, target[:1], options) for row in scores.split(1)])
    return make_loss(name, options, class_counts=counts, reduction="none")(scores, target)


def _of_one(name: str, row: Tensor, target: Tensor, options: dict[str, Any]) -> Tensor:
    if name == "average_k":
        return average_k_loss(row, row, target, **options)
    if name == "expected_positive":
        return expected_positive_loss(row, target, **options)
    estimates = torch.tensor([[0.995, 0.5, 0.5]], dtype=row.dtype).logit()
    return role_loss(row, estimates, target, **options)


def draw(numbers: Numbers) -> Figure:
    """Draw a triangle for each panel: first losses with k, a block of rows for each, then those without."""
    blocks = [[p for p in numbers["panels"] if p["k"] == k] for k in numbers["k"]]
    free = [panel for panel in numbers["panels"] if panel["k"] is None]
    titled = [(f"k = {k}", block) for k, block in zip(numbers["k"], blocks, strict=True)]
    titled = [(title, block) for title, block in [*titled, ("without k", free)] if block]
    columns = min(_COLUMNS, max(len(block) + 1 for _, block in titled))
    places = [len(block) for _, block in titled]
    places[-1] += 1  # for the key
    rows = [math.ceil(count / columns) for count in places]
    figure = new_figure(max(1.3 * columns, 3.6), 1.32 * sum(rows) + 0.35)
    filled, start = None, 0
    grid = figure.add_gridspec(sum(rows), columns)
    for (title, block), height in zip(titled, rows, strict=True):
        for place, panel in enumerate(block):
            axes = figure.add_subplot(grid[start + place // columns, place % columns])
            filled = draw_levels(axes, panel["values"], resolution=numbers["resolution"])
            axes.set_title(_heading(panel), fontsize=6.5, pad=2)
            if place % columns == 0:
                axes.text(-0.14, 0.43, title, rotation=90, ha="center", va="center", fontsize=8)
        start += height
    key = figure.add_subplot(grid[-1, -1])
    true, a, b = (f"{count:,}" for count in numbers["class_counts"])
    draw_key(key, [f"all score on the\ntrue class ({true})", f"a ({a})", f"b ({b})"])
    draw_bar(figure, filled, "loss, rescaled to [0, 1] in each triangle")
    return figure


def _heading(panel: dict[str, Any]) -> str:
    details = {
        "noised_topk": "noise_std",
        "imbalanced_noised_topk": "noise_std",
        "smooth_topk": "temperature",
    }
    detail = details.get(panel["loss"])
    return panel["loss"] if detail is None else f"{panel['loss']}\n{detail} {panel['options'][detail]:g}"
