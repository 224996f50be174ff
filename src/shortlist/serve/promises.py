"""What is promised about a list, in words and numbers."""

from typing import Any

from shortlist.model import Model
from shortlist.predictors import Ladder, Promise
from shortlist.serve.exchange import Choice

__all__ = ["SEVERAL", "SOME_CLASSES", "promise_of"]

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
    promise = _any(model, choice, ladder) if choice.predictor is None else model.promises[choice.predictor]
    promised = promise.level is not None
    return {
        **promise.to_dict(),
        "spread": None if promise.spread is None else list(promise.spread),
        "words": promise.words(),
        "holds": promised and why_not is None,
        "why_not": why_not if promised else None,
    }


def _any(model: Model, choice: Choice, ladder: Ladder | None) -> Promise:
    """Return the promise of sets that no saved predictor makes."""
    rows = None if ladder is None else ladder.rows
    if choice.coverage is not None:
        reports = [predictor.report for predictor in model.predictors.values()]
        also = next((report.rows_also for report in reports if report is not None), "")  # of the same rows
        level = choice.coverage
        return Promise("rows", level=level, asked=level, rows=rows, has_law=True, rows_also=also)
    if choice.average is not None:
        return Promise("size", size=choice.average, rows=rows)
    return Promise("nothing", size=choice.top)
