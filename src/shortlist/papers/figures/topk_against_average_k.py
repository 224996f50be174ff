"""K classes for every row against K on average, in runs."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from shortlist._bounds import check_choice
from shortlist.metrics import Average, set_coverage, topk_accuracy
from shortlist.papers.figures._frame import Figure, Numbers, Progress
from shortlist.papers.figures._lines import add_legend, draw_band, figure_with_legend, percent, style_of
from shortlist.papers.figures._lists import check_integers
from shortlist.papers.figures._runs import MethodRuns, mapped_scores, mean_columns, measure_runs
from shortlist.predictors import AverageK, CalibrationWarning
from shortlist.runs import Run


class Coverages(NamedTuple):
    """Of a run, for each K: coverage of K classes, of K on average, and the mean size that came of these."""

    topk: list[float]
    average_k: list[float]
    size: list[float]
    rows: int


def measure(
    *,
    runs: Sequence[str | Path],
    k: int | Sequence[int] = (1, 2, 3, 4, 5, 6, 8, 10),
    average: str = "micro",
    progress: Progress | None = None,
) -> Numbers:
    """Measure coverage on test rows of sets of K classes, and of sets of K on average.

    The thresholds of the latter are set on the run's validation rows, so that the mean size on test rows is
    not exactly K: it is measured. Scores are those that the run predicts from, through its score map.

    Args:
        runs: Run folders.
        k: The K to try.
        average: Coverage over rows, ``"micro"``, or its mean over classes, ``"macro"``. Sizes are over rows.
        progress: Called after each run.
    """
    ks = sorted(check_integers("k", k))
    check_choice("average", average, ("micro", "macro"))
    methods, left_out = measure_runs(runs, lambda run: _coverages(run, ks, average), progress)
    return {
        "k": ks,
        "average": average,
        "calibrated_on": "validation rows, midpoint rule",
        "methods": [_of_method(method) for method in methods],
        "left_out": left_out,
    }


def _coverages(run: Run, ks: Sequence[int], average: str) -> Coverages:
    held_out, _ = mapped_scores(run, "val")
    scores, target = mapped_scores(run, "test")
    over: Average = "macro" if average == "macro" else "micro"
    topk = topk_accuracy(scores, target, k=ks, average=over)
    coverage, size = [], []
    for k in ks:
        with warnings.catch_warnings():  # of ties, which change the size: that is measured
            warnings.simplefilter("ignore", CalibrationWarning)
            sets = AverageK(k).calibrate(held_out)(scores)
        coverage.append(float(set_coverage(sets, target, average=over)))
        size.append(float(sets.sum()) / len(sets))
    return Coverages(topk.tolist(), coverage, size, len(target))


def _of_method(method: MethodRuns[Coverages]) -> Numbers:
    numbers = method.about() | {"test_rows": [each_run.rows for each_run in method.by_run]}
    for name in ("topk", "average_k", "size"):
        numbers[name] = mean_columns(zip(*(getattr(run, name) for run in method.by_run), strict=True))
    return numbers


def draw(numbers: Numbers) -> Figure:
    """Draw for each method a broken line for K classes, and a whole one for K on average."""
    from matplotlib.lines import Line2D

    methods = numbers["methods"]
    figure = figure_with_legend(7.0, 4.7, [method["label"] for method in methods])
    axes = figure.subplots()
    handles = []
    for number, method in enumerate(methods):
        style = style_of(number, is_limit=method["is_limit"])
        fixed, adaptive, size = method["topk"], method["average_k"], method["size"]["value"]
        axes.plot(numbers["k"], percent(fixed["value"]), linewidth=1.2, linestyle=(0, (4, 2)), markersize=4,
                  markerfacecolor="white", **style)  # fmt: skip
        (line,) = axes.plot(size, percent(adaptive["value"]), linewidth=1.8, markersize=4, **style,
                            label=method["label"])  # fmt: skip
        for xs, means in ((numbers["k"], fixed), (size, adaptive)):
            draw_band(axes, xs, means, color=style["color"], num_lines=len(methods))
        handles.append(line)
    kinds = [
        Line2D([], [], color="0.3", marker="o", markersize=4, linewidth=1.8, label="K on average"),
        Line2D([], [], color="0.3", marker="o", markersize=4, linewidth=1.2, linestyle=(0, (4, 2)),
               markerfacecolor="white", label="K for every row"),
    ]  # fmt: skip
    over = "" if numbers["average"] == "micro" else ", mean over classes"
    axes.set(xlabel="classes in a set, mean over test rows")
    axes.set(ylabel=f"coverage on test rows{over} (%)")
    axes.set_xticks(numbers["k"])
    axes.grid(alpha=0.3)
    axes.add_artist(axes.legend(handles=kinds, loc="lower right", frameon=False))
    add_legend(figure, handles)
    return figure
