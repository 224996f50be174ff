"""How methods are told apart in a drawing: colors that the color-blind tell apart, then marks."""

from collections.abc import Sequence
from typing import Any

from shortlist.palette import PRINT
from shortlist.papers.figures._frame import Figure, Numbers, new_figure

_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
_BAND = 0.15  # opacity of an interval
_MOST_BANDS = 4  # more methods than that hide each other behind their intervals


def style_of(number: int, *, is_limit: bool = False) -> dict[str, Any]:
    """Choose color and mark of a line; what no method can beat is black."""
    if is_limit:
        return {"color": "black", "marker": ("x", "+", "1")[number % 3]}
    return {"color": PRINT[number % len(PRINT)], "marker": _MARKS[(number // len(PRINT)) % len(_MARKS)]}


def percent(values: Sequence[float | None]) -> list[float]:
    """Multiply shares by 100; what is not known is NaN, which leaves a gap."""
    return [float("nan") if value is None else 100 * value for value in values]


def draw_band(axes: Any, xs: Sequence[float], means: Numbers, *, color: str, num_lines: int) -> None:
    """Draw the intervals of the means of a line as a band, where there are any and few lines."""
    low, high = percent(means["low"]), percent(means["high"])
    if num_lines <= _MOST_BANDS and any(value == value for value in low):
        axes.fill_between(xs, low, high, color=color, alpha=_BAND, linewidth=0)


def _columns(labels: Sequence[str], width: float) -> int:
    """Count the columns of a legend in small letters that fit into a width (inches)."""
    longest = max(map(len, labels), default=1)
    return max(1, min(len(labels), int(width / (0.55 + 0.076 * longest))))


def figure_with_legend(width: float, height: float, labels: Sequence[str]) -> Figure:
    """Make an empty figure with room below for a legend of these labels: see :func:`add_legend`."""
    return new_figure(width, height + 0.19 * -(-len(labels) // _columns(labels, width)))


def add_legend(figure: Figure, handles: Sequence[Any], *, title: str | None = None) -> None:
    """Draw a legend below the axes, in as many columns as fit."""
    columns = _columns([handle.get_label() for handle in handles], figure.get_figwidth())
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize="small",
        title=title,
        title_fontsize="small",
    )
