"""The server: a photo in, a short list with similar photos out. HTTP and the page; no machine learning."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
