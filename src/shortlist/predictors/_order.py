"""Classes in the order of their probabilities, and where a given class stands in it."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.ops.selection import largest

__all__ = ["Places", "at_last_equal", "descending", "places_in_order", "prefix_sets", "true_class_places"]

LEADING = 64


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


def places_in_order(in_order: Tensor) -> Places:
    """The places of each row, given its largest probabilities in descending order (n, m)."""
    rank = torch.arange(1, in_order.shape[1] + 1, dtype=in_order.dtype, device=in_order.device)
    return Places(in_order, in_order.cumsum(1), rank, in_order[:, :1])


def descending(values: Tensor) -> Tensor:
    """Each row sorted; on the CPU by numpy where it is installed, which is many times faster at it."""
    if can_read_values(values):
        try:
            import numpy
        except ImportError:
            pass
        else:
            return torch.from_numpy(numpy.sort(values.detach().numpy(), axis=1)).flip(1)
    return values.sort(dim=1, descending=True).values


def at_last_equal(in_order: Tensor, numbers: Tensor) -> Tensor:
    """Numbers (n, c) of places, each replaced by that of the last place with an equal value in the order.

    That is where :func:`true_class_places` puts a class: a tie counts against it.
    """
    changes = in_order[:, 1:] != in_order[:, :-1]
    ends = torch.cat([changes, torch.ones_like(in_order[:, :1], dtype=torch.bool)], dim=1)
    group = torch.cat([torch.zeros_like(ends[:, :1]), changes], dim=1).cumsum(1)
    # those that are not last go to one column more, which is not read
    index = group.where(ends, in_order.shape[1])
    padded = torch.cat([numbers, numbers[:, :1]], dim=1)
    return padded.scatter(1, index, numbers).gather(1, group)


def prefix_sets(values: Tensor, inside: Callable[[Places], Tensor], *, ties: Literal["in", "out"]) -> Tensor:
    """Sets (n, c) of the classes whose place is inside, for a rule that takes a first part of the order.

    Classes with equal values are in or out together. Where there are many classes, the leading places are
    tried first: as a rule no set goes further.

    Args:
        values: Probabilities (n, c).
        inside: From places (n, m), whether each is in (n, m); never again after the first that is not.
        ties: What becomes of equal classes of which the rule takes some and leaves others: all are in, or all
            are out, as by the last of their places.
    """
    if can_read_values(values) and values.shape[1] >= LEADING**2:
        in_order = largest(values, LEADING)[0]
        size = inside(places_in_order(in_order)).sum(1, keepdim=True)
        if bool((size < LEADING).all()):
            return _first_classes(values, in_order, size, ties)
    in_order = descending(values)
    return _first_classes(values, in_order, inside(places_in_order(in_order)).sum(1, keepdim=True), ties)


def _first_classes(values: Tensor, in_order: Tensor, size: Tensor, ties: Literal["in", "out"]) -> Tensor:
    """Sets (n, c) of as many first classes as each row's size (n, 1) says, with or without their equals."""
    last = in_order.gather(1, torch.clamp_min(size - 1, 0))
    if ties == "in":
        return (values >= last) & (size > 0)
    after = in_order.gather(1, torch.clamp_max(size, in_order.shape[1] - 1))
    cut = (after == last) & (size < in_order.shape[1])  # through the middle of equal classes
    return ((values > last) | ((values == last) & ~cut)) & (size > 0)
