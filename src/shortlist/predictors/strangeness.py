"""Strangeness: one number for each row, large if the row fits none of the known classes."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import can_read_values, check_scores, promote
from shortlist.predictors._activation import check_finite
from shortlist.predictors._chunks import chunk_rows

_CANDIDATES = 2  # nearest means by the fast formula, whose distances are then computed exactly
_PRODUCTS = 2**22  # products of rows and means at a time: with few rows, the means are read too often


def energy_strangeness(scores: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    r"""Compute the energy :math:`-\log \sum_j e^{s_j}`: rows on which all scores are low are strange.

    It tells nothing for scores that are normalized in each row, as log-probabilities are: it is 0 for all.

    Example:
        >>> energy_strangeness(torch.tensor([[5.0, -5.0], [0.0, 0.0]]))
        tensor([-5.0000, -0.6931])
    """
    check_finite(scores)
    return -_by_row(scores, lambda some: promote(some).logsumexp(1))


def probability_strangeness(scores: Float[Tensor, "n c"]) -> Float[Tensor, " n"]:
    r"""Compute the odds against the best class: rows of which the model is unsure are strange.

    It is :math:`\log ((1 - p) / p)` for the largest probability p of the softmax. It has the order of
    :math:`1 - p`, so that p-values are the same, and rows of which the model is very sure still differ.

    Example:
        >>> probability_strangeness(torch.tensor([[0.0, 0.0], [40.0, 0.0], [2.0, 2.0]]))
        tensor([  0., -40.,   0.])
    """
    check_finite(scores)
    return _by_row(scores, _log_odds_against_best)


def _log_odds_against_best(scores: Tensor) -> Tensor:
    best, index = promote(scores).max(1)
    others = promote(scores).scatter(1, index[:, None], -math.inf)
    return others.logsumexp(1) - best


def distance_strangeness(features: Float[Tensor, "n d"], means: Float[Tensor, "c d"]) -> Float[Tensor, " n"]:
    """Compute the Euclidean distance to the nearest class mean.

    The nearest means are found by one product of matrices, and the distance is then computed from the
    differences in float64, so that it hardly depends on which rows come together.

    Args:
        features: Features (n, d).
        means: Means (c, d) of the classes' features, as :class:`~shortlist.predictors.FeatureMeans` computes
            them on rows that do not serve for calibration.

    Example:
        >>> means = torch.tensor([[0.0, 0.0], [4.0, 0.0]])
        >>> distance_strangeness(torch.tensor([[4.0, 3.0], [1.0, 0.0]]), means)
        tensor([3., 1.])
    """
    check_scores(means, name="means")
    check_scores(features, name="features")
    if features.shape[1] != means.shape[1]:
        raise ValueError(f"features must have {means.shape[1]} columns as means do, got {features.shape[1]}")
    if not len(means):
        raise ValueError("means must have at least 1 row, got 0")
    if can_read_values(features) and not bool(features.isfinite().all()):
        row = int((~features.isfinite()).any(1).nonzero()[0])
        raise ValueError(f"features must be finite, got {features[row].tolist()[:3]}... in row {row}")
    means = means.to(features.device)
    center = means.mean(0)  # small numbers lose less in the product
    columns = (means - center).to(promote(features).dtype).T.contiguous()
    half_squares = columns.square().sum(0) / 2

    def distances(some: Tensor) -> Tensor:
        some = promote(some)
        with torch.autocast(some.device.type, enabled=False):  # which would round the product
            near = torch.addmm(half_squares, some - center.to(some.dtype), columns, alpha=-1)
        index = near.topk(min(_CANDIDATES, len(means)), dim=1, largest=False).indices
        apart = some[:, None].double() - means[index].double()
        return apart.square().sum(2).amin(1).sqrt().to(some.dtype)

    return _by_row(features, distances, step=max(1, _PRODUCTS // len(means)))


STRANGENESS: dict[str, Callable[..., Tensor]] = {
    "distance": distance_strangeness,
    "energy": energy_strangeness,
    "probability": probability_strangeness,
}
"""The function of each kind of strangeness, by the name that recipes use."""


def _by_row(rows: Tensor, compute: Callable[[Tensor], Tensor], step: int | None = None) -> Tensor:
    """Compute a number for each row, from a few rows at a time: what lies between stays small."""
    if not can_read_values(rows):
        return compute(rows)
    parts = rows.detach().split(step or chunk_rows(rows.shape[1]))
    return torch.cat([compute(part) for part in parts])
