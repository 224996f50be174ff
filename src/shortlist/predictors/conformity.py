"""Conformity scores, which tell how badly a class fits a row. Calibration and prediction share them.

``class_scores(APS(), probs)``, for example, has one number for each row and class: the class of the score
stores the options and has the formula. :func:`true_class_scores` and :func:`sets_within`
find the same numbers, and the sets that follow, without the scores of all classes where that is faster.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._checks import check_number, check_scores
from shortlist.ops import descending
from shortlist.predictors._chunks import where_at_most
from shortlist.predictors._order import Places, at_last_equal, places_in_order, prefix_sets, true_class_places


class ConformityScore(ABC):
    """Any conformity score: by the probability of the class alone, or by the classes above it."""

    weighted: ClassVar[bool] = False  # whether probabilities come divided by the class priors

    @abstractmethod
    def __call__(self, of: Any, /) -> Tensor:
        """Return scores of classes."""

    def supremum(self, num_classes: int) -> float:
        """Return a bound that the scores of probabilities do not exceed, the smallest if it is known."""
        return math.inf


class ValueScore(ConformityScore):
    """A score that depends only on the class's own probability; smaller is better."""

    @abstractmethod
    def __call__(self, probs: Tensor, /) -> Tensor:
        """Return the scores of classes with the given probabilities, in any shape."""


class OrderedScore(ConformityScore):
    """A score that depends on the place of the class in the order of probabilities; smaller is better.

    It never falls from one place to the next. Classes of equal probability have the score of the last of
    their places. Unless it is randomized, the class's own probability does not count, so that the first
    class has the score 0 and is in every set. Scores are in float64, where the device has it: sums of
    probabilities then do not depend on their order.
    """

    @abstractmethod
    def __call__(self, at: Places, /) -> Tensor:
        """Return the scores of classes at the given places."""


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


def class_scores(
    score: ConformityScore, probs: Float[Tensor, "n c"], *, uniform: Tensor | None = None
) -> Float[Tensor, "n c"]:
    """Score every class of every row, by any score.

    Args:
        score: Conformity score to compute.
        probs: Probabilities (n, c), divided by the class priors for a weighted score.
        uniform: Draws (n, 1) in [0, 1], or (n, c) by rank, of a randomized score: the share of the class's
            own probability that counts. ``None`` is 0. With ones, all of it counts, as in other libraries.

    Example:
        >>> class_scores(LAC(), torch.tensor([[0.75, 0.25]]))
        tensor([[0.2500, 0.7500]])
        >>> class_scores(PrevalenceAdjusted(), torch.tensor([[0.75, 0.25]]) / torch.tensor([0.875, 0.125]))
        tensor([[-0.8571, -2.0000]])
        >>> class_scores(APS(), torch.tensor([[0.25, 0.5, 0.25]])).tolist()  # equal ones count against each
        [[0.75, 0.0, 0.75]]
        >>> class_scores(RAPS(penalty=0.25, k_reg=1), torch.tensor([[0.5, 0.375, 0.125]])).tolist()
        [[0.0, 0.75, 1.375]]
        >>> class_scores(SAPS(step=0.25), torch.tensor([[0.5, 0.375, 0.125]])).tolist()
        [[0.0, 0.5, 0.75]]
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
