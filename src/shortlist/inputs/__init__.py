"""Images with labels: one row type, one reader for each form, one label rule, for every verb."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
