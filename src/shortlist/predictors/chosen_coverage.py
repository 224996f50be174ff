"""The default promise: as much as short lists can keep."""

import warnings
from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from shortlist.predictors._base import SetPredictor
from shortlist.predictors.accumulator import CalibrationWarning
from shortlist.predictors.lists import sizes

P = TypeVar("P", bound=SetPredictor)

COVERAGES = (0.9, 0.95, 0.98, 0.99)
"""Coverages that a default promise can have."""
MOST_CLASSES = 3
"""Number of classes that lists with a default promise may have on average, if a lower promise is left."""


def calibrate_highest(make: Callable[[float], P], scores: Tensor, target: Tensor) -> P:
    """Return the predictor with the highest of ``COVERAGES`` whose lists are short, calibrated.

    Lists are short if they have at most three classes on average on the calibration rows, or half of the
    classes if that is fewer. If none are, it is the lowest coverage. A coverage that these rows are too few
    for is not taken either, nor one that lists of a largest size cannot promise. As the rows choose the
    coverage, its promise is not quite exact: say so.

    Args:
        make: Function that makes a predictor of a coverage.
        scores: Scores (n, c) of calibration rows.
        target: True classes (n,).

    Example:
        >>> from shortlist.predictors import Conformal
        >>> noise = torch.rand(200, 5, generator=torch.Generator().manual_seed(0))
        >>> scores = 8 * torch.eye(5).repeat(40, 1) + noise  # a model that is always right
        >>> calibrate_highest(Conformal, scores, torch.arange(5).repeat(40)).coverage
        0.99
    """
    most = min(MOST_CLASSES, scores.shape[1] / 2)
    for coverage in reversed(COVERAGES[1:]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            predictor = make(coverage).calibrate(scores, target)
        promise, mean_size = predictor.promise, float(sizes(predictor(scores)).double().mean())
        if promise.holds and not promise.has_too_few_rows and mean_size <= most:
            break
    else:
        coverage = COVERAGES[0]
    return make(coverage).calibrate(scores, target)
