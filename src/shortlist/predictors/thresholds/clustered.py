"""Thresholds for clusters of classes whose calibration scores are alike."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from shortlist._checks import check_count, check_number
from shortlist.coverage_law import rows_needed
from shortlist.predictors.thresholds.quantiles import grouped_thresholds, sorted_by_group
from shortlist.predictors.thresholds.rules import Marginal, ThresholdRule, Thresholds, with_fallback
from shortlist.promise import About


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

    def __call__(
        self, scores: Tensor, target: Tensor, num_classes: int, coverage: float, supremum: float = math.inf
    ) -> Thresholds:
        """Compute thresholds from the scores (n,) of the true classes ``target`` (n,)."""
        marginal = Marginal()(scores, target, num_classes, coverage).values
        counts = target.bincount(minlength=num_classes)
        usable = counts >= rows_needed(coverage)
        if not bool(usable.any()):
            return with_fallback(marginal.new_full((num_classes,), math.inf), marginal, counts)
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
        of_cluster = quantile[cluster.clamp_min(0)].where(cluster >= 0, math.inf)
        rows = cluster[target[rest]].bincount(minlength=num_clusters)[cluster.clamp_min(0)]
        return with_fallback(of_cluster, marginal, rows)


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
    cluster[members] = _weighted_k_means(profiles, weights, min(num_clusters, len(members)), generator)
    return cluster


def _group_profiles(scores: Tensor, groups: Tensor, num_groups: int, levels: Tensor) -> Tensor:
    """Return quantiles of each group's scores at several levels (num_groups, levels); no group is empty."""
    counts = groups.bincount(minlength=num_groups)
    start = counts.cumsum(0) - counts
    rank = (counts[:, None].double() * levels).ceil().long().clamp_min(1)
    return sorted_by_group(scores, groups)[start[:, None] + rank - 1]


def _weighted_k_means(
    points: Tensor, weights: Tensor, num_clusters: int, generator: torch.Generator, *, max_steps: int = 100
) -> Tensor:
    """Return the cluster of each point (m,), by Lloyd's algorithm from a k-means++ start.

    Args:
        points: Points (m, d), float64.
        weights: Weight of each point (m,), > 0.
        num_clusters: Number of clusters, at most m.
        generator: Random generator of the start, on the CPU.
        max_steps: Largest number of steps.
    """
    device = points.device
    points, weights = points.cpu(), weights.cpu()
    centers = points[torch.multinomial(weights, 1, generator=generator)]
    while len(centers) < num_clusters:
        distance = weights * torch.cdist(points, centers).amin(1).square()
        if float(distance.sum()) == 0:  # fewer different points than clusters
            break
        centers = torch.cat([centers, points[torch.multinomial(distance, 1, generator=generator)]])
    cluster = torch.cdist(points, centers).argmin(1)
    for _ in range(max_steps):
        mass = torch.zeros(len(centers), dtype=points.dtype).index_add_(0, cluster, weights)
        sums = torch.zeros_like(centers).index_add_(0, cluster, weights[:, None] * points)
        centers = torch.where(mass[:, None] > 0, sums / mass.clamp_min(1e-300)[:, None], centers)
        moved = torch.cdist(points, centers).argmin(1)
        if torch.equal(moved, cluster):
            break
        cluster = moved
    return cluster.to(device)
