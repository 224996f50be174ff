"""The upper tail of the binomial distribution, without tables and without rounding that matters."""

import math

from shortlist._checks import check_number

__all__ = ["binomial_tail", "rank_with_tail"]


def binomial_tail(rounds: int, share: float, k: int) -> float:
    """Compute the chance that at least k of independent rounds succeed.

    Terms are added up from the k-th on while they matter; below the mean, those of the other end. The
    relative error is below 1e-8 for a million rounds, and 1e-13 for a few hundred.

    Args:
        rounds: Number of rounds, >= 0.
        share: Chance of success in each, in (0, 1).
        k: Number of successes.

    Example:
        >>> round(binomial_tail(10, 0.5, 9), 6)  # 11 / 1024
        0.010742
    """
    check_number("share", share, above=0.0, below=1.0)
    if k <= 0:
        return 1.0
    if k > rounds:
        return 0.0
    if k <= rounds * share:  # the terms rise first, perhaps from less than the smallest float
        return 1 - binomial_tail(rounds, 1 - share, rounds - k + 1)
    log_chances = math.lgamma(rounds + 1) - math.lgamma(k + 1) - math.lgamma(rounds - k + 1)
    term = math.exp(log_chances + k * math.log(share) + (rounds - k) * math.log1p(-share))
    total, odds, i = 0.0, share / (1 - share), k
    while i <= rounds and term > 1e-17 * total:
        total += term
        term *= odds * (rounds - i) / (i + 1)
        i += 1
    return min(total, 1.0)


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
