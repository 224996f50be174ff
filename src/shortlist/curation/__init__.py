"""Make and correct data sets: build, check, describe, votes, contact sheets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
