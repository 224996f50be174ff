"""Keep the memory of a thread from one call to the next.

To take memory and to cut it into the parts that each step works on takes several times as long as the steps
if these are short. A training loop, in which all batches but the last have one shape, does it once.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import torch
from torch import Tensor

# Workspaces that a thread keeps, and the most numbers that each may hold.
_KEPT, _KEPT_NUMBERS = 4, 1 << 22
_of_thread = threading.local()

T = TypeVar("T")


def cached(like: Tensor, key: Hashable, numbers: int, make: Callable[[], T]) -> T:
    """Reuse a workspace of this thread; see :func:`shortlist.ops.workspaces.cached_workspace`."""
    if numbers > _KEPT_NUMBERS:
        return make()
    # a tensor made in inference mode must not be written to outside
    key = (key, like.dtype, torch.is_inference_mode_enabled())
    spaces: OrderedDict[Any, T] = _of_thread.__dict__.setdefault("spaces", OrderedDict())
    space = spaces.pop(key, None)
    spaces[key] = space = make() if space is None else space
    if len(spaces) > _KEPT:
        spaces.popitem(last=False)
    return space
