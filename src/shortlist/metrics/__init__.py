"""Metrics of scores and of predicted sets. ``shortlist.metrics.modules`` has them for torchmetrics."""

from shortlist.coverage_law import clopper_pearson
from shortlist.metrics.aggregation import Aggregate, aggregate, interval_of_rows, mean_with_interval
from shortlist.metrics.average_k import AverageKAccuracy
from shortlist.metrics.bootstrap import Columns, resample_each
from shortlist.metrics.calibration import (
    Activation,
    CalibrationSums,
    brier_score,
    calibration_error,
    calibration_sums,
    error_of_bins,
)
from shortlist.metrics.class_means import (
    Average,
    average_classes,
    average_rows,
    class_coverage_gap,
    coverage_shortfall,
    under_covered_share,
    worst_classes,
)
from shortlist.metrics.confusions import confused_within
from shortlist.metrics.evaluation import evaluate
from shortlist.metrics.exchangeability import ExchangeabilityTest, exchangeability_test
from shortlist.metrics.label_sets import measure_label_sets
from shortlist.metrics.names import (
    check_metric,
    default_metrics,
    format_metric,
    has_best,
    is_share,
    larger_is_better,
    metric_words,
    predictor_of,
    size_of,
    value_of,
)
from shortlist.metrics.nodes import NodeSums, mean_level, node_accuracy, node_shares, node_sums
from shortlist.metrics.novelty import STRANGER, false_alarm_rate, novelty_auroc, novelty_power
from shortlist.metrics.populations import (
    lists_at_place,
    measure_place,
    measure_populations,
    photos_of_objects,
)
from shortlist.metrics.ranks import (
    Ranks,
    Ties,
    TopKSums,
    balanced_error,
    rank_histogram,
    topk_accuracy,
    topk_curve,
    topk_curve_area,
    topk_hits,
    topk_sums,
    true_ranks,
)
from shortlist.metrics.results import (
    Averages,
    Estimate,
    GroupRows,
    ListNumbers,
    PopulationNumbers,
    PopulationResults,
    ReliabilityBins,
    Results,
    ScoreResults,
    SetResults,
)
from shortlist.metrics.rows import (
    RowMeasurer,
    RowNumbers,
    block_rows,
    measure_rows,
    probability_numbers,
    row_numbers,
)
from shortlist.metrics.sets import (
    SetSums,
    set_coverage,
    set_size,
    set_sums,
    singleton_hit_rate,
    size_histogram,
    size_quantiles,
    size_violation,
    worst_slice_coverage,
)
from shortlist.metrics.shares import effective_rows

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
    "ListNumbers",
    "NodeSums",
    "PopulationNumbers",
    "PopulationResults",
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
    "brier_score",
    "calibration_error",
    "calibration_sums",
    "class_coverage_gap",
    "clopper_pearson",
    "confused_within",
    "coverage_shortfall",
    "effective_rows",
    "error_of_bins",
    "evaluate",
    "exchangeability_test",
    "false_alarm_rate",
    "mean_level",
    "measure_place",
    "measure_populations",
    "node_accuracy",
    "node_shares",
    "node_sums",
    "novelty_auroc",
    "novelty_power",
    "rank_histogram",
    "set_coverage",
    "set_size",
    "set_sums",
    "singleton_hit_rate",
    "size_histogram",
    "size_quantiles",
    "size_violation",
    "topk_accuracy",
    "topk_curve",
    "topk_curve_area",
    "topk_sums",
    "true_ranks",
    "under_covered_share",
    "worst_classes",
    "worst_slice_coverage",
]
