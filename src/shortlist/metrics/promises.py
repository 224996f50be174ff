"""What came of a predictor's promise on held-out rows, and whether chance explains the difference."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shortlist.metrics.results import Estimate
from shortlist.metrics.shares import clopper_pearson
from shortlist.predictors import Measured, Promise
from shortlist.predictors.coverage_law import chance_of_hits

__all__ = ["ClassCounts", "measure_promise", "promise_of"]


@dataclass(frozen=True)
class ClassCounts:
    """By class, the rows that were measured, those whose set contains the class, and the calibration rows.

    ``calibration`` is that of classes with a threshold of their own, 0 for others, and empty if there is one
    threshold for all.
    """

    rows: Sequence[int]
    hits: Sequence[int]
    calibration: Sequence[int] = ()


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


def measure_promise(promise: Promise, counts: ClassCounts, *, macro: Estimate, mean_size: float) -> Promise:
    """Return the promise with what was measured.

    The coverage over rows has the interval of Clopper and Pearson. That of the average class has the interval
    of ``macro``.

    Args:
        promise: Promise of a predictor.
        counts: Counts by class.
        macro: Mean of the classes' own coverages.
        mean_size: Mean size of the sets.
    """
    rows, hits = sum(counts.rows), sum(counts.hits)
    if promise.about == "average class" and macro.value is not None:
        value, ends = macro.value, (macro.low, macro.high)
    else:
        value, ends = hits / rows, clopper_pearson(hits, rows)
    return promise.with_measured(Measured(rows, value, *ends, mean_size, _p_value(promise, counts)))


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
    found = [
        chance_of_hits(hits, rows, rows=own, coverage=promise.level)
        for rows, hits, own in zip(counts.rows, counts.hits, counts.calibration, strict=False)
        if rows and own
    ]
    return min(1.0, len(found) * min(found)) if found else None
