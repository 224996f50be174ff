"""Classes in the order of their probabilities, and sets that are a first part of it."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.ops.selection import largest
from shortlist.predictors._compare import where_at_least

__all__ = ["Inside", "Places", "Ties", "at_last_equal", "places_in_order", "prefix_sets", "true_class_places"]

LEADING = 64  # places that are tried first
SAMPLE = 1024  # classes that tell where in the order a set may end
MANY = 16 * SAMPLE  # classes from which on a sample is worth its while

Ties = Literal["in", "out"]


class Places(NamedTuple):
    """What a conformity score may depend on, for some classes of each row; shapes broadcast to one."""

    probability: Tensor
    cumulative: Tensor  # sum of the probabilities down to this class, itself included
    rank: Tensor  # 1 for the most likely class; floating, as the probabilities
    best: Tensor  # probability of the most likely class
    uniform: Tensor | float = 1.0  # in [0, 1]; 1 when nothing is randomized


Inside = Callable[[Places], Tensor]


def true_class_places(probabilities: Tensor, target: Tensor, uniform: Tensor | None = None) -> Places:
    """Where the true classes (n,) stand, without a sort; a tie with another class counts against them."""
    true = probabilities.gather(1, target[:, None])
    # to compare into floats, and to add these up, takes a third of the time that booleans take
    not_below = torch.ge(probabilities, true, out=torch.empty_like(probabilities))
    rank = not_below.sum(1)
    return Places(
        probability=true.squeeze(1),
        cumulative=not_below.mul_(probabilities).sum(1),
        rank=rank,
        best=probabilities.amax(1),
        uniform=1.0 if uniform is None else uniform,
    )


def places_in_order(in_order: Tensor, uniform: Tensor | None = None) -> Places:
    """The places of each row, given its largest probabilities in descending order (n, m)."""
    rank = torch.arange(1, in_order.shape[1] + 1, dtype=in_order.dtype, device=in_order.device)
    return Places(in_order, in_order.cumsum(1), rank, in_order[:, :1], _draws(uniform, in_order.shape[1]))


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


def prefix_sets(values: Tensor, inside: Inside, *, ties: Ties, uniform: Tensor | None = None) -> Tensor:
    """Sets (n, c) of the classes whose place is inside, for a rule that takes a first part of the order.

    Classes with equal values are in or out together. Where there are many classes, the leading places are
    tried first: as a rule no set goes further. Those that do are sorted around their end alone.

    Args:
        values: Probabilities (n, c).
        inside: From places (n, m), whether each is in (n, m); never again after the first that is not.
        ties: What becomes of equal classes of which the rule takes some and leaves others: all are in, or all
            are out, as by the last of their places.
        uniform: The draws (n, 1), or (n, c) by rank, if there are any.
    """
    if not can_read_values(values):
        in_order = values.sort(dim=1, descending=True).values
        return values >= _last_inside(in_order, inside(places_in_order(in_order, uniform)), ties)
    values = values.detach()
    return where_at_least(values, _last_values(values, inside, ties, uniform))


def _last_values(values: Tensor, inside: Inside, ties: Ties, uniform: Tensor | None) -> Tensor:
    """The smallest value in each row's set (n, 1), infinite if that is empty; by the shortest way."""
    c = values.shape[1]
    by_rank = uniform is not None and uniform.shape[1] > 1
    if c >= MANY and not by_rank:
        return _last_by_sample(values, inside, ties, uniform)
    if c >= LEADING**2:
        in_order = largest(values, LEADING)[0]
        held = inside(places_in_order(in_order, uniform))
        if not bool(held[:, -1].any()):
            return _last_inside(in_order, held, ties)
    in_order = _descending(values)
    return _last_inside(in_order, inside(places_in_order(in_order, uniform)), ties)


def _last_inside(in_order: Tensor, held: Tensor, ties: Ties) -> Tensor:
    """The smallest value in each row's set (n, 1), given its largest ones in order and which are inside."""
    size = held.sum(1, keepdim=True)
    last = in_order.gather(1, torch.clamp_min(size - 1, 0))
    if ties == "out":
        after = in_order.gather(1, torch.clamp_max(size, in_order.shape[1] - 1))
        cut = (after == last) & (size < in_order.shape[1])  # through the middle of equal classes
        size = torch.where(cut, (in_order > last).sum(1, keepdim=True), size)
        last = in_order.gather(1, torch.clamp_min(size - 1, 0))
    return last.where(size > 0, torch.inf)


def _last_by_sample(values: Tensor, inside: Inside, ties: Ties, uniform: Tensor | None) -> Tensor:
    """As :func:`_last_values`, with only those classes sorted that a sample puts near the end of the set.

    What lies above them is counted and added up. Whether the set ends among them is seen; rows where it does
    not are sorted.
    """
    best = values.amax(1, keepdim=True)
    low, high = _brackets(values, best, inside, uniform)
    parts = [_between(*row) for row in zip(values.numpy(), low.tolist(), high.tolist(), strict=True)]
    near = values.new_zeros(len(parts), max(len(part) for part, _, _ in parts))
    for padded, (part, _, _) in zip(near.numpy(), parts, strict=True):
        padded[: len(part)] = part
    length, count = torch.tensor([[len(part), above] for part, above, _ in parts])[:, :, None].unbind(1)
    mass = torch.tensor([mass for _, _, mass in parts], dtype=torch.float64)[:, None]
    cumulative = (mass + near.cumsum(1, dtype=torch.float64)).to(values.dtype)
    rank = count + torch.arange(1, near.shape[1] + 1)
    held = inside(Places(near, cumulative, rank.to(values.dtype), best, _draws(uniform, near.shape[1])))
    size = (held & (rank <= count + length)).sum(1, keepdim=True)
    last = _last_inside(near, held, ties)
    known = ((size < length) | (count + length == values.shape[1])) & ((size > 0) | (count == 0))
    known &= last.isfinite() | (count == 0)
    for row in (~known[:, 0]).nonzero()[:, 0].tolist():
        in_order = _descending(values[row : row + 1])
        draws = None if uniform is None else uniform[row : row + 1]
        last[row] = _last_inside(in_order, inside(places_in_order(in_order, draws)), ties)
    return last


def _brackets(values: Tensor, best: Tensor, inside: Inside, uniform: Tensor | None) -> tuple[Tensor, Tensor]:
    """Values (n,) that the last one of each row's set is very likely not below and not above.

    Of the classes in the sample the small ones tell most exactly how much is left below a value.
    """
    stride = values.shape[1] // SAMPLE
    sample = _descending(values[:, ::stride])
    left = stride * (sample.sum(1, keepdim=True) - sample.cumsum(1))
    rank = stride * torch.arange(1, sample.shape[1] + 1, dtype=values.dtype)
    cumulative = values.sum(1, keepdim=True) - left
    size = inside(Places(sample, cumulative, rank, best, _draws(uniform, sample.shape[1]))).sum(1)
    slack = (4 * size.double().sqrt() + 8).long()
    ends = torch.nn.functional.pad(sample, (1, 1), value=torch.inf)
    ends[:, -1] = -torch.inf
    low = ends.gather(1, (size + slack + 1).clamp_max(ends.shape[1] - 1)[:, None])
    high = ends.gather(1, (size - slack).clamp_min(0)[:, None])
    return low[:, 0], high[:, 0]


def _between(row: np.ndarray, low: float, high: float) -> tuple[np.ndarray, int, float]:
    """The values from high down to low, in order; and how many are above them, and their sum."""
    reached = row[np.flatnonzero(row >= low)]  # with many of them, a third of a mask's time
    near = reached[np.flatnonzero(reached <= high)]
    near.sort()
    mass = reached.sum(dtype=np.float64) - near.sum(dtype=np.float64)
    return near[::-1], len(reached) - len(near), float(mass)


def _descending(values: Tensor) -> Tensor:
    """Each row sorted, by NumPy, which is many times faster at it."""
    return torch.from_numpy(np.sort(values.numpy(), axis=1)).flip(1)


def _draws(uniform: Tensor | None, places: int) -> Tensor | float:
    return 1.0 if uniform is None else uniform[:, :places]
