"""Tests over test rows, for methods with too few seeds."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist.class_table import GROUPS
from shortlist.metrics._rows import RowNumbers, look_at_rows
from shortlist.metrics.ranks import topk_hits
from shortlist.predictors import load
from shortlist.report.significance import PairedTest, mcnemar_test, paired_bootstrap_test
from shortlist.report.suite_figures import predictor_of
from shortlist.train.runs import Run

__all__ = ["compare_over_rows"]


def compare_over_rows(name: str, first: Sequence[Path], second: Sequence[Path]) -> PairedTest | str:
    """Test a figure of two groups of runs over their common test rows; the reason if that cannot be.

    Yes-or-no figures of one run each, over rows, go through McNemar's test; others through the bootstrap, on
    the mean of each row over a group's runs.
    """
    try:
        sides = [[(_look(path, name), path) for path in paths] for paths in (first, second)]
    except ValueError as error:
        return f"no test: {error}"
    rows = sides[0][0][0]
    if any(not torch.equal(other.target, rows.target) for side in sides for other, _ in side):
        return "no test: not the same test rows"
    columns = [[_column(name, one) for one, _ in side] for side in sides]
    if any(column is None for side in columns for column in side):
        return "no test: not a mean over test rows"
    values = [torch.stack([column for column in side if column is not None]) for side in columns]
    average = name.rpartition(".")[2]
    if values[0].dtype == torch.bool and average not in ("macro", "balanced_error", *GROUPS):
        if len(values[0]) == len(values[1]) == 1:
            return mcnemar_test(values[0][0], values[1][0])
    means = [side.double().mean(0) for side in values]
    sign = -1 if name == "balanced_error" else 1
    classes = _classes(average, Run(first[0]))
    c = len(Run(first[0]).class_table)
    found = paired_bootstrap_test(means[0], means[1], rows.target, classes=classes, num_classes=c)
    return found._replace(difference=sign * found.difference)


def _look(path: Path, name: str) -> RowNumbers:
    from shortlist.train.scoring import adjust_scores, load_adjustment

    run = Run(path)
    scores, target = run.load_scores("test")
    scores = adjust_scores(scores, load_adjustment(run), run.class_table.class_counts)
    wanted = predictor_of(name)
    predictors: dict[str, Any] = {
        key: load(file) for key, file in run.predictor_paths().items() if key == wanted
    }
    if wanted is not None and not predictors:
        raise ValueError(f"{path} has no predictor {wanted}")
    return look_at_rows(scores, target, predictors, activation="softmax", ties="against", ignore_index=-100)


def _column(name: str, rows: RowNumbers) -> Tensor | None:
    """What a figure is the mean of, for each row (n,); None if it is none of the kind."""
    if name == "balanced_error":
        return topk_hits(rows.ranks, [1], ties="against")[:, 0]
    if name == "nll":
        return None if rows.nll.isnan().any() else rows.nll
    found = re.fullmatch(r"top(\d+)\.\w+", name)
    if found:
        return topk_hits(rows.ranks, [int(found[1])], ties="against")[:, 0]
    predictor = predictor_of(name)
    if predictor is None:
        return None
    if name == f"sets.{predictor}.empty_share":
        return rows.sizes[predictor] == 0
    return rows.hits[predictor] if name.startswith(f"sets.{predictor}.coverage.") else None


def _classes(average: str, run: Run) -> Tensor | None:
    """The classes whose means are averaged; None for a mean over rows."""
    table = run.class_table
    if average in ("macro", "balanced_error"):
        return torch.ones(len(table), dtype=torch.bool)
    return table.groups() == GROUPS.index(average) if average in GROUPS else None
