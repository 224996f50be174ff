"""One metric of runs against another, a point for each method (Garcin, thesis, figures 3.5, 3.6 and 3.8).

With runs of several networks it shows whether those that are better by one metric are better by the other.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from shortlist.metrics import is_share
from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure
from shortlist.papers.figures._frequency import rank_correlation
from shortlist.papers.figures._lines import style_of
from shortlist.papers.figures._runs import MethodRuns, measure_runs, run_metrics, seed_mean
from shortlist.runs import Run

_MOST_NAMES = 12  # points whose names have room beside them


def measure(
    *,
    runs: Sequence[str | Path],
    x: str = "top1.micro",
    y: str = "top1.macro",
    progress: Progress | None = None,
) -> Numbers:
    """Read two metrics of each run, and average them over seeds.

    Args:
        runs: Run folders.
        x: Name of the first metric, as in ``Results.metrics``.
        y: Name of the second metric.
        progress: Called after each run.

    Returns:
        ``points``: for each method the means with their intervals, and the network; ``correlation`` and
        ``rank_correlation`` of the means (``null`` for fewer than 3 methods), without exact probabilities.
    """
    methods, left_out = measure_runs(runs, lambda run: _values(run, [x, y]), progress)
    points = [_point(method) for method in methods]
    shown = [p for p in points if not p["is_limit"] and None not in (p["x"]["value"], p["y"]["value"])]
    pairs = torch.tensor([[p[axis]["value"] for p in shown] for axis in "xy"], dtype=torch.float64)
    enough = len(shown) > 2
    linear = float(torch.corrcoef(pairs)[0, 1]) if enough else float("nan")
    return {
        "x": x,
        "y": y,
        "points": points,
        "correlation": None if linear != linear else linear,
        "rank_correlation": rank_correlation(pairs[0], pairs[1]) if enough else None,
        "left_out": left_out,
    }


def _values(run: Run, names: Sequence[str]) -> tuple[str, list[float | None]]:
    return run.recipe.model.name, run_metrics(run, names)


def _point(method: MethodRuns[tuple[str, list[float | None]]]) -> Numbers:
    columns = zip("xy", zip(*(values for _, values in method.by_run), strict=True), strict=True)
    means = {axis: asdict(seed_mean(column)) for axis, column in columns}
    return method.about() | {"network": method.by_run[0][0]} | means


def draw(numbers: Numbers) -> Figure:
    """Draw a point for each method with its intervals; many points are numbered, with a list beside."""
    points = [p for p in numbers["points"] if None not in (p["x"]["value"], p["y"]["value"])]
    many = len(points) > _MOST_NAMES
    figure = new_figure(8.5 if many else 6.5, max(4.6, 0.19 * len(points) if many else 0))
    axes = figure.subplots()
    for number, point in enumerate(points):
        style = style_of(number, is_limit=point["is_limit"])
        name = f"{number + 1}: {point['label']}" if many else point["label"]
        place = (_scaled(numbers["x"], point["x"]["value"]), _scaled(numbers["y"], point["y"]["value"]))
        axes.errorbar(*place, xerr=_bar(numbers["x"], point["x"]), yerr=_bar(numbers["y"], point["y"]),
                      linestyle="none", markersize=6, elinewidth=0.8, label=name, **style)  # fmt: skip
        axes.annotate(str(number + 1) if many else point["label"], place, (5, 4), fontsize="small",
                      textcoords="offset points")  # fmt: skip
    for set_label, name in ((axes.set_xlabel, numbers["x"]), (axes.set_ylabel, numbers["y"])):
        set_label(f"{name} (%)" if is_share(name) else name)
    if numbers["rank_correlation"] is not None:
        axes.set_title(f"rank correlation {numbers['rank_correlation']:+.2f}", fontsize="small")
    axes.grid(alpha=0.3)
    if many:
        figure.legend(loc="outside right upper", frameon=False, fontsize="x-small")
    return figure


def _scaled(name: str, value: float) -> float:
    return 100 * value if is_share(name) else value


def _bar(name: str, mean: Numbers) -> Any:
    """Return the lengths of the interval below and above, or None without one."""
    if mean["low"] is None:
        return None
    value = mean["value"]
    return [[_scaled(name, value - mean["low"])], [_scaled(name, mean["high"] - value)]]
