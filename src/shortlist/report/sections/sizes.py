"""Sizes of a method's sets, by group of the true class."""

from collections.abc import Mapping, Sequence

from shortlist.class_table import GROUPS
from shortlist.compare.numbers import bin_histogram, bin_labels, share_of, size_bins
from shortlist.report.drawings import Plot, Series, bar_plot
from shortlist.report.parts import Drawing, Sign, Table
from shortlist.report.views import MethodView

__all__ = ["measure_sizes"]

Histograms = Mapping[str, Sequence[int]]
"""By group, the number of sets of each size."""


def measure_sizes(view: MethodView) -> Drawing | None:
    """Draw how many classes the sets have; None if no predictor has sets of several sizes."""
    histograms = view.rows.histograms
    fixed = [
        key for key, by_group in histograms.items() if sum(number > 0 for number in _totals(by_group)) < 2
    ]
    drawn = [_panel(key, by_group) for key, by_group in histograms.items() if key not in fixed]
    if not drawn:
        return None
    groups = list(dict.fromkeys(group for by_group in histograms.values() for group in by_group))
    note = "By training rows of the true class. " if groups != ["all"] else ""
    same = ", ".join(f"{key} ({len(_totals(histograms[key])) - 1})" for key in fixed)
    note += f"Always the same size, not drawn: {same}." if same else ""
    return Drawing(
        f"sizes-{view.name}",
        "Set sizes",
        note,
        [panel for panel, _ in drawn],
        signs=[Sign(group, _style(group), is_bar=True) for group in groups],
        tables=[table for _, table in drawn],
    )


def _panel(key: str, by_group: Histograms) -> tuple[Plot, Table]:
    bins = size_bins(len(_totals(by_group)) - 1)
    labels = bin_labels(bins)
    binned = {group: bin_histogram(histogram, bins) for group, histogram in by_group.items()}
    bars = [Series(group, [], share_of(binned[group]), _style(group)) for group in binned]
    largest = "; ".join(f"{bar.label}: most often {labels[_place_of_largest(bar.ys)]}" for bar in bars)
    panel = bar_plot(
        labels,
        bars,
        title=key,
        x_label="classes in the set",
        y_label="percent of group's rows",
        description=f"Set sizes of {key} by group. {largest}",
    )
    rows = [[label, *(binned[group][i] for group in binned)] for i, label in enumerate(labels)]
    return panel, Table(f"{key}: number of sets", ["size", *binned], rows)


def _totals(by_group: Histograms) -> list[int]:
    return [sum(column) for column in zip(*by_group.values(), strict=True)]


def _style(group: str) -> int:
    return GROUPS.index(group) if group in GROUPS else 0


def _place_of_largest(values: Sequence[float | None]) -> int:
    return max(range(len(values)), key=lambda i: values[i] or 0.0)
