"""Sums without rounding, against fractions."""

from fractions import Fraction

import pytest
import torch

from shortlist.predictors._exact import UNIT, exact_sum, exact_sum_above, from_units


def fraction_sum(values, bound=0.0):
    return sum((Fraction(value) for value in values.tolist() if value >= bound), Fraction(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [0, 1, 1000, 70_001])
@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e-9, 300.0])
def test_sums_are_those_of_fractions(dtype, n, scale):
    values = scale * torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=dtype) ** 3
    assert exact_sum(values) == fraction_sum(values) * 2**UNIT
    for bound in (0.0, 0.2 * scale, 2.0 * scale):
        bound = float(torch.tensor(bound, dtype=dtype))
        assert exact_sum_above(values, bound) == fraction_sum(values, bound) * 2**UNIT
    assert from_units(exact_sum(values)) == float(fraction_sum(values))
