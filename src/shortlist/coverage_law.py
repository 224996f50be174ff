"""How much coverage varies from one set of calibration rows to the next, and how many rows are enough."""

import math
from statistics import NormalDist

from shortlist._beta import beta_binomial_cdf, beta_cdf, beta_quantile
from shortlist._bounds import require_count, require_number

SLACK = 1e-9  # in ranks: 100 * 0.29 is meant to be 29


def conformal_rank(rows: int, coverage: float) -> int:
    """Return which of the sorted calibration scores is the threshold: ``ceil((n + 1) coverage)``."""
    return max(1, math.ceil((rows + 1) * coverage - SLACK))


def rows_needed(coverage: float) -> int:
    """Return the smallest number of calibration rows with which not every set holds all classes.

    Args:
        coverage: Promised coverage, in (0, 1).

    Example:
        >>> rows_needed(0.9), rows_needed(0.99)
        (9, 99)
    """
    require_number("coverage", coverage, above=0.0, below=1.0)
    rows = max(1, math.floor(coverage / (1 - coverage)) - 1)
    while conformal_rank(rows, coverage) > rows:
        rows += 1
    return rows


def coverage_range(rows: int, coverage: float, *, level: float = 0.95) -> tuple[float, float]:
    r"""Return the range in which the coverage of new rows lies for most sets of calibration rows.

    A conformal threshold is the k-th smallest of n calibration scores, :math:`k = \lceil (n + 1)(1 - a)
    \rceil`. With these rows given, the coverage of new rows follows Beta(k, n + 1 - k) if scores have no
    ties. With ties it is larger, never smaller. Its mean is at least :math:`1 - a`: that is the promise.

    Args:
        rows: Number n of calibration rows.
        coverage: Promised coverage :math:`1 - a`, in (0, 1).
        level: Share of the sets of calibration rows whose coverage is in the range, with equal shares below
            and above it.

    Returns:
        Both ends; (1, 1) if there are too few rows, so that every set holds all classes.

    Example:
        >>> low, high = coverage_range(84, 0.9)
        >>> round(low, 3), round(high, 3)
        (0.836, 0.958)
    """
    require_count("rows", rows)
    coverage = require_number("coverage", coverage, above=0.0, below=1.0)
    level = require_number("level", level, above=0.0, below=1.0)
    k = conformal_rank(rows, coverage)
    if k > rows:
        return 1.0, 1.0
    low, high = (beta_quantile(q, k, rows + 1 - k) for q in ((1 - level) / 2, (1 + level) / 2))
    return low, high


def rows_for(coverage: float, *, within: float, level: float = 0.95) -> int:
    """Return the fewest calibration rows whose :func:`coverage_range` is close enough to the promise.

    Args:
        coverage: Promised coverage, in (0, 1).
        within: Largest distance of either end of the range from ``coverage``, in (0, 1).
        level: Level of the range.

    Example:
        >>> rows_for(0.9, within=0.05)
        136
    """
    coverage = require_number("coverage", coverage, above=0.0, below=1.0)
    within = require_number("within", within, above=0.0, below=1.0)
    level = require_number("level", level, above=0.0, below=1.0)
    tail = (1 - level) / 2
    # half of what a normal law would need is too few: no need to try these
    few = 0.5 * (NormalDist().inv_cdf(1 - tail) / within) ** 2 * coverage * (1 - coverage)
    rows = max(rows_needed(coverage), int(few))
    while not _is_within(rows, coverage, within, tail):
        rows += 1
    return rows


def _is_within(rows: int, coverage: float, within: float, tail: float) -> bool:
    k = conformal_rank(rows, coverage)
    if k > rows:
        return False
    below = beta_cdf(coverage - within, k, rows + 1 - k)
    return below <= tail and beta_cdf(coverage + within, k, rows + 1 - k) >= 1 - tail


def chance_of_hits(hits: int, new_rows: int, *, rows: int, coverage: float) -> float:
    """Return the chance of at most ``hits`` hits, if the promise holds.

    The number of new rows whose set contains the true class is beta-binomial: the calibration rows draw the
    coverage, the new rows draw from it. So both together are accounted for, exactly. With ties among the
    scores the chance is smaller than this number.

    Args:
        hits: Number of new rows whose set contains the true class.
        new_rows: Number of new rows.
        rows: Number of calibration rows.
        coverage: Promised coverage, in (0, 1).

    Example:
        >>> round(chance_of_hits(860, 1000, rows=84, coverage=0.9), 3)  # 86 of 100 for 90 promised
        0.093
        >>> chance_of_hits(860, 1000, rows=2000, coverage=0.9) < 0.001
        True
    """
    k = conformal_rank(rows, coverage)
    if k > rows:  # every set holds all classes
        return float(hits >= new_rows)
    return beta_binomial_cdf(hits, new_rows, k, rows + 1 - k)


def clopper_pearson(hits: float, rows: float, *, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a share, after Clopper and Pearson.

    At the lower end, as many hits or more have the chance ``(1 - level) / 2``; at the upper end, as many or
    fewer. So the interval holds the true share at least as often as the level says, for any number of rows.

    Args:
        hits: Number of hits, in [0, rows]. It need not be whole: see ``effective_rows``.
        rows: Number of rows, > 0.
        level: Level of the interval, in (0, 1).

    Example:
        >>> low, high = clopper_pearson(5, 5)
        >>> round(low, 3), high
        (0.478, 1.0)
    """
    rows = require_number("rows", rows, above=0.0)
    hits = require_number("hits", hits, low=0.0)
    level = require_number("level", level, above=0.0, below=1.0)
    if hits > rows:
        raise ValueError(f"hits must be <= the number of rows ({rows:g}), got {hits:g}")
    tail = (1 - level) / 2
    low = 0.0 if hits <= 0 else beta_quantile(tail, hits, rows - hits + 1)
    high = 1.0 if hits >= rows else beta_quantile(1 - tail, hits + 1, rows - hits)
    return low, high
