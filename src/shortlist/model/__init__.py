"""The finished model: preprocessing, network, score map, predictors and classes in one object."""

from shortlist.model.model import Model, ModelError, network_by_name
from shortlist.model.summary import CalibrationSummary

__all__ = ["CalibrationSummary", "Model", "ModelError", "network_by_name"]
