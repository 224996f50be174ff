"""Norms of the class weights by class frequency, in runs: ``shortlist papers figure weight_norms``.

Weight normalization after training counts on norms that grow with the frequency of the class. Whether they
do depends on the optimizer (Menon et al., "Long-tail learning via logit adjustment", ICLR 2021, figure 1).
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from torch import Tensor

from shortlist._checks import check_count
from shortlist.metrics import balanced_error
from shortlist.papers.figures._frame import Figure, Numbers, Progress
from shortlist.papers.figures._frequency import frequency_groups, rank_correlation
from shortlist.papers.figures._lines import add_legend, figure_with_legend, style_of
from shortlist.papers.figures._runs import MethodRuns, mean_columns, measure_runs, network_scores, seed_mean
from shortlist.runs import Run, RunError
from shortlist.scores import normalization_map


class Norms(NamedTuple):
    """Of a run: means of the groups (g,), the mean of all, and what they have to do with frequency."""

    groups: list[float]
    images: list[float]
    mean: float
    correlation: float | None
    error: float
    normalized_error: float


def measure(*, runs: Sequence[str | Path], groups: int = 10, progress: Progress | None = None) -> Numbers:
    r"""Measure the norms of the class weights in groups of classes, the most frequent classes first.

    Args:
        runs: Run folders, of networks with a linear classifier.
        groups: Groups of equally many classes, in the order of their training images.
        progress: Called after each run.

    Returns:
        For each method and group the mean norm, its standard deviation over seeds (as published) and its 95 %
        interval; the mean over all classes; Spearman's correlation of norm and training images; and the
        balanced error on test rows as the network is, and after :math:`w_j / \lVert w_j \rVert`.
    """
    check_count("groups", groups)
    seen: dict[tuple[float, ...], str] = {}
    methods, left_out = measure_runs(runs, lambda run: _norms(run, groups, seen), progress)
    lengths = {len(each_run.groups) for method in methods for each_run in method.by_run}
    if len(lengths) > 1:
        raise ValueError(f"groups must be at most the classes of each run ({min(lengths)}), got {groups}")
    return {
        "groups": lengths.pop(),
        "methods": [_of_method(method) for method in methods],
        "left_out": left_out,
    }


def _norms(run: Run, groups: int, seen: dict[tuple[float, ...], str]) -> Norms:
    norms, offsets = run.load_norms()
    same = seen.setdefault(tuple(norms.tolist()), str(run.path))
    if same != str(run.path):  # the same network with other sets
        raise RunError(f"{run.path} has the same norms as {same}")
    counts = run.class_table.class_counts
    if len(norms) != len(counts):
        raise RunError(f"{run.path} has {len(norms)} norms of {len(counts)} classes")
    members = frequency_groups(counts, groups)
    scores, target = network_scores(run, "test")
    normalized = normalization_map(norms, offsets, tau=1.0)(scores.double())
    return Norms(
        [_mean(norms[group]) for group in members],
        [_mean(counts[group]) for group in members],
        _mean(norms),
        rank_correlation(norms, counts),
        float(balanced_error(scores, target)),
        float(balanced_error(normalized, target)),
    )


def _mean(values: Tensor) -> float:
    return float(values.double().mean())


def _of_method(method: MethodRuns[Norms]) -> Numbers:
    by_group = list(zip(*(run.groups for run in method.by_run), strict=True))
    images = [fmean(of_group) for of_group in zip(*(run.images for run in method.by_run), strict=True)]
    deviation = [stdev(of_group) if len(of_group) > 1 else None for of_group in by_group]
    numbers = method.about() | {"images": images, "deviation": deviation} | mean_columns(by_group, "norm")
    for name in ("mean", "correlation", "error", "normalized_error"):
        values = [getattr(run, name) for run in method.by_run]
        numbers[f"{name}_of_runs"] = values
        numbers[name] = asdict(seed_mean(values))
    return numbers


def draw(numbers: Numbers) -> Figure:
    """Draw a line for each method: norms in units of its mean norm, bars of a standard deviation."""
    methods = numbers["methods"]
    labels = [_label(method) for method in methods]
    figure = figure_with_legend(7.0, 4.0, labels)
    axes = figure.subplots()
    places = list(range(1, numbers["groups"] + 1))
    for number, (method, label) in enumerate(zip(methods, labels, strict=True)):
        unit = method["mean"]["value"]
        values = [norm / unit for norm in method["norm"]]
        spread = [0.0 if std is None else std / unit for std in method["deviation"]]
        shift = 0.04 * (number - (len(methods) - 1) / 2)  # bars beside each other
        axes.errorbar([place + shift for place in places], values, spread, linewidth=1.6, elinewidth=0.8,
                      capsize=2, markersize=5, label=label, **style_of(number))  # fmt: skip
    axes.axhline(1.0, color="0.6", linewidth=0.8, linestyle="--")
    images = methods[0]["images"]
    axes.set_xticks(places, [f"{count:,.0f}" for count in images])
    axes.set(xlabel=f"training images of a class, mean of each of {len(places)} groups of classes")
    axes.set(ylabel="norm of class weights, mean of all = 1")
    axes.grid(alpha=0.3)
    add_legend(figure, axes.get_legend_handles_labels()[0])
    return figure


def _label(method: Numbers) -> str:
    correlation = method["correlation"]["value"]
    return method["label"] + ("" if correlation is None else f": rank correlation {correlation:+.2f}")
