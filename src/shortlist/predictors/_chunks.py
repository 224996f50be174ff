"""Treat a few rows at a time, so that their values stay in the cache; compare them by what is fastest."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import can_read_values


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


def where_at_least(values: Tensor, bound: Tensor) -> Tensor:
    """Where values (n, c) in float32 or float64 are >= a bound of their type that broadcasts to them."""
    return _compared(np.greater_equal, values, bound) if can_read_values(values) else values >= bound


def where_at_most(values: Tensor, bound: Tensor) -> Tensor:
    """Where values (n, c) in float32 or float64 are <= a bound of their type that broadcasts to them."""
    return _compared(np.less_equal, values, bound) if can_read_values(values) else values <= bound


def _compared(compare: np.ufunc, values: Tensor, bound: Tensor) -> Tensor:
    """By NumPy, in a fifth of PyTorch's time."""
    sets = torch.empty(values.shape, dtype=torch.bool)
    compare(values.detach().numpy(), bound.detach().numpy(), out=sets.numpy())
    return sets
