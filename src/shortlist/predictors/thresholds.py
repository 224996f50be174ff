"""From calibration scores to thresholds: one for all classes, or one for each."""

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from shortlist._checks import check_choice, check_k, check_number
from shortlist.predictors._base import CalibrationWarning
from shortlist.predictors._clusters import weighted_k_means
from shortlist.predictors._quantiles import (
    group_profiles,
    grouped_quantiles,
    marginal_quantile,
    rows_needed,
)

__all__ = [
    "THRESHOLDS",
    "ClassConditional",
    "Clustered",
    "Interpolated",
    "Marginal",
    "Threshold",
    "Thresholds",
]

Fallback = Literal["marginal", "full"]


class Thresholds(NamedTuple):
    """Thresholds, a scalar or (c,), and the classes that have none of their own."""

    values: Tensor
    fallback_classes: tuple[int, ...] = ()


class Threshold(ABC):
    """A way to set thresholds."""

    @abstractmethod
    def __call__(self, scores: Tensor, target: Tensor, num_classes: int, coverage: float) -> Thresholds:
        """Thresholds from the scores (n,) of the true classes ``target`` (n,)."""


@dataclass(frozen=True)
class Marginal(Threshold):
    """One threshold: the promised coverage holds over all rows together."""

    def __call__(self, scores: Tensor, target: Tensor, num_classes: int, coverage: float) -> Thresholds:
        """See :class:`Threshold`."""
        threshold = marginal_quantile(scores, coverage)
        if math.isinf(threshold):
            warnings.warn(
                f"coverage={coverage:g} needs at least {rows_needed(coverage)} calibration rows, got "
                f"{len(scores)}: every set will hold all classes",
                CalibrationWarning,
                stacklevel=2,
            )
        return Thresholds(threshold)


@dataclass(frozen=True)
class ClassConditional(Threshold):
    """One threshold for each class: the promised coverage holds within each class.

    A class with too few rows for the level takes the marginal threshold, or with ``fallback="full"`` is in
    every set, which keeps the promise.
    """

    fallback: Fallback = "marginal"

    def __post_init__(self) -> None:
        check_choice("fallback", self.fallback, ("marginal", "full"))

    def __call__(self, scores: Tensor, target: Tensor, num_classes: int, coverage: float) -> Thresholds:
        """See :class:`Threshold`."""
        return _per_class(scores, target, num_classes, coverage, self.fallback)


@dataclass(frozen=True)
class Interpolated(Threshold):
    """Between the class's threshold (``weight=1``) and the marginal one (``weight=0``).

    References:
        T. Ding, J. Fermanian, J. Salmon, "Conformal prediction for long-tailed classification", 2025.
    """

    weight: float = 0.5
    fallback: Fallback = "marginal"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight", check_number("weight", self.weight, low=0.0, below=1 + 1e-12))
        check_choice("fallback", self.fallback, ("marginal", "full"))

    def __call__(self, scores: Tensor, target: Tensor, num_classes: int, coverage: float) -> Thresholds:
        """See :class:`Threshold`."""
        own, few = _per_class(scores, target, num_classes, coverage, self.fallback)
        marginal = Marginal()(scores, target, num_classes, coverage).values
        mixed = torch.lerp(marginal.expand_as(own), own, self.weight)  # of two equal ones, the same
        # 0 * inf is not a number: an infinite threshold counts only where it has weight
        return Thresholds(mixed.where(own.isfinite(), own if self.weight > 0 else marginal), few)


@dataclass(frozen=True)
class Clustered(Threshold):
    """One threshold for each cluster of classes whose calibration scores are alike.

    Part of the rows serves to find the clusters (k-means on quantiles of each class's scores, weighted by the
    root of its rows), the others to set their thresholds. Classes with too few rows for the level are in no
    cluster and take the marginal threshold.

    Args:
        num_clusters: How many; by default ``share * rows of the smallest class / 2``, as published.
        share: Of the rows that serve to find the clusters; by default ``m / (75 + m)`` for m classes.
        seed: For the choice of these rows and the start of k-means.

    References:
        T. Ding, A. Angelopoulos, S. Bates, M. Jordan, R. Tibshirani, "Class-conditional conformal prediction
        with many classes", NeurIPS 2023.
    """

    num_clusters: int | None = None
    share: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_clusters is not None:
            check_k(self.num_clusters, name="num_clusters")
        if self.share is not None:
            object.__setattr__(self, "share", check_number("share", self.share, above=0.0, below=1.0))

    def __call__(self, scores: Tensor, target: Tensor, num_classes: int, coverage: float) -> Thresholds:
        """See :class:`Threshold`."""
        marginal = Marginal()(scores, target, num_classes, coverage).values
        counts = target.bincount(minlength=num_classes)
        usable = counts >= rows_needed(coverage)
        if not bool(usable.any()):
            return Thresholds(marginal.repeat(num_classes), tuple(range(num_classes)))
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
        quantile = grouped_quantiles(scores[rest], cluster[target[rest]], num_clusters, coverage)
        own = quantile[cluster.clamp_min(0)].where(cluster >= 0, math.inf)
        return _with_fallback(own, marginal, "marginal")


def _in_one_order(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The rows by class and score: what is drawn for each does not depend on the order that they came in."""
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
    """Cluster of each class (c,), -1 for those that are not usable or have no row here."""
    counts = target.bincount(minlength=len(usable))
    members = (usable & (counts > 0)).nonzero().squeeze(1)
    cluster = torch.full_like(counts, -1)
    if len(members) == 0:
        return cluster
    number = torch.full_like(counts, -1)
    number[members] = torch.arange(len(members), device=members.device)
    here = number[target] >= 0
    levels = torch.tensor([0.5, 0.6, 0.7, 0.8, 0.9, coverage], dtype=torch.float64, device=scores.device)
    profiles = group_profiles(scores[here].double(), number[target[here]], len(members), levels)
    weights = counts[members].double().sqrt()
    cluster[members] = weighted_k_means(profiles, weights, min(num_clusters, len(members)), generator)
    return cluster


def _per_class(
    scores: Tensor, target: Tensor, num_classes: int, coverage: float, fallback: Fallback
) -> Thresholds:
    own = grouped_quantiles(scores, target, num_classes, coverage)
    marginal = Marginal()(scores, target, num_classes, coverage).values
    return _with_fallback(own, marginal, fallback)


def _with_fallback(own: Tensor, marginal: Tensor, fallback: Fallback) -> Thresholds:
    few = ~own.isfinite()
    values = own.where(~few, marginal) if fallback == "marginal" else own
    return Thresholds(values, tuple(few.nonzero().squeeze(1).tolist()))


THRESHOLDS: dict[str, type[Threshold]] = {
    "marginal": Marginal,
    "class_conditional": ClassConditional,
    "clustered": Clustered,
    "interpolated": Interpolated,
}
