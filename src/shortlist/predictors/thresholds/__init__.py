"""Compute thresholds from calibration scores: one for all classes, or one for each class."""

from shortlist.predictors.thresholds.clustered import Clustered
from shortlist.predictors.thresholds.macro import WEIGHTS_SLACK, Macro, weighted_thresholds
from shortlist.predictors.thresholds.quantiles import (
    conformal_threshold,
    grouped_thresholds,
    vote_threshold,
)
from shortlist.predictors.thresholds.rules import (
    ClassConditional,
    Interpolated,
    Marginal,
    ThresholdRule,
    Thresholds,
)

__all__ = [
    "THRESHOLD_RULES",
    "WEIGHTS_SLACK",
    "ClassConditional",
    "Clustered",
    "Interpolated",
    "Macro",
    "Marginal",
    "ThresholdRule",
    "Thresholds",
    "conformal_threshold",
    "grouped_thresholds",
    "vote_threshold",
    "weighted_thresholds",
]

THRESHOLD_RULES: dict[str, type[ThresholdRule]] = {
    "marginal": Marginal,
    "macro": Macro,
    "class_conditional": ClassConditional,
    "clustered": Clustered,
    "interpolated": Interpolated,
}
"""The class of each threshold rule, by name."""
