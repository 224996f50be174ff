"""Classes in the order of their probabilities, and where a given class stands in it."""

from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.ops._select import largest

__all__ = ["Places", "leading_places", "true_class_places"]


class Places(NamedTuple):
    """What a conformity score may depend on, for some classes of each row; shapes broadcast to one."""

    probability: Tensor
    cumulative: Tensor  # sum of the probabilities down to this class, itself included
    rank: Tensor  # 1 for the most likely class; floating, as the probabilities
    best: Tensor  # probability of the most likely class
    uniform: Tensor | float = 1.0  # in [0, 1]; 1 when nothing is randomised


def true_class_places(probabilities: Tensor, target: Tensor) -> Places:
    """Where the true classes (n,) stand, without a sort; a tie with another class counts against them."""
    true = probabilities.gather(1, target[:, None])
    not_below = probabilities >= true
    return Places(
        probability=true.squeeze(1),
        cumulative=(probabilities * not_below).sum(1),
        rank=not_below.sum(1).to(probabilities.dtype),
        best=probabilities.amax(1),
    )


def leading_places(probabilities: Tensor, length: int) -> tuple[Places, Tensor]:
    """Places of the ``length`` most likely classes of each row (n, length), and which classes these are."""
    if length < probabilities.shape[1]:
        in_order, index = largest(probabilities, length)
    else:
        in_order, index = probabilities.sort(dim=1, descending=True)
    rank = torch.arange(1, length + 1, dtype=in_order.dtype, device=in_order.device)
    return Places(in_order, in_order.cumsum(1), rank, in_order[:, :1]), index
