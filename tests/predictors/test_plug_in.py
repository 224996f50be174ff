from fractions import Fraction

import pytest
import torch

from shortlist.predictors import AverageError, CalibrationWarning
from shortlist.predictors._exact import exact_sum, first_reaching, from_units, to_units


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e-300, 1e20])
def test_sums_have_no_rounding(dtype, scale):
    values = (torch.randn(3000, dtype=torch.float64).mul(9).exp() * scale).to(dtype)
    values = values[values.isfinite()]
    expected = sum(map(Fraction, values.tolist()), Fraction(0))
    assert Fraction(exact_sum(values), to_units(1.0)) == expected
    assert exact_sum(values.flip(0)) == exact_sum(values) == sum(map(to_units, values.tolist()))
    assert from_units(exact_sum(values)) == float(expected)


def test_the_first_place_where_a_sum_reaches_a_number():
    values = torch.tensor([0.5, 0.25, 0.25, 0.125])
    assert [first_reaching(values, to_units(x)) for x in (0.0, 0.5, 0.50001, 1.0, 1.125, 1.2)] == [
        0,
        0,
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize("spread", [0.2, 3.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_first_look_at_some_rows_changes_no_bit(spread, dtype):
    """A million values or more: the threshold is sought between two guesses, from 600 rows."""
    logits = torch.randn(4800, 250, dtype=dtype) * spread
    target = torch.where(torch.rand(4800) < 0.1, -100, 0)
    pieces = AverageError(coverage=0.9)
    for part, classes in zip(logits.split(700), target.split(700), strict=True):
        pieces.update(part, classes)
    pieces.finish()
    for order in (torch.arange(4800), torch.randperm(4800), logits.amax(1).argsort()):
        whole = AverageError(coverage=0.9).calibrate(logits[order], target[order])
        assert torch.equal(whole.threshold, pieces.threshold) and whole.report == pieces.report
    ranked = logits[target == 0].softmax(1).flatten().double().sort(descending=True).values
    place = int((ranked.cumsum(0) < 0.9 * int((target == 0).sum()) - 1e-6).sum())
    assert float(whole.threshold) == pytest.approx(float(ranked[place]), rel=1e-3)


def test_a_first_look_at_rows_that_are_not_like_the_others():
    """Every 16th row is sure, the others are not: the guess is wrong, and the answer right."""
    logits = torch.randn(4800, 250) * 0.1
    logits[::16] *= 300
    whole = AverageError(coverage=0.9).calibrate(logits)
    mixed = AverageError(coverage=0.9).calibrate(logits[torch.randperm(4800)])
    assert torch.equal(whole.threshold, mixed.threshold) and whole.report == mixed.report


def test_average_error_says_when_ties_make_sets_larger():
    with pytest.warns(
        CalibrationWarning, match=r"AverageError: ties at the threshold 0.1: .* 1 for cov.*0.5"
    ):
        predictor = AverageError(coverage=0.5).calibrate(torch.zeros(100, 10))
    assert predictor.report.ties == 1000 and predictor.report.average_size == 10
    exact = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])  # both halves are needed
    assert AverageError(coverage=0.5, activation="none").calibrate(exact).report.ties == 0


def test_average_error_reports_the_same_in_pieces_and_with_too_little_mass():
    coarse = torch.tensor([0.4, 0.2, 0.2, 0.1, 0.1]).repeat(60_000, 1)  # more values than are kept
    with pytest.warns(CalibrationWarning, match=r"ties at the threshold 0.2: .* is 0.8 for coverage=0.7"):
        whole = AverageError(coverage=0.7, activation="none").calibrate(coarse)
    pieces = AverageError(coverage=0.7, activation="none")
    for batch in coarse.split(999):
        pieces.update(batch)
    with pytest.warns(CalibrationWarning, match="ties"):
        pieces.finish()
    assert pieces.report == whole.report and whole.report.ties == 120_000
    with pytest.warns(CalibrationWarning, match="add up to less than"):
        short = AverageError(activation="none").calibrate(torch.full((100, 10), 0.05))
    assert short.report.ties == 0 and short.report.average_size == 10
