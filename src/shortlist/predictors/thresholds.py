"""Compute thresholds from calibration scores: one for all classes, or one for each class."""

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shortlist._checks import check_choice, check_count, check_number
from shortlist.predictors._base import CalibrationWarning
from shortlist.predictors._clusters import weighted_k_means
from shortlist.predictors.coverage_law import conformal_rank, rows_needed
from shortlist.predictors.promise import About

__all__ = [
    "THRESHOLD_RULES",
    "ClassConditional",
    "Clustered",
    "Interpolated",
    "Marginal",
    "ThresholdRule",
    "Thresholds",
    "conformal_threshold",
    "grouped_thresholds",
]

Fallback = Literal["marginal", "full"]


def conformal_threshold(scores: Float[Tensor, " n"], *, coverage: float) -> Float[Tensor, ""]:
    """Find the finite-sample quantile of calibration scores: the smallest that keeps the promise.

    Args:
        scores: Scores (n,) of the true classes of the calibration rows.
        coverage: Promised share of rows whose true class has a score at most the threshold, in (0, 1).

    Returns:
        The ``ceil((n + 1) coverage)``-th smallest score, infinite if there are fewer.

    Example:
        >>> conformal_threshold(torch.tensor([0.3, 0.5, 0.4]), coverage=0.5)  # the 2nd
        tensor(0.4000)
    """
    rank = conformal_rank(len(scores), coverage)
    return scores.new_tensor(math.inf) if rank > len(scores) else scores.kthvalue(rank).values


def grouped_thresholds(
    scores: Float[Tensor, " n"], groups: Int[Tensor, " n"], num_groups: int, *, coverage: float
) -> Float[Tensor, " g"]:
    """Find the :func:`conformal_threshold` of each group of scores (num_groups,), all at once."""
    counts = groups.bincount(minlength=num_groups)
    rank = ((counts + 1).double() * coverage - 1e-9).ceil().long().clamp_min(1)
    enough = rank <= counts
    by_group = _sorted_by_group(scores, groups)
    start = counts.cumsum(0) - counts
    place = (start + rank - 1).where(enough, 0)
    quantile = by_group[place] if len(scores) else scores.new_zeros(num_groups)
    return quantile.where(enough, math.inf)


class Thresholds(NamedTuple):
    """Thresholds, a scalar or (c,), and the classes that have none of their own.

    ``class_rows`` is the number of rows that set each class's own threshold (c,), 0 for those that have none;
    ``None`` if there is one threshold for all.
    """

    values: Tensor
    fallback_classes: tuple[int, ...] = ()
    class_rows: Tensor | None = None


class ThresholdRule(ABC):
    """A rule that sets thresholds. It decides what the promised coverage is about.

    A rule that declares nothing promises nothing. ``about`` is what its promise is about, see
    :class:`~shortlist.predictors.promise.Promise`; ``has_law`` says whether the coverage given the
    calibration rows follows the Beta law of
    :func:`~shortlist.predictors.coverage_law.coverage_range`, with the rows of all classes or of each one.
    """

    about: ClassVar[About] = "nothing"
    has_law: ClassVar[bool] = False

    def promised(self, coverage: float) -> float:
        """Return the coverage that is promised where this one is asked for."""
        return coverage

    @property
    def excludes_fallback(self) -> bool:
        """Whether the promise does not extend to the classes that fall back."""
        return True

    @abstractmethod
    def __call__(self, scores: Tensor, target: Tensor, num_classes: int, coverage: float) -> Thresholds:
        """Compute thresholds from the scores (n,) of the true classes ``target`` (n,)."""


@dataclass(frozen=True)
class Marginal(ThresholdRule):
    """One threshold: the promised coverage holds over all rows together."""

    about: ClassVar[About] = "rows"
    has_law: ClassVar[bool] = True

    def __call__(self, scores: Tensor, target: Tensor, num_classes: int, coverage: float) -> Thresholds:
        """Compute thresholds from the scores (n,) of the true classes ``target`` (n,)."""
        threshold = conformal_threshold(scores, coverage=coverage)
        if math.isinf(threshold):
            warnings.warn(
                f"coverage={coverage:g} needs at least {rows_needed(coverage)} calibration rows, got "
                f"{len(scores)}: every set will hold all classes",
                CalibrationWarning,
                stacklevel=2,
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
        """Whether the promise does not extend to the classes that fall back."""
        return self.fallback == "marginal"

    def __call__(self, scores: Tensor, target: Tensor, num_classes: int, coverage: float) -> Thresholds:
        """Compute thresholds from the scores (n,) of the true classes ``target`` (n,)."""
        found = _per_class(scores, target, num_classes, coverage, self.fallback)
        counts = target.bincount(minlength=num_classes)
        counts[list(found.fallback_classes)] = 0
        return found._replace(class_rows=counts)


@dataclass(frozen=True)
class Interpolated(ThresholdRule):
    """A threshold between the class's own (``weight=1``) and the marginal one (``weight=0``).

    A row that is missed is missed by the class's own threshold or by the marginal one. So the coverage over
    all rows is at least ``1 - 2a`` where ``1 - a`` is asked for, and no more is promised.

    References:
        T. Ding, J. Fermanian, J. Salmon, "Conformal prediction for long-tailed classification", 2025.
    """

    about: ClassVar[About] = "rows"
    weight: float = 0.5
    fallback: Fallback = "marginal"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", check_number("weight", self.weight, low=0.0, below=1 + 1e-12))
        check_choice("fallback", self.fallback, ("marginal", "full"))

    def promised(self, coverage: float) -> float:
        """Return the coverage that is promised where this one is asked for."""
        return max(0.0, round(2 * coverage - 1, 12))

    @property
    def excludes_fallback(self) -> bool:
        """Whether the promise does not extend to the classes that fall back: it is about all rows."""
        return False

    def __call__(self, scores: Tensor, target: Tensor, num_classes: int, coverage: float) -> Thresholds:
        """Compute thresholds from the scores (n,) of the true classes ``target`` (n,)."""
        own, few, _ = _per_class(scores, target, num_classes, coverage, self.fallback)
        marginal = Marginal()(scores, target, num_classes, coverage).values
        mixed = torch.lerp(marginal.expand_as(own), own, self.weight)  # of two equal ones, the same
        # 0 * inf is not a number: an infinite threshold counts only where it has weight
        return Thresholds(mixed.where(own.isfinite(), own if self.weight > 0 else marginal), few)


@dataclass(frozen=True)
class Clustered(ThresholdRule):
    """One threshold for each cluster of classes whose calibration scores are alike.

    Part of the rows serves to find the clusters (k-means on quantiles of each class's scores, weighted by the
    root of its rows), the others to set their thresholds. Classes with too few rows for the level are in no
    cluster and take the marginal threshold.

    Args:
        num_clusters: Number of clusters; by default ``share * rows of the smallest class / 2``, as published.
        share: Share of the rows that serve to find the clusters; by default ``m / (75 + m)`` for m classes.
        seed: Seed of the choice of these rows and of the start of k-means.

    References:
        T. Ding, A. Angelopoulos, S. Bates, M. Jordan, R. Tibshirani, "Class-conditional conformal prediction
        with many classes", NeurIPS 2023.
    """

    about: ClassVar[About] = "each cluster"
    has_law: ClassVar[bool] = True
    num_clusters: int | None = None
    share: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_clusters is not None:
            check_count("num_clusters", self.num_clusters)
        if self.share is not None:
            object.__setattr__(self, "share", check_number("share", self.share, above=0.0, below=1.0))

    def __call__(self, scores: Tensor, target: Tensor, num_classes: int, coverage: float) -> Thresholds:
        """Compute thresholds from the scores (n,) of the true classes ``target`` (n,)."""
        marginal = Marginal()(scores, target, num_classes, coverage).values
        counts = target.bincount(minlength=num_classes)
        usable = counts >= rows_needed(coverage)
        if not bool(usable.any()):
            none = torch.zeros_like(counts)
            return Thresholds(marginal.repeat(num_classes), tuple(range(num_classes)), none)
        m = int(usable.sum())
        share = m / (75 + m) if self.share is None else self.share
        smallest = int(counts[usable].min())
        num_clusters = max(1, int(share * smallest / 2)) if self.num_clusters is None else self.num_clusters
        generator = torch.Generator().manual_seed(self.seed)
        scores, target = _in_one_order(scores, target)
        first = torch.rand(len(scores), generator=generator).to(scores.device) < share
        cluster = _find_clusters(
            scores[first], target[first], usable, min(num_clusters, m), coverage, generator
        )
        rest = ~first & (cluster[target] >= 0)
        quantile = grouped_thresholds(scores[rest], cluster[target[rest]], num_clusters, coverage=coverage)
        own = quantile[cluster.clamp_min(0)].where(cluster >= 0, math.inf)
        found = _with_fallback(own, marginal, "marginal")
        rows = cluster[target[rest]].bincount(minlength=num_clusters)[cluster.clamp_min(0)]
        rows[list(found.fallback_classes)] = 0
        return found._replace(class_rows=rows)


def _in_one_order(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Sort the rows by class and score, so that random draws do not depend on their order."""
    by_score = scores.argsort(stable=True)
    order = by_score[target[by_score].argsort(stable=True)]
    return scores[order], target[order]


def _find_clusters(
    scores: Tensor,
    target: Tensor,
    usable: Tensor,
    num_clusters: int,
    coverage: float,
    generator: torch.Generator,
) -> Tensor:
    """Return the cluster of each class (c,), -1 for those that are not usable or have no row here."""
    counts = target.bincount(minlength=len(usable))
    members = (usable & (counts > 0)).nonzero().squeeze(1)
    cluster = torch.full_like(counts, -1)
    if len(members) == 0:
        return cluster
    number = torch.full_like(counts, -1)
    number[members] = torch.arange(len(members), device=members.device)
    here = number[target] >= 0
    levels = torch.tensor([0.5, 0.6, 0.7, 0.8, 0.9, coverage], dtype=torch.float64, device=scores.device)
    profiles = _group_profiles(scores[here].double(), number[target[here]], len(members), levels)
    weights = counts[members].double().sqrt()
    cluster[members] = weighted_k_means(profiles, weights, min(num_clusters, len(members)), generator)
    return cluster


def _group_profiles(scores: Tensor, groups: Tensor, num_groups: int, levels: Tensor) -> Tensor:
    """Return quantiles of each group's scores at several levels (num_groups, levels); no group is empty."""
    counts = groups.bincount(minlength=num_groups)
    start = counts.cumsum(0) - counts
    rank = (counts[:, None].double() * levels).ceil().long().clamp_min(1)
    return _sorted_by_group(scores, groups)[start[:, None] + rank - 1]


def _sorted_by_group(scores: Tensor, groups: Tensor) -> Tensor:
    """Sort the scores (n,) within each group in ascending order, group after group."""
    order = scores.argsort()
    return scores[order[groups[order].argsort(stable=True)]]


def _per_class(
    scores: Tensor, target: Tensor, num_classes: int, coverage: float, fallback: Fallback
) -> Thresholds:
    own = grouped_thresholds(scores, target, num_classes, coverage=coverage)
    marginal = Marginal()(scores, target, num_classes, coverage).values
    return _with_fallback(own, marginal, fallback)


def _with_fallback(own: Tensor, marginal: Tensor, fallback: Fallback) -> Thresholds:
    few = ~own.isfinite()
    values = own.where(~few, marginal) if fallback == "marginal" else own
    return Thresholds(values, tuple(few.nonzero().squeeze(1).tolist()))


THRESHOLD_RULES: dict[str, type[ThresholdRule]] = {
    "marginal": Marginal,
    "class_conditional": ClassConditional,
    "clustered": Clustered,
    "interpolated": Interpolated,
}
