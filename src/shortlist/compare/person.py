"""Compare a person's sets with those of runs, of equal size on the same test rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from shortlist.compare.answers import Answers, read_answers
from shortlist.compare.paired import LEVEL
from shortlist.compare.significance import PairedTest, holm, mcnemar_test, paired_bootstrap_test
from shortlist.datasets import ImageFiles
from shortlist.metrics import Estimate, clopper_pearson, interval_of_rows, mean_with_interval
from shortlist.recipes import build_data, moved
from shortlist.runs import Group, Run, group_runs, read_runs


@dataclass(frozen=True)
class EqualSets:
    """Sets of a method that are together, or each, as large as the person's.

    Args:
        coverage: Share of rows whose set contains the true class: of one run with the interval of Clopper and
            Pearson, of several the mean with the interval over seeds (over rows, if all seeds are the same).
        sizes: Smallest and largest number of classes in a set, of all runs.
        difference: Coverage minus that of the person.
        p_value: Two-sided p-value, corrected by Holm for all methods.
        test: Name of the paired test over the rows.
        significant: Whether the p-value is below 0.05.
    """

    coverage: Estimate
    sizes: tuple[int, int]
    difference: float
    p_value: float
    test: str
    significant: bool = False


@dataclass(frozen=True)
class PersonRow:
    """A method beside the person: with sets of the same mean size, and each of the same size."""

    label: str
    runs: tuple[str, ...]
    same_mean: EqualSets
    same_sizes: EqualSets


@dataclass(frozen=True)
class PersonComparison:
    """A person's sets, and methods beside them.

    Args:
        answers: File of the answers.
        num_rows: Number of rows with an answer.
        mean_size: Mean number of classes in an answer.
        sizes: Smallest and largest number of classes in an answer.
        coverage: Share of answers that contain the true class, with the interval of Clopper and Pearson.
        rows: The methods.
        left_out: By folder, why some runs are not among them.
    """

    answers: str
    num_rows: int
    mean_size: float
    sizes: tuple[int, int]
    coverage: Estimate
    rows: tuple[PersonRow, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)


def sets_of_mean_size(scores: Tensor, total: int) -> Tensor:
    """Return the ``total`` pairs of a row and a class with the largest probabilities, as sets bool (n, c).

    This is one threshold for all rows, by which the sets together have as many classes as asked for. Of equal
    probabilities the earlier row and then the lower class index comes first.

    Args:
        scores: Scores (n, c) whose softmax are probabilities.
        total: Number of classes in all sets.
    """
    chances = scores.double().log_softmax(1).flatten()  # in the order of the probabilities, but never both 0
    sets = torch.zeros(len(chances), dtype=torch.bool)
    sets[chances.argsort(descending=True, stable=True)[:total]] = True
    return sets.view_as(scores)


def sets_of_row_sizes(scores: Tensor, sizes: Tensor) -> Tensor:
    """Return the ``sizes[i]`` classes with the largest scores of each row i, as (n, c)."""
    order = scores.argsort(dim=1, descending=True, stable=True)
    chosen = torch.arange(scores.shape[1]) < sizes[:, None]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(1, order, chosen)


def compare_with_person(
    paths: Sequence[str | Path], answers: str | Path, *, data: str | Path | None = None
) -> PersonComparison:
    """Compare the answers of a person with the sets of runs on the same rows.

    The classes of a run's sets are those of its mapped scores. With sets of the same mean size, one threshold
    on its probabilities gives as many classes in all as the person gave; it is set on these rows, which needs
    no classes. With sets of the same sizes, each row gets its largest scores, as many as the person named.

    Args:
        paths: Run folders, suite folders, or any folders that contain runs.
        answers: File that :func:`~shortlist.compare.answers.read_answers` reads.
        data: Place where the data of the runs lie now, if they were moved; only for answers by path.

    Raises:
        ValueError: If no run is left, or a row or class of the answers is not known.
    """
    runs, left_out = read_runs(paths)
    if not runs:
        reasons = "; ".join(left_out.values())
        raise ValueError(f"runs must hold at least one finished run, got none: {reasons}")
    first = runs[0]
    _, target = first.score_blocks("test")
    given = read_answers(
        answers, first.class_table, num_rows=len(target), paths=lambda: _test_paths(first, target, data)
    )
    true = target[list(given.rows)]
    if bool((true == -100).any()):
        row = given.rows[int((true == -100).nonzero()[0])]
        raise ValueError(
            f"{answers} has an answer to test row {row}, which could not be read: it has no class"
        )
    faults = {str(run.path): _why_not(run, first, target) for run in runs}
    left_out |= {path: fault for path, fault in faults.items() if fault is not None}
    groups, others = group_runs([run for run in runs if faults[str(run.path)] is None])
    hits = given.sets.gather(1, true[:, None])[:, 0]
    sizes = given.sets.sum(1)
    rows = [_row(group, given, true, hits) for group in groups]
    return PersonComparison(
        str(answers),
        len(hits),
        float(sizes.double().mean()),
        (int(sizes.min()), int(sizes.max())),
        _share(hits),
        _with_holm(rows),
        left_out | others,
    )


def _test_paths(run: Run, target: Tensor, data: str | Path | None) -> Sequence[str]:
    """Return the path of each test row, from the data set of the run."""
    test = build_data(moved(run.recipe, data)).test
    if not isinstance(test, ImageFiles):
        name = run.recipe.data.name
        raise ValueError(f"{run.path} has test rows without paths ({name}): use the column row")
    if not torch.equal(test.targets[target != -100], target[target != -100]):
        raise ValueError(f"the test rows of {run.path} are no longer those that were scored")
    return test.paths


def _why_not(run: Run, first: Run, target: Tensor) -> str | None:
    """Say why a run cannot stand beside the first; None if it can."""
    if run.class_table.ids != first.class_table.ids:
        return f"{run.path} has other classes than {first.path}"
    if not torch.equal(run.score_blocks("test")[1], target):
        return f"{run.path} has other test rows than {first.path}"
    return None


def _row(group: Group, given: Answers, true: Tensor, person: Tensor) -> PersonRow:
    scores = [run.score_blocks("test")[0].rows(given.rows) for run in group.runs]
    sizes = given.sets.sum(1)
    same_mean = [sets_of_mean_size(run_scores, int(sizes.sum())) for run_scores in scores]
    same_sizes = [sets_of_row_sizes(run_scores, sizes) for run_scores in scores]
    paths, num_classes = tuple(str(run.path) for run in group.runs), given.sets.shape[1]
    return PersonRow(
        group.label,
        paths,
        *(_beside(sets, true, person, num_classes) for sets in (same_mean, same_sizes)),
    )


def _beside(sets: Sequence[Tensor], true: Tensor, person: Tensor, num_classes: int) -> EqualSets:
    hits = torch.stack([values.gather(1, true[:, None])[:, 0] for values in sets])
    sizes = torch.stack([values.sum(1) for values in sets])
    test = _test(hits, person, true, num_classes)
    shares = [_share(values) for values in hits]
    mean = mean_with_interval(hits.double().mean(1).tolist())
    coverage = shares[0] if len(hits) == 1 else interval_of_rows(mean, shares)
    ends = int(sizes.min()), int(sizes.max())
    return EqualSets(coverage, ends, test.difference, test.p_value, test.test)


def _test(hits: Tensor, person: Tensor, true: Tensor, num_classes: int) -> PairedTest:
    """Test one run by McNemar's test; several by resampling rows, on the mean of each row over the runs."""
    if len(hits) == 1:
        return mcnemar_test(hits[0], person)
    return paired_bootstrap_test(hits.double().mean(0), person.double(), true, num_classes=num_classes)


def _share(hits: Tensor) -> Estimate:
    number = int(hits.sum())
    return Estimate(number / len(hits), *clopper_pearson(number, len(hits)))


def _with_holm(rows: Sequence[PersonRow]) -> tuple[PersonRow, ...]:
    """Correct the p-values of each kind of sets, since several methods are tested against one person."""
    corrected: dict[str, list[float]] = {
        kind: holm([getattr(row, kind).p_value for row in rows]) for kind in ("same_mean", "same_sizes")
    }

    def fixed(place: int, sets: EqualSets, kind: str) -> EqualSets:
        p = corrected[kind][place]
        return replace(sets, p_value=p, significant=p < LEVEL)

    return tuple(
        replace(
            row,
            same_mean=fixed(place, row.same_mean, "same_mean"),
            same_sizes=fixed(place, row.same_sizes, "same_sizes"),
        )
        for place, row in enumerate(rows)
    )
