"""Set-valued classification for PyTorch: losses, heads, predictors and metrics for short lists of classes."""

from shortlist import adjust, classifiers, heads, losses, metrics, ops, predictors, priors, sampling
from shortlist.class_table import ClassTable

__all__ = [
    "ClassTable",
    "__version__",
    "adjust",
    "classifiers",
    "heads",
    "losses",
    "metrics",
    "ops",
    "predictors",
    "priors",
    "sampling",
]

__version__ = "0.1.0"
