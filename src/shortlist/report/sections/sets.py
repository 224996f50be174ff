"""Coverage and size of the sets of each predictor."""

from collections.abc import Sequence

from shortlist.metrics.names import format_percent
from shortlist.report.columns import Column, method_table
from shortlist.report.parts import Table
from shortlist.report.views import ExperimentView
from shortlist.runs.groups import Group

__all__ = ["measure_sets"]


def measure_sets(view: ExperimentView) -> list[Table] | None:
    """Make a table for each predictor; None if the runs have no predictors."""
    return [_set_table(view, key) for key in view.experiment.first.results.sets] or None


def _set_table(view: ExperimentView, key: str) -> Table:
    experiment, start = view.experiment, f"sets.{key}"
    methods = [m for m in experiment.methods if f"{start}.size.micro" in m.metrics]
    groups = [name for name, group in experiment.first.results.groups.items() if group.present]
    columns: list[Column] = [
        ("coverage", f"{start}.coverage.micro", True),
        ("macro", f"{start}.coverage.macro", True),
        *((group, f"{start}.coverage.{group}", True) for group in groups),
    ]
    caption = f"{key}: share of sets that hold the true class, in percent"
    if _sizes_differ(methods, key):
        caption += ", and classes in a set"
        columns.append(("mean size", f"{start}.size.micro", False))
        columns += [(f"size, {group}", f"{start}.size.{group}", False) for group in groups]
        columns.append(("empty", f"{start}.empty_share", True))
    else:
        caption += " (always of the same size)"
    promised = experiment.first.results.sets[key].promised
    if promised is not None:
        columns.append(("classes below promise", f"{start}.under_covered", True))
        caption += f"; promised {format_percent(promised, 0)} %"
    return method_table(caption, methods, columns, view.leaders)


def _sizes_differ(methods: Sequence[Group], key: str) -> bool:
    """Tell whether any run has sets of more than one size."""
    histograms = [run.results.sets[key].size_histogram for method in methods for run in method.runs]
    return any(sum(number > 0 for number in histogram) > 1 for histogram in histograms)
