"""What is promised about a list, in words and numbers."""

from typing import Any

from shortlist.model import Model
from shortlist.predictors import AverageK, Conformal, Ladder, SetPredictor, TopK
from shortlist.serve.exchange import Choice

__all__ = ["promise_of"]

SEVERAL = "several photos were taken together, and the rows that the promise is from have one photo each"
SOME_CLASSES = "only some classes were allowed, and the promise is about all of them"


def promise_of(model: Model, choice: Choice, ladder: Ladder | None, *, why_not: str | None) -> dict[str, Any]:
    """Return the promise of a choice as plain values, and whether it holds for a list.

    Args:
        model: Model that made the list.
        choice: What made the set.
        ladder: Calibration rows that a set of any coverage or average size is from.
        why_not: Why the promise does not hold for this list; ``None`` if it does.
    """
    found = (
        _named(model.predictors[choice.predictor]) if choice.predictor is not None else _any(choice, ladder)
    )
    holds = found["level"] is not None and why_not is None
    return {**found, "holds": holds, "why_not": why_not if found["level"] is not None else None}


def _named(predictor: SetPredictor) -> dict[str, Any]:
    rows = None if predictor.report is None else predictor.report.rows
    if isinstance(predictor, Conformal):
        return _coverage(predictor.coverage, rows)
    if isinstance(predictor, AverageK):
        return _size(predictor.k, rows, on_average=True)
    return _size(predictor.k, rows) if isinstance(predictor, TopK) else _size(None, rows)


def _any(choice: Choice, ladder: Ladder | None) -> dict[str, Any]:
    rows = None if ladder is None else ladder.rows
    if choice.coverage is not None:
        return _coverage(choice.coverage, rows)
    if choice.average is not None:
        return _size(choice.average, rows, on_average=True)
    return _size(choice.top, None)


def _coverage(level: float, rows: int | None) -> dict[str, Any]:
    text = (
        f"A list made like this holds the true class {100 * level:.6g} times in 100, over all rows together."
    )
    text += "" if rows is None else f" It was calibrated on {rows:,} rows."
    return {"about": "rows", "level": level, "size": None, "rows": rows, "words": text}


def _size(size: float | None, rows: int | None, *, on_average: bool = False) -> dict[str, Any]:
    nothing = "Nothing is promised about the true class."
    text = nothing
    if size is not None:
        text = (
            f"Lists made like this hold {size:g} classes on average. "
            if on_average
            else f"Each list holds {size:g} classes. "
        )
        text += nothing
    about = "size" if on_average else "nothing"
    return {"about": about, "level": None, "size": size, "rows": rows, "words": text}
