"""The metrics of runs beside those that papers report for the same experiment."""

from collections.abc import Sequence
from dataclasses import dataclass

from shortlist._text import format_points
from shortlist.compare import one_sample_t_test
from shortlist.metrics import Estimate
from shortlist.papers import PublishedValue, find_published, own_estimate, own_numbers
from shortlist.report.parts import Cell, Table, metric_cell
from shortlist.report.views import ExperimentView
from shortlist.runs import Experiment, Group


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
            source = _source(value)
            if source not in sources:
                sources.append(source)
            rows.append(_row(method, value, sources.index(source) + 1))
    if not rows:
        return None
    heads = ["method", "metric", "published", "ours", "difference", "told apart", "called there"]
    caption = "Published results and ours, in percent; the difference is ours less theirs, in points"
    if any(row[1] == "balanced_error" for row in rows):
        caption += " (of an error, less is better)"
    return BesidePublished(
        Table(caption, [*heads, "what is not the same"], rows, words=(0, 1, 5, 6, 7)), sources
    )


def _source(value: PublishedValue) -> str:
    table = value.table
    note = f" ({table.note})" if table.note else ""
    runs = f", mean of {table.runs} runs" if table.runs else ""
    return f"{table.name}: {table.source}, {table.place}{runs}{note}"


def _row(method: Group, value: PublishedValue, number: int) -> list[object]:
    numbers = own_numbers(method, value.name)
    estimate = own_estimate(method, value.name, numbers)
    share = value.table.unit == "%"
    difference = "-"
    if estimate is not None and estimate.value is not None:
        gap = estimate.value - value.value
        difference = format_points(gap) if share else f"{gap:+.1f} {value.table.unit}"
    return [
        f"{method.label} [{number}]",
        value.metric,
        _printed(value),
        metric_cell(estimate, share=share),
        difference,
        Cell(_told_apart(value, estimate, numbers), style="long"),
        value.method,
        Cell("; ".join(value.departures) or "nothing known", style="long"),
    ]


def _printed(value: PublishedValue) -> Cell:
    number, unit = value.number, "" if value.table.unit == "%" else f" {value.table.unit}"
    half = "" if number.half is None else f"± {number.half:.{number.digits}f}"
    return Cell(f"{number.value:.{number.digits}f}{unit}", half)


def _told_apart(value: PublishedValue, estimate: Estimate | None, numbers: Sequence[float]) -> str:
    """Say whether our number differs from the published one, by the paper's test or its interval."""
    if estimate is None or estimate.value is None:
        return _why_missing(value)
    level = value.table.t_test_level
    if level is not None and len(numbers) > 1:
        rounding = 0.5 * 10.0**-value.number.digits / (100 if value.table.unit == "%" else 1)
        test = one_sample_t_test(numbers, value.value, rounding=rounding)
        said = "yes" if test.p_value < level else "no"
        if len(set(numbers)) == 1:
            return (
                f"{said}: all {len(numbers)} runs have {'another' if said == 'yes' else 'the printed'} number"
            )
        return f"{said}: p = {test.p_value:.2g}, t-test of {len(numbers)} runs at {level:g}, as the paper's"
    number = value.number
    if number.half is None:
        return "no interval published"
    off = abs(round(100 * estimate.value, number.digits) - number.value)
    inside = off <= number.half + 1e-9
    return "no: inside the published interval" if inside else "yes: outside of the published interval"


def _why_missing(value: PublishedValue) -> str:
    if value.name.startswith("validation."):
        return "the epochs of the run were chosen by another metric"
    return f"the run has no {value.name}"
