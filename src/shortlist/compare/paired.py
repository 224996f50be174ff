"""Test two methods against each other, and each method against a baseline."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shortlist.compare.rows import RowReader, compare_over_rows
from shortlist.compare.same_rows import on_same_rows
from shortlist.compare.significance import PairedTest, holm, paired_t_test
from shortlist.metrics.aggregation import mean_with_interval
from shortlist.metrics.names import size_of, value_of
from shortlist.runs.groups import Group

__all__ = ["LEVEL", "Difference", "differences_to", "tell_apart"]

LEVEL = 0.05  # of the tests


@dataclass(frozen=True)
class Difference:
    """The difference of a method's metric to that of the baseline.

    Args:
        value: Mean difference over the pairs; None without a test.
        half_width: Half the width of the 95 % interval over seeds; None for tests over test rows.
        p_value: Two-sided p-value, corrected by Holm for all methods of the metric; None without a test.
        test: Name of the test, or why there is none.
        significant: Whether the p-value is below 0.05.
    """

    value: float | None
    half_width: float | None
    p_value: float | None
    test: str
    significant: bool


def tell_apart(name: str, first: Group, second: Group, read: RowReader | None = None) -> PairedTest | str:
    """Test two groups over seeds if they share 3, else over test rows; return the reason if neither works."""
    pairs = _pairs(name, first, second)
    return pairs if isinstance(pairs, str) else _test(pairs, name, first, second, read)


def _test(
    pairs: tuple[list[float], list[float]] | None,
    name: str,
    first: Group,
    second: Group,
    read: RowReader | None,
) -> PairedTest | str:
    if pairs is not None:
        return paired_t_test(*pairs)
    shared = {run.recipe.seed for run in first.runs} & {run.recipe.seed for run in second.runs}
    one, other = (
        [run.path for run in group.runs if not shared or run.recipe.seed in shared]
        for group in (first, second)
    )
    found = compare_over_rows(name, one, other, read)
    if shared or isinstance(found, str):
        return found
    return found._replace(test=f"{found.test}, runs with other seeds")  # which is in the difference too


def _pairs(name: str, first: Group, second: Group) -> tuple[list[float], list[float]] | str | None:
    """Pair a metric of two groups by seed; return None for fewer than 3 seeds, or why no test is possible."""
    every = (*first.runs, *second.runs)
    if len({run.results.class_rows for run in every}) > 1:
        return "no test: not the same test rows"
    if not all(on_same_rows(every[0].recipe, run.recipe) for run in every):
        return "no test: not the same data"
    by_seed = [{run.recipe.seed: run for run in group.runs} for group in (first, second)]
    shared = sorted(by_seed[0].keys() & by_seed[1].keys())
    values = [[value_of(runs[seed].results.metrics(), name) for seed in shared] for runs in by_seed]
    numbers = [[value for value in side if value is not None and math.isfinite(value)] for side in values]
    if len(shared) < 3:
        return None
    if any(len(side) < len(shared) for side in numbers):
        return "no test: not a finite number in every run"
    return numbers[0], numbers[1]


def differences_to(
    baseline: str, groups: Sequence[Group], metrics: Sequence[str], read: RowReader | None = None
) -> dict[str, dict[str, Difference]]:
    """Compute the difference of each method to the baseline, for each metric except sizes.

    Raises:
        ValueError: If no group is called so.
    """
    by_label = {group.label: group for group in groups}
    if baseline not in by_label:
        raise ValueError(f"baseline must be one of the methods ({', '.join(by_label)}), got {baseline!r}")
    base = by_label.pop(baseline)
    return {
        name: _with_holm({label: _difference(name, group, base, read) for label, group in by_label.items()})
        for name in metrics
        if size_of(name) != name
    }


def _difference(name: str, group: Group, base: Group, read: RowReader | None) -> Difference:
    pairs = _pairs(name, group, base)
    found = pairs if isinstance(pairs, str) else _test(pairs, name, group, base, read)
    if isinstance(found, str):
        return Difference(None, None, None, found, False)
    half = None
    if isinstance(pairs, tuple):
        interval = mean_with_interval([a - b for a, b in zip(*pairs, strict=True)])
        half = ((interval.high or 0.0) - (interval.low or 0.0)) / 2
    return Difference(found.difference, half, found.p_value, found.test, False)


def _with_holm(found: Mapping[str, Difference]) -> dict[str, Difference]:
    """Correct the p-values by Holm, since several methods are tested against one baseline."""
    p_values = {label: one.p_value for label, one in found.items() if one.p_value is not None}
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return dict(found) | {
        label: replace(found[label], p_value=p, significant=p < LEVEL) for label, p in adjusted.items()
    }
