"""Passes over many rows: each is a map from a shard of rows to a part, and a merge of the parts.

One process, several, or the machines of a Ray cluster run the same map, and the parts have the same bits.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
