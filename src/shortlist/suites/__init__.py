"""Suites: many methods, options and seeds in one file, of which missing runs are trained."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
