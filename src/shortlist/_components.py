"""Connected components of a graph."""

from collections.abc import Iterable, Sequence


def lowest_of_component(n: int, links: Iterable[Sequence[int]]) -> list[int]:
    """Return, for each of n nodes, the lowest node that links lead to.

    Example:
        >>> lowest_of_component(5, [(3, 1), (4, 3)])
        [0, 1, 2, 1, 1]
    """
    above = list(range(n))

    def root(i: int) -> int:
        while above[i] != i:
            above[i] = above[above[i]]
            i = above[i]
        return i

    for first, second in links:
        low, high = sorted((root(first), root(second)))
        above[high] = low
    return [root(i) for i in range(n)]
