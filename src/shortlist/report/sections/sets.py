"""Coverage and size of the sets of each predictor."""

from collections.abc import Sequence
from dataclasses import replace

from shortlist.report.columns import Column, method_table
from shortlist.report.parts import Cell, Table
from shortlist.report.views import ExperimentView
from shortlist.report.words import count
from shortlist.runs import Group
from shortlist.sentences import promise_brief


def measure_sets(view: ExperimentView) -> list[Table] | None:
    """Make a table for each predictor; None if the runs have no predictors."""
    return [_set_table(view, key) for key in view.experiment.first.results.sets] or None


def _set_table(view: ExperimentView, key: str) -> Table:
    experiment, start = view.experiment, f"sets.{key}"
    first_sets = experiment.first.results.sets[key]
    methods = [m for m in experiment.methods if f"{start}.size.micro" in m.metrics]
    groups = [name for name, group in experiment.first.results.groups.items() if group.present]
    columns: list[Column] = [
        ("coverage", f"{start}.coverage.micro", True),
        ("macro", f"{start}.coverage.macro", True),
        *((f"by {level}", f"{start}.coverage_by.{level}", True) for level in first_sets.coverage_by),
        *((group, f"{start}.coverage.{group}", True) for group in groups),
        ("worst class", f"{start}.worst_class", True),
    ]
    caption = f"{key}: share of sets that hold the true class, in percent"
    if _sizes_differ(methods, key):
        caption += ", and classes in a set"
        columns.append(("mean size", f"{start}.size.micro", False))
        columns += [(f"size, {group}", f"{start}.size.{group}", False) for group in groups]
        columns.append(("empty", f"{start}.empty_share", True))
    else:
        caption += " (always of the same size)"
    if first_sets.nodes is not None:
        caption += ", and nodes in an answer by level (0: classes)"
        columns.append(("mean level", f"{start}.mean_level", False))
        columns += [(f"nodes: {level}", f"{start}.nodes.{level}", False) for level in first_sets.nodes]
    if first_sets.promise is not None and first_sets.promise.asked is not None:
        columns.append(("classes below", f"{start}.under_covered", True))
        caption += f"; {promise_brief(first_sets.promise)}"
    return _with_rows(method_table(caption, methods, columns, view.leaders), methods, key)


def _with_rows(table: Table, methods: Sequence[Group], key: str) -> Table:
    """Add to the worst class of a method with one run its name and its number of rows."""
    place = list(table.heads).index("worst class")
    rows = [list(row) for row in table.rows]
    for row, method in zip(rows, methods, strict=True):
        if len(method.runs) == 1:
            sets, cell = method.runs[0].results.sets[key], row[place]
            assert isinstance(cell, Cell)
            name = method.runs[0].class_table.names[sets.worst_classes[0]]
            of = f"{name}, {count(sets.worst_rows[0], 'row')}"
            row[place] = replace(cell, interval=f"{cell.interval} ({of})")
    return replace(table, rows=rows)


def _sizes_differ(methods: Sequence[Group], key: str) -> bool:
    """Tell whether any run has sets of more than one size."""
    histograms = [run.results.sets[key].size_histogram for method in methods for run in method.runs]
    return any(sum(number > 0 for number in histogram) > 1 for histogram in histograms)
