"""The finished model: preprocessing, network, score map, predictors and classes in one object."""

from shortlist.model.model import Model, ModelError, network_by_name

__all__ = ["Model", "ModelError", "network_by_name"]
