"""The finished model: preprocessing, network, score map, predictors and classes in one object."""

from shortlist.model.choice import Choice
from shortlist.model.hashing import model_hash, model_version, network_hash
from shortlist.model.listing import ShortList
from shortlist.model.model import Model, ModelError
from shortlist.model.network import needs_code, network_by_name
from shortlist.model.summary import CalibrationSummary

__all__ = [
    "CalibrationSummary",
    "Choice",
    "Model",
    "ModelError",
    "ShortList",
    "model_hash",
    "model_version",
    "needs_code",
    "network_by_name",
    "network_hash",
]
