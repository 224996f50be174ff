"""Split rows by seed, with the same share of every class."""

import math

import torch
from torch import Tensor

from shortlist._checks import check_number


def rank_within_class(targets: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Return the place of each row in a random order of the rows of its class, from 0 (n,).

    Every split by class is then a comparison: ``rank < wanted[targets]``.

    Example:
        >>> rank_within_class(torch.tensor([1, 1, 0, 1])).sort().values
        tensor([0, 0, 1, 2])
    """
    if targets.dtype != torch.int64 or targets.ndim != 1:
        raise ValueError(f"targets must be int64 of shape (n,), got {targets.dtype} {tuple(targets.shape)}")
    if not len(targets):
        return targets.clone()
    if int(targets.min()) < 0:
        raise ValueError(f"targets must be >= 0, got {int(targets.min())}")
    shuffled = torch.randperm(len(targets), generator=generator)
    order = shuffled[targets[shuffled].argsort(stable=True)]
    counts = targets.bincount()
    starts = counts.cumsum(0) - counts
    rank = torch.empty_like(targets)
    rank[order] = torch.arange(len(targets)) - starts[targets[order]]
    return rank


def balanced_split(
    targets: Tensor, *, val_size: int, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor]:
    """Split rows into training and validation indices, with equally many validation rows of each class.

    Where ``val_size`` is no multiple of the number of classes, the first classes give one row more.

    Args:
        targets: Class index of each row (n,); each class in [0, c) occurs.
        val_size: Number of rows of the validation split; each class keeps at least one training row.
        generator: Random generator of the draw.

    Returns:
        Training and validation indices, each ascending.

    Example:
        >>> train, val = balanced_split(torch.arange(6) % 3, val_size=3)
        >>> (torch.arange(6) % 3)[val].sort().values
        tensor([0, 1, 2])
    """
    check_number("val_size", val_size, low=0)
    if not isinstance(val_size, int):
        raise ValueError(f"val_size must be a whole number, got {val_size!r}")
    counts = targets.bincount() if len(targets) else torch.zeros(1, dtype=torch.int64)
    quota = torch.full_like(counts, val_size // len(counts))
    quota[: val_size % len(counts)] += 1
    short = ((quota >= counts) & (quota > 0)).nonzero()
    if len(short):
        first = int(short[0])
        raise ValueError(
            f"val_size must leave a training row of each class, got {val_size}: {int(quota[first])} "
            f"of the {int(counts[first])} rows of class {first}"
        )
    in_val = rank_within_class(targets, generator=generator) < quota[targets]
    return (~in_val).nonzero().squeeze(1), in_val.nonzero().squeeze(1)


def share_of(fraction: float, count: int) -> int:
    """Return the fraction of a count, rounded up without binary rounding errors: 0.07 of 100 is 7."""
    return math.ceil(round(fraction * count, 9))


def proportional_split(
    targets: Tensor,
    *,
    fraction: float = 0.1,
    parts: int = 2,
    objects: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> tuple[Tensor, ...]:
    r"""Split rows into training and held-out splits, each with :math:`\lceil f n_c \rceil` rows of a class.

    A class that would be left without a training row goes to the training split whole.

    Args:
        targets: Class index of each row (n,).
        fraction: Share of each class in each held-out split, in [0, 1).
        parts: Number of held-out splits: 2 for validation and test, 1 for validation only.
        objects: Number of the object that each row is a photo of (n,). Then the shares are of objects, whose
            class is that of their first row, and all rows of an object are in one split.
        generator: Random generator of the draw.

    Returns:
        The indices of the training split and of each held-out split, each ascending.

    Example:
        >>> train, val, test = proportional_split(torch.zeros(25, dtype=torch.int64))
        >>> len(train), len(val), len(test)
        (19, 3, 3)
    """
    check_number("fraction", fraction, low=0.0, below=1.0)
    if objects is not None:
        first, of_row = first_rows(objects)
        split = proportional_split(targets[first], fraction=fraction, parts=parts, generator=generator)
        return tuple(torch.isin(of_row, some).nonzero().squeeze(1) for some in split)
    counts = targets.bincount()
    held = torch.tensor([share_of(fraction, n) for n in counts.tolist()], dtype=torch.int64)
    held[parts * held >= counts] = 0
    rank = rank_within_class(targets, generator=generator)
    part = torch.zeros_like(targets)  # 0 is training
    quota = held[targets]
    taken = (rank < parts * quota).nonzero().squeeze(1)
    part[taken] = 1 + rank[taken] // quota[taken]
    return tuple((part == p).nonzero().squeeze(1) for p in range(parts + 1))


def first_rows(objects: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first row of each object, ascending, and the place among them of each row's object (n,)."""
    numbers, number = objects.unique(return_inverse=True)
    first = torch.full((len(numbers),), len(objects))
    first.scatter_reduce_(0, number, torch.arange(len(objects)), "amin")
    order = first.argsort()
    return first[order], order.argsort()[number]
