"""Sizes of the sets of all methods side by side, for each predictor whose sets have several sizes."""

from shortlist.report.parts import Drawing, Sign
from shortlist.report.sections.sizes import size_panel
from shortlist.report.views import ExperimentView
from shortlist.runs import Group

MOST_METHODS = 6  # bars of more are too thin to compare


def measure_sizes_beside(view: ExperimentView) -> Drawing | None:
    """Draw how many classes the sets of each method have; None if there is nothing to compare."""
    methods = view.experiment.methods
    if not 2 <= len(methods) <= MOST_METHODS:
        return None
    styles = {method.label: style for style, method in enumerate(methods)}
    drawn = []
    for key in view.experiment.first.results.sets:
        with_sets = [method for method in methods if all(key in run.results.sets for run in method.runs)]
        totals = {method.label: _total(method, key) for method in with_sets}
        if len(totals) > 1 and any(sum(number > 0 for number in total) > 1 for total in totals.values()):
            drawn.append(size_panel(key, totals, styles, by="method", y_label="percent of rows"))
    if not drawn:
        return None
    return Drawing(
        f"sizes-beside-{view.number}",
        "Set sizes of the methods",
        "Share of the test rows of all runs of a method; sets that always have one size are not drawn.",
        [panel for panel, _ in drawn],
        signs=[Sign(label, style, is_bar=True) for label, style in styles.items()],
        tables=[table for _, table in drawn],
    )


def _total(method: Group, key: str) -> list[int]:
    """Count the sets of each size, of all runs of a method."""
    histograms = [run.results.sets[key].size_histogram for run in method.runs]
    length = max(map(len, histograms))
    padded = [[*histogram, *[0] * (length - len(histogram))] for histogram in histograms]
    return [sum(column) for column in zip(*padded, strict=True)]
