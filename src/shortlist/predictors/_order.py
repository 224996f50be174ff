"""Put classes in the order of their probabilities, and make sets of the first ones."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad, threshold

from shortlist._checks import can_read_values
from shortlist._precision import wide_type
from shortlist.ops import largest
from shortlist.predictors._chunks import where_at_least

LEADING = 64  # places that are tried first
SAMPLE = 2048  # classes that tell where in the order a set may end
MANY = 8 * SAMPLE  # number of classes above which a sample saves time

Ties = Literal["in", "out"]


class Places(NamedTuple):
    """All that a conformity score may depend on, for some classes of each row; the shapes broadcast."""

    probability: Tensor
    cumulative: Tensor  # sum of the probabilities down to this class, itself included; float64 if possible
    rank: Tensor  # 1 for the most likely class; floating, as the sums
    best: Tensor  # probability of the most likely class
    uniform: Tensor | float = 0.0  # share of the class's own probability that counts; 0 if not randomized


Inside = Callable[[Places], Tensor]


def true_class_places(probabilities: Tensor, target: Tensor, uniform: Tensor | None = None) -> Places:
    """Return the places of the true classes (n,) without sorting; ties count against them."""
    true = probabilities.gather(1, target[:, None])
    # to compare into floats, and to add these up, takes a third of the time that booleans take
    not_below = torch.ge(probabilities, true, out=torch.empty_like(probabilities))
    wide = wide_type(probabilities)
    rank = not_below.sum(1).to(wide)
    return Places(
        probability=true.squeeze(1),
        cumulative=not_below.mul_(probabilities).sum(1, dtype=wide),
        rank=rank,
        best=probabilities.amax(1),
        uniform=0.0 if uniform is None else uniform,
    )


def places_in_order(in_order: Tensor, uniform: Tensor | None = None) -> Places:
    """Return the places of each row, given its largest probabilities in descending order (n, m)."""
    wide = wide_type(in_order)
    rank = torch.arange(1, in_order.shape[1] + 1, dtype=wide, device=in_order.device)
    cumulative = in_order.cumsum(1, dtype=wide)
    return Places(in_order, cumulative, rank, in_order[:, :1], _draws(uniform, in_order.shape[1]))


def at_last_equal(in_order: Tensor, numbers: Tensor) -> Tensor:
    """Replace each number (n, c) of a place by that of the last place with an equal value.

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
    """Return the sets (n, c) of a rule that takes the first classes in the order of probabilities.

    Classes with equal values are in or out together. Where there are many classes, the leading places are
    tried first: as a rule no set goes further. Those that do are sorted around their end alone.

    Args:
        values: Probabilities (n, c).
        inside: Function that tells for places (n, m) whether each is in the set; after the first that is not,
            none is.
        ties: Whether classes of equal probability are all in or all out, if the rule takes only some of them.
        uniform: Uniform draws (n, 1), or (n, c) by rank, if there are any.
    """
    if not can_read_values(values):
        in_order = values.sort(dim=1, descending=True).values
        return values >= _last_inside(in_order, inside(places_in_order(in_order, uniform)), ties)
    values = values.detach()
    return where_at_least(values, _last_values(values, inside, ties, uniform))


def _last_values(values: Tensor, inside: Inside, ties: Ties, uniform: Tensor | None) -> Tensor:
    """Return the smallest value in each row's set (n, 1), infinite if it is empty, by the fastest method."""
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
    """Return the smallest value in each row's set (n, 1), given its largest values and which are inside."""
    size = held.sum(1, keepdim=True)
    last = in_order.gather(1, torch.clamp_min(size - 1, 0))
    if ties == "out":
        after = in_order.gather(1, torch.clamp_max(size, in_order.shape[1] - 1))
        cut = (after == last) & (size < in_order.shape[1])  # through the middle of equal classes
        size = torch.where(cut, (in_order > last).sum(1, keepdim=True), size)
        last = in_order.gather(1, torch.clamp_min(size - 1, 0))
    return last.where(size > 0, torch.inf)


def _last_by_sample(values: Tensor, inside: Inside, ties: Ties, uniform: Tensor | None) -> Tensor:
    """Do what :func:`_last_values` does, but sort only classes that a sample puts near the end of the set.

    What lies above them is counted and added up. Whether the set ends among them is seen; rows where it does
    not are sorted.
    """
    best = values.amax(1, keepdim=True)
    brackets = torch.cat(_brackets(values, best, inside, uniform), dim=1).tolist()
    parts = [_between(row, *bracket) for row, bracket in zip(values.numpy(), brackets, strict=True)]
    # the padding equals no value, as those are not negative
    near = values.new_full((len(parts), max(1, *(len(part) for part, _, _ in parts))), -1.0)
    for padded, (part, _, _) in zip(near.numpy(), parts, strict=True):
        padded[: len(part)] = part
    length, count = torch.tensor([[len(part), above] for part, above, _ in parts])[:, :, None].unbind(1)
    mass = torch.tensor([mass for _, _, mass in parts], dtype=torch.float64)[:, None]
    cumulative = mass + near.cumsum(1, dtype=torch.float64)
    rank = count + torch.arange(1, near.shape[1] + 1)
    held = inside(Places(near, cumulative, rank.double(), best, _draws(uniform, near.shape[1])))
    held &= rank <= count + length
    size = held.sum(1, keepdim=True)
    last = _last_inside(near, held, ties)
    is_sure = ((size < length) | (count + length == values.shape[1])) & ((size > 0) | (count == 0))
    is_sure &= last.isfinite() | (count == 0)
    for row in (~is_sure[:, 0]).nonzero()[:, 0].tolist():
        in_order = _descending(values[row : row + 1])
        draws = None if uniform is None else uniform[row : row + 1]
        last[row] = _last_inside(in_order, inside(places_in_order(in_order, draws)), ties)
    return last


def _brackets(values: Tensor, best: Tensor, inside: Inside, uniform: Tensor | None) -> list[Tensor]:
    """Find from a sample of the classes where each row's set very likely ends.

    The sample foretells the end. What reaches this value, the anchor, is counted and added up exactly; then
    the sample has only to tell how far from the anchor the end is.

    Returns:
        Numbers (n, 1) in float64: two values that very likely enclose the end and do enclose the anchor; the
        anchor; how many values reach it, and their sum.
    """
    stride = values.shape[1] // SAMPLE
    sample = _roughly_descending(values[:, ::stride])
    ends = pad(sample, (1, 1), value=torch.inf)
    ends[:, -1] = -torch.inf
    part, last = stride * sample.cumsum(1), sample.shape[1] + 1
    rank = stride * torch.arange(1, last, dtype=values.dtype)
    draws = _draws(uniform, sample.shape[1])

    def size(mass: Tensor, count: Tensor | float) -> Tensor:
        return inside(Places(sample, part + mass, rank + count, best, draws)).sum(1, keepdim=True)

    # of the classes in the sample the small ones tell most exactly how much is left below a value
    anchor = ends.gather(1, size(values.sum(1, keepdim=True) - part[:, -1:], 0.0))
    count, mass = _reaching(values, anchor)
    reached = (sample >= anchor).sum(1, keepdim=True)
    end = size(mass.to(values.dtype) - pad(part, (1, 0)).gather(1, reached), count - stride * reached)
    slack = (3 * (end - reached).abs().double().sqrt() + 6).long()
    low = ends.gather(1, (end + slack + 1).clamp_max(last)).minimum(anchor)
    high = ends.gather(1, (end - slack).clamp_min(0)).maximum(anchor)
    return [low.double(), high.double(), anchor.double(), count, mass]


def _roughly_descending(values: Tensor) -> Tensor:
    """Sort each row by the leading 16 bits of its float32 values, which is all that remains of them.

    NumPy sorts such integers by counting, without the branches that take most of the time of other sorts.
    """
    keys = (~(values.float().contiguous().numpy().view(np.uint32) >> 16)).astype(np.uint16)
    keys.sort(axis=1, kind="stable")
    middle = ((~keys).astype(np.uint32) << 16) | 0x8000
    return torch.from_numpy(middle.view(np.float32)).to(values.dtype)


def _reaching(values: Tensor, bound: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many values reach each row's bound (n, 1), and their sum, both (n, 1) in float64."""
    exact = torch.empty(values.shape[1], dtype=torch.float64)  # kept: new memory takes as long as the sum
    below = torch.nextafter(bound, bound.new_tensor(-torch.inf))
    counts_and_sums = []
    for row, at, under in zip(values, bound[:, 0].tolist(), below[:, 0].tolist(), strict=True):
        count = np.count_nonzero(row.numpy() >= at)
        counts_and_sums.append(
            [count, float(exact.copy_(threshold(row, under, 0.0)).sum()) if count else 0.0]
        )
    count, mass = torch.tensor(counts_and_sums, dtype=torch.float64)[:, :, None].unbind(1)
    return count, mass


def _between(
    row: np.ndarray, low: float, high: float, anchor: float, count: float, mass: float
) -> tuple[np.ndarray, int, float]:
    """Return the values from high down to low, in order; and how many are above them, and their sum."""
    near = row[np.flatnonzero((row >= low) & (row <= high))]
    near.sort()
    reaching = near[np.searchsorted(near, anchor) :]
    above = int(count) - len(reaching)
    return near[::-1], above, mass - float(reaching.sum(dtype=np.float64)) if above else 0.0


def _descending(values: Tensor) -> Tensor:
    """Sort each row in descending order by NumPy, which is many times faster."""
    return torch.from_numpy(np.sort(values.numpy(), axis=1)).flip(1)


def _draws(uniform: Tensor | None, places: int) -> Tensor | float:
    return 0.0 if uniform is None else uniform[:, :places]
