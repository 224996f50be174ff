"""Compute confidence intervals by the bootstrap, with the same draws of rows for all metrics."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Resamples", "interval", "resample"]

_BLOCK = 2**19  # row weights held in one go


class Resamples(NamedTuple):
    """The means of m columns in b resamples: over rows (b, m), over classes (b, m) and by group (b, g, m)."""

    micro: Tensor
    macro: Tensor
    groups: Tensor


def resample(
    values: Tensor,
    target: Tensor,
    groups: Tensor,
    *,
    num_classes: int,
    num_groups: int,
    num_resamples: int,
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
        generator: Random generator of the draws.
    """
    n, m = values.shape
    in_group = groups[:, None] == torch.arange(num_groups)  # (c, g)
    by_group = (values[:, None, :] * in_group[target][:, :, None]).flatten(1)  # (n, g * m)
    found = Resamples(*(values.new_empty(num_resamples, *shape) for shape in ((m,), (m,), (num_groups, m))))
    block = max(1, _BLOCK // n)
    for start in range(0, num_resamples, block):
        some = slice(start, min(start + block, num_resamples))
        b = some.stop - start
        draws = torch.randint(n, (b, n), generator=generator).add_(n * torch.arange(b)[:, None])
        weights = torch.bincount(draws.view(-1), minlength=b * n).view(b, n).double()
        found.micro[some] = weights @ values / n
        rows = weights.new_zeros(b, num_classes).index_add_(1, target, weights)
        weights /= rows.clamp_min(1)[:, target]
        present = (rows > 0).double()
        found.macro[some] = weights @ values / present.sum(1, keepdim=True)
        of_groups = (weights @ by_group).view(b, num_groups, m)
        found.groups[some] = of_groups / (present @ in_group.double())[:, :, None]
    # a mean is never outside the values it is of, but for rounding
    low, high = values.amin(0), values.amax(0)
    return Resamples(*(means.clamp(low, high) for means in found))


def interval(draws: Tensor, level: float) -> tuple[Tensor, Tensor]:
    """Return the percentiles of the resamples (b, ...) that cut equal shares on both sides, without NaN."""
    ends = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=draws.dtype)
    columns = draws.reshape(len(draws), math.prod(draws.shape[1:]))
    found = columns.new_empty(2, columns.shape[1])
    for i, column in enumerate(columns.T):  # one by one, as quantile() takes 16M numbers at most
        found[:, i] = column.nanquantile(ends)
    low, high = found.view(2, *draws.shape[1:])
    return low, high
