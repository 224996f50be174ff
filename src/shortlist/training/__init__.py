"""Training with Lightning, which only this room uses. Needs ``pip install 'shortlist[train]'``."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
