"""Sizes of the sets of all methods side by side, for each predictor whose sets have several sizes."""

from collections.abc import Sequence

from shortlist.compare.numbers import bin_histogram, bin_labels, share_of, size_bins
from shortlist.report.drawings import Plot, Series, bar_plot
from shortlist.report.parts import Drawing, Sign, Table
from shortlist.report.views import ExperimentView
from shortlist.runs.groups import Group

__all__ = ["MOST_METHODS", "measure_sizes_beside"]

MOST_METHODS = 6  # bars of more are too thin to compare


def measure_sizes_beside(view: ExperimentView) -> Drawing | None:
    """Draw how many classes the sets of each method have; None if there is nothing to compare."""
    methods = view.experiment.methods
    if not 2 <= len(methods) <= MOST_METHODS:
        return None
    drawn = []
    for key in view.experiment.first.results.sets:
        with_sets = [method for method in methods if all(key in run.results.sets for run in method.runs)]
        totals = {method.label: _total(method, key) for method in with_sets}
        if len(totals) > 1 and any(sum(number > 0 for number in total) > 1 for total in totals.values()):
            drawn.append(_panel(key, totals, [method.label for method in methods]))
    if not drawn:
        return None
    return Drawing(
        f"sizes-beside-{view.number}",
        "Set sizes of the methods",
        "Share of the test rows of all runs of a method; sets that always have one size are not drawn.",
        [panel for panel, _ in drawn],
        signs=[Sign(method.label, style, is_bar=True) for style, method in enumerate(methods)],
        tables=[table for _, table in drawn],
    )


def _total(method: Group, key: str) -> list[int]:
    """Count the sets of each size, of all runs of a method."""
    histograms = [run.results.sets[key].size_histogram for run in method.runs]
    length = max(map(len, histograms))
    padded = [[*histogram, *[0] * (length - len(histogram))] for histogram in histograms]
    return [sum(column) for column in zip(*padded, strict=True)]


def _panel(key: str, totals: dict[str, list[int]], labels: Sequence[str]) -> tuple[Plot, Table]:
    bins = size_bins(max(map(len, totals.values())) - 1)
    names = bin_labels(bins)
    binned = {label: bin_histogram(total, bins) for label, total in totals.items()}
    bars = [Series(label, [], share_of(found), labels.index(label)) for label, found in binned.items()]
    means = {label: sum(i * n for i, n in enumerate(total)) / sum(total) for label, total in totals.items()}
    words = "; ".join(f"{label}: {mean:.2f} classes on average" for label, mean in means.items())
    panel = bar_plot(
        names,
        bars,
        title=key,
        x_label="classes in the set",
        y_label="percent of rows",
        description=f"Set sizes of {key} by method. {words}",
    )
    rows = [[name, *(found[i] for found in binned.values())] for i, name in enumerate(names)]
    return panel, Table(f"{key}: number of sets", ["size", *binned], rows)
