"""Set-valued classification for PyTorch: losses and operators for short lists of classes."""

from shortlist import losses, ops, priors

__all__ = ["__version__", "losses", "ops", "priors"]

__version__ = "0.1.0"
