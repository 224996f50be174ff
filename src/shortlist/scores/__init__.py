"""The meaning of scores: the map from a network's output to log-posteriors, and how it is fitted."""

from shortlist.scores.class_shifts import ClassShiftFit, fit_class_shifts
from shortlist.scores.likelihood import (
    TemperaturePriorFit,
    TemperatureTauFit,
    fit_temperature,
    fit_temperature_and_prior,
    fit_temperature_and_tau,
    priors_nearly_equal,
)
from shortlist.scores.meaning import HEADS, map_of_loss, map_of_meaning
from shortlist.scores.prior_record import PriorRecord
from shortlist.scores.rows_priors import priors_of_rows
from shortlist.scores.score_map import ScoreMap, UnknownPriorError
from shortlist.scores.tau import TauFit, fit_tau, middle_of_best, standard_error
from shortlist.scores.weights import (
    fit_normalization,
    normalization_map,
    normalize_classifier,
    normalize_weights,
)

__all__ = [
    "HEADS",
    "ClassShiftFit",
    "PriorRecord",
    "ScoreMap",
    "TauFit",
    "TemperaturePriorFit",
    "TemperatureTauFit",
    "UnknownPriorError",
    "fit_class_shifts",
    "fit_normalization",
    "fit_tau",
    "fit_temperature",
    "fit_temperature_and_prior",
    "fit_temperature_and_tau",
    "map_of_loss",
    "map_of_meaning",
    "normalization_map",
    "normalize_classifier",
    "normalize_weights",
    "priors_nearly_equal",
    "priors_of_rows",
]
