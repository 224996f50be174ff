"""Means with t-intervals over several runs of one experiment."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from shortlist._beta import beta_quantile
from shortlist._checks import check_count, check_number
from shortlist.metrics.results import Estimate, Results


@dataclass(frozen=True)
class Aggregate:
    """The mean over runs and its t-interval for each metric of :meth:`Results.metrics`.

    Args:
        runs: Number of runs.
        level: Level of the intervals.
        metrics: By name, the mean with both ends of its interval. The ends are ``None`` for one run; all
            three are ``None`` if a run does not have the metric.
    """

    runs: int
    level: float
    metrics: Mapping[str, Estimate]


def aggregate(results: Sequence[Results], *, level: float = 0.95) -> Aggregate:
    """Compute the mean of each metric over runs (over seeds, for example), with its t-interval.

    The interval is the mean plus and minus ``t * s / sqrt(runs)``, with s the standard deviation between runs
    and t the quantile for runs - 1 degrees of freedom. It tells how much the mean would change with other
    seeds on the same rows; for the part of the rows see the interval of each run. If all runs have the same
    number, as on few rows they may, it is the widest interval of the runs: no interval would be wrong.

    Args:
        results: Results of :func:`evaluate` for each run, all with the same metrics.
        level: Level of the intervals, in (0, 1).
    """
    if not results:
        raise ValueError("results must have at least one run, got 0")
    check_number("level", level, above=0.0, below=1.0)
    runs = [result.metrics() for result in results]
    for run in runs[1:]:
        different = sorted(run.keys() ^ runs[0].keys())
        if different:
            raise ValueError(
                f"results must all have the same metrics, got {different[0]!r} in only some of them"
            )
    metrics = {}
    for name in runs[0]:
        values = [run[name].value for run in runs]
        numbers = [value for value in values if value is not None]
        if len(numbers) < len(runs):
            metrics[name] = Estimate(None)
        else:
            by_rows = [run[name] for run in runs] if all(each.level == level for each in results) else []
            metrics[name] = interval_of_rows(mean_with_interval(numbers, level=level), by_rows)
    return Aggregate(len(runs), level, metrics)


def interval_of_rows(mean: Estimate, runs: Sequence[Estimate]) -> Estimate:
    """Return the widest interval of the runs for a mean over runs that are all the same."""
    lows = [estimate.low for estimate in runs if estimate.low is not None]
    highs = [estimate.high for estimate in runs if estimate.high is not None]
    if mean.low is None or mean.low != mean.high or not lows or not highs:
        return mean
    return Estimate(mean.value, min(lows), max(highs))


def mean_with_interval(numbers: Sequence[float], *, level: float = 0.95) -> Estimate:
    """Compute the mean of numbers with its t-interval; one number or infinite numbers have no interval.

    Example:
        >>> mean_with_interval([1.0, 3.0])  # 2 -+ 12.706 / 2 * 2
        Estimate(value=2.0, low=-10.706..., high=14.706...)
    """
    mean = fmean(numbers)
    if len(numbers) == 1 or not all(map(math.isfinite, numbers)):
        return Estimate(mean)
    half = student_t_quantile((1 + level) / 2, len(numbers) - 1) * stdev(numbers) / math.sqrt(len(numbers))
    return Estimate(mean, mean - half, mean + half)


def student_t_quantile(q: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution with a whole number of degrees of freedom.

    ``degrees / (degrees + T**2)`` follows Beta(degrees / 2, 1 / 2).

    Args:
        q: Share in [0.5, 1).
        degrees: Degrees of freedom, >= 1.

    Example:
        >>> round(student_t_quantile(0.975, 4), 4)
        2.7764
    """
    check_number("q", q, low=0.5, below=1.0)
    check_count("degrees", degrees)
    share = beta_quantile(2 * (1 - q), degrees / 2, 0.5) if q > 0.5 else 1.0
    return math.sqrt(degrees * (1 / share - 1))
