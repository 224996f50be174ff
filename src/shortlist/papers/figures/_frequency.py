"""Groups of classes in the order of their training images, and rank correlation with these."""

import math

import torch
from torch import Tensor


def frequency_groups(class_counts: Tensor, number: int) -> list[Tensor]:
    """Divide the classes, most frequent first, into so many groups of equally many classes.

    The first groups have one class more where the number of classes cannot be divided. With fewer classes
    than groups, each class is a group.

    Example:
        >>> [group.tolist() for group in frequency_groups(torch.tensor([5, 90, 7]), 2)]
        [[1, 2], [0]]
    """
    order = class_counts.argsort(descending=True, stable=True)
    return list(order.tensor_split(min(number, len(order))))


def rank_correlation(first: Tensor, second: Tensor) -> float | None:
    """Compute Spearman's correlation of two columns (n,); None where one of them is constant.

    Example:
        >>> rank_correlation(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([3.0, 2.0, 1.0]))
        -1.0
    """
    ranks = torch.stack([_ranks(first), _ranks(second)])
    if bool((ranks == ranks[:, :1]).all(1).any()):
        return None
    correlation = float(torch.corrcoef(ranks)[0, 1])
    return None if math.isnan(correlation) else max(-1.0, min(1.0, correlation))


def _ranks(values: Tensor) -> Tensor:
    """Count from 1; equal values have the mean of their places."""
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0).double() - (counts.double() - 1) / 2)[place]
