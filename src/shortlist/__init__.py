"""Set-valued classification for PyTorch: losses, heads and adjustments for short lists of classes."""

from shortlist import adjust, classifiers, heads, losses, ops, priors, sampling

__all__ = ["__version__", "adjust", "classifiers", "heads", "losses", "ops", "priors", "sampling"]

__version__ = "0.1.0"
