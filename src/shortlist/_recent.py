"""A bounded memory of what was made last, for values that strangers choose."""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """The values that were used last, by key. Several threads may ask: at worst, a value is made twice.

    Args:
        most: Largest number of values.
        most_bytes: Largest number of bytes of all values; the last value is kept whatever it takes.
        bytes_of: Function that tells how many bytes a value takes.

    Example:
        >>> squares = Recent(2)
        >>> [squares.get(number, lambda: number**2) for number in (1, 2, 1, 3)], len(squares)
        ([1, 4, 1, 9], 2)
        >>> 1 in squares, 2 in squares
        (True, False)
    """

    def __init__(
        self, most: int, *, most_bytes: float = math.inf, bytes_of: Callable[[Value], int] = lambda _: 0
    ) -> None:
        self._most, self._values, self._lock = most, OrderedDict[Hashable, Value](), Lock()
        self._most_bytes, self._bytes_of, self._bytes = most_bytes, bytes_of, 0

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """Return the value of a key, made if it is not there; the values not used for longest are dropped."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()  # without the lock, since it may take long
        with self._lock:
            if key not in self._values:  # another thread may have been faster
                self._values[key] = value
                self._bytes += self._bytes_of(value)
            while len(self._values) > (self._most if self._bytes <= self._most_bytes else 1):
                self._bytes -= self._bytes_of(self._values.popitem(last=False)[1])
        return value
