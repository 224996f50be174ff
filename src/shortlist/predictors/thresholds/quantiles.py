"""Find the finite-sample quantiles of calibration scores."""

import math

from jaxtyping import Float, Int
from torch import Tensor

from shortlist.coverage_law import SLACK, conformal_rank
from shortlist.predictors._exact import first_reaching, to_units


def conformal_threshold(scores: Float[Tensor, " n"], *, coverage: float) -> Float[Tensor, ""]:
    """Find the finite-sample quantile of calibration scores: the smallest that keeps the promise.

    Args:
        scores: Scores (n,) of the true classes of the calibration rows.
        coverage: Promised share of rows whose true class has a score at most the threshold, in (0, 1).

    Returns:
        The ``ceil((n + 1) coverage)``-th smallest score, infinite if there are fewer.

    Example:
        >>> conformal_threshold(torch.tensor([0.3, 0.5, 0.4]), coverage=0.5)  # the 2nd
        tensor(0.4000)
    """
    rank = conformal_rank(len(scores), coverage)
    return scores.new_tensor(math.inf) if rank > len(scores) else scores.kthvalue(rank).values


def vote_threshold(
    scores: Float[Tensor, " m"], shares: Float[Tensor, " m"], *, rows: int, coverage: float
) -> Float[Tensor, ""]:
    """Find the threshold that a random vote on a new row stays below with the promised probability.

    Sums are exact, so that neither the order of the votes nor their batches matter. If each row has one vote,
    this is :func:`conformal_threshold`.

    Args:
        scores: Scores (m,) of the classes that were voted for, of all rows.
        shares: Share (m,) of its row's votes that each of these classes has.
        rows: Number of rows n.
        coverage: Promised share of votes for classes with a score at most the threshold, in (0, 1).

    Returns:
        The smallest score at or below which the shares add up to ``(n + 1) coverage``, infinite if there is
        none.

    Example:
        >>> scores = torch.tensor([0.1, 0.3, 0.5, 0.2, 0.95, 0.4, 0.45])
        >>> shares = torch.tensor([1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
        >>> vote_threshold(scores, shares, rows=4, coverage=0.6)  # votes of 3 rows of 4
        tensor(0.4500)
    """
    in_order = scores.sort()
    place = first_reaching(shares[in_order.indices], to_units((rows + 1) * coverage - SLACK))
    return scores.new_tensor(math.inf) if place == len(scores) else in_order.values[place]


def grouped_thresholds(
    scores: Float[Tensor, " n"], groups: Int[Tensor, " n"], num_groups: int, *, coverage: float
) -> Float[Tensor, " g"]:
    """Find the :func:`conformal_threshold` of each group of scores (num_groups,), all at once."""
    counts = groups.bincount(minlength=num_groups)
    rank = ((counts + 1).double() * coverage - SLACK).ceil().long().clamp_min(1)
    enough = rank <= counts
    by_group = sorted_by_group(scores, groups)
    start = counts.cumsum(0) - counts
    place = (start + rank - 1).where(enough, 0)
    quantile = by_group[place] if len(scores) else scores.new_zeros(num_groups)
    return quantile.where(enough, math.inf)


def sorted_by_group(scores: Tensor, groups: Tensor) -> Tensor:
    """Sort the scores (n,) within each group in ascending order, group after group."""
    order = scores.argsort()
    return scores[order[groups[order].argsort(stable=True)]]
