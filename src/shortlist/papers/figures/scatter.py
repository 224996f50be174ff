"""One metric of runs against another, a point for each method (Garcin, thesis, figures 3.5, 3.6 and 3.8).

With runs of several networks it shows whether those that are better by one metric are better by the other, or
those that are better on one data set on the other (figures 3.6 and 3.8 (a)).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch

from shortlist.metrics import is_share
from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure
from shortlist.papers.figures._frequency import rank_correlation
from shortlist.papers.figures._lines import style_of
from shortlist.papers.figures._runs import MethodRuns, measure_runs, run_metrics, seed_mean
from shortlist.recipes import flat_content
from shortlist.runs import Run, RunError

_MOST_NAMES = 12  # points whose names have room beside them


def measure(
    *,
    runs: Sequence[str | Path],
    x: str = "top1.micro",
    y: str = "top1.macro",
    x_data: str = "",
    y_data: str = "",
    progress: Progress | None = None,
) -> Numbers:
    """Read two metrics of each run, and average them over seeds; or one of runs on two data sets.

    Args:
        runs: Run folders.
        x: Name of the first metric, as in ``Results.metrics``.
        y: Name of the second metric.
        x_data: Name of the data set of the first metric. With two data sets a point is a network, a loss and
            its options, which runs on both must have once each; what else differs, such as the learning rate,
            may be that of the data set.
        y_data: Name of the data set of the second metric; both names or none.
        progress: Called after each run.

    Returns:
        ``points``: for each method the means with their intervals, and the network; ``correlation`` and
        ``rank_correlation`` of the means (``null`` for fewer than 3 methods), without exact probabilities.
    """
    if bool(x_data) != bool(y_data) or (x_data and x_data == y_data):
        raise ValueError(f"x_data and y_data must be two data sets or none, got {x_data!r} and {y_data!r}")
    if x_data:
        points, left_out = _pairs(runs, {"x": (x, x_data), "y": (y, y_data)}, progress)
    else:
        methods, left_out = measure_runs(runs, lambda run: _values(run, [x, y]), progress)
        points = [_point(method) for method in methods]
    shown = [p for p in points if not p["is_limit"] and None not in (p["x"]["value"], p["y"]["value"])]
    pairs = torch.tensor([[p[axis]["value"] for p in shown] for axis in "xy"], dtype=torch.float64)
    enough = len(shown) > 2
    linear = float(torch.corrcoef(pairs)[0, 1]) if enough else float("nan")
    return {
        "x": f"{x} on {x_data}" if x_data else x,
        "y": f"{y} on {y_data}" if y_data else y,
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


def _pairs(
    runs: Sequence[str | Path], axes: Mapping[str, tuple[str, str]], progress: Progress | None
) -> tuple[list[Numbers], dict[str, str]]:
    """Pair the methods of two data sets by network and loss."""
    methods, left_out = measure_runs(runs, lambda run: _on_its_axis(run, axes), progress)
    by_key: dict[str, dict[str, MethodRuns[_Measured]]] = {}
    for method in methods:
        measured = method.by_run[0]
        pair = by_key.setdefault(measured.key, {})
        if measured.axis in pair:
            other = pair[measured.axis].label
            raise ValueError(
                f"runs must have each network and loss once on a data set, got {other} and {method.label}"
            )
        pair[measured.axis] = method
    points = []
    for pair in by_key.values():
        if len(pair) < 2:
            (single,) = pair.values()
            left_out |= dict.fromkeys(single.paths, f"{single.label} has no runs on the other data set")
            continue
        first = pair["x"].by_run[0]
        means = {
            axis: asdict(seed_mean([run.value for run in method.by_run])) for axis, method in pair.items()
        }
        about = {"label": first.label, "network": first.network, "is_limit": pair["x"].is_limit}
        paths = {"runs": [path for axis in "xy" for path in pair[axis].paths], "seeds": list(pair["x"].seeds)}
        points.append(about | paths | means)
    if not points:
        raise ValueError(
            f"runs must have a network on both data sets, got none: {'; '.join(left_out.values())}"
        )
    return points, left_out


class _Measured(NamedTuple):
    """What a run of one of two data sets says."""

    axis: str
    key: str
    label: str
    network: str
    value: float | None


def _on_its_axis(run: Run, axes: Mapping[str, tuple[str, str]]) -> _Measured:
    data, network = run.recipe.data.name, run.recipe.model.name
    axis = next((axis for axis, (_, name) in axes.items() if name == data), None)
    if axis is None:
        raise RunError(f"{run.path} is of neither data set, but of {data}")
    flat = {key: value for key, value in flat_content(run.recipe).items() if key.startswith("loss.")}
    label = network if flat["loss.name"] == "cross_entropy" else f"{network}, {flat['loss.name']}"
    key = json.dumps([network, sorted(flat.items())])
    return _Measured(axis, key, label, network, *run_metrics(run, [axes[axis][0]]))


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
