"""Sets and thresholds from the few largest probabilities of each row, exactly or not at all.

Of rows with very many classes only the largest probabilities are kept. Where a predictor compares each
probability with one threshold, they are enough as long as what was dropped is below it. Whether it was is
known after the calibration; if not, the error says how many have to be kept.

A predictor that needs no other probabilities has a method ``kept_rule``, beside the rule for all scores.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from shortlist.predictors._base import SetPredictor


class NotKeptError(ValueError):
    """Raised if too few probabilities are kept; the message says how many are enough."""


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

    @property
    def largest_dropped(self) -> float:
        """A number that no dropped probability is above."""
        if self.all_kept or not len(self.probabilities):
            return -math.inf
        return float(self.probabilities[:, -1].amax())


@dataclass(frozen=True)
class KeptRule:
    """How the sets of a predictor follow from kept rows, and how these calibrate it.

    Args:
        takes: Function of probabilities and their ranks, from 1 on, that returns which are in the set. If a
            probability is in, all larger ones of its row are in.
        enough: Function from the number of classes to a number of probabilities that is enough for every set.
        measure: Function from kept rows to what the predictor's accumulator adds.
        is_exact: Function from the largest dropped probability to whether a calibration with all
            probabilities would have given the same result.
    """

    takes: Callable[[Tensor, Tensor], Tensor]
    enough: Callable[[int], int]
    measure: Callable[[KeptRows], Any] = lambda rows: None
    is_exact: Callable[[float], bool] = lambda dropped: True

    def sets(self, rows: KeptRows) -> tuple[Tensor, Tensor]:
        """Return the sets (n, m) of kept classes, and whether each is whole (n,): no dropped class is in.

        The sets are those of ``predictor(scores)``; with ``TopK``, of equal scores at the k-th place others
        may be in.
        """
        m = rows.probabilities.shape[1]
        sets = self.takes(rows.probabilities, torch.arange(1, m + 1)).expand(rows.probabilities.shape)
        whole = rows.all_kept or self.enough(rows.num_classes) <= m
        return sets, torch.ones(len(sets), dtype=torch.bool) if whole else ~sets[:, -1]

    def hits(self, rows: KeptRows, rank: Tensor) -> Tensor:
        """Return whether the set of each row holds its true class, by its rank, kept or not."""
        return self.takes(rows.true_probability, rank)


def enough_above(lowest: float, num_classes: int) -> int:
    """Return 1 + the number of probabilities of one row that can reach ``lowest``, a number > 0."""
    return num_classes if lowest <= 1 / num_classes else min(num_classes, math.floor(1 / lowest) + 1)


def kept_rule(predictor: "SetPredictor") -> KeptRule:
    """Return how the sets of a predictor follow from the largest probabilities.

    ``TopK``, ``AverageK``, and ``Conformal`` with the score LAC and one threshold for all classes have such a
    rule. With priors they have none, since a small probability may count much.

    Raises:
        NotKeptError: If the predictor needs the scores of all classes.
    """
    rule = predictor.kept_rule()
    if rule is None:
        raise NotKeptError(
            f"{type(predictor).__name__} with {predictor.shown_options()} needs the scores of all classes, "
            "not the largest of each row: score the rows with a model that has this predictor"
        )
    return rule


class KeptCalibration:
    """The calibration of a predictor from kept rows that arrive in parts, in any order.

    Args:
        predictor: Predictor that is not yet calibrated.
        rows: Number of all rows to come.
    """

    def __init__(self, predictor: "SetPredictor", rows: int) -> None:
        self.predictor = predictor
        self._rule = kept_rule(predictor) if predictor.needs_calibration else None
        self._rows = predictor.accumulator(rows)
        self._kept, self._classes, self._dropped = 0, 0, -math.inf

    @torch.no_grad()
    def update(self, rows: KeptRows) -> None:
        """Add rows. A rule that needs the true class leaves out rows without it."""
        if self._rule is None:
            return
        self._rows.add(self._rule.measure(rows))
        self._kept, self._classes = rows.probabilities.shape[1], rows.num_classes
        self._dropped = max(self._dropped, rows.largest_dropped)

    def finish(self) -> "SetPredictor":
        """Set the threshold.

        Raises:
            NotKeptError: If a dropped probability may be above the threshold.
        """
        rule = self._rule
        if rule is None:
            return self.predictor

        def check() -> None:
            if self._kept >= rule.enough(self._classes) or rule.is_exact(self._dropped):
                return
            raise NotKeptError(
                f"{type(self.predictor).__name__} with {self.predictor.shown_options()} cannot be calibrated "
                f"from {self._kept} values of each row, since others may be above its threshold: score with "
                f"--keep {rule.enough(self._classes)}"  # an upper bound
            )

        return self.predictor.finish_with(self._rows, self._classes, check)
