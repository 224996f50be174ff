"""Weighted k-means on a few thousand points."""

import torch
from torch import Tensor

__all__ = ["weighted_k_means"]


def weighted_k_means(
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
