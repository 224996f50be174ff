"""Estimate from some of the rows where the threshold of an average error very likely lies."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.predictors._activation import check_finite

MANY = 2**20  # number of values above which a first look at some rows saves time
_STRIDE, _ROWS = 16, 256
_PIECE = 2**18
_SHIFT, _BINS = 15, 2**16  # the leading bits of a float32 >= 0, as an integer, are in its order


@torch.no_grad()
def find_window(
    scores: Tensor, target: Tensor | None, to_values: Callable[[Tensor], Tensor], coverage: float
) -> tuple[float, float] | None:
    """Find two values between which the threshold very likely lies; None if values cannot be read.

    Args:
        scores: Scores (n, c).
        target: True classes (n,), if given; -100 leaves a row out.
        to_values: Function that computes probabilities from rows of scores.
        coverage: Wanted mean over rows of the sum of the values that reach the threshold.
    """
    if not can_read_values(scores):
        return None
    rows = torch.arange(0, len(scores), max(1, min(_STRIDE, len(scores) // _ROWS)))
    if isinstance(target, Tensor) and target.shape == (len(scores),):
        rows = rows[target[rows] != -100]
    if len(rows) < _ROWS // 2:
        return None
    parts = rows.split(max(1, _PIECE // scores.shape[1]))
    mass = torch.zeros(_BINS, dtype=torch.float64)
    for part in parts:
        check_finite(scores[part])
        values = to_values(scores[part]).float().flatten()
        mass += torch.bincount(values.view(torch.int32) >> _SHIFT, weights=values.double(), minlength=_BINS)
    above = mass.flip(0).cumsum(0) / len(rows)
    middle = _value_at(above, coverage)
    of_rows = torch.cat([_mass_above(to_values(scores[part]), middle) for part in parts])
    margin = min((1 - coverage) / 2, 6 * float(of_rows.std()) / math.sqrt(len(rows)) + 1e-3)
    return _value_at(above, coverage + margin), _value_at(above, coverage - margin, upper=True)


def _mass_above(values: Tensor, bound: float) -> Tensor:
    return torch.where(values >= bound, values, 0.0).sum(1).double()


def _value_at(above: Tensor, mass: float, *, upper: bool = False) -> float:
    """Return an edge of the bin with which the sum from the largest value down reaches a mass."""
    index = int((above < mass).sum())
    if index >= len(above):
        return -math.inf
    code = _BINS - 1 - index + int(upper)
    return float(torch.tensor(code << _SHIFT, dtype=torch.int32).view(torch.float32))
