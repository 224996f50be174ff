"""Calibration error, the distance between confidence and accuracy of the first guess, and Brier score."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import can_read_values, check_count, check_scores, check_target, promote
from shortlist.metrics.ranks import Ties, topk_hits, true_ranks

Activation = Literal["softmax", "sigmoid", "none"]
"""How scores become probabilities."""
ACTIVATIONS = ("softmax", "sigmoid", "none")


class CalibrationSums(NamedTuple):
    """The rows, right first guesses and sum of confidences of each bin, and the number of rows left out."""

    counts: Tensor
    correct: Tensor
    confidence: Tensor
    nan_rows: Tensor


def top_confidence(scores: Float[Tensor, "n c"], *, activation: Activation) -> Float[Tensor, " n"]:
    """Return the largest probability of each row (n,), float64; NaN if the row has a NaN.

    Example:
        >>> top_confidence(torch.tensor([[0.0, 0.0]]), activation="softmax")
        tensor([0.5000], dtype=torch.float64)
    """
    check_choice("activation", activation, ACTIVATIONS)
    scores = promote(scores)
    top = scores.amax(1)
    if activation == "softmax":
        return (top - scores.logsumexp(1)).double().exp()
    top = top.double().sigmoid() if activation == "sigmoid" else top.double()
    if activation == "none" and can_read_values(scores):
        outside = (scores < 0) | (scores > 1)
        if outside.any():
            value = float(scores[outside][0])
            raise ValueError(f"scores must be probabilities in [0, 1] with activation='none', got {value}")
    return top


@torch.no_grad()
def calibration_sums(
    scores: Float[Tensor, "n c"],
    target: Tensor,
    *,
    activation: Activation = "softmax",
    bins: int = 15,
    ties: Ties = "against",
    ignore_index: int = -100,
) -> CalibrationSums:
    """Compute the sums for the calibration error; see :func:`calibration_error` for the arguments."""
    check_count("bins", bins)
    check_scores(scores, name="scores")
    ranks = true_ranks(scores, target, ties=ties, ignore_index=ignore_index)
    confidence = top_confidence(scores, activation=activation)
    return sums_of_bins(confidence, topk_hits(ranks, [1], ties=ties)[:, 0], ranks.counted, bins)


def sums_of_bins(confidence: Tensor, correct: Tensor, counted: Tensor, bins: int) -> CalibrationSums:
    """Compute the sums of each bin from confidences (n,), which may be NaN, and right first guesses (n,)."""
    has_confidence = ~confidence.isnan()
    rows = counted & has_confidence
    confidence = torch.where(rows, confidence, 0.0)
    index = (confidence * bins).long().clamp(0, bins - 1)
    zeros = confidence.new_zeros(bins)
    return CalibrationSums(
        rows.new_zeros(bins, dtype=torch.int64).index_add_(0, index, rows.long()),
        zeros.index_add(0, index, (correct * rows).double()),
        zeros.index_add(0, index, confidence),
        (counted & ~has_confidence).sum(),
    )


def error_of_bins(counts: Tensor, correct: Tensor, confidence: Tensor) -> Float[Tensor, ""]:
    """Compute the expected calibration error from the sums of each bin.

    Example:
        >>> error_of_bins(torch.tensor([2, 2]), torch.tensor([1.0, 2.0]), torch.tensor([0.4, 1.8]))
        tensor(0.2000, dtype=torch.float64)
    """
    return (correct.double() - confidence.double()).abs().sum() / counts.sum()


def calibration_error(
    scores: Float[Tensor, "n c"],
    target: Tensor,
    *,
    activation: Activation = "softmax",
    bins: int = 15,
    ties: Ties = "against",
    ignore_index: int = -100,
) -> Float[Tensor, ""]:
    """Compute the expected calibration error: the mean distance between confidence and accuracy.

    The rows are put into bins of equal width by the confidence of their first guess; each bin counts by its
    rows. Bin b of B holds confidences in [b/B, (b+1)/B), the last one 1 as well.

    Args:
        scores: Scores (n, c), from which the activation makes probabilities.
        target: Class indices (n,).
        activation: ``"softmax"``, ``"sigmoid"``, or ``"none"`` if the scores are probabilities already.
        bins: Number of bins.
        ties: Whether a first guess that ties with the true class is right, see :func:`topk_accuracy`.
        ignore_index: Rows with this target are ignored.

    Returns:
        A float64 scalar. Rows with a NaN have no confidence and are left out.

    Example:
        >>> probs = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7]])
        >>> calibration_error(probs, torch.tensor([0, 1, 1]), activation="none", bins=2)  # |2.4 - 2| / 3
        tensor(0.1333, dtype=torch.float64)
    """
    sums = calibration_sums(
        scores, target, activation=activation, bins=bins, ties=ties, ignore_index=ignore_index
    )
    return error_of_bins(sums.counts, sums.correct, sums.confidence)


def brier_of_rows(
    scores: Float[Tensor, "n c"], target: Tensor, *, activation: Activation = "softmax"
) -> Float[Tensor, " n"]:
    """Return the Brier score of each row (n,), float64; NaN if the row has a NaN, and with sigmoids."""
    check_choice("activation", activation, ACTIVATIONS)
    if activation == "sigmoid":
        return torch.full_like(target, torch.nan, dtype=torch.float64)
    probs = promote(scores).softmax(1) if activation == "softmax" else promote(scores)
    true = probs.gather(1, target[:, None])[:, 0].double()
    return probs.square().sum(1, dtype=torch.float64) - 2 * true + 1


@torch.no_grad()
def brier_score(
    scores: Float[Tensor, "n c"],
    target: Tensor,
    *,
    activation: Activation = "softmax",
    ignore_index: int = -100,
) -> Float[Tensor, ""]:
    r"""Compute the Brier score, the mean of :math:`\sum_j (p_j - [j = y])^2`: from 0 to 2, smaller is better.

    Args:
        scores: Scores (n, c), from which the activation makes probabilities.
        target: Class indices (n,).
        activation: ``"softmax"``, or ``"none"`` if the scores are probabilities already.
        ignore_index: Rows with this target are ignored.

    Returns:
        A float64 scalar. Rows with a NaN are left out; NaN if no row is left, and for ``"sigmoid"``.

    Example:
        >>> probs = torch.tensor([[0.75, 0.25], [0.5, 0.5]])
        >>> brier_score(probs, torch.tensor([0, 1]), activation="none")  # (0.125 + 0.5) / 2
        tensor(0.3125, dtype=torch.float64)
    """
    check_scores(scores, name="scores")
    check_target(target, scores, ignore_index=ignore_index)
    ignored = target == ignore_index
    rows = brier_of_rows(scores, target.masked_fill(ignored, 0), activation=activation)
    return rows.masked_fill(ignored, torch.nan).nanmean()
