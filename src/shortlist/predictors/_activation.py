"""Turn a model's scores into the values that a predictor compares."""

from typing import Literal

import torch
from torch import Tensor
from torch.jit._trace import is_tracing
from torch.nn.functional import pad

from shortlist._bounds import check_choice
from shortlist._checks import can_read_values, check_priors, check_scores, promote

Activation = Literal["softmax", "sigmoid", "none"]
_ASSERTS = ("cuda", "meta")  # devices that check a condition without making the host wait


def check_activation(activation: str) -> None:
    """Require a known activation; none is ever guessed from values."""
    check_choice("activation", activation, ("softmax", "sigmoid", "none"))


def check_finite(scores: Tensor, *, first_row: int = 0) -> None:
    """Require scores (n, c) without NaN or +inf, and something above -inf in each row.

    ``-inf`` is allowed: it rules a class out. One pass over the scores; not done while compiling. The message
    counts rows from ``first_row`` on.

    On a GPU the host does not wait for the answer: CUDA checks when it gets there. Bad scores are then an
    error of a later call, without the number of the row, and end the process's use of the GPU, as a target
    out of range does in ``cross_entropy``. ``CUDA_LAUNCH_BLOCKING=1`` shows which call it was.
    """
    check_scores(scores, name="scores")
    if torch.compiler.is_compiling() or not scores.numel():
        return
    best = scores.amax(1)
    if scores.device.type in _ASSERTS and not is_tracing():
        told = "scores must be finite or -inf, with one finite score in each row"
        torch.ops.aten._assert_async.msg(best.isfinite().all(), told)
        return
    bad = ~best.isfinite()
    if bad.any():
        row = int(bad.nonzero()[0])
        raise ValueError(
            f"scores must be finite or -inf, with one finite score in each row; "
            f"row {first_row + row} has the maximum {float(best[row])} ({int(bad.sum())} such rows)"
        )


def check_not_negative(scores: Tensor) -> None:
    """Require values >= 0, for sums or ratios of scores that come without activation."""
    if can_read_values(scores) and scores.numel() and float(scores.detach().min()) < 0:
        raise ValueError(
            "scores must be probabilities in [0, 1] with activation='none', "
            f"got {float(scores.detach().min()):g}: for logits, use activation='softmax'"
        )


def class_values(
    scores: Tensor, activation: Activation, weights: Tensor | None = None, shift: Tensor | None = None
) -> Tensor:
    """Return probabilities (n, c) by the given activation, times the class weights (c,) if given.

    ``shift`` (c,), if there is one, is added to the scores first.
    """
    scores = promote(scores)
    if shift is not None:
        scores = scores + shift.to(scores.dtype)
    if activation == "softmax":
        scores = scores.softmax(1)
    elif activation == "sigmoid":
        scores = _sigmoid(scores)
    return scores if weights is None else scores * weights.to(scores.dtype)


def _sigmoid(scores: Tensor) -> Tensor:
    """Return the sigmoid of each score, the same number wherever it stands and whatever is beside it.

    On the CPU, PyTorch computes the last few numbers of a piece by another formula, and each of its threads
    takes a piece: here all pieces are full, and too short for several threads.
    """
    if not can_read_values(scores):
        return scores.sigmoid()
    flat = pad(scores.detach().reshape(-1), (0, -scores.numel() % 64))
    for piece in flat.split(2**14):
        piece.sigmoid_()
    return flat[: scores.numel()].view(scores.shape)


def prior_conversion(priors: Tensor | None, scores_priors: Tensor | None, activation: str) -> Tensor | None:
    """Return the offset (c,) that converts scores from their own priors to the priors of the rows."""
    if scores_priors is None:
        return None
    if priors is None:
        raise ValueError("scores_priors must be None where priors are, got a tensor")
    if activation != "softmax":
        raise ValueError(f"scores_priors are for activation='softmax', got {activation!r}")
    check_priors("scores_priors", scores_priors, num_classes=len(priors))
    shift = priors.double().log() - scores_priors.double().log()
    return shift.to(torch.float64 if scores_priors.dtype == torch.float64 else torch.float32)


def class_weights(priors: Tensor, tau: float) -> Tensor:
    """Return weights (c,) that turn probabilities into macro-optimal values, prior to the power -tau."""
    check_priors("priors", priors)
    # half precision ends at 65504, below the weight of a class that is one in a million
    weights = priors.double().pow(-tau).to(torch.float64 if priors.dtype == torch.float64 else torch.float32)
    if not bool(weights.float().isfinite().all()):  # whatever the priors' type, scores may be float32
        raise ValueError(f"tau must be small enough for priors ** -tau to be finite in float32, got {tau}")
    return weights
