"""Memory that is cut into parts once and used again."""

from collections.abc import Callable, Hashable
from typing import TypeVar

from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.ops._cpu import workspaces as cpu

__all__ = ["cached_workspace"]

T = TypeVar("T")


def cached_workspace(like: Tensor, key: Hashable, numbers: int, make: Callable[[], T]) -> T:
    """What ``make`` returns; on the CPU, what it did when this thread last asked for the same.

    Args:
        like: A tensor of the type and on the device that the workspace is for.
        key: What else it depends on.
        numbers: How many numbers it holds: large ones are not kept.
        make: Makes it.
    """
    return cpu.cached(like, key, numbers, make) if can_read_values(like) else make()
