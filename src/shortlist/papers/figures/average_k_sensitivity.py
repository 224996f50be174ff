"""What alpha and the batch size make of the average-K loss, in runs (Garcin, thesis, figures 5.5 and 5.6).

The runs are those of ``recipes/cpu/average_k_sensitivity.yaml``, or any others with that loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure
from shortlist.papers.figures._lines import draw_band, percent, style_of
from shortlist.papers.figures._runs import MethodRuns, measure_runs, run_metrics, seed_mean
from shortlist.runs import Run


class Point(NamedTuple):
    """What a run was trained with, and its metric; alpha is None for other losses."""

    loss: str
    temperature: str | float | None
    alpha: float | None
    batch_size: int
    lr: float
    value: float | None


def measure(
    *,
    runs: Sequence[str | Path],
    metric: str = "validation.average5",
    progress: Progress | None = None,
) -> Numbers:
    """Read a metric of each run, and put it beside the alpha and the batch size of the training.

    Args:
        runs: Run folders; at least one with the average-K loss.
        metric: The best of all epochs on the validation rows, as the thesis draws it, or the name of a metric
            as in ``Results.metrics``.
        progress: Called after each run.
    """
    methods, left_out = measure_runs(runs, lambda run: _point(run, metric), progress)
    limits = [value for method in methods if method.is_limit for value in _values(method)]
    points = [_describe(method) for method in methods if not method.is_limit]
    if all(point["alpha"] is None for point in points):
        raise ValueError("runs must hold at least one with the loss average_k, got none")
    return {
        "metric": metric,
        "limit": seed_mean(limits).value if limits else None,
        "points": points,
        "left_out": left_out,
    }


def _point(run: Run, metric: str) -> Point:
    recipe = run.recipe
    alpha = recipe.loss.alpha if recipe.loss.name == "average_k" else None
    temperature, lr = recipe.adjust.temperature, recipe.optimizer.lr
    return Point(recipe.loss.name, temperature, alpha, recipe.batch_size, lr, *run_metrics(run, [metric]))


def _values(method: MethodRuns[Point]) -> list[float | None]:
    return [point.value for point in method.by_run]


def _describe(method: MethodRuns[Point]) -> Numbers:
    return method.about() | method.by_run[0]._asdict() | asdict(seed_mean(_values(method)))


def draw(numbers: Numbers) -> Figure:
    """Draw a line for each batch size against alpha; against the batch size, one for each alpha and loss."""
    ours = [point for point in numbers["points"] if point["alpha"] is not None]
    by_size: dict[str, list[Numbers]] = {}
    for point in sorted(ours, key=lambda point: (point["batch_size"], point["alpha"])):
        by_size.setdefault(f"batches of {point['batch_size']}", []).append(point)
    by_alpha: dict[str, list[Numbers]] = {}
    others = [point for point in numbers["points"] if point["alpha"] is None]
    for point in [*sorted(ours, key=lambda point: point["alpha"]), *others]:
        by_alpha.setdefault(_label(point), []).append(point)
    figure = new_figure(9.0, 4.8)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_panel(left, "alpha", by_size, numbers["limit"])
    _draw_panel(right, "batch_size", by_alpha, numbers["limit"])
    left.set(xlabel="α", ylabel=f"{numbers['metric']} (%)")
    right.set(xlabel="batch size")
    return figure


def _label(point: Numbers) -> str:
    if point["alpha"] is not None:
        return f"α = {point['alpha']:g}"
    return point["loss"] + (" with temperature" if point["temperature"] not in (None, 1.0) else "")


def _draw_panel(axes: Any, key: str, lines: Mapping[str, Sequence[Numbers]], limit: float | None) -> None:
    for number, (label, points) in enumerate(lines.items()):
        points = sorted(points, key=lambda point: point[key])
        xs = [point[key] for point in points]
        means = {end: [point[end] for point in points] for end in ("value", "low", "high")}
        style = style_of(number) | {"linestyle": "-" if points[0]["alpha"] is not None else "--"}
        axes.plot(xs, percent(means["value"]), **style, markersize=4, linewidth=1.6, label=label)
        draw_band(axes, xs, means, color=style["color"], num_lines=len(lines))
    if limit is not None:
        axes.axhline(100 * limit, color="black", linestyle=":", linewidth=1, label="best possible")
    ticks = sorted({point[key] for points in lines.values() for point in points})
    axes.set(xscale="log")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
