"""The demo: a few losses on look-alike letters, from training to a table of sets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
