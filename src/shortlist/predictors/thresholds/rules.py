"""Rules that set thresholds: one for all classes, one for each class, and between the two."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import check_number
from shortlist.coverage_law import rows_needed
from shortlist.predictors.accumulator import CalibrationWarning
from shortlist.predictors.thresholds.quantiles import conformal_threshold, grouped_thresholds, vote_threshold
from shortlist.promise import About

Fallback = Literal["marginal", "full"]


class Thresholds(NamedTuple):
    """Thresholds, a scalar or (c,), the classes that have none of their own, and what to say about them.

    ``class_rows`` is the number of rows that set each class's own threshold (c,), 0 for those that have none;
    ``None`` if there is one threshold for all.
    """

    values: Tensor
    fallback_classes: tuple[int, ...] = ()
    warning: str = ""
    class_rows: Tensor | None = None


class ThresholdRule(ABC):
    """A rule that sets thresholds. It decides what the promised coverage is about.

    A rule that declares nothing promises nothing. ``about`` is what its promise is about, see
    :class:`~shortlist.promise.Promise`; ``has_law`` says whether the coverage given the
    calibration rows follows the Beta law of
    :func:`~shortlist.coverage_law.coverage_range`, with the rows of all classes or of each one.
    """

    takes_votes: ClassVar[bool] = False  # whether it has a meaning for rows with votes for several classes
    about: ClassVar[About] = "nothing"
    has_law: ClassVar[bool] = False

    def promised(self, coverage: float) -> float:
        """Return the coverage that is promised where this one is asked for."""
        return coverage

    @property
    def group_name(self) -> str:
        """What a group of classes is called, for a promise about the average group."""
        return ""

    @property
    def excludes_fallback(self) -> bool:
        """Whether the promise does not extend to the classes without rows of their own."""
        return True

    @abstractmethod
    def __call__(
        self, scores: Tensor, target: Tensor, num_classes: int, coverage: float, supremum: float = math.inf
    ) -> Thresholds:
        """Compute thresholds from the scores (n,) of the true classes (n,), none above ``supremum``."""


@dataclass(frozen=True)
class Marginal(ThresholdRule):
    """One threshold: the promised coverage holds over all rows together."""

    takes_votes: ClassVar[bool] = True
    about: ClassVar[About] = "rows"
    has_law: ClassVar[bool] = True

    def __call__(
        self, scores: Tensor, target: Tensor, num_classes: int, coverage: float, supremum: float = math.inf
    ) -> Thresholds:
        """Compute thresholds from the scores (n,) of the true classes ``target`` (n,)."""
        return self._found(conformal_threshold(scores, coverage=coverage), len(scores), coverage)

    def of_votes(self, scores: Tensor, shares: Tensor, rows: int, coverage: float) -> Thresholds:
        """Compute thresholds from the scores (m,) of voted classes and their shares (m,) of a row's votes."""
        return self._found(vote_threshold(scores, shares, rows=rows, coverage=coverage), rows, coverage)

    def _found(self, threshold: Tensor, rows: int, coverage: float) -> Thresholds:
        if math.isinf(threshold):
            warnings.warn(
                f"coverage={coverage:g} needs at least {rows_needed(coverage)} calibration rows, got "
                f"{rows}: every set will hold all classes",
                CalibrationWarning,
                stacklevel=3,
            )
        return Thresholds(threshold)


@dataclass(frozen=True)
class ClassConditional(ThresholdRule):
    """One threshold for each class: the promised coverage holds within each class.

    A class with too few rows for the level takes the marginal threshold, or with ``fallback="full"`` is in
    every set, which keeps the promise.
    """

    about: ClassVar[About] = "each class"
    has_law: ClassVar[bool] = True
    fallback: Fallback = "marginal"

    def __post_init__(self) -> None:
        check_choice("fallback", self.fallback, ("marginal", "full"))

    @property
    def excludes_fallback(self) -> bool:
        """Whether the promise does not extend to the classes without rows of their own."""
        return self.fallback == "marginal"

    def __call__(
        self, scores: Tensor, target: Tensor, num_classes: int, coverage: float, supremum: float = math.inf
    ) -> Thresholds:
        """Compute thresholds from the scores (n,) of the true classes ``target`` (n,)."""
        of_class = grouped_thresholds(scores, target, num_classes, coverage=coverage)
        marginal = Marginal()(scores, target, num_classes, coverage).values
        rows = target.bincount(minlength=num_classes)
        return with_fallback(of_class, marginal if self.fallback == "marginal" else of_class, rows)


@dataclass(frozen=True)
class Interpolated(ThresholdRule):
    """A threshold between the class's own (``weight=1``) and the marginal one (``weight=0``).

    A class with too few rows for the level has the largest possible score for its own threshold, as
    published: with ``weight=1`` it is in every set. The promise is weaker than that of either end: coverage
    over all rows is at least ``1 - 2 (1 - coverage)``.

    References:
        T. Ding, J. Fermanian, J. Salmon, "Conformal prediction for long-tailed classification", 2025.
    """

    about: ClassVar[About] = "rows"
    weight: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", check_number("weight", self.weight, low=0.0, below=1 + 1e-12))

    def promised(self, coverage: float) -> float:
        """Return the coverage that is promised where this one is asked for."""
        return max(0.0, round(2 * coverage - 1, 12))

    @property
    def excludes_fallback(self) -> bool:
        """Whether the promise does not extend to the classes without rows of their own: it is about all."""
        return False

    def __call__(
        self, scores: Tensor, target: Tensor, num_classes: int, coverage: float, supremum: float = math.inf
    ) -> Thresholds:
        """Compute thresholds from the scores (n,) of the true classes ``target`` (n,)."""
        marginal = Marginal()(scores, target, num_classes, coverage).values
        # a user's own values may have larger scores than probabilities can have
        largest = scores.new_tensor(supremum).maximum(scores.max())
        of_class = with_fallback(grouped_thresholds(scores, target, num_classes, coverage=coverage), largest)
        own_values, marginal = of_class.values, marginal.expand_as(of_class.values)
        if self.weight in (0, 1):  # 0 * inf is not a number: an infinite end counts only where it has weight
            mixed = own_values if self.weight else marginal.clone()
        else:
            mixed = torch.lerp(marginal, own_values, self.weight).nan_to_num(nan=math.inf, posinf=math.inf)
        warning = of_class.warning and f"{of_class.warning}, for which the largest possible score stands in"
        return Thresholds(mixed, of_class.fallback_classes, warning)


def with_fallback(own: Tensor, instead: Tensor, rows: Tensor | None = None) -> Thresholds:
    """Return thresholds (c,) of so many rows each (c,), and another one where a threshold is infinite."""
    few = ~own.isfinite()
    classes = tuple(few.nonzero().squeeze(1).tolist())
    warning = f"too few rows for thresholds of their own: {some_classes(classes)}" if classes else ""
    return Thresholds(
        own.where(~few, instead), classes, warning, None if rows is None else rows.where(~few, 0)
    )


def some_classes(classes: Sequence[int]) -> str:
    """Say how many classes these are, and name the first of them."""
    listed = ", ".join(map(str, classes[:5])) + (", ..." if len(classes) > 5 else "")
    return f"{len(classes)} class{'es' * (len(classes) > 1)} ({listed})"
