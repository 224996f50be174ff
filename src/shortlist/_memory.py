"""Memory that a process frees and needs again."""

import ctypes
from contextlib import suppress


def keep_memory() -> None:
    """Have this process keep the memory that it frees, where the C library can be told so (glibc).

    Otherwise the large buffers of a network go back to the system after each layer, and to get them anew
    takes as long as the computing does.
    """
    with suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(-4, 0)  # M_MMAP_MAX: no buffer of its own mapping
        library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD
