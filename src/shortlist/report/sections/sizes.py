"""Sizes of a method's sets, by group of the true class."""

from collections.abc import Mapping, Sequence
from typing import Any

from shortlist.class_table import GROUPS
from shortlist.compare import bin_histogram, bin_labels, share_of, size_bins
from shortlist.report.drawings import Plot, Series, bar_plot
from shortlist.report.parts import Drawing, Sign, Table
from shortlist.report.views import MethodView

Histograms = Mapping[str, Sequence[int]]
"""By group, the number of sets of each size."""


def measure_sizes(view: MethodView) -> Drawing | None:
    """Draw how many classes the sets have; None if no predictor has sets of several sizes."""
    histograms = view.rows.histograms
    fixed = [
        key for key, by_group in histograms.items() if sum(number > 0 for number in _totals(by_group)) < 2
    ]
    groups = list(dict.fromkeys(group for by_group in histograms.values() for group in by_group))
    styles = {group: GROUPS.index(group) if group in GROUPS else 0 for group in groups}
    how: Any = {"by": "group", "y_label": "percent of group's rows"}
    drawn = [
        size_panel(key, by_group, styles, **how) for key, by_group in histograms.items() if key not in fixed
    ]
    if not drawn:
        return None
    note = "By training rows of the true class. " if groups != ["all"] else ""
    same = ", ".join(f"{key} ({len(_totals(histograms[key])) - 1})" for key in fixed)
    note += f"Always the same size, not drawn: {same}." if same else ""
    return Drawing(
        f"sizes-{view.name}",
        "Set sizes",
        note,
        [panel for panel, _ in drawn],
        signs=[Sign(group, style, is_bar=True) for group, style in styles.items()],
        tables=[table for _, table in drawn],
    )


def size_panel(
    key: str, histograms: Histograms, styles: Mapping[str, int], *, by: str, y_label: str
) -> tuple[Plot, Table]:
    """Draw the sizes of a predictor's sets as bars, of each group or method, with the table of numbers."""
    bins = size_bins(max(map(len, histograms.values())) - 1)
    labels = bin_labels(bins)
    binned = {name: bin_histogram(histogram, bins) for name, histogram in histograms.items()}
    bars = [Series(name, [], share_of(numbers), styles[name]) for name, numbers in binned.items()]
    means = {name: sum(i * n for i, n in enumerate(h)) / (sum(h) or 1) for name, h in histograms.items()}
    words = "; ".join(f"{name}: {mean:.2f} classes on average" for name, mean in means.items())
    panel = bar_plot(
        labels,
        bars,
        title=key,
        x_label="classes in the set",
        y_label=y_label,
        description=f"Set sizes of {key} by {by}. {words}",
    )
    rows = [[label, *(numbers[i] for numbers in binned.values())] for i, label in enumerate(labels)]
    return panel, Table(f"{key}: number of sets", ["size", *binned], rows)


def _totals(by_group: Histograms) -> list[int]:
    return [sum(column) for column in zip(*by_group.values(), strict=True)]
