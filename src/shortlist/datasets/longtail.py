"""Long-tailed subsets of balanced data."""

from typing import Literal

import torch
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import check_class_vector, check_count, check_number
from shortlist.datasets.partition import rank_within_class

Profile = Literal["exp", "step"]
"""How class sizes fall: exponentially, or in one step."""


def long_tailed_counts(
    num_classes: int, *, n_max: int, rho: float = 100.0, profile: Profile = "exp"
) -> Tensor:
    r"""Return the number of images of each class in a long-tailed subset.

    .. math:: n_c = \lfloor n_{\max}\, \rho^{-c/(L-1)} \rfloor

    for ``"exp"``; for ``"step"`` the first half of the classes has :math:`n_{\max}` and the rest
    :math:`\lfloor n_{\max} / \rho \rfloor`.

    Args:
        num_classes: Number of classes (L in the formula), at least 2.
        n_max: Number of images of the most frequent class.
        rho: Imbalance, the ratio of the largest count to the smallest, at least 1.
        profile: Shape of the tail, ``"exp"`` or ``"step"``.

    Returns:
        Counts (c,), int64.

    Example:
        >>> long_tailed_counts(5, n_max=100, rho=100)
        tensor([100,  31,  10,   3,   1])
    """
    check_count("num_classes", num_classes)
    if num_classes < 2:
        raise ValueError(f"num_classes must be >= 2, got {num_classes}")
    check_count("n_max", n_max)
    check_number("rho", rho, low=1.0)
    check_choice("profile", profile, ("exp", "step"))
    if profile == "step":
        first = num_classes // 2
        values = [n_max] * first + [n_max / rho] * (num_classes - first)
    else:
        values = [n_max * rho ** (-c / (num_classes - 1)) for c in range(num_classes)]
    # a power that is a whole number in exact arithmetic must not lose its last image
    return torch.tensor([int(value + 1e-9) for value in values], dtype=torch.int64)


def subset_by_counts(
    targets: Tensor, class_counts: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """Draw a random subset with given class counts, and return its indices, ascending.

    Args:
        targets: Class index of each row (n,).
        class_counts: Number of rows to draw of each class (c,); no class may have fewer.
        generator: Random generator of the draw.

    Example:
        >>> subset_by_counts(torch.tensor([0, 1, 1, 0]), torch.tensor([2, 0]))
        tensor([0, 3])
    """
    check_class_vector("class_counts", class_counts)
    present = targets.bincount(minlength=len(class_counts))
    if len(present) > len(class_counts):
        raise ValueError(
            f"class_counts must have one entry per class ({len(present)}), got {len(class_counts)}"
        )
    short = (present < class_counts).nonzero()
    if len(short):
        c = int(short[0])
        raise ValueError(
            f"class_counts must be <= the rows of each class ({int(present[c])} for class {c}), "
            f"got {int(class_counts[c])}"
        )
    rank = rank_within_class(targets, generator=generator)
    return (rank < class_counts[targets]).nonzero().squeeze(1)
