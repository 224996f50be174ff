"""The best that any classifier can do: accuracy of the optimal sets, integrated over exact posteriors."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from shortlist._checks import check_number


class Estimate(NamedTuple):
    """A number and the standard error with which it is known."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class BayesAccuracy:
    """Accuracies of the best sets of size ``k``, as shares.

    Args:
        k: Size of the sets, fixed or on average.
        topk: Share of rows whose class is among the k likeliest; None if k is no whole number.
        average_k: Share of rows whose class is in the set of all classes with a probability above a
            threshold, with k classes on average.
        macro_topk: Mean over classes of each class's share, for the k largest ratios of probability to prior;
            None if k is no whole number.
        macro_average_k: Mean over classes of each class's share, for all classes with a ratio above a
            threshold, with k classes on average over the rows.
    """

    k: float
    topk: Estimate | None
    average_k: Estimate
    macro_topk: Estimate | None
    macro_average_k: Estimate


def bayes_accuracy(
    log_posterior: Callable[[Tensor], Tensor],
    log_priors: Tensor,
    rows: Tensor,
    balanced_rows: Tensor,
    *,
    k: float,
) -> BayesAccuracy:
    r"""Compute the accuracy of the optimal sets of size ``k``, fixed and on average, per row and per class.

    Given a row :math:`x`, a set :math:`S` is right with probability :math:`\sum_{j \in S} p_j(x)`: its mean
    over rows is the accuracy, without drawing labels. For the mean over classes, rows come from all classes
    alike; there, the probability is :math:`q_j \propto p_j / \pi_j`. A threshold is set on ``rows``, and its
    own error is part of the stated one: to first order, accuracy grows by the threshold per unit of average
    size.

    Args:
        log_posterior: Function that computes :math:`\log p_j(x)` (n, c).
        log_priors: Logarithms of the class priors, :math:`\log \pi_j` (c,).
        rows: Inputs drawn from the population.
        balanced_rows: Inputs drawn from each class with the same probability.
        k: Size of the sets, from 1 to the number of classes; average sizes need not be whole.
    """
    num_classes = len(log_priors)
    check_number("k", k, low=1)
    if k > num_classes:
        raise ValueError(f"k must be <= the number of classes ({num_classes}), got {k}")
    log_p = log_posterior(rows)
    log_ratio = log_p - log_priors
    balanced_ratio = log_posterior(balanced_rows) - log_priors
    balanced_p = balanced_ratio.softmax(-1)

    topk = macro_topk = None
    if k == int(k):
        topk = _mean(log_p.topk(int(k)).values.exp().sum(-1))
        macro_topk = _mean(balanced_p.topk(int(k)).values.sum(-1))

    cut, sizes = _cut(log_p, k)
    right = (log_p.exp() * (log_p >= cut)).sum(-1)
    average_k = _mean(right - math.exp(cut) * (sizes - sizes.mean()))

    cut, sizes = _cut(log_ratio, k)
    right = (balanced_p * (balanced_ratio >= cut)).sum(-1)
    of_sizes = math.exp(cut) / num_classes * _mean(sizes).standard_error
    value, error = _mean(right)
    return BayesAccuracy(k, topk, average_k, macro_topk, Estimate(value, math.hypot(error, of_sizes)))


def _mean(values: Tensor) -> Estimate:
    return Estimate(float(values.mean()), float(values.std()) / len(values) ** 0.5)


def _cut(scores: Tensor, k: float) -> tuple[float, Tensor]:
    """Return the threshold that keeps ``k`` entries per row on average, and how many it keeps in each row."""
    kept = scores.flatten().topk(min(round(k * len(scores)), scores.numel())).values
    cut = float(kept[-1])
    return cut, (scores >= cut).double().sum(-1)
