"""Conformal p-values of strangeness: how often a row of a known class is at least as strange as this one.

Strangeness is any number that is large for rows that fit no class. The calibration rows are rows of known
classes that neither the model nor the strangeness was fitted to. Each p-value is a step function of
strangeness (:class:`PValueSteps`), which is found once, by one sort.
"""

import math
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import can_read_values, check_count, check_number

CountedClasses = Literal["present", "all"]
"""Classes that a promise is about: those with calibration rows, or all."""
_SLACK = 1e-12  # a level of 1 - 0.9 is meant to be 0.1


class PValueSteps(NamedTuple):
    """A p-value as a step function of strangeness.

    Attributes:
        values: Strangeness (n,) of the calibration rows, ascending.
        table: The p-value (n + 1,), float64, where 0, 1, ..., n of the values are at least as large.
    """

    values: Tensor
    table: Tensor

    def __call__(self, strangeness: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        """Return the p-values (m,), float64, of rows with this strangeness (m,)."""
        dtype = torch.promote_types(self.values.dtype, strangeness.dtype)
        below = torch.searchsorted(self.values.to(dtype), strangeness.detach().to(dtype).contiguous())
        return self.table[len(self.values) - below]

    def cutoff(self, level: float) -> Float[Tensor, ""]:
        """Return the number that strangeness exceeds where the p-value is at most a level.

        It is infinite if no p-value is so small, and minus infinity if all are.
        """
        number = at_most(self.table, level).sum()  # the table never falls
        ends = self.values.new_tensor([-math.inf, math.inf])
        padded = torch.cat([ends[:1], self.values, ends[1:]])
        return padded[len(self.values) + 1 - number]


def at_most(p_values: Tensor, level: float) -> Tensor:
    """Where p-values are at most a level, whatever the last digits of both."""
    return p_values <= level + _SLACK


def pooled_p_values(
    strangeness: Float[Tensor, " m"], calibration: Float[Tensor, " n"], *, delta: float | None = None
) -> Float[Tensor, " m"]:
    r"""Compute p-values over all calibration rows, :math:`(1 + \#\{g_i \ge g\}) / (n + 1)`.

    Of the rows of known classes, at most a share a has :math:`p \le a`, all classes together, if they are
    exchangeable with the calibration rows.

    Args:
        strangeness: Strangeness (m,) of new rows.
        calibration: Strangeness (n,) of calibration rows.
        delta: If given, the p-values are adjusted (Simes), so that the promise holds *given* the calibration
            rows: with probability 1 - delta over their choice, at most a share a of all further rows has
            :math:`p \le a`, for every a at once. Without it, it holds on average over their choice.

    Returns:
        float64 (m,).

    Example:
        >>> pooled_p_values(torch.tensor([0.5, 5.0]), torch.tensor([1.0, 2.0, 3.0]))
        tensor([1.0000, 0.2500], dtype=torch.float64)

    References:
        S. Bates, E. Candès, L. Lei, Y. Romano, M. Sesia, "Testing for outliers with conformal p-values",
        Annals of Statistics 2023.
    """
    return pooled_steps(calibration, delta=delta)(check_numbers("strangeness", strangeness))


def pooled_steps(calibration: Float[Tensor, " n"], *, delta: float | None = None) -> PValueSteps:
    """Find the steps of :func:`pooled_p_values`."""
    values = check_numbers("calibration", calibration).sort().values
    n = len(values)
    if delta is None:
        table = torch.arange(1, n + 2, dtype=torch.float64, device=values.device) / (n + 1)
    else:
        table = _simes(n, delta).to(values.device)
    return PValueSteps(values, table)


def _simes(n: int, delta: float) -> Tensor:
    """Return the adjusted p-value (n + 1,) of each number of values that are at least as large.

    It is 1 - (delta i (i-1) ... (i-k+1) / (n (n-1) ... (n-k+1))) ** (1/k), where i of the n values are
    smaller and k is half of n.
    """
    delta = check_number("delta", delta, above=0.0, below=1.0)
    k = max(1, n // 2)
    smaller = torch.arange(n, -1, -1, dtype=torch.float64)
    product = torch.lgamma(smaller + 1) - torch.lgamma((smaller - k + 1).clamp_min(1))
    product = product + math.lgamma(n - k + 1) - math.lgamma(n + 1)
    return torch.where(smaller >= k, -torch.expm1((math.log(delta) + product) / k), 1.0)


def class_p_values(
    strangeness: Float[Tensor, " m"],
    calibration: Float[Tensor, " n"],
    target: Int[Tensor, " n"],
    *,
    num_classes: int,
) -> Float[Tensor, "m c"]:
    r"""Compute p-values within each class, :math:`(1 + \#\{i \in c : g_i \ge g\}) / (n_c + 1)`.

    A row that is flagged if *all* its p-values are at most a is a false alarm in at most a share a of the
    rows of each class.

    Args:
        strangeness: Strangeness (m,) of new rows.
        calibration: Strangeness (n,) of calibration rows.
        target: Classes (n,) of the calibration rows.
        num_classes: Number of classes c.

    Returns:
        float64 (m, c); 1 for classes without calibration rows.

    Example:
        >>> known, target = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 0, 1])
        >>> class_p_values(torch.tensor([2.5]), known, target, num_classes=2)
        tensor([[0.3333, 1.0000]], dtype=torch.float64)
    """
    _check_labels(calibration, target, num_classes)
    p_values = torch.ones(len(strangeness), num_classes, dtype=torch.float64, device=strangeness.device)
    for index in target.unique().tolist():
        p_values[:, index] = pooled_p_values(strangeness, calibration[target == index])
    return p_values


def class_steps(
    calibration: Float[Tensor, " n"],
    target: Int[Tensor, " n"],
    *,
    num_classes: int,
    classes: CountedClasses = "present",
) -> PValueSteps:
    """Find the steps of the largest of each row's :func:`class_p_values`, without computing them all.

    Args:
        calibration: Strangeness (n,) of calibration rows.
        target: Classes (n,) of the calibration rows.
        num_classes: Number of classes c.
        classes: Classes that the promise is about: ``"present"``, those with calibration rows, or ``"all"``;
            then every p-value is 1 if a class has none.
    """
    values, target, counts = _in_order(calibration, target, num_classes, classes)
    # rows come sorted: all of a row's own class that do not come before it are at least as strange
    place = _place_in_class(target, counts)
    own_values = (1 + counts[target] - place).double() / (counts[target] + 1)
    fewest = counts.min() if classes == "all" else counts[counts > 0].min()
    start = (1 / (fewest + 1).double()).reshape(1)
    return PValueSteps(values, torch.cat([start, own_values.flip(0)]).cummax(0).values)


def macro_p_values(
    strangeness: Float[Tensor, " m"],
    calibration: Float[Tensor, " n"],
    target: Int[Tensor, " n"],
    *,
    num_classes: int,
    classes: CountedClasses = "present",
) -> Float[Tensor, " m"]:
    r"""Compute p-values in which each class counts the same, :math:`\max_i w_i + \sum_{g_i \ge g} w_i`.

    A row of a class with :math:`n_c` of the calibration rows has the weight :math:`w_i = 1 / (L n_c)`, L
    classes. The share of rows with :math:`p \le a`, on average over the classes, is at most a.

    Args:
        strangeness: Strangeness (m,) of new rows.
        calibration: Strangeness (n,) of calibration rows.
        target: Classes (n,) of the calibration rows.
        num_classes: Number of classes c.
        classes: Classes that the average is over: ``"present"``, those with calibration rows, or ``"all"``;
            then those without count as if all their rows were flagged.

    Returns:
        float64 (m,), at most 1.

    Example:
        >>> known, target = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0, 0, 1])
        >>> macro_p_values(torch.tensor([1.5, 4.0]), known, target, num_classes=2)  # weights 1/4, 1/4, 1/2
        tensor([1.0000, 0.5000], dtype=torch.float64)

    References:
        A. Bhattacharyya, T. Ding, R. F. Barber, arXiv 2606.28598, 2026, for the weights; the p-value is that
        rule, solved for the level.
    """
    steps = macro_steps(calibration, target, num_classes=num_classes, classes=classes)
    return steps(check_numbers("strangeness", strangeness))


def macro_steps(
    calibration: Float[Tensor, " n"],
    target: Int[Tensor, " n"],
    *,
    num_classes: int,
    classes: CountedClasses = "present",
) -> PValueSteps:
    """Find the steps of :func:`macro_p_values`."""
    values, target, counts = _in_order(calibration, target, num_classes, classes)
    present = (counts > 0).sum()
    total = present if classes == "present" else torch.full_like(present, num_classes)
    weights = 1 / (total * counts[target]).double()
    absent = (total - present).double() / total
    above = torch.cat([weights.new_zeros(1), weights.flip(0)]).cumsum(0)
    return PValueSteps(values, (above + weights.max() + absent).clamp_max(1))


def adjusted_p_values(p_values: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
    """Adjust the p-values of a batch (Benjamini-Hochberg): each becomes the smallest level that finds it.

    Example:
        >>> adjusted_p_values(torch.tensor([0.01, 0.04, 0.5], dtype=torch.float64))
        tensor([0.0300, 0.0600, 0.5000], dtype=torch.float64)
    """
    check_numbers("p_values", p_values)
    ranked, order = p_values.double().sort()
    m = len(ranked)
    place = torch.arange(1, m + 1, dtype=torch.float64, device=ranked.device)
    adjusted = (ranked * m / place).flip(0).cummin(0).values.flip(0).clamp_max(1)
    return torch.empty_like(adjusted).scatter(0, order, adjusted)


def benjamini_hochberg(p_values: Float[Tensor, " m"], *, level: float) -> Bool[Tensor, " m"]:
    """Find the strangers of a batch, so that at most a share ``level`` of those found is known, on average.

    The r rows with the smallest p-values are found, for the largest r with ``p_(r) <= level r / m``. The
    promise (false discovery rate, times the share of known rows in the batch) is proven for
    :func:`pooled_p_values` of one calibration set.

    Args:
        p_values: P-values (m,) of the batch.
        level: Largest expected share of known rows among those found, in (0, 1).

    Example:
        >>> benjamini_hochberg(torch.tensor([0.01, 0.2, 0.04, 0.9], dtype=torch.float64), level=0.1)
        tensor([ True, False,  True, False])

    References:
        Y. Benjamini, Y. Hochberg, "Controlling the false discovery rate", JRSS B 1995; for conformal p-values
        S. Bates et al., Annals of Statistics 2023.
    """
    level = check_number("level", level, above=0.0, below=1.0)
    return at_most(adjusted_p_values(p_values), level)


def check_numbers(name: str, values: Tensor) -> Tensor:
    """Require floating numbers (n,) without NaN, and return them without their gradient."""
    if not isinstance(values, Tensor) or values.ndim != 1 or not values.is_floating_point():
        got = f"{values.dtype} {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(f"{name} must be a floating tensor of shape (n,), got {got}")
    if can_read_values(values) and bool(values.isnan().any()):
        raise ValueError(f"{name} must be numbers, got NaN in row {int(values.isnan().nonzero()[0])}")
    return values.detach()


def _check_labels(calibration: Tensor, target: Tensor, num_classes: int) -> None:
    check_numbers("calibration", calibration)
    check_count("num_classes", num_classes)
    if not isinstance(target, Tensor) or target.dtype != torch.int64 or target.shape != calibration.shape:
        got = f"{target.dtype} {tuple(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(f"target must be int64 class indices of shape {tuple(calibration.shape)}, got {got}")
    if not len(target):
        raise ValueError("calibration needs at least 1 row, got 0")
    low, high = (int(end) for end in target.aminmax())
    if low < 0 or high >= num_classes:
        raise ValueError(f"target must be in [0, {num_classes}), got {low if low < 0 else high}")


def _in_order(
    calibration: Tensor, target: Tensor, num_classes: int, classes: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Sort rows by strangeness, equal ones by class, so that sums do not depend on their order."""
    check_choice("classes", classes, ("present", "all"))
    _check_labels(calibration, target, num_classes)
    by_class = target.argsort(stable=True)
    values, order = calibration.detach()[by_class].sort(stable=True)
    target = target[by_class][order]
    return values, target, target.bincount(minlength=num_classes)


def _place_in_class(target: Tensor, counts: Tensor) -> Tensor:
    """Return how many rows of the same class come before each row (n,)."""
    by_class = target.argsort(stable=True)
    start = counts.cumsum(0) - counts
    place = torch.empty_like(target)
    place[by_class] = torch.arange(len(target), device=target.device) - start[target[by_class]]
    return place
