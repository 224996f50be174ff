"""How sets follow from the few largest probabilities of each row, where these are enough.

A predictor that can do with them says how by its method ``kept_rule``, next to the rule for all scores.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["FirstKept", "KeptAbove", "KeptRows", "KeptRule"]


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


class KeptRule(ABC):
    """A rule that makes the sets of a predictor from kept rows."""

    @abstractmethod
    def sets(self, rows: KeptRows) -> tuple[Tensor, Tensor]:
        """Return the sets (n, m) of kept classes, and whether each is whole (n,): no dropped class is in."""

    @abstractmethod
    def hits(self, rows: KeptRows, rank: Tensor) -> Tensor:
        """Return whether the set of each row holds its true class, of the given rank; it need not be kept."""

    @abstractmethod
    def enough(self, num_classes: int) -> int:
        """Return a number of probabilities that is enough for every set."""


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


@dataclass(frozen=True)
class KeptAbove(KeptRule):
    """The rule that looks at each probability alone, and takes large ones.

    Args:
        takes: Function that tells which probabilities, of any shape, are in; a larger one is if a smaller is.
        lowest: A number below which no probability is in, used only after the calibration.
    """

    takes: Callable[[Tensor], Tensor]
    lowest: float

    def sets(self, rows: KeptRows) -> tuple[Tensor, Tensor]:
        """Return the kept classes that are in; a set is whole if the smallest kept one is not in."""
        sets = self.takes(rows.probabilities)
        return sets, ~sets[:, -1] if not rows.all_kept else torch.ones(len(sets), dtype=torch.bool)

    def hits(self, rows: KeptRows, rank: Tensor) -> Tensor:
        """Return whether the probability of the true class is in."""
        return self.takes(rows.true_probability)

    def enough(self, num_classes: int) -> int:
        """Return one more than can be in: it shows that there are no others."""
        if self.lowest <= 1 / num_classes:
            return num_classes
        return min(num_classes, math.floor(1 / self.lowest) + 1)
