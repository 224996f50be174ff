"""Compute confidence intervals by the bootstrap, with the same draws of rows for all metrics."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist._progress import each

_BLOCK = 2**19  # rows drawn in one go, in resamples together
_FEWEST = 8  # resamples in one go, so that values are read once for several of them
_ROWS = 2**13  # of a piece


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


def resample_each(
    asked: Sequence[Columns],
    target: Tensor,
    *,
    num_classes: int,
    num_resamples: int,
    generator: torch.Generator | None = None,
) -> list[Resamples]:
    """Compute the means of each of several columns over rows drawn with replacement, the same for all.

    A resample is a weight for each row, the number of times it was drawn. Divided by the weight of the row's
    class they are the weights of the macro mean, so that each mean is a sum of matrix products. Classes that
    a resample lacks have no part in its means. The draws take most of the time.

    Args:
        asked: Columns of metrics, with groups and parents of classes.
        target: Class of each row (n,).
        num_classes: Number of classes c.
        num_resamples: Number of resamples b.
        generator: Random generator of the draws.
    """
    n, all_means = len(target), [_room(columns, num_resamples) for columns in asked]
    pieces = [list(_pieces(columns, target)) for columns in asked]
    block = max(_FEWEST, _BLOCK // n)
    for start in each("resampling", range(0, num_resamples, block)):
        some = slice(start, min(start + block, num_resamples))
        drawn, rows = _draw(target, num_classes, some.stop - start, generator)
        for means, columns, column_pieces in zip(all_means, asked, pieces, strict=True):
            for part, sums in zip(means, _means_of(drawn, rows, columns, column_pieces, target), strict=True):
                part[some] = sums
    return [_clamped(means, columns.values) for means, columns in zip(all_means, asked, strict=True)]


def _pieces(columns: Columns, target: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Yield the rows of each group, some at a time so that their weights stay in the cache."""
    of_rows = columns.groups[target].clamp_max(columns.num_groups)
    for group in range(columns.num_groups + 1):
        yield from ((group, rows) for rows in (of_rows == group).nonzero().squeeze(1).split(_ROWS))


def _draw(
    target: Tensor, num_classes: int, number: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return how often each row is drawn (b, n), and the rows of each class that are (b, c)."""
    n = len(target)
    drawn = torch.empty(number, n, dtype=torch.int16)
    rows = torch.empty(number, num_classes, dtype=torch.float64)
    for counts, of_classes in zip(drawn, rows, strict=True):
        times = torch.bincount(torch.randint(n, (n,), generator=generator), minlength=n)
        counts.copy_(times)
        of_classes.copy_(torch.zeros(num_classes, dtype=torch.int64).index_add_(0, target, times))
    return drawn, rows


def _means_of(
    drawn: Tensor, rows: Tensor, columns: Columns, pieces: Sequence[tuple[int, Tensor]], target: Tensor
) -> Resamples:
    """Compute the means of some columns over rows that are drawn so often (b, n), rows (b, c) of a class."""
    means, present = _room(columns, len(drawn), zeros=True), (rows > 0).double()
    by_level = [parent_weights(present, parent) for parent in columns.parents]
    for group, some in pieces:
        classes, values = target[some], columns.values[some]
        weights = drawn[:, some].double()
        means.micro.addmm_(weights, values)
        weights /= rows[:, classes].clamp_min(1)
        sums = weights @ values
        means.macro.add_(sums)
        if group < columns.num_groups:
            means.groups[:, group].add_(sums)
        for level, parents in enumerate(by_level):
            means.parents[:, level].add_((weights * parents[:, classes]) @ values)
    in_group = (columns.groups[:, None] == torch.arange(columns.num_groups)).double()  # (c, g)
    return Resamples(
        means.micro / len(target),
        means.macro / present.sum(1, keepdim=True),
        means.groups / (present @ in_group)[:, :, None],
        means.parents,
    )


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


def _room(columns: Columns, num_resamples: int, *, zeros: bool = False) -> Resamples:
    m = columns.values.shape[1]
    shapes = ((m,), (m,), (columns.num_groups, m), (len(columns.parents), m))
    make = columns.values.new_zeros if zeros else columns.values.new_empty
    return Resamples(*(make(num_resamples, *shape) for shape in shapes))


def _clamped(means: Resamples, values: Tensor) -> Resamples:
    """A mean is never outside the values it is of, but for rounding."""
    low, high = values.amin(0), values.amax(0)
    return Resamples(*(part.clamp(low, high) for part in means))


def interval(draws: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Return the percentiles of the resamples (b, ...) that cut equal shares on both sides, without NaN."""
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=draws.dtype)
    columns = draws.reshape(len(draws), math.prod(draws.shape[1:]))
    bounds = columns.new_empty(2, columns.shape[1])
    for i, column in enumerate(columns.T):  # one by one, as quantile() takes 16M numbers at most
        bounds[:, i] = column.nanquantile(ends)
    low, high = bounds.view(2, *draws.shape[1:])
    return low, high
