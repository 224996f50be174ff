"""Compute sums without rounding, so that the order and the batches of the terms do not matter."""

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

UNIT = 26 * 43  # a sum is a whole number of times 2 ** -UNIT, as every float64 is
_PIECE = 2**16
# float32 values from the first on are multiples of 2 ** -47: while their sum is below the second, it has no
# more than 53 binary digits, and float64 adds them up without rounding, in whatever order
_COARSE, _EXACT = 2**-24, 64


def to_units(number: float) -> int:
    """Return the number as a multiple of the unit."""
    return int(Fraction(number) * 2**UNIT)


def from_units(units: int) -> float:
    """Return the number nearest to a multiple of the unit."""
    return float(Fraction(units, 2**UNIT))


def exact_sum(values: Tensor) -> int:
    """Return the sum of finite values (m,), >= 0, in units."""
    return sum(_sum_of_piece(piece) for piece in values.split(_PIECE) if len(piece))


def exact_sum_above(values: Tensor, bound: float) -> int:
    """Sum of those of finite values (m,), on the CPU, that are >= a bound > 0, in units."""
    return sum(_sum_above(piece, bound) for piece in values.split(_PIECE) if len(piece))


def _sum_above(values: Tensor, bound: float) -> int:
    numbers = values.detach().numpy()
    reached = numbers >= bound
    if values.dtype == torch.float32 and bound >= _COARSE:
        # to add the others as 0 takes a fifth of the time of picking these out
        total = float((numbers * reached).sum(dtype=np.float64))
        if total < _EXACT:
            return int(total * 2**47) << (UNIT - 47)
    return exact_sum(torch.from_numpy(numbers[reached.nonzero()[0]]))


def _sum_of_piece(values: Tensor) -> int:
    low, high = (float(end) for end in values.aminmax())
    if values.dtype == torch.float32 and low >= _COARSE:
        total = float(values.sum(dtype=torch.float64))
        if total < _EXACT:
            return int(total * 2**47) << (UNIT - 47)
    if high >= 2**40:
        return sum(to_units(value) for value in values.tolist())
    rest, total, place = values.double(), 0, UNIT
    while len(rest):
        digits = rest.trunc()
        total += int(digits.long().sum()) << place
        rest, place = rest - digits, place - 26
        rest = rest[rest > 0] * 2**26
    return total


def first_reaching(values: Tensor, units: int) -> int:
    """Return the index of the value (m,) with which the running sum reaches a number; m if it never does."""
    low, high, before = 0, len(values), 0
    while low < high:
        middle = (low + high) // 2
        up_to = before + exact_sum(values[low : middle + 1])
        if up_to >= units:
            high = middle
        else:
            low, before = middle + 1, up_to
    return low
