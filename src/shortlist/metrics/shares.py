"""Intervals of shares that hold for any number of rows, also for few rows and for shares of 0 and 1."""

from collections.abc import Sequence

from shortlist._beta import beta_quantile
from shortlist._checks import check_number


def clopper_pearson(hits: float, rows: float, *, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a share, after Clopper and Pearson.

    At the lower end, as many hits or more have the chance ``(1 - level) / 2``; at the upper end, as many or
    fewer. So the interval holds the true share at least as often as the level says, for any number of rows.

    Args:
        hits: Number of hits, in [0, rows]. It need not be whole: see :func:`effective_rows`.
        rows: Number of rows, > 0.
        level: Level of the interval, in (0, 1).

    Example:
        >>> low, high = clopper_pearson(5, 5)
        >>> round(low, 3), high
        (0.478, 1.0)
    """
    rows = check_number("rows", rows, above=0.0)
    hits = check_number("hits", hits, low=0.0)
    level = check_number("level", level, above=0.0, below=1.0)
    if hits > rows:
        raise ValueError(f"hits must be <= the number of rows ({rows:g}), got {hits:g}")
    tail = (1 - level) / 2
    low = 0.0 if hits <= 0 else beta_quantile(tail, hits, rows - hits + 1)
    high = 1.0 if hits >= rows else beta_quantile(1 - tail, hits + 1, rows - hits)
    return low, high


def effective_rows(class_rows: Sequence[int], weights: Sequence[float] | None = None) -> float:
    r"""Return how many rows tell as much about a share as these classes tell about a mean of their shares.

    Of classes with :math:`m_j` rows and weights :math:`w_j` that add up to 1 it is :math:`1 / \sum_j w_j^2 /
    m_j`: the mean of the classes' own shares has the variance of a share of so many rows, if all classes have
    the same share. Surveys use the exact interval with this number (Korn and Graubard, 1998).

    Args:
        class_rows: Number of rows of each class. A class without rows has no part in the mean.
        weights: Weight of each class, >= 0; the same for all if ``None``.

    Example:
        >>> effective_rows([10, 10, 0])
        20.0
        >>> round(effective_rows([1, 1000]), 2)  # the class with one row decides
        4.0
    """
    given = [1.0] * len(class_rows) if weights is None else weights
    present = [(weight, rows) for weight, rows in zip(given, class_rows, strict=True) if rows > 0 and weight]
    if not present:
        raise ValueError("class_rows must have a class with rows and a weight, got none")
    total = sum(weight for weight, _ in present)
    return total**2 / sum(weight**2 / rows for weight, rows in present)
