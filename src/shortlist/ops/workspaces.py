"""Reuse memory that is allocated and divided once."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.ops._cpu import workspaces as cpu

T = TypeVar("T")


def cached_workspace(like: Tensor, key: Hashable, numbers: int, make: Callable[[], T]) -> T:
    """Return what ``make`` returns; on the CPU, reuse what it returned for the same key in this thread.

    Args:
        like: A tensor of the type and on the device that the workspace is for.
        key: Everything else that the workspace depends on.
        numbers: How many numbers the workspace has; large ones are not kept.
        make: Function that makes the workspace.
    """
    return cpu.cached(like, key, numbers, make) if can_read_values(like) else make()
