"""The parts that templates show: tables, drawings with their numbers, and legends, as plain values."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from shortlist._text import format_percent
from shortlist.metrics import Estimate
from shortlist.report.drawings import Plot


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than plain text.

    Args:
        text: Text of the cell.
        interval: Interval in small print below the text.
        style: A class of the page's style: ``best`` or ``long``.
    """

    text: str
    interval: str = ""
    style: str = ""


@dataclass(frozen=True)
class Table:
    """A table; ``table`` of ``_parts.html`` shows it.

    Args:
        caption: Caption of the table.
        heads: Heads of the columns.
        rows: Plain values or cells, ``None`` for an empty one; the first of each row is its head.
        words: Places of the columns with words, from 0; the others have numbers and are aligned to the right.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    words: Collection[int] = (0,)


@dataclass(frozen=True)
class Sign:
    """A line of a legend: the style of a line, or of a bar, and what it stands for."""

    label: str
    style: int
    is_bar: bool = False


@dataclass(frozen=True)
class Drawing:
    """Panels with a title, a legend, and the numbers below them; ``drawing`` of ``_parts.html`` shows it.

    Args:
        name: Id of the drawing on the page.
        title: Heading of the drawing.
        note: Sentence about what the drawing shows.
        panels: The plots.
        signs: The legend.
        tables: Tables of the numbers, closed at first.
        is_half: Whether two such drawings fit side by side.
    """

    name: str
    title: str
    note: str
    panels: Sequence[Plot]
    signs: Sequence[Sign] = ()
    tables: Sequence[Table] = ()
    is_half: bool = False


def interval_ends(metric: Estimate, *, share: bool = True) -> tuple[float, float] | None:
    """Clip the interval to the range of a share or a size; return None if there is none."""
    if metric.low is None or metric.high is None:
        return None
    return max(0.0, metric.low), min(1.0, metric.high) if share else metric.high


def metric_cell(metric: Estimate | None, *, share: bool = True, best: bool = False) -> Cell:
    """Write a metric with its interval below it: in percent if it is a share."""
    if metric is None or metric.value is None:
        return Cell("-")
    show = format_percent if share else "{:.2f}".format
    ends = interval_ends(metric, share=share)
    interval = "" if ends is None else f"{show(ends[0])} to {show(ends[1])}"
    return Cell(show(metric.value), interval, "best" if best else "")
