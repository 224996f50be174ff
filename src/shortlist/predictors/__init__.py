"""Predictors, which turn scores into sets of a fixed size, a size on average, or a given error."""

from shortlist._row_facts import RowFacts
from shortlist.coverage_law import coverage_range, rows_for, rows_needed
from shortlist.predictors import conformity, p_values, strangeness, thresholds
from shortlist.predictors._base import SetPredictor
from shortlist.predictors._novelty_limits import NoveltyReport
from shortlist.predictors.accumulator import (
    Accumulator,
    CalibrationReport,
    CalibrationWarning,
    Finished,
    Rows,
    RowsOutOfOrderError,
)
from shortlist.predictors.adapting import AdaptingThreshold
from shortlist.predictors.at_place import place_offset
from shortlist.predictors.average_k import AverageK
from shortlist.predictors.calibration_rows import CalibrationRows
from shortlist.predictors.chosen_coverage import COVERAGES, MOST_CLASSES, calibrate_highest
from shortlist.predictors.conformal import Conformal
from shortlist.predictors.cross import CrossConformal, check_crosses
from shortlist.predictors.feature_means import FeatureMeans
from shortlist.predictors.kept import KeptCalibration, KeptRows, NotKeptError, kept_rule
from shortlist.predictors.lists import Candidate, EntersAt, Node, sizes, to_lists, to_nodes
from shortlist.predictors.novelty import NoveltyDetector
from shortlist.predictors.plug_in import AverageError, PointwiseError
from shortlist.predictors.population import Population, Values, pool_memory
from shortlist.predictors.saving import (
    PREDICTORS,
    load,
    load_novelty,
    make,
    predictor_kind,
    predictor_name,
    save,
    state_path,
)
from shortlist.predictors.shrinking import ShrinkingThreshold
from shortlist.predictors.taxonomy_nodes import TaxonomyNodes
from shortlist.predictors.thresholds import Macro
from shortlist.predictors.topk import TopK
from shortlist.promise import Measured, Promise, default_predictor

__all__ = [
    "PREDICTORS",
    "Accumulator",
    "AdaptingThreshold",
    "AverageError",
    "AverageK",
    "CalibrationReport",
    "CalibrationRows",
    "CalibrationWarning",
    "Candidate",
    "Conformal",
    "CrossConformal",
    "EntersAt",
    "FeatureMeans",
    "Finished",
    "Measured",
    "Node",
    "NoveltyDetector",
    "NoveltyReport",
    "PointwiseError",
    "Population",
    "Promise",
    "RowFacts",
    "Rows",
    "RowsOutOfOrderError",
    "SetPredictor",
    "ShrinkingThreshold",
    "TaxonomyNodes",
    "TopK",
    "conformity",
    "coverage_range",
    "default_predictor",
    "load",
    "load_novelty",
    "make",
    "p_values",
    "predictor_kind",
    "predictor_name",
    "rows_for",
    "rows_needed",
    "save",
    "sizes",
    "strangeness",
    "thresholds",
    "to_lists",
    "to_nodes",
]
