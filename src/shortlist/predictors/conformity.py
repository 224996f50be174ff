"""Conformity scores: how badly a class fits a row, one formula for calibration and prediction alike."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from shortlist._checks import check_number
from shortlist.predictors._order import Places

__all__ = ["APS", "CONFORMITY_SCORES", "LAC", "RAPS", "SAPS", "ConformityScore", "PrevalenceAdjusted"]


class ConformityScore(ABC):
    """A formula for the score of a class; small is good.

    An ordered score never falls from one place in the order to the next.
    """

    ordered: ClassVar[bool] = True  # whether it needs the rank or the cumulative probability
    weighted: ClassVar[bool] = False  # whether probabilities come divided by the class priors

    @abstractmethod
    def __call__(self, at: Places) -> Tensor:
        """Scores of classes at the given places."""


@dataclass(frozen=True)
class LAC(ConformityScore):
    r"""Least ambiguous sets, :math:`1 - p_j`: the smallest on average (Sadinle, Lei, Wasserman 2019)."""

    ordered: ClassVar[bool] = False

    def __call__(self, at: Places) -> Tensor:
        """See :class:`ConformityScore`."""
        return 1 - at.probability


@dataclass(frozen=True)
class PrevalenceAdjusted(ConformityScore):
    r"""Prevalence-adjusted, :math:`-p_j / \pi_j`, for macro coverage (Ding, Fermanian, Salmon 2025)."""

    ordered: ClassVar[bool] = False
    weighted: ClassVar[bool] = True

    def __call__(self, at: Places) -> Tensor:
        """See :class:`ConformityScore`."""
        return -at.probability


@dataclass(frozen=True)
class APS(ConformityScore):
    """Adaptive prediction sets: the cumulative probability down to the class (Romano, Sesia, Candès 2020)."""

    def __call__(self, at: Places) -> Tensor:
        """See :class:`ConformityScore`."""
        return at.cumulative - (1 - at.uniform) * at.probability


@dataclass(frozen=True)
class RAPS(ConformityScore):
    """APS with a penalty for each rank beyond ``k_reg`` (Angelopoulos, Bates, Malik, Jordan 2021)."""

    penalty: float = 0.01
    k_reg: int = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "penalty", check_number("penalty", self.penalty, low=0.0))
        object.__setattr__(self, "k_reg", check_number("k_reg", self.k_reg, low=0.0))

    def __call__(self, at: Places) -> Tensor:
        """See :class:`ConformityScore`."""
        excess = (at.rank - self.k_reg).clamp_min(0)
        return at.cumulative - (1 - at.uniform) * at.probability + self.penalty * excess


@dataclass(frozen=True)
class SAPS(ConformityScore):
    """The largest probability, then a fixed step for each rank (Huang et al. 2024)."""

    step: float = 0.1

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", check_number("step", self.step, above=0.0))

    def __call__(self, at: Places) -> Tensor:
        """See :class:`ConformityScore`."""
        first = at.rank == 1
        return (at.best + (at.rank - 2 + at.uniform) * self.step).where(~first, at.uniform * at.best)


CONFORMITY_SCORES: dict[str, type[ConformityScore]] = {
    "lac": LAC,
    "aps": APS,
    "raps": RAPS,
    "saps": SAPS,
    "prevalence_adjusted": PrevalenceAdjusted,
}
