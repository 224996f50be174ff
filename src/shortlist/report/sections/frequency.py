"""Coverage of classes against how many training rows they have."""

from shortlist._text import format_percent
from shortlist.compare import bin_labels, coverage_by_frequency, frequency_edges
from shortlist.report.drawings import Series, describe, line_plot
from shortlist.report.parts import Drawing, Sign, Table
from shortlist.report.views import MethodView
from shortlist.runs import Group


def measure_frequency(view: MethodView) -> Drawing | None:
    """Draw coverage by training rows of the class; None without counts of these, or without predictors."""
    method = view.method
    counts, keys = method.runs[0].class_table.counts, list(method.runs[0].results.sets)
    if not counts or not keys:
        return None
    edges = frequency_edges(counts)
    rows = [sum(numbers) for numbers in zip(*(run.results.class_rows for run in method.runs), strict=True)]
    bins = {key: coverage_by_frequency(_hits(method, key), rows, counts, edges) for key in keys}
    lines = [
        Series(key, range(len(edges)), [each.coverage for each in bins[key]], style, [3.0] * len(edges))
        for style, key in enumerate(keys)
    ]
    labels, level = bin_labels(edges), _promise(method)
    body = [
        [label, first.classes, first.rows, *(format_percent(bins[key][i].coverage) for key in keys)]
        for i, (label, first) in enumerate(zip(labels, bins[keys[0]], strict=True))
    ]
    panel = line_plot(
        lines,
        x_label="training rows of the class",
        y_label="percent of rows",
        description=describe("Coverage by class frequency", lines),
        x_ticks=[(float(i), label) for i, label in enumerate(labels)][:: 2 if len(labels) > 5 else 1],
        y_range=(0.0, 1.0),
        level=level,
    )
    return Drawing(
        f"frequency-{view.name}",
        "Coverage by class frequency",
        "Mean over the classes of each bin of the share of their rows whose set holds them."
        + (" Dashed: the coverage promised over all rows." if level is not None else ""),
        [panel],
        signs=[Sign(line.label, line.style) for line in lines],
        tables=[Table("Coverage in percent", ["training rows", "classes", "test rows", *keys], body)],
        is_half=True,
    )


def _hits(method: Group, key: str) -> list[int]:
    """Count the rows of each class whose set contains it, over all runs."""
    return [sum(n) for n in zip(*(run.results.sets[key].class_hits for run in method.runs), strict=True)]


def _promise(method: Group) -> float | None:
    """Find the coverage that the predictors promise, if it is the same for all and about all rows."""
    promises = {
        sets.promise.level
        for run in method.runs
        for sets in run.results.sets.values()
        if sets.promise is not None and sets.promise.about == "rows"
    }
    return promises.pop() if len(promises) == 1 else None
