"""Average sums and counts of classes: over all rows, over classes, or over groups of classes."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import check_count, check_number, tensor_words
from shortlist.class_table import GROUPS

Average = Literal["micro", "macro", "group", "none"]
"""Means over rows, over classes, within groups of classes, or none."""
_AVERAGES = ("micro", "macro", "group", "none")


def check_groups(groups: Tensor | None, num_classes: int) -> int:
    """Require a group number for each class (c,); returns how many groups there are."""
    if groups is None:
        raise ValueError("groups must give a group for each class when average='group', got None")
    if not isinstance(groups, Tensor) or groups.dtype != torch.int64 or groups.shape != (num_classes,):
        got = tensor_words(groups)
        raise ValueError(f"groups must be int64 with one entry per class ({num_classes},), got {got}")
    if not num_classes:
        return len(GROUPS)
    low, high = (int(bound) for bound in groups.aminmax())
    if low < 0:
        raise ValueError(f"groups must be >= 0, got {low}")
    return max(len(GROUPS), high + 1)


def average_classes(
    sums: Float[Tensor, "*m c"] | Int[Tensor, "*m c"],
    counts: Int[Tensor, " c"],
    *,
    average: Average = "micro",
    groups: Int[Tensor, " c"] | None = None,
) -> Float[Tensor, "..."]:
    """Average sums by class. Classes without rows are left out, and never counted as 0.

    Args:
        sums: Sum over the rows of each class (..., c), for example of hits or of set sizes.
        counts: Number of rows of each class (c,).
        average: ``"micro"``, the mean over all rows; ``"macro"``, the mean over the classes that have rows of
            each class's own mean; ``"group"``, that macro mean within each group of classes; ``"none"``, each
            class's own mean.
        groups: Group of each class (c,), as from ``ClassTable.groups()``; for ``average="group"`` only.

    Returns:
        float64 (...,), or (..., g) with ``"group"`` (g is 3, or more if ``groups`` has higher numbers), or
        (..., c) with ``"none"``. NaN where there is no row.

    Example:
        >>> hits, counts = torch.tensor([3, 1, 0]), torch.tensor([4, 1, 0])
        >>> float(average_classes(hits, counts)), float(average_classes(hits, counts, average="macro"))
        (0.8, 0.875)
        >>> average_classes(hits, counts, average="group", groups=torch.tensor([2, 2, 0])).tolist()
        [nan, nan, 0.875]
    """
    check_choice("average", average, _AVERAGES)
    sums, rows = sums.double(), counts.double()
    if average == "micro":
        return sums.sum(-1) / rows.sum()
    means = sums / rows  # 0 / 0 = NaN for a class without rows
    if average == "none":
        return means
    present = counts > 0
    means = torch.where(present, means, 0.0)
    if average == "macro":
        return means.sum(-1) / present.sum()
    number = check_groups(groups, counts.shape[0])
    assert groups is not None
    totals = means.new_zeros(*means.shape[:-1], number).index_add_(-1, groups, means)
    return totals / means.new_zeros(number).index_add_(0, groups, present.double())


def average_rows(
    values: Float[Tensor, " n"] | Int[Tensor, " n"] | Bool[Tensor, " n"],
    target: Int[Tensor, " n"],
    *,
    num_classes: int,
    average: Average = "micro",
    groups: Int[Tensor, " c"] | None = None,
) -> Float[Tensor, "..."]:
    """Average one number of each row over rows, over classes, over groups of classes, or within each class.

    Args:
        values: A number for each row (n,), such as whether its set contains the true class.
        target: True class of each row (n,).
        num_classes: Number of classes c.
        average: See :func:`average_classes`.
        groups: Group of each class (c,), for ``average="group"`` only.

    Returns:
        float64; see :func:`average_classes` for its shape. NaN where there is no row.

    Example:
        >>> hits, target = torch.tensor([True, True, False, True]), torch.tensor([0, 0, 0, 2])
        >>> round(float(average_rows(hits, target, num_classes=3, average="macro")), 4)  # (2/3 + 1) / 2
        0.8333
    """
    sums = torch.zeros(num_classes, dtype=torch.float64, device=values.device)
    sums.index_add_(0, target, values.double())
    return average_classes(sums, target.bincount(minlength=num_classes), average=average, groups=groups)


def worst_classes(
    sums: Float[Tensor, " c"] | Int[Tensor, " c"], counts: Int[Tensor, " c"], *, num_worst: int = 10
) -> tuple[Int[Tensor, " w"], Float[Tensor, " w"]]:
    """Return the classes with the lowest means, lowest first; among ties, classes with more rows come first.

    Args:
        sums: Sum over the rows of each class (c,).
        counts: Number of rows of each class (c,); classes without rows are left out.
        num_worst: Largest number of classes to return.

    Returns:
        Indices and means of these classes.

    Example:
        >>> index, mean = worst_classes(torch.tensor([3, 0, 1, 0]), torch.tensor([4, 5, 2, 0]), num_worst=2)
        >>> index.tolist(), mean.tolist()
        ([1, 2], [0.0, 0.5])
    """
    check_count("num_worst", num_worst)
    means = average_classes(sums, counts, average="none")
    by_rows = counts.argsort(descending=True, stable=True)
    order = by_rows[means[by_rows].argsort(stable=True)]  # NaN sorts last
    order = order[: min(num_worst, int((counts > 0).sum()))]
    return order, means[order]


def under_covered_share(
    hits: Float[Tensor, " c"] | Int[Tensor, " c"], counts: Int[Tensor, " c"], *, coverage: float
) -> Float[Tensor, ""]:
    """Return the share of classes whose coverage is below the promised one, among classes with rows.

    With few rows a class falls below by chance: with 5 rows and ``coverage=0.9``, one miss is enough.

    Args:
        hits: Number of rows of each class (c,) whose set contains the class.
        counts: Number of rows of each class (c,).
        coverage: Promised coverage, in [0, 1].

    Example:
        >>> float(under_covered_share(torch.tensor([9, 1, 0]), torch.tensor([10, 2, 0]), coverage=0.9))
        0.5
    """
    check_coverage(coverage)
    short = _shortfall(hits, counts, coverage) > 1e-9  # 9 of 10 is not below 0.9, whatever the last digit
    return short.double().sum() / (counts > 0).sum()


def coverage_shortfall(
    hits: Float[Tensor, " c"] | Int[Tensor, " c"], counts: Int[Tensor, " c"], *, coverage: float
) -> Float[Tensor, ""]:
    """Return how far the coverage of a class is below the promised one, on average over classes with rows.

    Args:
        hits: Number of rows of each class (c,) whose set contains the class.
        counts: Number of rows of each class (c,).
        coverage: Promised coverage, in [0, 1].

    Example:
        >>> short = coverage_shortfall(torch.tensor([10, 1, 0]), torch.tensor([10, 2, 0]), coverage=0.9)
        >>> round(float(short), 6)  # (0 + 0.4) / 2
        0.2
    """
    check_coverage(coverage)
    return _shortfall(hits, counts, coverage).sum() / (counts > 0).sum()


def class_coverage_gap(
    hits: Float[Tensor, " c"] | Int[Tensor, " c"], counts: Int[Tensor, " c"], *, coverage: float
) -> Float[Tensor, ""]:
    """Return how far the coverage of a class is from the promised one, on average over classes with rows.

    Ding and others (2023) write it in percent, as CovGap. Classes above the promise count too; see
    :func:`coverage_shortfall` for those below.

    Args:
        hits: Number of rows of each class (c,) whose set contains the class.
        counts: Number of rows of each class (c,).
        coverage: Promised coverage, in [0, 1].

    Example:
        >>> gap = class_coverage_gap(torch.tensor([10, 1, 0]), torch.tensor([10, 2, 0]), coverage=0.9)
        >>> round(float(gap), 6)  # (0.1 + 0.4) / 2
        0.25
    """
    check_coverage(coverage)
    return (average_classes(hits, counts, average="none") - coverage).abs().nanmean()


COVERAGE_MEASURES = {
    "under_covered": under_covered_share,
    "coverage_shortfall": coverage_shortfall,
    "class_coverage_gap": class_coverage_gap,
}
"""By name, how far the coverages of classes are from the promised one."""


def check_coverage(coverage: float) -> None:
    """Require a share in [0, 1]."""
    check_number("coverage", coverage, low=0.0, high=1.0)


def _shortfall(hits: Tensor, counts: Tensor, coverage: float) -> Tensor:
    """Return how far each class is below the promised coverage (c,), 0 for classes without rows."""
    gap = (coverage - average_classes(hits, counts, average="none")).clamp_min(0)
    return torch.where(counts > 0, gap, 0.0)
