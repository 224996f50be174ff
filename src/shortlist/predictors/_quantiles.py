"""The finite-sample quantile, of all calibration scores or of each group of them."""

import math

from torch import Tensor

__all__ = ["conformal_rank", "group_profiles", "grouped_quantiles", "marginal_quantile", "rows_needed"]


def conformal_rank(rows: int, coverage: float) -> int:
    """Which of the sorted calibration scores is the threshold: ``ceil((n + 1) coverage)``."""
    return max(1, math.ceil((rows + 1) * coverage - 1e-9))  # 100 * 0.29 is meant to be 29


def rows_needed(coverage: float) -> int:
    """The fewest rows with a finite threshold."""
    rows = max(1, math.floor(coverage / (1 - coverage)) - 1)
    while conformal_rank(rows, coverage) > rows:
        rows += 1
    return rows


def marginal_quantile(scores: Tensor, coverage: float) -> Tensor:
    """The threshold of all scores (n,); infinite when there are too few."""
    rank = conformal_rank(len(scores), coverage)
    return scores.new_tensor(math.inf) if rank > len(scores) else scores.kthvalue(rank).values


def grouped_quantiles(scores: Tensor, groups: Tensor, num_groups: int, coverage: float) -> Tensor:
    """The threshold of each group's scores (num_groups,); infinite where there are too few."""
    counts = groups.bincount(minlength=num_groups)
    rank = ((counts + 1).double() * coverage - 1e-9).ceil().long().clamp_min(1)
    enough = rank <= counts
    by_group = _sorted_by_group(scores, groups)
    start = counts.cumsum(0) - counts
    place = (start + rank - 1).where(enough, 0)
    quantile = by_group[place] if len(scores) else scores.new_zeros(num_groups)
    return quantile.where(enough, math.inf)


def group_profiles(scores: Tensor, groups: Tensor, num_groups: int, levels: Tensor) -> Tensor:
    """Plain quantiles of each group's scores at several levels (num_groups, levels); each group has a row."""
    counts = groups.bincount(minlength=num_groups)
    start = counts.cumsum(0) - counts
    rank = (counts[:, None].double() * levels).ceil().long().clamp_min(1)
    return _sorted_by_group(scores, groups)[start[:, None] + rank - 1]


def _sorted_by_group(scores: Tensor, groups: Tensor) -> Tensor:
    """Scores (n,) in ascending order within each group, group after group."""
    order = scores.argsort()
    return scores[order[groups[order].argsort(stable=True)]]
