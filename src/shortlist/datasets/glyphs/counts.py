"""Choose how many images of each character there are: a long tail."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def long_tail_counts(
    characters: Sequence[int],
    num_faces: Sequence[int],
    *,
    total: int,
    exponent: float,
    offset: float,
    fewest: int,
) -> NDArray[np.int64]:
    """Return the number of training images of each class, by its faces and its rank, at least ``fewest``.

    The share is in proportion to faces times ``(offset + rank) ** -exponent``. The rank is the place in a
    fixed mixed order of the characters, so that look-alikes differ in frequency without regard to which of
    them comes first in Unicode. The sum is ``total`` up to rounding, or ``fewest`` for each class if that is
    more.
    """
    mixed = [hashlib.sha256(f"rank of U+{character:04X}".encode()).digest() for character in characters]
    rank = np.empty(len(mixed))
    rank[sorted(range(len(mixed)), key=mixed.__getitem__)] = np.arange(1, len(mixed) + 1)
    weights = np.asarray(num_faces) * (offset + rank) ** -exponent
    low, high = 0.0, total / weights.min()
    for _ in range(60):  # bisection: the sum grows with the scale
        scale = (low + high) / 2
        if np.maximum(np.rint(scale * weights), fewest).sum() < total:
            low = scale
        else:
            high = scale
    return np.maximum(np.rint(high * weights), fewest).astype(np.int64)


def held_out_sizes(counts: NDArray[np.int64], *, share: float, fewest: int) -> NDArray[np.int64]:
    """Return the number of validation (and of test) images of each class: a share, at least ``fewest``."""
    return np.maximum(np.ceil(share * counts), fewest).astype(np.int64)
