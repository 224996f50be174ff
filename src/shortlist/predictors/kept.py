"""Sets and thresholds from the few largest probabilities of each row, exactly or not at all.

Of rows with very many classes only the largest probabilities are kept. Where a predictor compares each
probability with one threshold, they are enough as long as what was dropped is below it. Whether it was is
known in the end; if not, the error says how many have to be kept.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist.predictors._base import SetPredictor
from shortlist.predictors.average_k import AverageK
from shortlist.predictors.conformal import Conformal
from shortlist.predictors.conformity import LAC
from shortlist.predictors.thresholds import Marginal
from shortlist.predictors.topk import TopK

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


@dataclass(frozen=True)
class KeptRows:
    """The largest probabilities of some rows.

    Args:
        probabilities: The m largest probabilities (n, m) of each row by softmax of the scores, descending.
        num_classes: Number c of all classes.
        target: True class (n,), -100 where it is not known.
        true_probability: Probability (n,) of the true class, whether it was kept or not.
    """

    probabilities: Tensor
    num_classes: int
    target: Tensor
    true_probability: Tensor

    @property
    def all_kept(self) -> bool:
        """Whether no class was dropped."""
        return self.probabilities.shape[1] >= self.num_classes


def works_on_kept(predictor: SetPredictor) -> bool:
    """Whether the sets of a predictor can be made of the largest probabilities.

    So it is with ``TopK``, ``AverageK``, and ``Conformal`` with the score LAC and one threshold for all
    classes; without priors, since with them a small probability may count much.

    Example:
        >>> works_on_kept(AverageK(5)), works_on_kept(Conformal(score="aps"))
        (True, False)
    """
    if predictor.activation != "softmax" or predictor.weights is not None or predictor.shift is not None:
        return False
    if isinstance(predictor, Conformal):
        return isinstance(predictor.score, LAC) and isinstance(predictor.rule, Marginal)
    return isinstance(predictor, TopK | AverageK)


def kept_sets(predictor: SetPredictor, rows: KeptRows) -> tuple[Tensor, Tensor]:
    """Return the sets (n, m) of kept classes, and whether each is whole (n,): nothing dropped belongs to it.

    The sets are those of ``predictor(scores)``, but for the order of equal scores in ``TopK``.
    """
    _check(predictor)
    probabilities = rows.probabilities
    if isinstance(predictor, TopK):
        sets = (torch.arange(probabilities.shape[1]) < predictor.k).expand(probabilities.shape)
        whole = torch.full((len(sets),), rows.all_kept or predictor.k <= probabilities.shape[1])
        return sets, whole
    sets = _in_set(predictor, probabilities)
    return sets, ~sets[:, -1] if not rows.all_kept else torch.ones(len(sets), dtype=torch.bool)


def kept_hits(predictor: SetPredictor, rows: KeptRows, rank: Tensor) -> Tensor:
    """Return whether the set of each row holds its true class, of the given rank; it need not be kept."""
    _check(predictor)
    if isinstance(predictor, TopK):
        return rank <= predictor.k
    return _in_set(predictor, rows.true_probability)


def enough_to_keep(predictor: SetPredictor, num_classes: int) -> int:
    """Return a number of probabilities that is enough for every set of a calibrated predictor."""
    _check(predictor)
    if isinstance(predictor, TopK):
        return predictor.k
    threshold = float(predictor.threshold)  # type: ignore[arg-type]
    low = threshold if isinstance(predictor, AverageK) else 1 - threshold - 2**-22  # but for rounding
    # no more than 1 / low probabilities are above it; one more shows that there are no others
    return num_classes if low <= 1 / num_classes else min(num_classes, math.floor(1 / low) + 1)


def _in_set(predictor: SetPredictor, probabilities: Tensor) -> Tensor:
    """Whether classes of the given probabilities are in the sets, as the predictor decides it."""
    threshold: Tensor = predictor.threshold.to(probabilities.dtype)  # type: ignore[union-attr, operator, assignment]
    if isinstance(predictor, Conformal):
        return predictor.score(probabilities) <= threshold  # type: ignore[arg-type]
    return probabilities >= threshold


def _check(predictor: SetPredictor) -> None:
    if not works_on_kept(predictor):
        raise NotKeptError(
            f"{type(predictor).__name__} with {predictor.options()} needs the scores of all classes, not the "
            "largest of each row: score the rows with a model that has this predictor"
        )


class KeptCalibration:
    """The calibration of a predictor from kept rows that arrive in parts, in any order.

    Args:
        predictor: Predictor that is not yet calibrated.
        rows: Number of all rows to come.
    """

    def __init__(self, predictor: SetPredictor, rows: int) -> None:
        if predictor.needs_calibration:
            _check(predictor)
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
