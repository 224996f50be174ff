"""Post-hoc adjustment of a trained model: class priors, temperature, weight normalisation."""

from shortlist.adjust.likelihood import TemperatureTauFit, fit_temperature, fit_temperature_and_tau
from shortlist.adjust.scores import LogitAdjustment, adjust_logits
from shortlist.adjust.tau import TauFit, fit_tau
from shortlist.adjust.weights import normalise_classifier, normalise_weights

__all__ = [
    "LogitAdjustment",
    "TauFit",
    "TemperatureTauFit",
    "adjust_logits",
    "fit_tau",
    "fit_temperature",
    "fit_temperature_and_tau",
    "normalise_classifier",
    "normalise_weights",
]
