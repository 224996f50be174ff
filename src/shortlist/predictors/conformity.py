"""Conformity scores, which tell how badly a class fits a row. Calibration and prediction share them.

A score is a function of probabilities: ``aps_scores(probs)``, for example, has one number for each row and
class. Its class stores the options and has the formula. :func:`true_class_scores` and :func:`sets_within`
find the same numbers, and the sets that follow, without the scores of all classes where that is faster.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._checks import check_number, check_scores
from shortlist.ops.selection import descending
from shortlist.predictors._compare import where_at_most
from shortlist.predictors._order import Places, at_last_equal, places_in_order, prefix_sets, true_class_places

__all__ = [
    "APS",
    "CONFORMITY_SCORES",
    "LAC",
    "RAPS",
    "SAPS",
    "ConformityScore",
    "OrderedScore",
    "PrevalenceAdjusted",
    "ValueScore",
    "aps_scores",
    "class_scores",
    "lac_scores",
    "prevalence_adjusted_scores",
    "raps_scores",
    "saps_scores",
    "sets_within",
    "true_class_scores",
]


class ValueScore(ABC):
    """A score that depends only on the class's own probability; smaller is better."""

    weighted: ClassVar[bool] = False  # whether probabilities come divided by the class priors

    @abstractmethod
    def __call__(self, probs: Tensor) -> Tensor:
        """Return the scores of classes with the given probabilities, in any shape."""

    def supremum(self, num_classes: int) -> float:
        """Return a bound that the scores of probabilities do not exceed, the smallest if it is known."""
        return math.inf


class OrderedScore(ABC):
    """A score that depends on the place of the class in the order of probabilities; smaller is better.

    It never falls from one place to the next. Classes of equal probability have the score of the last of
    their places. Unless it is randomized, the class's own probability does not count, so that the first
    class has the score 0 and is in every set. Scores are in float64, where the device has it: sums of
    probabilities then do not depend on their order.
    """

    weighted: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, at: Places) -> Tensor:
        """Return the scores of classes at the given places."""

    def supremum(self, num_classes: int) -> float:
        """Return a bound that the scores of probabilities do not exceed, the smallest if it is known."""
        return math.inf


ConformityScore = ValueScore | OrderedScore
"""Any conformity score: by the probability of the class alone, or by the classes above it."""


@dataclass(frozen=True)
class LAC(ValueScore):
    r"""Least ambiguous sets, :math:`1 - p_j`: the smallest on average (Sadinle, Lei, Wasserman 2019)."""

    def __call__(self, probs: Tensor) -> Tensor:
        """Return the scores of classes with the given probabilities."""
        return 1 - probs

    def supremum(self, num_classes: int) -> float:
        """Return the largest possible score."""
        return 1.0


@dataclass(frozen=True)
class PrevalenceAdjusted(ValueScore):
    r"""Prevalence-adjusted, :math:`-p_j / \pi_j`, for macro coverage (Ding, Fermanian, Salmon 2025)."""

    weighted: ClassVar[bool] = True

    def __call__(self, probs: Tensor) -> Tensor:
        """Return the scores of classes with the given probabilities."""
        return -probs

    def supremum(self, num_classes: int) -> float:
        """Return the largest possible score."""
        return 0.0


@dataclass(frozen=True)
class APS(OrderedScore):
    """Adaptive prediction sets: the cumulative probability of the classes before (Romano and others 2020)."""

    def __call__(self, at: Places) -> Tensor:
        """Return the scores of classes at the given places."""
        return at.cumulative - (1 - at.uniform) * at.probability

    def supremum(self, num_classes: int) -> float:
        """Return the largest possible score."""
        return 1.0


@dataclass(frozen=True)
class RAPS(OrderedScore):
    """APS with a penalty for each rank beyond ``k_reg`` (Angelopoulos, Bates, Malik, Jordan 2021)."""

    penalty: float = 0.01
    k_reg: int = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "penalty", check_number("penalty", self.penalty, low=0.0))
        object.__setattr__(self, "k_reg", check_number("k_reg", self.k_reg, low=0.0))

    def __call__(self, at: Places) -> Tensor:
        """Return the scores of classes at the given places."""
        excess = (at.rank - self.k_reg).clamp_min(0)
        return at.cumulative - (1 - at.uniform) * at.probability + self.penalty * excess

    def supremum(self, num_classes: int) -> float:
        """Return the largest possible score."""
        return 1 + self.penalty * max(0, num_classes - self.k_reg)


@dataclass(frozen=True)
class SAPS(OrderedScore):
    """The largest probability from the second class on, then a fixed step for each (Huang et al. 2024)."""

    step: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", check_number("step", self.step, above=0.0))

    def __call__(self, at: Places) -> Tensor:
        """Return the scores of classes at the given places."""
        first = at.rank == 1
        return (at.best + (at.rank - 2 + at.uniform) * self.step).where(~first, at.uniform * at.best)

    def supremum(self, num_classes: int) -> float:
        """Return the largest possible score."""
        return 1 + self.step * (num_classes - 1)


CONFORMITY_SCORES: dict[str, type[ConformityScore]] = {
    "lac": LAC,
    "aps": APS,
    "raps": RAPS,
    "saps": SAPS,
    "prevalence_adjusted": PrevalenceAdjusted,
}
"""The class of each conformity score, by name."""


def lac_scores(probs: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    """Score every class by one minus its probability; see :class:`LAC`.

    Example:
        >>> lac_scores(torch.tensor([[0.75, 0.25]]))
        tensor([[0.2500, 0.7500]])
    """
    return class_scores(LAC(), probs)


def prevalence_adjusted_scores(
    probs: Float[Tensor, "n c"], *, priors: Float[Tensor, " c"]
) -> Float[Tensor, "n c"]:
    """Score every class by minus its probability over its prior; see :class:`PrevalenceAdjusted`.

    Example:
        >>> prevalence_adjusted_scores(torch.tensor([[0.75, 0.25]]), priors=torch.tensor([0.875, 0.125]))
        tensor([[-0.8571, -2.0000]])
    """
    return class_scores(PrevalenceAdjusted(), probs / priors)


def aps_scores(probs: Float[Tensor, "n c"], *, uniform: Tensor | None = None) -> Float[Tensor, "n c"]:
    """Score every class by the cumulative probability of those before it; see :class:`APS`.

    Args:
        probs: Probabilities (n, c).
        uniform: Draws (n, 1) in [0, 1], or (n, c) by rank, of a randomized score: the share of the class's
            own probability that counts. ``None`` is 0. With ones, all of it counts, as in other libraries.

    Example:
        >>> aps_scores(torch.tensor([[0.25, 0.5, 0.25]])).tolist()  # equal ones count against each other
        [[0.75, 0.0, 0.75]]
    """
    return class_scores(APS(), probs, uniform=uniform)


def raps_scores(
    probs: Float[Tensor, "n c"], *, penalty: float = 0.01, k_reg: int = 5, uniform: Tensor | None = None
) -> Float[Tensor, "n c"]:
    """Score every class as :func:`aps_scores` does, with a penalty for late ranks; see :class:`RAPS`.

    Example:
        >>> raps_scores(torch.tensor([[0.5, 0.375, 0.125]]), penalty=0.25, k_reg=1).tolist()
        [[0.0, 0.75, 1.375]]
    """
    return class_scores(RAPS(penalty, k_reg), probs, uniform=uniform)


def saps_scores(
    probs: Float[Tensor, "n c"], *, step: float = 0.1, uniform: Tensor | None = None
) -> Float[Tensor, "n c"]:
    """Score every class by the largest probability and its rank; see :class:`SAPS`.

    Example:
        >>> saps_scores(torch.tensor([[0.5, 0.375, 0.125]]), step=0.25).tolist()
        [[0.0, 0.5, 0.75]]
    """
    return class_scores(SAPS(step), probs, uniform=uniform)


def class_scores(
    score: ConformityScore, probs: Float[Tensor, "n c"], *, uniform: Tensor | None = None
) -> Float[Tensor, "n c"]:
    """Score every class of every row, by any score.

    Args:
        score: Conformity score to compute.
        probs: Probabilities (n, c), divided by the class priors for a weighted score.
        uniform: Draws (n, 1), or (n, c) by rank, of a randomized score.
    """
    check_scores(probs, name="probs")
    if isinstance(score, ValueScore):
        return score(probs)
    in_order, index = descending(probs)
    numbers = at_last_equal(in_order, score(places_in_order(in_order, uniform)))
    return torch.zeros_like(numbers).scatter(1, index, numbers)


def true_class_scores(
    score: ConformityScore,
    probs: Float[Tensor, "n c"],
    target: Int[Tensor, " n"],
    *,
    uniform: Float[Tensor, " n"] | None = None,
) -> Float[Tensor, " n"]:
    """Score the true class of every row: a column of :func:`class_scores`, without a sort.

    Args:
        score: Conformity score to compute.
        probs: Probabilities (n, c), divided by the class priors for a weighted score.
        target: True classes (n,).
        uniform: Draws (n,) of a randomized score.
    """
    if isinstance(score, ValueScore):
        return score(probs.gather(1, target[:, None]).squeeze(1))
    return score(true_class_places(probs, target, uniform))


def sets_within(
    score: ConformityScore,
    probs: Float[Tensor, "n c"],
    threshold: Float[Tensor, "*c"],
    *,
    uniform: Tensor | None = None,
) -> Bool[Tensor, "n c"]:
    """Find the sets of classes whose score is at most the threshold, or the class's own threshold.

    Args:
        score: Conformity score to compute.
        probs: Probabilities (n, c), divided by the class priors for a weighted score.
        threshold: One threshold for all classes, or one for each (c,).
        uniform: Draws (n, 1), or (n, c) by rank, of a randomized score.
    """
    if isinstance(score, ValueScore) or threshold.ndim:
        numbers = class_scores(score, probs, uniform=uniform)
        return where_at_most(numbers, threshold.to(numbers.dtype))
    return prefix_sets(probs, lambda places: score(places) <= threshold, ties="out", uniform=uniform)
