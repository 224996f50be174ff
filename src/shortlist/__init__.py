"""Set-valued classification for PyTorch: losses, heads, predictors and metrics for short lists of classes."""

import lazy_loader

__version__ = "0.1.0"

# Everything is imported when it is first asked for, so that `shortlist --help` need not wait for torch, and
# a program that only predicts imports nothing that trains. ``__init__.pyi`` has the list.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
