"""Metrics of predicted sets: how often they contain the true class, and how large they are."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from shortlist._checks import check_target
from shortlist.metrics.class_means import Average, average_classes, check_groups

__all__ = [
    "SetSums",
    "check_shares",
    "set_coverage",
    "set_size",
    "set_sums",
    "size_histogram",
    "size_quantiles",
]


class SetSums(NamedTuple):
    """Sums over rows, int64: for each class (c,) the ``hits``, ``sizes`` and ``counts`` of its rows.

    ``histogram`` (c + 1,) is the number of rows with a set of 0, 1, ..., c classes, or (g, c + 1) by group of
    their true class.
    """

    hits: Tensor
    sizes: Tensor
    counts: Tensor
    histogram: Tensor


@torch.no_grad()
def set_sums(
    sets: Bool[Tensor, "n c"], target: Tensor, *, groups: Tensor | None = None, ignore_index: int = -100
) -> SetSums:
    """Compute the sums for coverage and set size; the sums of batches can be added up.

    Args:
        sets: Whether each class is in the set of each row (n, c).
        target: Class indices (n,).
        groups: Group of each class (c,), to count sizes by group.
        ignore_index: Rows with this target are ignored.

    Example:
        >>> sets = torch.tensor([[True, True, False], [False, True, False]])
        >>> sums = set_sums(sets, torch.tensor([0, 0]))
        >>> sums.hits.tolist(), sums.sizes.tolist(), sums.histogram.tolist()
        ([1, 0, 0], [3, 0, 0], [0, 1, 1, 0])
    """
    _check_sets(sets)
    check_target(target, sets, ignore_index=ignore_index)
    counted = target != ignore_index
    index = torch.where(counted, target, 0)
    rows, c = counted.long(), sets.shape[1]
    hits = sets.gather(1, index[:, None])[:, 0] & counted
    sizes = _sizes(sets)
    bins = sizes if groups is None else groups[index] * (c + 1) + sizes
    number = 1 if groups is None else check_groups(groups, c)
    histogram = rows.new_zeros(number * (c + 1)).index_add_(0, bins, rows)
    zeros = rows.new_zeros(c)
    return SetSums(
        zeros.index_add(0, index, hits.long()),
        zeros.index_add(0, index, sizes * rows),
        zeros.index_add(0, index, rows),
        histogram if groups is None else histogram.view(number, c + 1),
    )


def _check_sets(sets: Tensor) -> None:
    if not isinstance(sets, Tensor) or sets.ndim != 2 or sets.dtype != torch.bool:
        got = f"{sets.dtype} {tuple(sets.shape)}" if isinstance(sets, Tensor) else type(sets).__name__
        raise ValueError(f"sets must be a bool tensor of shape (n, c), got {got}")


def _sizes(sets: Tensor) -> Tensor:
    """Return the number of classes in each set (n,), int64."""
    return sets.sum(1, dtype=torch.int32).long()  # twice as fast as adding up in int64


def set_coverage(
    sets: Bool[Tensor, "n c"],
    target: Tensor,
    *,
    average: Average = "micro",
    groups: Tensor | None = None,
    ignore_index: int = -100,
) -> Tensor:
    """Compute the share of rows whose set contains the true class.

    This is coverage; of sets with K classes on average it is called average-K accuracy.

    Args:
        sets: Whether each class is in the set of each row (n, c).
        target: Class indices (n,).
        average: ``"micro"``: over rows (marginal coverage). ``"macro"``: mean of the classes' own coverages,
            over the classes that have rows. ``"group"``: the same within each group. ``"none"``: each
            class's.
        groups: Group of each class (c,), as from ``ClassTable.groups()``, for ``average="group"``.
        ignore_index: Rows with this target are ignored.

    Returns:
        float64: a scalar, or (g,) by group, or (c,) by class, NaN where there are no rows.

    Example:
        >>> probs = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.4, 0.4], [0.5, 0.2, 0.3]])
        >>> set_coverage(probs >= 0.35, torch.tensor([0, 2, 2]))
        tensor(0.6667, dtype=torch.float64)
        >>> set_coverage(probs >= 0.35, torch.tensor([0, 2, 2]), average="macro")
        tensor(0.7500, dtype=torch.float64)
    """
    sums = set_sums(sets, target, ignore_index=ignore_index)
    return average_classes(sums.hits, sums.counts, average=average, groups=groups)


def set_size(
    sets: Bool[Tensor, "n c"],
    target: Tensor,
    *,
    average: Average = "micro",
    groups: Tensor | None = None,
    ignore_index: int = -100,
) -> Tensor:
    """Compute the mean number of classes in a set, over all rows or by the rows' true class.

    See :func:`set_coverage` for the arguments.

    Example:
        >>> probs = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.4, 0.4], [0.5, 0.2, 0.3]])
        >>> set_size(probs >= 0.35, torch.tensor([0, 2, 2]), average="none")
        tensor([1.0000,    nan, 1.5000], dtype=torch.float64)
    """
    sums = set_sums(sets, target, ignore_index=ignore_index)
    return average_classes(sums.sizes, sums.counts, average=average, groups=groups)


def size_histogram(sets: Bool[Tensor, "n c"]) -> Int[Tensor, " sizes"]:
    """Count the rows with a set of 0, 1, ..., c classes (c + 1,); this needs no labels.

    Example:
        >>> size_histogram(torch.tensor([[True, True], [False, True], [False, False]]))
        tensor([1, 1, 1])
    """
    _check_sets(sets)
    return torch.bincount(_sizes(sets), minlength=sets.shape[1] + 1)


def size_quantiles(
    histogram: Int[Tensor, "*g sizes"], q: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)
) -> Int[Tensor, "*g q"]:
    """Return, for each share q, the smallest size that at least this share of the sets do not exceed.

    Args:
        histogram: Number of sets of 0, 1, ..., c classes (..., c + 1), from :func:`size_histogram` or
            :func:`set_sums`.
        q: Shares in [0, 1].

    Returns:
        int64 (..., number of q), -1 if there is no row.

    Example:
        >>> size_quantiles(torch.tensor([0, 6, 3, 1]), [0.5, 0.9, 1.0])
        tensor([1, 2, 3])
    """
    check_shares(q)
    below = histogram.cumsum(-1).double()
    rows = below[..., -1:]
    shares = torch.tensor(list(q), dtype=torch.float64, device=histogram.device)
    need = (shares * rows - 1e-9 * rows).clamp_min(0.5)  # 0.07 * 100 is a little more than 7
    return torch.where(rows > 0, torch.searchsorted(below, need), -1)


def check_shares(q: Sequence[float]) -> None:
    """Require shares in [0, 1]."""
    for share in q:
        if not 0 <= share <= 1:
            raise ValueError(f"q must be in [0, 1], got {share!r}")
