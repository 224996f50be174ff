"""Set-valued classification for PyTorch: losses, heads and adjustments for short lists of classes."""

from shortlist import adjust, classifiers, heads, losses, ops, predictors, priors, sampling
from shortlist.class_table import ClassTable

__all__ = [
    "ClassTable",
    "__version__",
    "adjust",
    "classifiers",
    "heads",
    "losses",
    "ops",
    "predictors",
    "priors",
    "sampling",
]

__version__ = "0.1.0"
