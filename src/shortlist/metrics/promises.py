"""Measure a predictor's promise on held-out rows, and whether chance explains the difference."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from shortlist.coverage_law import chance_of_hits, clopper_pearson
from shortlist.metrics.results import Estimate
from shortlist.metrics.shares import effective_rows
from shortlist.predictors import Macro
from shortlist.promise import Measured, Promise

_AVERAGES = ("average class", "average group", "weighted classes", "place")


@dataclass(frozen=True)
class ClassCounts:
    """By class, the rows that were measured, those whose set contains the class, and the calibration rows.

    ``sizes`` is the sum of the sizes of the rows' sets. ``calibration`` is that of classes with a threshold
    of their own, 0 for others, and empty if there is one threshold for all. ``importance`` is that of each
    class in the average that the promise is about; empty if every class with rows counts the same.
    """

    rows: Sequence[int]
    hits: Sequence[int]
    sizes: Sequence[int]
    calibration: Sequence[int] = ()
    importance: Sequence[float] = ()


def promise_of(name: str, predictor: Any) -> Promise | None:
    """Return the promise that a predictor tells, or that its attribute ``coverage`` stands for."""
    promise = getattr(predictor, "promise", None)
    if promise is not None:
        if not isinstance(promise, Promise):
            got = type(promise).__name__
            raise ValueError(f"predictors[{name!r}].promise must be a Promise or None, got {got}")
        return promise
    coverage = getattr(predictor, "coverage", None)
    if coverage is None:
        return None
    try:
        level = float(coverage)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"predictors[{name!r}].coverage must be a number or None, got {coverage!r}"
        ) from error
    return Promise("rows", level=level, asked=level)


def promised_importance(predictor: Any, counts: Tensor) -> tuple[float, ...]:
    """Return the importance of each class in the average that a predictor promises, over measured classes.

    Args:
        predictor: A predictor.
        counts: Rows of each class (c,) that were measured.

    Returns:
        Numbers that add up to 1, 0 for classes without rows and for those to which the promise does not
        extend; nothing if the promise is about no such average or none of its classes was measured.
    """
    rule, report = getattr(predictor, "rule", None), getattr(predictor, "report", None)
    if not isinstance(rule, Macro) or report is None:
        return ()
    counted = (counts > 0).cpu()
    if rule.excludes_fallback:
        counted = counted & (torch.tensor(report.class_rows) > 0)
    try:
        return tuple(rule.class_importance(counted).tolist())
    except ValueError:
        return ()


def measure_promise(promise: Promise, counts: ClassCounts, *, macro: Estimate) -> Promise:
    """Return the promise with what was measured.

    The mean size is that of all rows; at a place, it counts rows as its classes occur. The coverage over rows
    has the interval of Clopper and Pearson, and so has that of weighted classes, for as many rows as have the
    same variance. If every class with rows counts the same, it is ``macro``.

    Args:
        promise: Promise of a predictor.
        counts: Counts by class.
        macro: Mean of the classes' own coverages.
    """
    at_place = promise.about == "place" and counts.importance
    mean_size = _weighted_mean(counts, counts.sizes) if at_place else sum(counts.sizes) / sum(counts.rows)
    average = _weighted(counts) if _is_weighted(counts) else macro
    if promise.left_out or promise.about == "place":
        counts = _without_left_out(counts)
    rows, hits = sum(counts.rows), sum(counts.hits)
    if not rows:
        return promise
    if promise.about in _AVERAGES:
        is_known = promise.about == "average class" or counts.importance
        if average.value is None or not is_known:
            return promise
        value, ends = average.value, (average.low, average.high)
    else:
        value, ends = hits / rows, clopper_pearson(hits, rows)
    return promise.with_measured(Measured(rows, value, *ends, mean_size, _p_value(promise, counts)))


def _without_left_out(counts: ClassCounts) -> ClassCounts:
    """Return the counts without the rows of classes that have no calibration rows, as those elsewhere."""
    kept = [
        tuple(number if used else 0 for number, used in zip(numbers, counts.calibration, strict=True))
        for numbers in (counts.rows, counts.hits)
    ]
    return replace(counts, rows=kept[0], hits=kept[1])


def _is_weighted(counts: ClassCounts) -> bool:
    """Return whether some class with rows counts more than another."""
    measured = [weight for weight, rows in zip(counts.importance, counts.rows, strict=False) if rows]
    return bool(measured) and max(measured) - min(measured) > 1e-12


def _weighted(counts: ClassCounts) -> Estimate:
    """Return the mean coverage of the classes by their importance."""
    value = _weighted_mean(counts, counts.hits)
    number = effective_rows(counts.rows, counts.importance)
    return Estimate(value, *clopper_pearson(min(1.0, value) * number, number))


def _weighted_mean(counts: ClassCounts, sums: Sequence[int]) -> float:
    """Return the mean of the classes' own means by their importance, where these are sums over their rows."""
    parts = zip(counts.importance, sums, counts.rows, strict=True)
    return sum(weight * total / rows for weight, total, rows in parts if weight)


def _p_value(promise: Promise, counts: ClassCounts) -> float | None:
    """Return the chance of so few hits if the promise holds; ``None`` where no law says it.

    For a promise about each class it is the smallest chance of a class times the number of classes.
    """
    if not promise.has_law or promise.level is None:
        return None
    if promise.about in ("rows", "node"):
        if not promise.rows:
            return None
        hits, rows = sum(counts.hits), sum(counts.rows)
        return chance_of_hits(hits, rows, rows=promise.rows, coverage=promise.level)
    if promise.about != "each class":
        return None
    p_values = [
        chance_of_hits(hits, rows, rows=calibration_rows, coverage=promise.level)
        for rows, hits, calibration_rows in zip(counts.rows, counts.hits, counts.calibration, strict=False)
        if rows and calibration_rows
    ]
    return min(1.0, len(p_values) * min(p_values)) if p_values else None
