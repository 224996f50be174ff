import pytest
import torch

from shortlist.predictors import AverageError, CalibrationWarning


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
