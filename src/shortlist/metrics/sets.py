"""Metrics of predicted sets: how often they contain the true class, and how large they are."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._checks import check_count, check_number, check_sets, check_target
from shortlist.metrics.class_means import Average, average_classes, check_coverage, check_groups

SIZE_BOUNDS = (1, 3, 10, 100)
"""Largest sizes of the strata of Angelopoulos and others (2021); the last stratum has all larger sets."""


class SetSums(NamedTuple):
    """Sums over rows, int64: for each class (c,) the ``hits``, ``sizes`` and ``counts`` of its rows.

    ``histogram`` (c + 1,) is the number of rows with a set of 0, 1, ..., c classes, or (g, c + 1) by group of
    their true class. ``size_hits`` (c + 1,) counts the hits among the sets of each size.
    """

    hits: Tensor
    sizes: Tensor
    counts: Tensor
    histogram: Tensor
    size_hits: Tensor


@torch.no_grad()
def set_sums(
    sets: Bool[Tensor, "n c"],
    target: Tensor,
    *,
    groups: Tensor | None = None,
    num_groups: int | None = None,
    ignore_index: int = -100,
) -> SetSums:
    """Compute the sums for coverage and set size; the sums of batches can be added up.

    Args:
        sets: Whether each class is in the set of each row (n, c).
        target: Class indices (n,).
        groups: Group of each class (c,), to count sizes by group.
        num_groups: How many groups there are, where that is known; otherwise it is read from ``groups``, for
            which a GPU has to wait.
        ignore_index: Rows with this target are ignored.

    Example:
        >>> sets = torch.tensor([[True, True, False], [False, True, False]])
        >>> sums = set_sums(sets, torch.tensor([0, 0]))
        >>> sums.hits.tolist(), sums.sizes.tolist(), sums.histogram.tolist()
        ([1, 0, 0], [3, 0, 0], [0, 1, 1, 0])
    """
    check_sets(sets)
    check_target(target, sets, ignore_index=ignore_index)
    counted = target != ignore_index
    index = torch.where(counted, target, 0)
    rows, c = counted.long(), sets.shape[1]
    hits = sets.gather(1, index[:, None])[:, 0] & counted
    sizes = _sizes(sets)
    bins = sizes if groups is None else groups[index] * (c + 1) + sizes
    number = 1 if groups is None else num_groups or check_groups(groups, c)
    histogram = rows.new_zeros(number * (c + 1)).index_add_(0, bins, rows)
    zeros = rows.new_zeros(c)
    return SetSums(
        zeros.index_add(0, index, hits.long()),
        zeros.index_add(0, index, sizes * rows),
        zeros.index_add(0, index, rows),
        histogram if groups is None else histogram.view(number, c + 1),
        rows.new_zeros(c + 1).index_add_(0, sizes, hits.long()),
    )


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
    check_sets(sets)
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


def singleton_hit_rate(
    sets: Bool[Tensor, "n c"], target: Tensor, *, ignore_index: int = -100
) -> Float[Tensor, ""]:
    """Compute the share of rows whose set is the true class and nothing else.

    Example:
        >>> sets = torch.tensor([[True, False], [True, True], [True, False]])
        >>> singleton_hit_rate(sets, torch.tensor([0, 0, 1]))
        tensor(0.3333, dtype=torch.float64)
    """
    sums = set_sums(sets, target, ignore_index=ignore_index)
    return sums.size_hits[1] / sums.histogram.sum().double()


def size_violation(
    sets: Bool[Tensor, "n c"],
    target: Tensor,
    *,
    coverage: float,
    bounds: Sequence[int] = SIZE_BOUNDS,
    ignore_index: int = -100,
) -> Float[Tensor, ""]:
    """Compute the size-stratified coverage violation (Angelopoulos and others 2021).

    The rows are split by the size of their set. It is the largest distance between the coverage of such a
    stratum and the promised one, over the strata that have rows.

    Args:
        sets: Whether each class is in the set of each row (n, c).
        target: Class indices (n,).
        coverage: Promised coverage, in [0, 1].
        bounds: Largest size of each stratum but the last, increasing.
        ignore_index: Rows with this target are ignored.

    Example:
        >>> sets = torch.tensor([[True, False], [True, True], [True, False]])
        >>> size_violation(sets, torch.tensor([0, 0, 1]), coverage=0.75)  # sizes up to 1: 0.5
        tensor(0.2500, dtype=torch.float64)
    """
    sums = set_sums(sets, target, ignore_index=ignore_index)
    return violation_of_sizes(sums.size_hits, sums.histogram, coverage=coverage, bounds=bounds)


def violation_of_sizes(
    hits: Int[Tensor, " sizes"],
    rows: Int[Tensor, " sizes"],
    *,
    coverage: float,
    bounds: Sequence[int] = SIZE_BOUNDS,
) -> Float[Tensor, ""]:
    """Compute :func:`size_violation` from the hits and rows of sets of 0, 1, 2, ... classes."""
    check_coverage(coverage)
    if not bounds or any(low >= high for low, high in zip((-1, *bounds), bounds, strict=False)):
        raise ValueError(f"bounds must be increasing sizes >= 0, got {tuple(bounds)}")
    strata = torch.bucketize(torch.arange(len(rows), device=rows.device), rows.new_tensor(list(bounds)))
    zeros = rows.new_zeros(len(bounds) + 1)
    shares = zeros.index_add(0, strata, hits) / zeros.index_add(0, strata, rows).double()
    gaps = (shares - coverage).abs()
    return gaps[~gaps.isnan()].amax() if rows.any() else gaps[0]


@torch.no_grad()
def worst_slice_coverage(
    features: Float[Tensor, "n d"],
    sets: Bool[Tensor, "n c"],
    target: Tensor,
    *,
    min_share: float = 0.1,
    num_directions: int = 1000,
    generator: torch.Generator | None = None,
) -> Float[Tensor, ""]:
    """Compute the coverage in the worst slice of the feature space (Cauchois, Gupta and Duchi 2021).

    A slice is what lies between two parallel planes, with at least ``min_share`` of the rows. Half of the
    rows choose the worst slice in random directions. The other half measures it: a slice that is chosen by
    its own rows would look worse than it is.

    Args:
        features: Features of the rows (n, d).
        sets: Whether each class is in the set of each row (n, c).
        target: Class indices (n,).
        min_share: Least share of the rows in a slice, in (0, 1).
        num_directions: Number of random directions.
        generator: Random generator of the directions and the halves; by default one with seed 0.

    Returns:
        A float64 scalar; NaN if no row of the second half is in the slice.

    Example:
        >>> features = torch.linspace(0, 1, 400)[:, None]
        >>> sets = (features < 0.75).expand(400, 2)  # empty in a quarter of the rows
        >>> worst_slice_coverage(features, sets, torch.zeros(400, dtype=torch.int64), min_share=0.2)
        tensor(0., dtype=torch.float64)
    """
    check_sets(sets)
    check_target(target, sets, ignore_index=-100)
    check_number("min_share", min_share, above=0.0, below=1.0)
    check_count("num_directions", num_directions)
    if features.ndim != 2 or len(features) != len(sets) or len(sets) < 2:
        raise ValueError(f"features must be (n, d) with n = {len(sets)} >= 2, got {tuple(features.shape)}")
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    features, hits = features.double().cpu(), sets.gather(1, target[:, None])[:, 0].double().cpu()
    directions = torch.randn(features.shape[1], num_directions, generator=generator, dtype=torch.float64)
    order = torch.randperm(len(hits), generator=generator)
    choosing, measuring = order[: len(hits) // 2], order[len(hits) // 2 :]
    worst = (math.inf, directions[:, 0], 0.0, 0.0)
    for block in directions.T.split(max(1, 2**22 // len(choosing))):
        share, row, low, high = _worst_interval(block @ features[choosing].T, hits[choosing], min_share)
        worst = min(worst, (share, block[row], low, high), key=lambda slice_: slice_[0])
    places = features[measuring] @ worst[1]
    return hits[measuring][(places >= worst[2]) & (places <= worst[3])].mean()


def _worst_interval(places: Tensor, hits: Tensor, min_share: float) -> tuple[float, int, float, float]:
    """Return the lowest mean of hits (n,) in an interval of places (d, n), its row, and its ends.

    It has enough rows. One with twice as many or more has a part that is long enough and no better.
    """
    places, order = places.sort(1)
    total = torch.nn.functional.pad(hits[order].cumsum(1), (1, 0))
    n, least = len(hits), max(1, math.ceil(min_share * len(hits) - 1e-9))
    worst = (math.inf, 0, 0.0, 0.0)
    for length in range(least, min(n, 2 * least - 1) + 1):
        means = (total[:, length:] - total[:, :-length]) / length
        row, start = divmod(int(means.argmin()), means.shape[1])
        if (mean := float(means[row, start])) < worst[0]:
            worst = (mean, row, float(places[row, start]), float(places[row, start + length - 1]))
    return worst


def check_shares(q: Sequence[float]) -> None:
    """Require shares in [0, 1]."""
    for share in q:
        if not 0 <= share <= 1:
            raise ValueError(f"q must be in [0, 1], got {share!r}")
