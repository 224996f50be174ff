"""Treat a few rows at a time, so that their values stay in the cache."""

from collections.abc import Callable

import torch
from torch import Tensor

from shortlist._checks import can_read_values

__all__ = ["chunk_rows", "sets_in_chunks"]


def chunk_rows(num_classes: int) -> int:
    """Return how many rows to treat at once, so that their values stay in the cache."""
    return max(1, 2**18 // max(num_classes, 1))


def sets_in_chunks(scores: Tensor, make_sets: Callable[..., Tensor], *by_row: Tensor | None) -> Tensor:
    """Return sets (n, c) of scores (n, c), made from a few rows at a time to use the cache.

    Args:
        scores: Scores (n, c).
        make_sets: Function that makes sets from some rows of the scores and of ``by_row``.
        by_row: Other tensors with one entry per row, (n, ...) each.
    """
    if not can_read_values(scores):
        return make_sets(scores, *by_row)
    # with some rows at a time that are longer than the cache, what is done once for all of them counts less
    step, sets = max(2 * chunk_rows(scores.shape[1]), 32), torch.empty(scores.shape, dtype=torch.bool)
    for start in range(0, len(scores), step):
        some = slice(start, start + step)
        sets[some] = make_sets(
            scores[some], *(None if numbers is None else numbers[some] for numbers in by_row)
        )
    return sets
