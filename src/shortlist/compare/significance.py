"""Paired tests of whether two methods differ, over seeds and over test rows."""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist._beta import beta_cdf
from shortlist._checks import check_count
from shortlist.metrics import Columns, average_rows, resample_each


class PairedTest(NamedTuple):
    """The mean difference of the first to the second, the two-sided p-value, and the name of the test.

    ``half_width`` is half of the 95 % interval of the difference over test rows; None for tests over seeds.
    """

    difference: float
    p_value: float
    test: str
    half_width: float | None = None


class Pair(NamedTuple):
    """Values of the same rows (n,), twice, and the classes that count, see :func:`paired_bootstrap_test`."""

    first: Tensor
    second: Tensor
    classes: Tensor | None


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct the p-values of several tests by Holm's method.

    The smallest is multiplied by the number m of tests, the next by m - 1, and so on; none gets smaller than
    the one before it, nor larger than 1.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted, largest = [1.0] * len(p_values), 0.0
    for place, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def paired_t_test(first: Sequence[float], second: Sequence[float]) -> PairedTest:
    """Compute Student's t-test of paired metrics, with the same seeds in both.

    Example:
        >>> result = paired_t_test([0.8, 0.9, 0.7], [0.7, 0.7, 0.6])
        >>> round(result.p_value, 4)
        0.0572
    """
    if len(first) != len(second) or len(first) < 2:
        raise ValueError(f"first and second must be pairs, at least 2, got {len(first)} and {len(second)}")
    if not all(map(math.isfinite, (*first, *second))):
        raise ValueError(f"first and second must be finite, got {list(first)} and {list(second)}")
    differences = [a - b for a, b in zip(first, second, strict=True)]
    mean, spread = fmean(differences), stdev(differences)
    name = f"paired t-test over {len(first)} seeds"
    if spread <= 1e-12 * max(1.0, abs(mean)):
        # one row more in each seed is no proof: without any spread the test has nothing to go by
        return PairedTest(mean, 1.0, name)
    t = abs(mean) / (spread / math.sqrt(len(differences)))
    degrees = len(differences) - 1
    p_value = beta_cdf(degrees / (degrees + t**2), degrees / 2, 0.5)
    return PairedTest(mean, max(1e-15, p_value), name)


def one_sample_t_test(values: Sequence[float], constant: float, *, rounding: float = 0.0) -> PairedTest:
    """Compute Student's t-test of the metrics of some seeds against a number that somebody printed.

    Equal values have no spread to test by: they differ from the number if they are not rounded to it.

    Args:
        values: Metrics of at least 2 seeds.
        constant: The number.
        rounding: Half a unit of its last digit.

    Example:
        >>> one_sample_t_test([0.8, 0.8], 0.29, rounding=0.005).p_value  # 51 points apart
        0.0
    """
    if len(values) < 2 or not all(map(math.isfinite, (*values, constant))):
        raise ValueError(f"values must be at least 2 finite numbers, got {list(values)} and {constant}")
    gap = fmean(values) - constant
    if stdev(values) <= 1e-12 * max(1.0, abs(gap)):
        p_value = 1.0 if abs(gap) <= rounding + 1e-9 else 0.0
        return PairedTest(gap, p_value, f"{len(values)} seeds with the same value")
    p_value = paired_t_test(values, [constant] * len(values)).p_value
    return PairedTest(gap, p_value, f"one-sample t-test over {len(values)} seeds")


def mcnemar_test(first: Tensor, second: Tensor) -> PairedTest:
    """Compute McNemar's exact test on the rows that only one of the two methods has right.

    The interval of the difference is Wald's: it is too short where only a few rows differ.

    Args:
        first: Whether each row is right (n,), bool.
        second: The same for the second method, on the same rows.
    """
    if first.dtype != torch.bool or second.dtype != torch.bool or first.shape != second.shape:
        raise ValueError(
            f"first and second must be bool of the same shape, got {first.dtype} {tuple(first.shape)} and "
            f"{second.dtype} {tuple(second.shape)}"
        )
    rows = len(first)
    gained, lost = int((first & ~second).sum()), int((second & ~first).sum())
    fewer, both = min(gained, lost), gained + lost
    term = total = 1
    for i in range(fewer):  # binomial coefficients as whole numbers: exact however many rows
        term = term * (both - i) // (i + 1)
        total += term
    p_value = min(1.0, 2 * total / 2**both)
    difference = (gained - lost) / max(1, rows)
    variance = max(0.0, both / max(1, rows) - difference**2) / max(1, rows)
    name = f"McNemar's test over {rows} test rows"
    return PairedTest(difference, p_value, name, NormalDist().inv_cdf(0.975) * math.sqrt(variance))


def paired_bootstrap_test(
    first: Tensor,
    second: Tensor,
    target: Tensor,
    *,
    classes: Tensor | None = None,
    num_classes: int,
    num_resamples: int = 2000,
    seed: int = 0,
) -> PairedTest:
    """Test whether the means differ, by resampling rows with their pairs of values.

    The p-value is twice the share of resamples in which the difference has the other sign (those without a
    difference count as such), at least ``2 / (num_resamples + 1)``.

    Args:
        first: Value of each row (n,).
        second: The same for the second method, on the same rows.
        target: Class of each row (n,).
        classes: Classes (bool (c,)) over which the means of their rows are averaged; ``None`` for the mean
            over all rows.
        num_classes: Number c of classes.
        num_resamples: Number of resamples.
        seed: Seed of the resamples.
    """
    pair = Pair(first, second, classes)
    return paired_bootstrap_tests(
        [pair], target, num_classes=num_classes, num_resamples=num_resamples, seed=seed
    )[0]


def paired_bootstrap_tests(
    pairs: Sequence[Pair], target: Tensor, *, num_classes: int, num_resamples: int = 2000, seed: int = 0
) -> list[PairedTest]:
    """Test each of several pairs as :func:`paired_bootstrap_test` does, in little more time than one."""
    check_count("num_resamples", num_resamples)
    drawn = resample_differences(
        pairs, target, num_classes=num_classes, num_resamples=num_resamples, seed=seed
    )
    name = f"paired bootstrap over {len(target)} test rows"
    tests = []
    for pair, differences in zip(pairs, drawn, strict=True):
        observed = mean_over(pair.first.double() - pair.second.double(), target, pair.classes)
        tests.append(PairedTest(observed, _p_value(observed, differences), name, _half_width(differences)))
    return tests


def resample_differences(
    pairs: Sequence[Pair], target: Tensor, *, num_classes: int, num_resamples: int = 2000, seed: int = 0
) -> list[Tensor]:
    """Return the mean differences of each pair in resamples of the rows, without those that have none."""
    every = torch.ones(num_classes, dtype=torch.bool)
    columns = [
        Columns(
            (pair.first.double() - pair.second.double())[:, None],
            torch.where(every if pair.classes is None else pair.classes, 0, 1),
            1,
        )
        for pair in pairs
    ]
    generator = torch.Generator().manual_seed(seed)
    drawn = resample_each(
        columns, target, num_classes=num_classes, num_resamples=num_resamples, generator=generator
    )
    means = [
        means.micro[:, 0] if pair.classes is None else means.groups[:, 0, 0]
        for pair, means in zip(pairs, drawn, strict=True)
    ]
    return [part[~part.isnan()] for part in means]


def _p_value(observed: float, means: Tensor) -> float:
    """Return twice the share of resampled differences with another sign than the observed one."""
    other = int((means <= 0).sum()) if observed > 0 else int((means >= 0).sum())
    return min(1.0, 2 * (other + 1) / (len(means) + 1)) if observed else 1.0


def _half_width(means: Tensor) -> float | None:
    """Return half the distance between the ends of the middle 95 % of resampled differences."""
    if not len(means):
        return None
    low, high = means.quantile(torch.tensor([0.025, 0.975], dtype=means.dtype))
    return float(high - low) / 2


def mean_over(values: Tensor, target: Tensor, classes: Tensor | None) -> float:
    """Return the mean of values (n,) over rows, or over the means of some classes (bool (c,))."""
    if classes is None:
        return float(values.mean())
    return float(average_rows(values, target, num_classes=len(classes), average="none")[classes].nanmean())
