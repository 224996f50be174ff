"""The metrics of runs beside those that papers report for the same experiment."""

from collections.abc import Sequence
from dataclasses import dataclass

from shortlist.metrics.names import format_percent, format_points
from shortlist.report.parts import Cell, Table, metric_cell
from shortlist.report.published import PublishedValue, find_published
from shortlist.report.views import ExperimentView
from shortlist.runs.experiments import Experiment
from shortlist.runs.groups import Group

__all__ = ["BesidePublished", "measure_beside_published", "published_table"]


@dataclass(frozen=True)
class BesidePublished:
    """A table of published metrics and ours, and the papers that its rows refer to by number."""

    table: Table
    sources: Sequence[str]


def measure_beside_published(view: ExperimentView) -> BesidePublished | None:
    """Find the published metrics of the methods; None if there are none."""
    return published_table(view.experiment)


def published_table(experiment: Experiment) -> BesidePublished | None:
    """Put published metrics beside ours; None if there are none."""
    rows, sources = [], []
    for method in experiment.methods:
        recipe = method.runs[0].recipe.model_dump(mode="json")
        for value in [] if method.is_limit else find_published(recipe):
            own = method.metrics.get(value.name)
            if own is not None and own.value is not None:
                source = _source(value)
                if source not in sources:
                    sources.append(source)
                rows.append(_row(method, value, sources.index(source) + 1))
    if not rows:
        return None
    heads = ["method", "metric", "published", "ours", "difference", "called there", "what is not the same"]
    caption = "Published results and ours, in percent; the difference is ours less theirs, in points"
    if any(row[1] == "balanced_error" for row in rows):
        caption += " (of an error, less is better)"
    return BesidePublished(Table(caption, heads, rows, words=(0, 1, 5, 6)), sources)


def _source(value: PublishedValue) -> str:
    note = f" ({value.experiment.note})" if value.experiment.note else ""
    return f"{value.experiment.name}: {value.experiment.source}{note}"


def _row(method: Group, value: PublishedValue, number: int) -> list[object]:
    own = method.metrics[value.name]
    return [
        f"{method.label} [{number}]",
        value.metric,
        format_percent(value.value, 2),
        metric_cell(own),
        "-" if own.value is None else format_points(own.value - value.value),
        value.method,
        Cell("; ".join(value.departures) or "nothing known", style="long"),
    ]
