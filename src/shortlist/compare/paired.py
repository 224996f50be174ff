"""Test two methods against each other, and each method against a baseline."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from shortlist.compare.rows import RowQuestion, RowReader, compare_over_rows
from shortlist.compare.same_rows import on_same_rows
from shortlist.compare.significance import PairedTest, holm, paired_t_test
from shortlist.metrics import mean_with_interval, size_of, value_of
from shortlist.runs import Group, Run

LEVEL = 0.05  # of the tests
_Pairs = tuple[list[float], list[float]] | str | None


@dataclass(frozen=True)
class Difference:
    """The difference of a method's metric to that of the baseline.

    Args:
        value: Mean difference over the pairs; None without a test.
        half_width: Half the width of the 95 % interval over seeds, or over test rows as the test is; None
            without a test.
        p_value: Two-sided p-value, corrected by Holm for all methods of the metric; None without a test.
        test: Name of the test, or why there is none.
        significant: Whether the p-value is below 0.05.
    """

    value: float | None
    half_width: float | None
    p_value: float | None
    test: str
    significant: bool


class Question(NamedTuple):
    """A metric, and two methods that may differ by it."""

    name: str
    first: Group
    second: Group


def tell_apart(asked: Sequence[Question], read: RowReader) -> list[PairedTest | str]:
    """Test each pair: over seeds if they share 3, else over test rows; give the reason if neither can be."""
    return _test([_pairs(*question) for question in asked], asked, read)


def _test(pairs: Sequence[_Pairs], asked: Sequence[Question], read: RowReader) -> list[PairedTest | str]:
    """Answer each question; the tests over test rows are run together, to read each run once."""
    over_rows = [question for pair, question in zip(pairs, asked, strict=True) if pair is None]
    shared = [_shared_seeds(question) for question in over_rows]
    rows = [
        RowQuestion(question.name, *(_runs(group, seeds) for group in question[1:]))
        for question, seeds in zip(over_rows, shared, strict=True)
    ]
    row_results = iter(zip(compare_over_rows(rows, read), shared, strict=True))
    results: list[PairedTest | str] = []
    for pair in pairs:
        if pair is not None:
            results.append(pair if isinstance(pair, str) else paired_t_test(*pair))
            continue
        result, seeds = next(row_results)
        if not seeds and not isinstance(result, str):  # other seeds are in the difference too
            result = result._replace(test=f"{result.test}, runs with other seeds")
        results.append(result)
    return results


def _shared_seeds(question: Question) -> set[tuple[Any, ...]]:
    return question.first.by_draw.keys() & question.second.by_draw.keys()


def _runs(group: Group, seeds: set[tuple[Any, ...]]) -> list[Run]:
    """The runs of these seeds; all runs if no seeds are given."""
    return [each for draw, each in group.by_draw.items() if not seeds or draw in seeds]


def _pairs(name: str, first: Group, second: Group) -> _Pairs:
    """A metric by seed of two groups; None if they share fewer than 3 seeds, the reason if no test can be."""
    by_seed = [first.by_draw, second.by_draw]
    shared = sorted(by_seed[0].keys() & by_seed[1].keys())
    every = (*first.runs, *second.runs)
    # over other data too, only the two runs of a pair must have the same rows
    alike = [[runs[draw] for runs in by_seed] for draw in shared] if first.over else [every]
    for runs in alike:
        if len({run.results.class_rows for run in runs}) > 1:
            return "no test: not the same test rows"
        if not all(on_same_rows(runs[0].recipe, run.recipe) for run in runs):
            return "no test: not the same data"
    if first.over and len(shared) < 3:
        return "no test: fewer than 3 pairs of runs on the same data"
    values = [[value_of(runs[seed].results.metrics(), name) for seed in shared] for runs in by_seed]
    numbers = [[value for value in side if value is not None and math.isfinite(value)] for side in values]
    if len(shared) < 3:
        return None
    if any(len(side) < len(shared) for side in numbers):
        return "no test: not a finite number in every run"
    return numbers[0], numbers[1]


def differences_to(
    baseline: str, groups: Sequence[Group], metrics: Sequence[str], read: RowReader
) -> dict[str, dict[str, Difference]]:
    """Compute the difference of each method to the baseline, for each metric except sizes.

    Raises:
        ValueError: If no group is called so.
    """
    by_label = {group.label: group for group in groups}
    if baseline not in by_label:
        raise ValueError(f"baseline must be one of the methods ({', '.join(by_label)}), got {baseline!r}")
    base = by_label.pop(baseline)
    names = [name for name in metrics if size_of(name) != name]
    asked = [Question(name, group, base) for name in names for group in by_label.values()]
    pairs = [_pairs(*question) for question in asked]
    differences = iter(map(_difference, pairs, _test(pairs, asked, read)))
    return {name: _with_holm({label: next(differences) for label in by_label}) for name in names}


def _difference(pairs: _Pairs, result: PairedTest | str) -> Difference:
    if isinstance(result, str):
        return Difference(None, None, None, result, False)
    half = result.half_width
    if isinstance(pairs, tuple):
        interval = mean_with_interval([a - b for a, b in zip(*pairs, strict=True)])
        half = ((interval.high or 0.0) - (interval.low or 0.0)) / 2
    return Difference(result.difference, half, result.p_value, result.test, False)


def _with_holm(tests: Mapping[str, Difference]) -> dict[str, Difference]:
    """Correct the p-values by Holm, since several methods are tested against one baseline."""
    p_values = {label: test.p_value for label, test in tests.items() if test.p_value is not None}
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return dict(tests) | {
        label: replace(tests[label], p_value=p, significant=p < LEVEL) for label, p in adjusted.items()
    }
