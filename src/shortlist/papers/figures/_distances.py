"""Which rows of a data set are near each other, and which are far apart, by class."""

from collections.abc import Iterator

import torch
from torch import Tensor

Pair = tuple[int, int, float]
"""Two rows, and their distance."""

_BLOCK = 2**22  # distances that are looked at in one go


def _blocks(features: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Give the distances of some rows to all, with the number of the first of them; 0 is never negative."""
    step = max(1, _BLOCK // len(features))
    for start in range(0, len(features), step):
        exact = "donot_use_mm_for_euclid_dist"  # the fast way finds 1e-3 between equal rows
        yield start, torch.cdist(features[start : start + step], features, compute_mode=exact)


def nearest_rows(features: Tensor) -> Tensor:
    """Return the nearest other row of each row (n,), the first of several."""
    nearest = []
    for start, distances in _blocks(features):
        diagonal = torch.arange(len(distances))
        distances[diagonal, start + diagonal] = torch.inf
        nearest.append(distances.argmin(1))
    return torch.cat(nearest)


def closest_pairs(features: Tensor, target: Tensor, *, num_classes: int, number: int) -> list[Pair]:
    """Find the closest rows of two classes, no class twice, nearest first; the first row's class is lower."""
    least = features.new_full((num_classes, num_classes), torch.inf)
    for start, distances in _blocks(features):
        by_class = least.new_full((len(distances), num_classes), torch.inf)
        by_class.scatter_reduce_(1, target.expand_as(distances), distances, "amin")
        least.scatter_reduce_(
            0, target[start : start + len(distances), None].expand_as(by_class), by_class, "amin"
        )
    least[torch.ones_like(least, dtype=torch.bool).tril()] = torch.inf
    pairs: list[Pair] = []
    while len(pairs) < number and bool(least.isfinite().any()):
        first, second = divmod(int(least.argmin()), num_classes)
        pairs.append(_between(features, target, first, second, farthest=False))
        least[[first, second]] = torch.inf
        least[:, [first, second]] = torch.inf
    return pairs


def farthest_pairs(features: Tensor, target: Tensor, *, num_classes: int, number: int) -> list[Pair]:
    """Find the rows of one class that are farthest apart, a pair of each class, farthest first."""
    several = (target.bincount(minlength=num_classes) > 1).nonzero().flatten().tolist()
    pairs = [_between(features, target, label, label, farthest=True) for label in several]
    return sorted(pairs, key=lambda pair: -pair[2])[:number]


def _between(features: Tensor, target: Tensor, first: int, second: int, *, farthest: bool) -> Pair:
    rows = [(target == label).nonzero().flatten() for label in (first, second)]
    distances = torch.cdist(features[rows[0]], features[rows[1]], compute_mode="donot_use_mm_for_euclid_dist")
    place = int(distances.argmax() if farthest else distances.argmin())
    i, j = divmod(place, distances.shape[1])
    return int(rows[0][i]), int(rows[1][j]), float(distances[i, j])
