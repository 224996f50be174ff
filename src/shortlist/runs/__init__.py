"""Run folders: read them, and make scores, sets, results and lists of a trained run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
