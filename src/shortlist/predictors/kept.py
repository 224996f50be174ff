"""Sets and thresholds from the few largest probabilities of each row, exactly or not at all.

Of rows with very many classes only the largest probabilities are kept. Where a predictor compares each
probability with one threshold, they are enough as long as what was dropped is below it. Whether it was is
known in the end; if not, the error says how many have to be kept.
"""

import math

import torch
from torch import Tensor

from shortlist.predictors._base import SetPredictor
from shortlist.predictors._kept_rules import KeptRows, KeptRule
from shortlist.predictors.average_k import AverageK
from shortlist.predictors.conformal import Conformal

__all__ = [
    "KeptCalibration",
    "KeptRows",
    "NotKeptError",
    "enough_to_keep",
    "kept_hits",
    "kept_sets",
    "works_on_kept",
]


class NotKeptError(ValueError):
    """Raised where the kept probabilities are too few to give the answer; the message says how many do."""


def works_on_kept(predictor: SetPredictor) -> bool:
    """Whether the sets of a predictor can be made of the largest probabilities.

    So it is with ``TopK``, ``AverageK``, and ``Conformal`` with the score LAC and one threshold for all
    classes; without priors, since with them a small probability may count much.

    Example:
        >>> works_on_kept(AverageK(5)), works_on_kept(Conformal(score="aps"))
        (True, False)
    """
    return predictor.kept_rule() is not None


def kept_sets(predictor: SetPredictor, rows: KeptRows) -> tuple[Tensor, Tensor]:
    """Return the sets (n, m) of kept classes, and whether each is whole (n,): nothing dropped belongs to it.

    The sets are those of ``predictor(scores)``; with ``TopK``, of equal scores at the k-th place others may
    be in.
    """
    return _rule(predictor).sets(rows)


def kept_hits(predictor: SetPredictor, rows: KeptRows, rank: Tensor) -> Tensor:
    """Return whether the set of each row holds its true class, of the given rank; it need not be kept."""
    return _rule(predictor).hits(rows, rank)


def enough_to_keep(predictor: SetPredictor, num_classes: int) -> int:
    """Return a number of probabilities that is enough for every set of a calibrated predictor."""
    return _rule(predictor).enough(num_classes)


def _rule(predictor: SetPredictor) -> KeptRule:
    rule = predictor.kept_rule()
    if rule is None:
        raise NotKeptError(
            f"{type(predictor).__name__} with {predictor.options()} needs the scores of all classes, not the "
            "largest of each row: score the rows with a model that has this predictor"
        )
    return rule


class KeptCalibration:
    """The calibration of a predictor from kept rows that arrive in parts, in any order.

    Args:
        predictor: Predictor that is not yet calibrated.
        rows: Number of all rows to come.
    """

    def __init__(self, predictor: SetPredictor, rows: int) -> None:
        if predictor.needs_calibration:
            _rule(predictor)
        self.predictor = predictor
        self._dropped = -math.inf  # no dropped probability is larger
        self._keep = 0
        self._classes = 0
        if isinstance(predictor, AverageK):
            predictor.max_rows = rows

    @torch.no_grad()
    def update(self, rows: KeptRows) -> None:
        """Add rows; those without a true class count where none is needed."""
        predictor = self.predictor
        self._keep, self._classes = rows.probabilities.shape[1], rows.num_classes
        if isinstance(predictor, Conformal):
            known = rows.target != -100
            predictor.add_probabilities(rows.true_probability[known], rows.target[known], rows.num_classes)
        elif isinstance(predictor, AverageK):
            predictor.add_probabilities(rows.probabilities, rows.num_classes)
            if not rows.all_kept and len(rows.probabilities):
                self._dropped = max(self._dropped, float(rows.probabilities[:, -1].amax()))

    def finish(self) -> SetPredictor:
        """Set the threshold.

        Raises:
            NotKeptError: If a dropped probability may be above the threshold.
        """
        predictor = self.predictor
        if not predictor.needs_calibration:
            return predictor
        if not isinstance(predictor, AverageK):
            return predictor.finish()
        too_few = self._keep < self._classes and predictor.k >= self._keep
        enough = self._classes
        if not too_few:
            predictor.finish()
            # with the dropped ones the threshold can only be higher, and fewer are enough
            too_few, enough = (
                float(predictor.threshold) <= self._dropped,
                enough_to_keep(predictor, self._classes),
            )
        predictor.max_rows = None
        if too_few:
            raise NotKeptError(
                f"AverageK with k={predictor.k:g} cannot be calibrated from {self._keep} values of each row, "
                f"since others may be above its threshold: score with --keep {enough}"
            )
        return predictor
