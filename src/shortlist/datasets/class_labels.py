"""What a label that somebody wrote stands for, if the classes are known: one rule for all readers."""

from collections.abc import Callable, Sequence

from shortlist._text import composed

__all__ = ["UNKNOWN", "finder_of_classes"]

UNKNOWN = -100
"""Class index of a row whose class is not known."""


def finder_of_classes(ids: Sequence[str]) -> Callable[[object], int | None]:
    """Return the function from a label to the index of its class, ``None`` if there is no such class.

    A label is the id of a class, as text or as a whole number. If no id is a whole number, it may also be a
    class index, written as usual: 7, not 007. Otherwise nobody could tell 10, the id, from 10, the index.
    Accents may be written in either way of Unicode.

    Args:
        ids: Id of each class.

    Example:
        >>> find = finder_of_classes(["1", "10", "2"])
        >>> find(10), find("2"), find(0)
        (1, 2, None)
        >>> finder_of_classes(["ash", "oak"])(1)
        1
    """
    index = {composed(name): number for number, name in enumerate(ids)}
    if not any(name.isdecimal() for name in ids):
        index = {str(number): number for number in range(len(ids))} | index
    return lambda label: index.get(composed(str(label)))
