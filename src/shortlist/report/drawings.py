"""Compute the places of lines, bars and labels of a drawing; ``templates/_plot.html`` writes the SVG.

Drawings on the page are made by hand, unlike all others, for one reason: matplotlib writes fixed colors
into its files. Here a mark has a number (``s0``, ``s1``, ...), and the page's style gives it the color for
light or for dark paper, as the reader's browser asks for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shortlist._text import format_percent
from shortlist.palette import LIGHT

WIDTH, HEIGHT = 360, 240
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 24, 40
FRAME = {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "LEFT": LEFT, "RIGHT": RIGHT, "TOP": TOP, "BOTTOM": BOTTOM}
_DASHES = ("none", "7 3", "2 3", "9 3 2 3")


@dataclass(frozen=True)
class Series:
    """The values of a line or of the bars of one kind.

    Args:
        label: Name of the series.
        xs: Places of the values on the x axis; not used for bars.
        ys: Values; None leaves a gap.
        style: Number of its color and dashes.
        radii: Radius of the mark at each point; no marks if left out.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    style: int = 0
    radii: Sequence[float] | None = None


@dataclass(frozen=True)
class Line:
    """A line in the form that SVG needs: its path, and (x, y, radius) of each mark."""

    label: str
    path: str
    style: int
    circles: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Bar:
    """A bar in the form that SVG needs."""

    label: str
    x: str
    y: str
    width: str
    height: str
    style: int


@dataclass(frozen=True)
class Plot:
    """All that ``_plot.html`` draws.

    Args:
        title: Title above the drawing; empty where a drawing has one panel and a title of its own.
        x_label: Label below the drawing.
        y_label: Label beside the drawing.
        description: Text for people who cannot see the drawing.
        levels: Place and label of each horizontal line.
        ticks: Place and label of each tick below.
        references: Ends (x1, y1, x2, y2) of each dashed line.
        lines: The lines.
        bars: The bars.
    """

    title: str
    x_label: str
    y_label: str
    description: str
    levels: Sequence[tuple[str, str]]
    ticks: Sequence[tuple[str, str]]
    references: Sequence[tuple[str, str, str, str]] = ()
    lines: Sequence[Line] = ()
    bars: Sequence[Bar] = ()


def nice_ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Find round numbers from ``low`` to ``high``: steps of 1, 2 or 5 times a power of ten.

    Example:
        >>> nice_ticks(0.0, 1.0)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high > low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / most))
    step = next(step * m for m in (1, 2, 5, 10, 20) if (high - low) / (step * m) <= most - 1 + 1e-9)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Find 1, 2, 5, 10, ... from ``low`` to ``high``; powers of ten alone if these are many.

    Example:
        >>> log_ticks(1, 30)
        [1, 2, 5, 10, 20]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low <= 2000 else (1,)
    ticks = [f * 10**p for p in powers for f in factors]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def color_of(style: int) -> str:
    """Choose the class of the page's style that has the color."""
    return f"s{style % len(LIGHT)}"


def dash_of(style: int) -> str:
    """Choose dashes, which distinguish lines of similar or repeated colors."""
    return _DASHES[(style // 2 + style // len(LIGHT)) % len(_DASHES)]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _tick_label(value: float, percent: bool) -> str:
    return f"{100 * value:g}" if percent else f"{value:g}"


@dataclass(frozen=True)
class _Frame:
    """A map from values to places in the drawing."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]
    x_log: bool = False

    def x(self, value: float) -> float:
        low, high = self.x_range
        if self.x_log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        share = (value - low) / (high - low) if high > low else 0.5
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        share = (value - low) / (high - low) if high > low else 0.5
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def levels(self, *, percent: bool) -> list[tuple[str, str]]:
        return [(_number(self.y(tick)), _tick_label(tick, percent)) for tick in nice_ticks(*self.y_range)]

    def ticks(self, values: Sequence[tuple[float, str]]) -> list[tuple[str, str]]:
        return [(_number(self.x(value)), label) for value, label in values]

    def segment(self, x1: float, y1: float, x2: float, y2: float) -> tuple[str, str, str, str]:
        return _number(self.x(x1)), _number(self.y(y1)), _number(self.x(x2)), _number(self.y(y2))

    def line(self, series: Series) -> Line:
        points = [
            None if y is None or math.isnan(y) else (_number(self.x(x)), _number(self.y(y)))
            for x, y in zip(series.xs, series.ys, strict=True)
        ]
        path, pen_down = [], False
        for point in points:
            if point is not None:
                path.append(f"{'L' if pen_down else 'M'}{point[0]} {point[1]}")
            pen_down = point is not None
        marks = zip(points, series.radii, strict=True) if series.radii is not None else ()
        circles = [(*point, _number(radius)) for point, radius in marks if point is not None]
        return Line(series.label, "".join(path), series.style, circles)


def line_plot(
    lines: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    description: str,
    title: str = "",
    x_log: bool = False,
    x_ticks: Sequence[tuple[float, str]] | None = None,
    y_range: tuple[float, float] | None = None,
    percent: bool = True,
    diagonal: bool = False,
    level: float | None = None,
) -> Plot:
    """Place lines over a common axis; labels, description and title are those of :class:`Plot`.

    Args:
        lines: Lines to draw.
        x_label: Label below.
        y_label: Label beside.
        description: Text for people who cannot see the drawing.
        title: Title above.
        x_log: Whether x is drawn by its logarithm.
        x_ticks: Places and labels on the x axis; round numbers if left out.
        y_range: Lowest and highest y; of the values if left out.
        percent: Whether y values are shares, labeled in percent.
        diagonal: Whether to draw the line y = x.
        level: Height of a dashed horizontal line, such as a promised coverage.
    """
    xs = [x for line in lines for x in line.xs] or [0.0, 1.0]
    ys = [y for line in lines for y in line.ys if y is not None and math.isfinite(y)] or [0.0, 1.0]
    low, high = (0.0, 1.0) if diagonal else (min(xs), max(xs))
    if x_ticks is not None:  # labels of categories are wide
        low, high = low - 0.3, high + 0.3
    frame = _Frame((low, high), y_range or _padded(min(ys), max(ys)), x_log=x_log and low < high)
    references = [frame.segment(0, 0, 1, 1)] if diagonal else []
    references += [] if level is None else [frame.segment(low, level, high, level)]
    ticks = frame.ticks(x_ticks if x_ticks is not None else _round_ticks(frame, xs, percent=diagonal))
    levels, drawn = frame.levels(percent=percent), [frame.line(line) for line in lines]
    return Plot(title, x_label, y_label, description, levels, ticks, references, drawn)


def _round_ticks(frame: _Frame, xs: Sequence[float], *, percent: bool) -> list[tuple[float, str]]:
    values = log_ticks(*frame.x_range) if frame.x_log else nice_ticks(*frame.x_range)
    if all(isinstance(x, int) for x in xs):  # epochs, numbers of guesses
        values = [value for value in values if value == int(value)]
    return [(value, _tick_label(value, percent)) for value in values]


def _padded(low: float, high: float) -> tuple[float, float]:
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return (max(0.0, low - room) if low >= 0 else low - room), high + room


def bar_plot(
    labels: Sequence[str],
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    description: str,
    title: str = "",
) -> Plot:
    """Place bars side by side for each label; the values of the series are shares."""
    top = max((y or 0.0 for method_bars in series for y in method_bars.ys), default=1.0) or 1.0
    frame = _Frame((0, len(labels)), (0.0, min(1.0, 1.06 * top)))
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    width = 0.84 * slot / max(1, len(series))
    bars = [
        Bar(
            label=f"{method_bars.label}, {labels[i]}: {format_percent(y)} %",
            x=_number(frame.x(i) + 0.08 * slot + number * width),
            y=_number(frame.y(y)),
            width=f"{max(width - 0.4, 0.5):.2f}",
            height=_number(max(frame.y(0) - frame.y(y), 0.5)),
            style=method_bars.style,
        )
        for number, method_bars in enumerate(series)
        for i, y in enumerate(method_bars.ys)
        if y
    ]
    widest = max((len(label) for label in labels), default=1)
    every = max(1, math.ceil(6.4 * (widest + 1) / slot))
    ticks = [(i + 0.5, label) for i, label in enumerate(labels) if i % every == 0]
    levels = frame.levels(percent=True)
    return Plot(title, x_label, y_label, description, levels, frame.ticks(ticks), bars=bars)


def describe(title: str, lines: Sequence[Series], *, percent: bool = True) -> str:
    """Say what a drawing shows, in a sentence: the range of each line."""
    parts = []
    for line in lines:
        ys = [y for y in line.ys if y is not None and math.isfinite(y)]
        if ys:
            low, high = (f"{format_percent(y)} %" if percent else f"{y:.3g}" for y in (min(ys), max(ys)))
            parts.append(f"{line.label} from {low} to {high}")
    return f"{title}: {'; '.join(parts) or 'no values'}"
