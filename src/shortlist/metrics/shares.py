"""How many rows tell as much about a share as rows of classes that do not count the same."""

from collections.abc import Sequence


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
