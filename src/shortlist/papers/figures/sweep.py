"""Metrics of runs against one option of their recipes (Petersen et al., ICML 2022, figure 2).

For example the number m of ranked classes (``loss.candidates``) or the steepness of the ranked loss.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.metrics import is_share
from shortlist.papers.figures._frame import Figure, Numbers, Progress
from shortlist.papers.figures._lines import add_legend, draw_band, figure_with_legend, percent, style_of
from shortlist.papers.figures._lists import check_texts
from shortlist.papers.figures._runs import MethodRuns, measure_runs, run_metrics, seed_mean
from shortlist.recipes import flat_content
from shortlist.runs import Run, RunError

_OWN = ("name", "about", "seed")  # not what a method is


class Point(NamedTuple):
    """The value of the option (None without it), those chosen along, all others, metrics of a run."""

    value: float | None
    chosen: dict[str, Any]
    others: dict[str, Any]
    metrics: list[float | None]


def measure(
    *,
    runs: Sequence[str | Path],
    key: str = "loss.steepness",
    metrics: str | Sequence[str] = ("top1.micro", "top5.micro"),
    chosen: str | Sequence[str] = ("optimizer.lr",),
    progress: Progress | None = None,
) -> Numbers:
    """Read metrics of runs, and put them beside a number of their recipes.

    Runs that differ in that number alone, and in what was chosen anew at each of its values, are a line. Runs
    without it, such as those with another loss, are horizontal lines.

    Args:
        runs: Run folders.
        key: Name of the option, as in ``shortlist train --set``; of an entry of a list with its place from 0,
            as in ``loss.distribution.4``.
        metrics: Names of metrics, as in ``Results.metrics``.
        chosen: Options that were chosen anew at each value, as by the grid of a suite.
        progress: Called after each run.
    """
    names, along = check_texts("metrics", metrics), check_texts("chosen", chosen)
    methods, left_out = measure_runs(runs, lambda run: _point(run, key, names, along), progress)
    if all(method.by_run[0].value is None for method in methods):
        raise ValueError(f"key must be an option of at least one run that is a number, got {key!r}")
    varied = _varied([method.by_run[0].others for method in methods if method.by_run[0].value is not None])
    points = [_describe(method, names, varied) for method in methods]
    lines: dict[str, list[Numbers]] = {}
    for point in points:
        lines.setdefault(point["line"], []).append(point)
        values = [other["value"] for other in lines[point["line"]]]
        if point["value"] is not None and values.count(point["value"]) > 1:
            raise ValueError(
                f"runs must have each {key} once, got {point['value']:g} twice of runs that differ only in "
                f"{', '.join(along)}"
            )
    return {
        "key": key,
        "metrics": names,
        "lines": [
            {"label": label, "points": sorted(line_points, key=lambda p: p["value"])}
            for label, line_points in lines.items()
            if line_points[0]["value"] is not None
        ],
        "levels": [point for point in points if point["value"] is None],
        "left_out": left_out,
    }


def _point(run: Run, key: str, metrics: Sequence[str], along: Sequence[str]) -> Point:
    content = flat_content(run.recipe)
    parent, _, place = key.rpartition(".")
    whole = content.get(parent)
    if isinstance(whole, list) and place.isdecimal():
        value = whole[int(place)] if int(place) < len(whole) else None
        content.pop(parent)  # the other entries go along with this one
    else:
        value = content.pop(key, None)
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise RunError(f"{run.path} has {value!r} for {key}, which is no number")
    picked = {name: content[name] for name in along if name in content}
    others = {name: setting for name, setting in content.items() if name not in (*_OWN, *along)}
    return Point(value, picked, others, run_metrics(run, metrics))


def _varied(recipes: Sequence[dict[str, Any]]) -> list[str]:
    """List the options in which the runs with the option differ beside it."""
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    return [key for key in keys if len({str(recipe.get(key)) for recipe in recipes}) > 1]


def _describe(method: MethodRuns[Point], names: Sequence[str], varied: Sequence[str]) -> Numbers:
    first = method.by_run[0]
    means = {
        name: asdict(seed_mean([run.metrics[place] for run in method.by_run]))
        for place, name in enumerate(names)
    }
    parts = [f"{key.rpartition('.')[2]} {first.others.get(key)}" for key in varied]
    line = method.label if first.value is None else ", ".join(parts)
    return method.about() | {"value": first.value, "chosen": first.chosen, "line": line, "metrics": means}


def draw(numbers: Numbers) -> Figure:
    """Draw a panel for each metric: a line for each group of runs, dashed levels for runs without it."""
    lines, levels, names = numbers["lines"], numbers["levels"], numbers["metrics"]
    labels = [*(line["label"] or "runs" for line in lines), *(level["label"] for level in levels)]
    figure = figure_with_legend(1.2 + 3.6 * len(names), 3.8, labels)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    values = sorted({point["value"] for line in lines for point in line["points"]})
    for axes, name in zip(panels, names, strict=True):
        for number, line in enumerate(lines):
            _draw_line(axes, name, line, style_of(number), len(lines))
        for number, level in enumerate(levels):
            height = level["metrics"][name]["value"]
            if height is not None:
                style = style_of(len(lines) + number, is_limit=level["is_limit"])
                axes.axhline(_shown(name, [height])[0], color=style["color"], linestyle="--", linewidth=1.2,
                             label=level["label"])  # fmt: skip
        if values[0] > 0 and values[-1] >= 10 * values[0]:
            axes.set_xscale("log")
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        axes.set(xlabel=numbers["key"], ylabel=f"{name} (%)" if is_share(name) else name)
        axes.grid(alpha=0.3)
    add_legend(figure, panels[0].get_legend_handles_labels()[0])
    return figure


def _draw_line(axes: Any, name: str, line: Numbers, style: dict[str, Any], num_lines: int) -> None:
    points = line["points"]
    xs = [point["value"] for point in points]
    means = {end: [point["metrics"][name][end] for point in points] for end in ("value", "low", "high")}
    shown = _shown(name, means["value"])
    axes.plot(xs, shown, markersize=4, linewidth=1.6, label=line["label"] or "runs", **style)
    if is_share(name):
        draw_band(axes, xs, means, color=style["color"], num_lines=num_lines)


def _shown(name: str, values: Sequence[float | None]) -> list[float]:
    return percent(values) if is_share(name) else [float("nan") if v is None else v for v in values]
