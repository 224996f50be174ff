"""Small drawings as SVG text: colours are those of the page's style, so that they follow light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shortlist.report.html import Markup, joined, tag

__all__ = [
    "Series",
    "bar_chart",
    "bar_sign",
    "describe",
    "line_chart",
    "line_sign",
    "log_ticks",
    "nice_ticks",
]

WIDTH, HEIGHT = 360, 240
LEFT, RIGHT, TOP, BOTTOM = 46, 16, 24, 40
NUM_COLOURS = 8
_DASHES = (None, "7 3", "2 3", "9 3 2 3")


@dataclass(frozen=True)
class Series:
    """A line.

    Args:
        label: Name.
        xs: Where.
        ys: Values; None leaves a gap.
        style: Number of its colour and dashes.
        radii: Radius of the mark at each point; no marks if left out.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    style: int = 0
    radii: Sequence[float] | None = None


def nice_ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Round numbers from ``low`` to ``high``: steps of 1, 2 or 5 times a power of ten.

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
    """1, 2, 5, 10, ... from ``low`` to ``high``; powers of ten alone if these are many.

    Example:
        >>> log_ticks(1, 30)
        [1, 2, 5, 10, 20]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1, 2, 5) if high / low <= 2000 else (1,)
    ticks = [f * 10**p for p in powers for f in factors]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def _dash(style: int) -> str | None:
    """Dashes tell apart lines of similar colours, and those after the colours have all been used."""
    return _DASHES[(style // 2 + style // NUM_COLOURS) % len(_DASHES)]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _tick_label(value: float, percent: bool) -> str:
    return f"{100 * value:g}" if percent else f"{value:g}"


class _Frame:
    """Maps values to the drawing, and draws what is around them."""

    def __init__(self, x_range: tuple[float, float], y_range: tuple[float, float], *, x_log: bool) -> None:
        self.x_range, self.y_range, self.x_log = x_range, y_range, x_log

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

    def horizontals(self, *, percent: bool) -> list[Markup]:
        parts = []
        for tick in nice_ticks(*self.y_range):
            y = _number(self.y(tick))
            parts.append(_svg("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
            label = _tick_label(tick, percent)
            parts.append(_svg("text", label, x=LEFT - 5, y=y, dy="0.32em", class_="end"))
        return parts

    def labels_below(self, ticks: Sequence[tuple[float, str]]) -> list[Markup]:
        at = HEIGHT - BOTTOM + 15
        return [_svg("text", label, x=_number(x), y=at, class_="middle") for x, label in ticks]


def _svg(name: str, *content: object, **attributes: object) -> Markup:
    return tag(name, *content, **attributes)


def _whole(parts: Sequence[Markup], *, title: str, x_label: str, y_label: str, description: str) -> Markup:
    words = [
        _svg("text", title, x=LEFT, y=14, class_="title") if title else Markup(""),
        _svg("text", x_label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 7, class_="middle label"),
        _svg("text", y_label, transform=f"translate(11 {(HEIGHT - BOTTOM + TOP) / 2}) rotate(-90)",
             class_="middle label"),
    ]  # fmt: skip
    return tag(
        "svg",
        *words,
        *parts,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=description,
        class_="plot",
    )


def _line(frame: _Frame, series: Series) -> Markup:
    points = [
        None if y is None or math.isnan(y) else (_number(frame.x(x)), _number(frame.y(y)))
        for x, y in zip(series.xs, series.ys, strict=True)
    ]
    path, pen_down = [], False
    for point in points:
        if point is not None:
            path.append(f"{'L' if pen_down else 'M'}{point[0]} {point[1]}")
        pen_down = point is not None
    dash = _dash(series.style)
    colour = f"stroke s{series.style % NUM_COLOURS}"
    parts = [_svg("path", _svg("title", series.label), d="".join(path), class_=colour, stroke_dasharray=dash)]
    if series.radii is not None:
        parts += [
            _svg(
                "circle",
                cx=point[0],
                cy=point[1],
                r=_number(radius),
                class_=f"fill s{series.style % NUM_COLOURS}",
            )
            for point, radius in zip(points, series.radii, strict=True)
            if point is not None
        ]
    return joined(parts)


def line_chart(
    lines: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    description: str,
    x_log: bool = False,
    x_ticks: Sequence[tuple[float, str]] | None = None,
    y_range: tuple[float, float] | None = None,
    percent: bool = True,
    diagonal: bool = False,
    level: float | None = None,
) -> Markup:
    """Lines over a common axis.

    Args:
        lines: What to draw.
        title: Above the drawing; none where the figure has one panel and a title of its own.
        x_label: Below it.
        y_label: Beside it.
        description: For those who do not see it.
        x_log: Whether x is drawn by its logarithm.
        x_ticks: Places and labels on the x axis; round numbers if left out.
        y_range: Lowest and highest y; of the values if left out.
        percent: Whether y values are shares, labelled in percent.
        diagonal: Whether to draw where y equals x.
        level: Where to draw a dashed horizontal line, such as a promised coverage.
    """
    xs = [x for line in lines for x in line.xs] or [0.0, 1.0]
    ys = [y for line in lines for y in line.ys if y is not None and math.isfinite(y)] or [0.0, 1.0]
    x_range = (0.0, 1.0) if diagonal else (min(xs), max(xs))
    if x_ticks is not None:  # labels of categories are wide
        x_range = (x_range[0] - 0.3, x_range[1] + 0.3)
    frame = _Frame(x_range, y_range or _padded(min(ys), max(ys)), x_log=x_log and x_range[0] < x_range[1])
    if x_ticks is None:
        values = log_ticks(*x_range) if frame.x_log else nice_ticks(*x_range)
        if all(isinstance(x, int) for x in xs):  # epochs, numbers of guesses
            values = [value for value in values if value == int(value)]
        x_ticks = [(value, _tick_label(value, diagonal)) for value in values]
    parts = frame.horizontals(percent=percent)
    parts += frame.labels_below([(frame.x(value), label) for value, label in x_ticks])
    if diagonal:
        ends = {"x1": _number(frame.x(0)), "y1": _number(frame.y(0))}
        parts.append(_svg("line", **ends, x2=_number(frame.x(1)), y2=_number(frame.y(1)), class_="reference"))
    if level is not None:
        y = _number(frame.y(level))
        parts.append(_svg("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="reference"))
    parts += [_line(frame, line) for line in lines]
    return _whole(parts, title=title, x_label=x_label, y_label=y_label, description=description)


def _padded(low: float, high: float) -> tuple[float, float]:
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return (max(0.0, low - room) if low >= 0 else low - room), high + room


def bar_chart(
    labels: Sequence[str],
    bars: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    description: str,
) -> Markup:
    """Bars side by side for each label; ``ys`` of the series are shares, their ``xs`` are not looked at."""
    top = max((y or 0.0 for series in bars for y in series.ys), default=1.0) or 1.0
    frame = _Frame((0, len(labels)), (0.0, min(1.0, 1.06 * top)), x_log=False)
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(labels))
    width = 0.84 * slot / max(1, len(bars))
    parts = frame.horizontals(percent=True)
    for number, series in enumerate(bars):
        for i, y in enumerate(series.ys):
            if not y:
                continue
            left, upper = frame.x(i) + 0.08 * slot + number * width, frame.y(y)
            parts.append(
                _svg(
                    "rect",
                    _svg("title", f"{series.label}, {labels[i]}: {100 * y:.1f} %"),
                    x=_number(left),
                    y=_number(upper),
                    width=f"{max(width - 0.4, 0.5):.2f}",
                    height=_number(max(frame.y(0) - upper, 0.5)),
                    class_=f"fill s{series.style % NUM_COLOURS}",
                )
            )
    widest = max((len(label) for label in labels), default=1)
    every = max(1, math.ceil(6.4 * (widest + 1) / slot))
    ticks = [(frame.x(i + 0.5), label) for i, label in enumerate(labels) if i % every == 0]
    parts += frame.labels_below(ticks)
    return _whole(parts, title=title, x_label=x_label, y_label=y_label, description=description)


def line_sign(style: int) -> Markup:
    """A short piece of a line, for a legend."""
    dash = _dash(style)
    line = _svg("path", d="M1 5H25", class_=f"stroke s{style % NUM_COLOURS}", stroke_dasharray=dash)
    return tag("svg", line, viewBox="0 0 26 10", width=26, height=10, aria_hidden="true", class_="sign")


def bar_sign(style: int) -> Markup:
    """A small square, for a legend."""
    square = _svg("rect", width=10, height=10, class_=f"fill s{style % NUM_COLOURS}")
    return tag("svg", square, viewBox="0 0 10 10", width=10, height=10, aria_hidden="true", class_="sign")


def describe(title: str, lines: Sequence[Series], *, percent: bool = True) -> str:
    """What a drawing shows, in a sentence: the range of each line."""
    parts = []
    for line in lines:
        ys = [y for y in line.ys if y is not None and math.isfinite(y)]
        if ys:
            low, high = (f"{100 * y:.1f} %" if percent else f"{y:.3g}" for y in (min(ys), max(ys)))
            parts.append(f"{line.label} from {low} to {high}")
    return f"{title}: {'; '.join(parts) or 'no values'}"
