"""Scores of three classes that add up to a number: a grid over them, and its drawing as a triangle."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shortlist.palette import PRINT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.tri import Triangulation


COLOR_MAP = "viridis"
# an odd, prime number of bands: plateaus, often at a half or thirds of the range, are not on an edge
LEVELS = (-1e-6, *(i / 11 for i in range(1, 11)), 1 + 1e-6)
_CORNERS = ((0.5, 3**0.5 / 2), (0.0, 0.0), (1.0, 0.0))  # of the true class, of a, of b


def simplex_grid(resolution: int, *, total: float = 1.0) -> Tensor:
    """List all scores (m, 3) >= 0 that are multiples of ``total / resolution`` and add up to ``total``.

    The first column is the true class. Equal shares are equal numbers, so that ties are ties.

    Example:
        >>> simplex_grid(1, total=2.0)
        tensor([[0., 0., 2.],
                [0., 2., 0.],
                [2., 0., 0.]], dtype=torch.float64)
    """
    shares = [(i, j, resolution - i - j) for i in range(resolution + 1) for j in range(resolution + 1 - i)]
    return torch.tensor(shares, dtype=torch.float64) * total / resolution


def rescale(values: Sequence[float]) -> list[float]:
    """Move and stretch values to reach from 0 to 1; all are 0 if they are all the same.

    Example:
        >>> rescale([1.0, 3.0, 2.0])
        [0.0, 1.0, 0.5]
    """
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]


def _triangulation(resolution: int) -> "Triangulation":
    from matplotlib.tri import Triangulation

    shares = simplex_grid(resolution)
    x, y = (shares @ torch.tensor(_CORNERS, dtype=torch.float64)).T.numpy()
    place = {(i, j): n for n, (i, j, _) in enumerate((shares * resolution).round().int().tolist())}
    triangles = []
    for i, j in place:
        if i + j < resolution:
            triangles.append((place[i, j], place[i + 1, j], place[i, j + 1]))
        if i + j < resolution - 1:
            triangles.append((place[i + 1, j], place[i + 1, j + 1], place[i, j + 1]))
    return Triangulation(x, y, triangles)


def _frame(axes: "Axes") -> None:
    """Draw the edge of the triangle, and a mark at the true class."""
    from matplotlib.patches import Polygon

    axes.add_patch(Polygon(_CORNERS, fill=False, edgecolor="black", linewidth=0.7))
    axes.plot(*_CORNERS[0], "o", color=PRINT[1], markersize=3, clip_on=False, zorder=5)
    axes.set(aspect="equal", xlim=(-0.03, 1.03), ylim=(-0.03, 0.9))
    axes.axis("off")


def draw_levels(axes: "Axes", values: Sequence[float], *, resolution: int, grainy: bool = False) -> Any:
    """Fill a triangle by values from 0 to 1, in eleven bands; return what a color bar wants.

    ``grainy`` is for values that change from point to point: no lines, and pixels in place of many paths.
    """
    mesh = _triangulation(resolution)
    filled = axes.tricontourf(mesh, values, levels=LEVELS, cmap=COLOR_MAP, vmin=0, vmax=1)
    if grainy:
        filled.set_rasterized(True)
    elif len(set(values)) > 2:  # a step has no levels between
        axes.tricontour(mesh, values, levels=LEVELS[1:-1], colors="white", linewidths=0.3, alpha=0.7)
    _frame(axes)
    return filled


def draw_bar(figure: "Figure", filled: Any, label: str) -> None:
    """Draw a color bar below all triangles."""
    bar = figure.colorbar(filled, ax=figure.axes, orientation="horizontal", shrink=0.5, aspect=50, pad=0.02)
    bar.set_label(label, fontsize=7)
    bar.set_ticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    bar.ax.tick_params(labelsize=6.5)


def draw_key(axes: "Axes", labels: Sequence[str]) -> None:
    """Draw an empty triangle with names at its corners: of the true class, lower left, lower right."""
    _frame(axes)
    for (x, y), label, below in zip(_CORNERS, labels, (False, True, True), strict=True):
        shift = -0.07 if below else 0.07
        axes.text(x, y + shift, label, ha="center", va="top" if below else "bottom", fontsize=6.5)
