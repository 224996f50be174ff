"""Test methods with too few seeds over test rows."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist._progress import each
from shortlist.compare.significance import Pair, PairedTest, mcnemar_test, paired_bootstrap_tests
from shortlist.metrics import RowNumbers, predictor_of, topk_hits
from shortlist.runs import Run


class RunClasses(NamedTuple):
    """How many classes a run has, and by name of a group which of them are in it, bool (c,)."""

    number: int
    groups: Mapping[str, Tensor]


class RowReader:
    """A reader of test rows that reads each run only once, for any number of metrics."""

    def __init__(self) -> None:
        self._numbers: dict[Path, tuple[RowNumbers, RunClasses]] = {}

    def __call__(self, run: Run) -> tuple[RowNumbers, RunClasses]:
        """Return the numbers of a run's test rows, and its classes."""
        if run.path not in self._numbers:
            self._numbers[run.path] = _measure(run)
        return self._numbers[run.path]

    def last_time(self, run: Run) -> RowNumbers:
        """Return the numbers of a run's test rows, and forget them: they are read once."""
        return (self._numbers.pop(run.path, None) or _measure(run))[0]


class RowQuestion(NamedTuple):
    """A metric of two groups of runs."""

    name: str
    first: Sequence[Run]
    second: Sequence[Run]


class _Bootstrap(NamedTuple):
    """A test that needs resamples, which other tests of the same rows may share."""

    pair: Pair
    target: Tensor
    num_classes: int
    sign: int


def compare_over_rows(asked: Sequence[RowQuestion], read: RowReader) -> list[PairedTest | str]:
    """Test metrics of two groups of runs each over their common test rows; the reason where that cannot be.

    Yes-or-no metrics of one run each, over rows, go through McNemar's test; others through the bootstrap, on
    the mean of each row over a group's runs.
    """
    answers = [_test_or_bootstrap(question, read) for question in each("comparing", asked)]
    waiting = [result for result in answers if isinstance(result, _Bootstrap)]
    results = iter(_run_bootstraps(waiting))
    return [next(results) if isinstance(result, _Bootstrap) else result for result in answers]


def _test_or_bootstrap(question: RowQuestion, read: RowReader) -> PairedTest | _Bootstrap | str:
    name = question.name
    try:
        sides = [[read(run) for run in runs] for runs in (question.first, question.second)]
        columns = [[_column(name, rows) for rows, _ in side] for side in sides]
    except Exception as error:  # any file of a run may be damaged in any way
        return f"no test: {' '.join(str(error).split()) or type(error).__name__}"
    (rows, classes), average = sides[0][0], name.rpartition(".")[2]
    every = [each_run for side in sides for each_run in side]
    if any(not torch.equal(other.target, rows.target) for other, _ in every):
        return "no test: not the same test rows"
    if average in classes.groups and not all(_same_group(average, classes, other) for _, other in every):
        return f"no test: not the same classes are {average}"
    if any(column is None for side in columns for column in side):
        return "no test: not a mean over test rows"
    values = [torch.stack([column for column in side if column is not None]) for side in columns]
    if values[0].dtype == torch.bool and average not in ("macro", "balanced_error", *classes.groups):
        if len(values[0]) == len(values[1]) == 1:
            return mcnemar_test(values[0][0], values[1][0])
    first, second = (side.double().mean(0) for side in values)
    pair = Pair(first, second, _classes(average, classes))
    return _Bootstrap(pair, rows.target, classes.number, -1 if name == "balanced_error" else 1)


def _same_group(name: str, first: RunClasses, second: RunClasses) -> bool:
    return name in second.groups and torch.equal(first.groups[name], second.groups[name])


def _run_bootstraps(waiting: Sequence[_Bootstrap]) -> list[PairedTest | str]:
    """Test all pairs of the same rows with the same resamples, which are drawn once."""
    results_by_place: dict[int, PairedTest | str] = {}
    for place, bootstrap in enumerate(waiting):
        if place in results_by_place:
            continue
        alike = [i for i in range(place, len(waiting)) if _same_rows(bootstrap, waiting[i])]
        pairs = [waiting[i].pair for i in alike]
        results = paired_bootstrap_tests(pairs, bootstrap.target, num_classes=bootstrap.num_classes)
        for i, result in zip(alike, results, strict=True):
            signed = result._replace(difference=waiting[i].sign * result.difference)
            missing = math.isnan(result.difference)
            results_by_place[i] = "no test: no test rows of these classes" if missing else signed
    return [results_by_place[place] for place in range(len(waiting))]


def _same_rows(first: _Bootstrap, second: _Bootstrap) -> bool:
    return first.num_classes == second.num_classes and torch.equal(first.target, second.target)


def _measure(run: Run) -> tuple[RowNumbers, RunClasses]:
    try:
        metrics = run.own_metrics()
    except ValueError:  # their means are known, their rows are not
        metrics = {}
    return run.measure("test", metrics=metrics), RunClasses(len(run.class_table), run.class_groups)


def top_hits(rows: RowNumbers, k: int) -> Tensor:
    """Return whether the true class of each row (n,) is among the first k, ties against it."""
    return topk_hits(rows.ranks, [k], ties="against")[:, 0]


def _column(name: str, rows: RowNumbers) -> Tensor | None:
    """Return the values (n,) of which a metric is the mean over rows; None if it is not such a mean."""
    if name == "balanced_error":
        return top_hits(rows, 1)
    if name == "nll":
        return rows.nll if rows.nll.isfinite().all() else None
    match = re.fullmatch(r"top(\d+)\.\w+", name)
    if match:
        return top_hits(rows, int(match[1]))
    if name.startswith(("metric.", "cost.")):
        key = name.rpartition(".")[0]
        if key not in rows.own:
            raise ValueError(f"evaluation.{key} is code of somebody's own: add --allow-code")
        return rows.own[key]
    predictor = predictor_of(name)
    if predictor is None:
        return None
    if predictor not in rows.hits:
        raise ValueError(f"a run has no predictor {predictor}")
    if name == f"sets.{predictor}.empty_share":
        return rows.sizes[predictor] == 0
    return rows.hits[predictor] if name.startswith(f"sets.{predictor}.coverage.") else None


def _classes(average: str, classes: RunClasses) -> Tensor | None:
    """Return the classes whose means are averaged; None for a mean over rows."""
    if average in ("macro", "balanced_error"):
        return torch.ones(classes.number, dtype=torch.bool)
    return classes.groups.get(average)
