"""Columns of the tables of methods: which metrics they show, and which methods are bold."""

from collections.abc import Mapping, Sequence

from shortlist.compare import Best
from shortlist.report.parts import Cell, Table, metric_cell
from shortlist.runs import Experiment, Group

Column = tuple[str, str, bool]
"""Head, name of the metric, whether it is a share."""


def score_columns(experiment: Experiment) -> list[Column]:
    """List the metrics of the scores."""
    ks = list(experiment.first.results.scores.topk)
    columns = [(f"top-{k}", f"top{k}.micro", True) for k in ks]
    columns += [(f"macro top-{k}", f"top{k}.macro", True) for k in ks]
    columns += [("balanced error", "balanced_error", True), ("calibration error", "calibration_error", True)]
    columns.append(("neg. log-lik.", "nll", False))
    columns += [(name.replace(".", ": "), f"{name}.micro", False) for name in experiment.first.results.own]
    levels = experiment.first.results.scores.confused_within
    return columns + [(f"mistakes within {level}", f"confused_within.{level}", True) for level in levels]


def group_columns(experiment: Experiment) -> list[Column]:
    """List accuracies by how many training rows a class has; none if these are not known."""
    groups = [name for name, group in experiment.first.results.groups.items() if group.present]
    ks = [k for k in experiment.first.results.scores.topk if k in (1, 5)]
    return [(f"top-{k}, {group}", f"top{k}.{group}", True) for k in ks for group in groups]


def set_names(experiment: Experiment) -> list[str]:
    """List coverage over rows and over classes of each predictor; that of sets with a promise has no best."""
    keys = experiment.first.results.sets
    return [f"sets.{key}.coverage.{average}" for key in keys for average in ("micro", "macro")]


def method_table(
    caption: str, methods: Sequence[Group], columns: Sequence[Column], leaders: Mapping[str, Best]
) -> Table:
    """Make a table with a row for each method; the best of a column is bold if a test says that it is."""
    rows = [
        [method.label, len(method.runs), *(_cell(method, column, leaders) for column in columns)]
        for method in methods
    ]
    return Table(caption, ["method", "runs", *(head for head, *_ in columns)], rows)


def _cell(method: Group, column: Column, leaders: Mapping[str, Best]) -> Cell:
    _, name, share = column
    leader = leaders.get(name)
    is_best = leader is not None and leader.significant and method.label in leader.rows
    return metric_cell(method.metrics.get(name), share=share, best=is_best)
