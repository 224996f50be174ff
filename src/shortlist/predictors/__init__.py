"""Predictors, which turn scores into sets of a fixed size, a size on average, or a given error."""

from shortlist.predictors import conformity, thresholds
from shortlist.predictors._base import CalibrationReport, CalibrationWarning, SetPredictor
from shortlist.predictors._largest import RowsOutOfOrderError
from shortlist.predictors.average_k import AverageK
from shortlist.predictors.conformal import Conformal
from shortlist.predictors.lists import Candidate, Node, sizes, to_lists, to_nodes
from shortlist.predictors.plug_in import AverageError, PointwiseError
from shortlist.predictors.saving import PREDICTORS, load, make, save
from shortlist.predictors.taxonomy_nodes import TaxonomyNodes
from shortlist.predictors.topk import TopK

__all__ = [
    "PREDICTORS",
    "AverageError",
    "AverageK",
    "CalibrationReport",
    "CalibrationWarning",
    "Candidate",
    "Conformal",
    "Node",
    "PointwiseError",
    "RowsOutOfOrderError",
    "SetPredictor",
    "TaxonomyNodes",
    "TopK",
    "conformity",
    "load",
    "make",
    "save",
    "sizes",
    "thresholds",
    "to_lists",
    "to_nodes",
]
