"""The figure of a model card: what was promised and what was measured, of all photos and by group."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import NamedTuple

from shortlist._messages import one_line
from shortlist.metrics import Estimate, Results
from shortlist.promise import Promise

_WIDTH, _ROW, _LEFT, _RIGHT = 640, 26, 260, 30
_LONGEST = 34  # characters of a label


class Bar(NamedTuple):
    """A line of the figure: a measured share with its interval, and the promised share."""

    label: str
    measured: Estimate
    promised: float | None


def figure_svg(promises: Mapping[str, Promise], results: Results | None) -> str | None:
    """Draw the coverage of each predictor's sets; ``None`` if nothing was measured.

    The colors can be told apart in light and in dark pages.
    """
    bars = list(_bars(promises, results))
    if not bars:
        return None
    lowest = min(bar.measured.low or bar.measured.value or 0 for bar in bars)
    lowest = min([lowest, *(bar.promised for bar in bars if bar.promised is not None)])
    start = max(0.0, min(0.9, int(lowest * 10) / 10))
    height = _ROW * (len(bars) + 2)
    parts = [_axis(start, height), *(_line(bar, 1 + row, start) for row, bar in enumerate(bars))]
    title = "Share of photos whose list contains the right class, with 95 % intervals"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img" font-family="sans-serif" font-size="13"><title>{title}</title>'
        f'<text x="8" y="17" fill="#777">dot: measured, line: promised</text>{"".join(parts)}</svg>\n'
    )


def _bars(promises: Mapping[str, Promise], results: Results | None) -> Iterator[Bar]:
    for name, promise in promises.items():
        level = None if promise.level is None else promise.level
        if promise.measured is not None:
            measured = promise.measured
            yield Bar(name, Estimate(measured.coverage, measured.low, measured.high), level)
        sets = None if results is None else results.sets.get(name)
        for group, estimate in {} if sets is None else sets.coverage.groups.items():
            if estimate.value is not None:
                yield Bar(f"{name}, classes with {group} photos", estimate, None)


def _axis(start: float, height: int) -> str:
    ticks = [start + (1 - start) * part / 5 for part in range(6)]
    return "".join(
        f'<line x1="{_x(t, start)}" x2="{_x(t, start)}" y1="{_ROW}" y2="{height - _ROW}" stroke="#999" '
        f'stroke-opacity="0.4"/><text x="{_x(t, start)}" y="{height - 8}" fill="#777" '
        f'text-anchor="middle">{100 * t:.0f} %</text>'
        for t in ticks
    )


def _line(bar: Bar, row: int, start: float) -> str:
    y = _ROW * row + _ROW / 2
    label = one_line(bar.label)
    label = label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}…"
    text = f'<text x="8" y="{y + 4:g}" fill="#777">{escape(label)}</text>'
    if bar.promised is not None:
        at = _x(bar.promised, start)
        text += f'<line x1="{at}" x2="{at}" y1="{y - 9:g}" y2="{y + 9:g}" stroke="#D55E00" stroke-width="3"/>'
    if bar.measured.low is not None and bar.measured.high is not None:
        ends = (_x(bar.measured.low, start), _x(bar.measured.high, start))
        text += f'<line x1="{ends[0]}" x2="{ends[1]}" y1="{y:g}" y2="{y:g}" stroke="#0072B2"/>'
    return text + f'<circle cx="{_x(bar.measured.value or 0, start)}" cy="{y:g}" r="4.5" fill="#0072B2"/>'


def _x(share: float, start: float) -> float:
    inside = (max(start, share) - start) / (1 - start)
    return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * inside, 1)
