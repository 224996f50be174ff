"""How many classes the sets of runs have, methods side by side (Garcin, thesis, figure 5.4)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.compare import bin_histogram, bin_labels, share_of, size_bins, size_histograms
from shortlist.palette import PRINT
from shortlist.papers.figures._frame import Figure, Numbers, Progress
from shortlist.papers.figures._lines import add_legend, figure_with_legend, percent, style_of
from shortlist.papers.figures._runs import MethodRuns, mapped_scores, mean_columns, measure_runs, seed_mean
from shortlist.runs import Run, RunError


class Sizes(NamedTuple):
    """Of a run: by group of classes, the number of sets of each size."""

    histograms: Mapping[str, Sequence[int]]

    @property
    def whole(self) -> list[int]:
        """The number of sets of each size, of all groups."""
        return [sum(column) for column in zip(*self.histograms.values(), strict=True)]


def measure(
    *, runs: Sequence[str | Path], predictor: str = "average5", progress: Progress | None = None
) -> Numbers:
    """Count the sets of each size on test rows, for each method, and by group of the true class.

    Args:
        runs: Run folders.
        predictor: Name of the predictor whose sets are counted, as in the recipes.
        progress: Called after each run.
    """
    methods, left_out = measure_runs(runs, lambda run: _sizes(run, predictor), progress)
    largest = max(len(each_run.whole) for method in methods for each_run in method.by_run) - 1
    bins = size_bins(largest)
    return {
        "predictor": predictor,
        "bins": [list(ends) for ends in bins],
        "methods": [_of_method(method, bins) for method in methods],
        "left_out": left_out,
    }


def _sizes(run: Run, name: str) -> Sizes:
    predictors = run.predictors
    if name not in predictors:
        raise RunError(f"{run.path} has no predictor {name}, only {', '.join(predictors) or 'none'}")
    scores, target = mapped_scores(run, "test")
    sizes = predictors[name](scores).sum(1)
    return Sizes(size_histograms(sizes, target, run.class_groups))


def _of_method(method: MethodRuns[Sizes], bins: Sequence[tuple[int, int]]) -> Numbers:
    names = list(dict.fromkeys(name for run in method.by_run for name in run.histograms))
    mean_sizes = [sum(i * n for i, n in enumerate(run.whole)) / sum(run.whole) for run in method.by_run]
    by_group = {
        name: [run.histograms[name] for run in method.by_run if name in run.histograms] for name in names
    }
    return method.about() | {
        "mean_size": asdict(seed_mean(mean_sizes)),
        "share": _shares([run.whole for run in method.by_run], bins),
        "groups": {name: _shares(histograms, bins) for name, histograms in by_group.items()},
    }


def _shares(histograms: Sequence[Sequence[int]], bins: Sequence[tuple[int, int]]) -> Numbers:
    """Average the shares of the bins over runs."""
    shares = [share_of(bin_histogram(histogram, bins)) for histogram in histograms]
    return mean_columns(zip(*shares, strict=True))


def draw(numbers: Numbers) -> Figure:
    """Draw the methods side by side, and below a panel for each method with its groups of classes."""
    methods = numbers["methods"]
    groups = list(dict.fromkeys(name for method in methods for name in method["groups"]))
    shown = methods if len(groups) > 1 else []
    labels = [*(_label(method) for method in methods), *(groups if shown else [])]
    figure = figure_with_legend(7.5, 3.0 + 2.2 * len(shown), labels)
    panels = figure.subplots(1 + len(shown), 1, squeeze=False, sharex=True)[:, 0]
    bars = {_label(method): method["share"] for method in methods}
    colors = [style_of(i, is_limit=method["is_limit"])["color"] for i, method in enumerate(methods)]
    _draw_bars(panels[0], numbers, bars, colors)
    panels[0].set(title=f"sets of {numbers['predictor']}", ylabel="percent of sets")
    handles = panels[0].get_legend_handles_labels()[0]
    grays = dict(zip(groups, ("0.25", "0.55", "0.8", *PRINT), strict=False))
    for axes, method in zip(panels[1:], shown, strict=True):
        _draw_bars(axes, numbers, method["groups"], [grays[name] for name in method["groups"]])
        axes.set(title=f"{method['label']}, by group of the true class", ylabel="percent of the group")
    panels[-1].set_xlabel("classes in a set")
    add_legend(figure, handles + (panels[1].get_legend_handles_labels()[0] if shown else []))
    return figure


def _label(method: Numbers) -> str:
    return f"{method['label']} (mean size {method['mean_size']['value']:.2f})"


def _draw_bars(axes: Any, numbers: Numbers, bars: Mapping[str, Numbers], colors: Sequence[str]) -> None:
    bins = [tuple(ends) for ends in numbers["bins"]]
    width = 0.8 / len(bars)
    for number, ((label, bar), color) in enumerate(zip(bars.items(), colors, strict=True)):
        places = [i + (number - (len(bars) - 1) / 2) * width for i in range(len(bins))]
        axes.bar(places, percent(bar["value"]), width, color=color, label=label)
    axes.set_xticks(range(len(bins)), bin_labels(bins))
    axes.tick_params(labelbottom=True)
    axes.grid(alpha=0.3, axis="y")
    axes.set_axisbelow(True)
