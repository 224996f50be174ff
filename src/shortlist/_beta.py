"""The Beta, binomial and beta-binomial distributions, for intervals of shares; NumPy is all they need."""

import math

import numpy as np

_TINY = 1e-300  # in place of 0 in a denominator


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the chance that a Beta(a, b) number is at most x; a and b need not be whole numbers.

    By the continued fraction of the incomplete beta function (DLMF 8.17.22), on the side of the mean where
    it converges quickly.

    Example:
        >>> round(beta_cdf(0.5, 2, 3), 6)  # at least 2 heads of 4
        0.6875
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return min(1.0, math.exp(log_front) * _fraction(x, a, b) / a)


def _fraction(x: float, a: float, b: float) -> float:
    """Evaluate the continued fraction from its first term on, until the value stays."""
    value = numerator = 1.0
    denominator = change = 0.0
    m = 0
    while abs(change - 1) > 1e-15 and m < 10**6:
        for term in _terms(x, a, b, m):
            denominator = 1 / _not_zero(1 + term * denominator)
            numerator = _not_zero(1 + term / numerator)
            change = numerator * denominator
            value *= change
        m += 1
    return 1 / value


def _terms(x: float, a: float, b: float, m: int) -> tuple[float, float]:
    """The two terms number 2m + 1 and 2m + 2."""
    odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
    even = (m + 1) * (b - m - 1) * x / ((a + 2 * m + 1) * (a + 2 * m + 2))
    return odd, even


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY


def beta_quantile(q: float, a: float, b: float) -> float:
    """Return the number that a Beta(a, b) number is at most with chance q, found by halving.

    Example:
        >>> round(beta_quantile(0.5, 3, 3), 6)
        0.5
    """
    low, high = 0.0, 1.0
    for _ in range(52):
        middle = (low + high) / 2
        low, high = (middle, high) if beta_cdf(middle, a, b) < q else (low, middle)
    return (low + high) / 2


def beta_binomial_cdf(hits: int, rows: int, a: float, b: float) -> float:
    """Return the chance of at most ``hits`` hits in ``rows`` rows that share one Beta(a, b) chance of a hit.

    Example:
        >>> round(beta_binomial_cdf(2, 4, 1, 1), 6)  # all of 0, ..., 4 hits are equally likely
        0.6
    """
    if hits >= rows:
        return 1.0
    if hits < 0:
        return 0.0
    lgamma = math.lgamma
    first = lgamma(rows + b) + lgamma(a + b) - lgamma(b) - lgamma(a + b + rows)  # log of the chance of 0 hits
    j = np.arange(hits, dtype=np.float64)
    steps = np.log(rows - j) - np.log(j + 1) + np.log(j + a) - np.log(rows - j - 1 + b)
    logs = first + np.concatenate([[0.0], np.cumsum(steps)])
    return float(min(1.0, np.exp(logs).sum()))


def binomial_tail(rounds: int, share: float, k: int) -> float:
    """Return the chance that at least k of independent rounds succeed, each with the chance ``share``.

    Example:
        >>> round(binomial_tail(10, 0.5, 9), 6)  # 11 / 1024
        0.010742
    """
    if k <= 0 or k > rounds:
        return float(k <= 0)
    return beta_cdf(share, k, rounds - k + 1)


def rank_with_tail(rounds: int, share: float, tail: float) -> int:
    """Find the smallest k that at least k of the rounds reach with a chance of at most ``tail``.

    It is ``rounds + 1`` if even all rounds succeed more often than that.

    Example:
        >>> rank_with_tail(29, 0.9, 0.05), rank_with_tail(28, 0.9, 0.05)  # 0.9 ** 29 = 0.047
        (29, 29)
    """
    low, high = 0, rounds + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if binomial_tail(rounds, share, middle) <= tail else (middle, high)
    return high
