"""Sets and thresholds from the few largest probabilities of each row, exactly or not at all.

Of rows with very many classes only the largest probabilities are kept. Where a predictor compares each
probability with one threshold, they are enough as long as what was dropped is below it. Whether it was is
known in the end; if not, the error says how many have to be kept.

A predictor that can do with them says how by its method ``kept_rule``, next to the rule for all scores.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from shortlist.predictors._base import SetPredictor

__all__ = ["FirstKept", "KeptAbove", "KeptCalibration", "KeptRows", "KeptRule", "NotKeptError", "kept_rule"]


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

    @property
    def largest_dropped(self) -> float:
        """A number that no dropped probability is above."""
        if self.all_kept or not len(self.probabilities):
            return -math.inf
        return float(self.probabilities[:, -1].amax())


class KeptRule(ABC):
    """A rule that makes the sets of a predictor from kept rows, and measures them to calibrate it."""

    @abstractmethod
    def sets(self, rows: KeptRows) -> tuple[Tensor, Tensor]:
        """Return the sets (n, m) of kept classes, and whether each is whole (n,): no dropped class is in.

        The sets are those of ``predictor(scores)``; with ``TopK``, of equal scores at the k-th place others
        may be in.
        """

    @abstractmethod
    def hits(self, rows: KeptRows, rank: Tensor) -> Tensor:
        """Return whether the set of each row holds its true class, of the given rank; it need not be kept."""

    @abstractmethod
    def enough(self, num_classes: int) -> int:
        """Return a number of probabilities that is enough for every set."""

    @abstractmethod
    def measure(self, rows: KeptRows) -> Any:
        """Return what the predictor's accumulator adds of calibration rows."""

    @abstractmethod
    def is_exact(self, dropped: float) -> bool:
        """Return whether the threshold is that of all probabilities; none above ``dropped`` was dropped."""


@dataclass(frozen=True)
class FirstKept(KeptRule):
    """The rule that takes the first k classes; which of equal probabilities are in is not specified."""

    k: int

    def sets(self, rows: KeptRows) -> tuple[Tensor, Tensor]:
        """Return the first k kept classes, and whether k were kept."""
        n, m = rows.probabilities.shape
        return (torch.arange(m) < self.k).expand(n, m), torch.full((n,), rows.all_kept or self.k <= m)

    def hits(self, rows: KeptRows, rank: Tensor) -> Tensor:
        """Return whether the rank is at most k."""
        return rank <= self.k

    def enough(self, num_classes: int) -> int:
        """Return k."""
        return self.k

    def measure(self, rows: KeptRows) -> None:
        """Measure nothing."""

    def is_exact(self, dropped: float) -> bool:
        """Return that it is: there is none."""
        return True


@dataclass(frozen=True)
class KeptAbove(KeptRule):
    """The rule that looks at each probability alone, and takes large ones.

    Args:
        takes: Function that tells which probabilities, of any shape, are in; a larger one is if a smaller is.
        lowest: Function that tells, after the calibration, a number below which no probability is in.
        measures: Function that computes what the accumulator adds of some rows.
        by_true_class: Whether only the probabilities of true classes are measured, which are always known.
    """

    takes: Callable[[Tensor], Tensor]
    lowest: Callable[[], float]
    measures: Callable[[KeptRows], Any]
    by_true_class: bool = False

    def sets(self, rows: KeptRows) -> tuple[Tensor, Tensor]:
        """Return the kept classes that are in; a set is whole if the smallest kept one is not in."""
        sets = self.takes(rows.probabilities)
        return sets, ~sets[:, -1] if not rows.all_kept else torch.ones(len(sets), dtype=torch.bool)

    def hits(self, rows: KeptRows, rank: Tensor) -> Tensor:
        """Return whether the probability of the true class is in."""
        return self.takes(rows.true_probability)

    def enough(self, num_classes: int) -> int:
        """Return one more than can be in: it shows that there are no others."""
        lowest = self.lowest()
        return num_classes if lowest <= 1 / num_classes else min(num_classes, math.floor(1 / lowest) + 1)

    def measure(self, rows: KeptRows) -> Any:
        """Return what the predictor's accumulator adds of calibration rows."""
        return self.measures(rows)

    def is_exact(self, dropped: float) -> bool:
        """Return whether all that was dropped is below the threshold, which it could only raise."""
        return self.by_true_class or self.lowest() > dropped


def kept_rule(predictor: "SetPredictor") -> KeptRule:
    """Return how the sets of a predictor follow from the largest probabilities.

    So it is with ``TopK``, ``AverageK``, and ``Conformal`` with the score LAC and one threshold for all
    classes; without priors, since with them a small probability may count much.

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
        self._rule = kept_rule(predictor) if predictor.needs_calibration else FirstKept(1)
        self._rows = predictor.accumulator(rows)
        self._kept, self._classes, self._dropped = 0, 0, -math.inf

    @torch.no_grad()
    def update(self, rows: KeptRows) -> None:
        """Add rows; those without a true class count where none is needed."""
        self._rows.add(self._rule.measure(rows))
        self._kept, self._classes = rows.probabilities.shape[1], rows.num_classes
        self._dropped = max(self._dropped, rows.largest_dropped)

    def finish(self) -> "SetPredictor":
        """Set the threshold.

        Raises:
            NotKeptError: If a dropped probability may be above the threshold.
        """
        if not self.predictor.needs_calibration:
            return self.predictor
        return self.predictor.finish_with(self._rows, self._classes, self._check)

    def _check(self) -> None:
        if self._rule.is_exact(self._dropped):
            return
        raise NotKeptError(
            f"{type(self.predictor).__name__} with {self.predictor.shown_options()} cannot be calibrated "
            f"from {self._kept} values of each row, since others may be above its threshold: score with "
            f"--keep {self._rule.enough(self._classes)}"  # with the dropped ones, fewer are enough
        )
