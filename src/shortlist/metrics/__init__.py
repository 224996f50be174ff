"""Metrics of scores and of predicted sets. ``shortlist.metrics.modules`` has them for torchmetrics."""

from shortlist.metrics.aggregation import Aggregate, aggregate
from shortlist.metrics.calibration import (
    Activation,
    CalibrationSums,
    calibration_error,
    calibration_sums,
    error_of_bins,
)
from shortlist.metrics.class_means import (
    Average,
    average_classes,
    average_rows,
    coverage_shortfall,
    under_covered_share,
    worst_classes,
)
from shortlist.metrics.confusions import confused_within
from shortlist.metrics.evaluation import evaluate
from shortlist.metrics.exchangeability import ExchangeabilityTest, exchangeability_test
from shortlist.metrics.nodes import NodeSums, mean_level, node_accuracy, node_shares, node_sums
from shortlist.metrics.novelty import STRANGER, false_alarm_rate, novelty_auroc, novelty_power
from shortlist.metrics.ranks import (
    Ranks,
    Ties,
    TopKSums,
    balanced_error,
    rank_histogram,
    topk_accuracy,
    topk_curve,
    topk_curve_area,
    topk_sums,
    true_ranks,
)
from shortlist.metrics.results import (
    Averages,
    Estimate,
    GroupRows,
    ReliabilityBins,
    Results,
    ScoreResults,
    SetResults,
)
from shortlist.metrics.sets import (
    SetSums,
    set_coverage,
    set_size,
    set_sums,
    size_histogram,
    size_quantiles,
)
from shortlist.metrics.shares import clopper_pearson, effective_rows

__all__ = [
    "STRANGER",
    "Activation",
    "Aggregate",
    "Average",
    "Averages",
    "CalibrationSums",
    "Estimate",
    "ExchangeabilityTest",
    "GroupRows",
    "NodeSums",
    "Ranks",
    "ReliabilityBins",
    "Results",
    "ScoreResults",
    "SetResults",
    "SetSums",
    "Ties",
    "TopKSums",
    "aggregate",
    "average_classes",
    "average_rows",
    "balanced_error",
    "calibration_error",
    "calibration_sums",
    "clopper_pearson",
    "confused_within",
    "coverage_shortfall",
    "effective_rows",
    "error_of_bins",
    "evaluate",
    "exchangeability_test",
    "false_alarm_rate",
    "mean_level",
    "node_accuracy",
    "node_shares",
    "node_sums",
    "novelty_auroc",
    "novelty_power",
    "rank_histogram",
    "set_coverage",
    "set_size",
    "set_sums",
    "size_histogram",
    "size_quantiles",
    "topk_accuracy",
    "topk_curve",
    "topk_curve_area",
    "topk_sums",
    "true_ranks",
    "under_covered_share",
    "worst_classes",
]
