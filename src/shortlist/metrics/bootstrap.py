"""Compute confidence intervals by the bootstrap, with the same draws of rows for all metrics."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Columns", "Resamples", "interval", "parent_weights", "resample", "resample_each"]

_BLOCK = 2**19  # row weights held in one go


class Resamples(NamedTuple):
    """The means of m columns in b resamples: over rows (b, m), over classes (b, m) and by group (b, g, m).

    ``parents`` (b, l, m): for each of l levels, over the parents of their classes' means.
    """

    micro: Tensor
    macro: Tensor
    groups: Tensor
    parents: Tensor


class Columns(NamedTuple):
    """Columns (n, m) in float64, and the group of each class (c,); >= ``num_groups`` is of no group.

    ``parents`` has the parent of each class (c,) at some levels.
    """

    values: Tensor
    groups: Tensor
    num_groups: int
    parents: Sequence[Tensor] = ()


def resample(
    values: Tensor,
    target: Tensor,
    groups: Tensor,
    *,
    num_classes: int,
    num_groups: int,
    num_resamples: int,
    parents: Sequence[Tensor] = (),
    generator: torch.Generator | None = None,
) -> Resamples:
    """Compute the means of the columns of ``values`` over rows drawn with replacement.

    A resample is a weight for each row, the number of times it was drawn. Divided by the weight of the row's
    class they are the weights of the macro mean, so that each mean is one matrix product. Classes that a
    resample lacks have no part in its means.

    Args:
        values: One column for each metric, (n, m), float64.
        target: Class of each row (n,).
        groups: Group of each class (c,); a number >= ``num_groups`` is of no group.
        num_classes: Number of classes c.
        num_groups: Number of groups g.
        num_resamples: Number of resamples b.
        parents: For each of l levels, the parent of each class (c,).
        generator: Random generator of the draws.
    """
    asked = [Columns(values, groups, num_groups, parents)]
    return resample_each(
        asked, target, num_classes=num_classes, num_resamples=num_resamples, generator=generator
    )[0]


def resample_each(
    asked: Sequence[Columns],
    target: Tensor,
    *,
    num_classes: int,
    num_resamples: int,
    generator: torch.Generator | None = None,
) -> list[Resamples]:
    """What :func:`resample` gives for each of several, to the bit, in little more time than for one.

    The draws take most of the time, and all have the same.
    """
    n = len(target)
    in_groups = [one.groups[:, None] == torch.arange(one.num_groups) for one in asked]  # (c, g)
    by_groups = [
        (one.values[:, None, :] * in_group[target][:, :, None]).flatten(1)  # (n, g * m)
        for one, in_group in zip(asked, in_groups, strict=True)
    ]
    found = [_room(one, num_resamples) for one in asked]
    block = max(1, _BLOCK // n)
    for start in range(0, num_resamples, block):
        some = slice(start, min(start + block, num_resamples))
        b = some.stop - start
        draws = torch.randint(n, (b, n), generator=generator).add_(n * torch.arange(b)[:, None])
        weights = torch.bincount(draws.view(-1), minlength=b * n).view(b, n).double()
        for means, one in zip(found, asked, strict=True):
            means.micro[some] = weights @ one.values / n
        rows = weights.new_zeros(b, num_classes).index_add_(1, target, weights)
        weights /= rows.clamp_min(1)[:, target]
        present = (rows > 0).double()
        for means, one, in_group, by_group in zip(found, asked, in_groups, by_groups, strict=True):
            means.macro[some] = weights @ one.values / present.sum(1, keepdim=True)
            of_groups = (weights @ by_group).view(b, one.num_groups, one.values.shape[1])
            means.groups[some] = of_groups / (present @ in_group.double())[:, :, None]
            for level, parent in enumerate(one.parents):
                means.parents[some, level] = weights * parent_weights(present, parent)[:, target] @ one.values
    return [_clamped(means, one.values) for means, one in zip(found, asked, strict=True)]


def parent_weights(present: Tensor, parent: Tensor) -> Tensor:
    """Return the weight of each class (..., c) where the parents of present classes count the same.

    Args:
        present: Whether each class has rows (..., c), as 0 and 1 in float64.
        parent: The parent of each class (c,), as a number.

    Example:
        >>> parent_weights(torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 2])).tolist()
        [0.25, 0.25, 0.5, 0.0]
    """
    number = int(parent.max()) + 1 if len(parent) else 0
    classes = present.new_zeros(*present.shape[:-1], number).index_add_(-1, parent, present)
    parents = (classes > 0).sum(-1, keepdim=True)
    return present / (classes[..., parent].clamp_min(1) * parents)


def _room(one: Columns, num_resamples: int) -> Resamples:
    m = one.values.shape[1]
    shapes = ((m,), (m,), (one.num_groups, m), (len(one.parents), m))
    return Resamples(*(one.values.new_empty(num_resamples, *shape) for shape in shapes))


def _clamped(means: Resamples, values: Tensor) -> Resamples:
    """A mean is never outside the values it is of, but for rounding."""
    low, high = values.amin(0), values.amax(0)
    return Resamples(*(part.clamp(low, high) for part in means))


def interval(draws: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Return the percentiles of the resamples (b, ...) that cut equal shares on both sides, without NaN."""
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=draws.dtype)
    columns = draws.reshape(len(draws), math.prod(draws.shape[1:]))
    found = columns.new_empty(2, columns.shape[1])
    for i, column in enumerate(columns.T):  # one by one, as quantile() takes 16M numbers at most
        found[:, i] = column.nanquantile(ends)
    low, high = found.view(2, *draws.shape[1:])
    return low, high
