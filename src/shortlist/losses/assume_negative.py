"""Assume-negative loss: every class except the observed one is taken as a negative."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from shortlist._bounds import check_choice
from shortlist._checks import check_number, check_scores
from shortlist.losses._contract import (
    ClassLoss,
    Normalization,
    Reduction,
    ScoreMeaning,
    class_loss,
    options_of,
)


def assume_negative_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    negative_weight: float | None = None,
    label_smoothing: float = 0.0,
    normalization: Normalization = "paper",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute binary cross-entropy of each class on its own, with unobserved classes as negatives.

    .. math:: \ell(z, y) = -\log \sigma(z_y) - \frac{1}{c-1} \sum_{j \ne y} \log(1 - \sigma(z_j))

    ``negative_weight=1`` gives the plain sum over negatives in place of their mean, which with c = 2 is the
    same. A baseline for sets of k classes on average; nothing to sweep.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        negative_weight: Weight of each negative, ``1 / (c - 1)`` if not given.
        label_smoothing: Share in [0, 0.5) by which each label, 0 or 1, is moved towards the other.
        normalization: ``"paper"``, or ``"original"`` for the authors' code: a mean over n c entries, with
            -log(x + 1e-5) for each -log(x).
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target are ignored.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> assume_negative_loss(torch.zeros(1, 4), torch.tensor([0]))  # 2 log 2
        tensor(1.3863)

    References:
        E. Cole, O. Mac Aodha, T. Lorieul, P. Perona, D. Morris, N. Jojic, "Multi-Label Learning from Single
        Positive Labels", CVPR 2021, equations 4 and 5.
    """
    _check_options(negative_weight, label_smoothing, normalization)
    check_scores(logits)
    c = logits.shape[1]
    each = 1 / max(1, c - 1) if negative_weight is None else negative_weight
    original = c if normalization == "original" else None
    positive = partial(_positive_loss, label_smoothing=label_smoothing, original_classes=original)
    negative = partial(_negative_loss, each=each, label_smoothing=label_smoothing, original_classes=original)

    # Of a sum over the other classes the own term is left out rather than taken off again, which would leave
    # the rounding error of the largest.
    def row_loss(logits: Tensor, target: Tensor) -> Tensor:
        index = target[:, None]
        return negative(logits).scatter_(1, index, positive(logits.gather(1, index))).sum(1)

    def class_losses(logits: Tensor, share: Tensor) -> Tensor:
        terms = negative(logits)
        largest = terms.argmax(1, keepdim=True)
        rest = terms.scatter(1, largest, 0)
        others = terms.sum(1, keepdim=True) - terms
        others = others.scatter(1, largest, rest.sum(1, keepdim=True))
        return others + positive(logits)

    return class_loss(logits, target, row_loss, class_losses, weight, ignore_index, reduction)


def _positive_loss(logits: Tensor, *, label_smoothing: float, original_classes: int | None) -> Tensor:
    """Compute the loss of each class as the positive."""
    yes = _minus_log_no(-logits, original_classes)
    if not label_smoothing:
        return yes
    return (1 - label_smoothing) * yes + label_smoothing * _minus_log_no(logits, original_classes)


def _negative_loss(
    logits: Tensor, *, each: float, label_smoothing: float, original_classes: int | None
) -> Tensor:
    """Compute the loss of each class as a negative with this weight; it is 0 for a class that is masked."""
    if not label_smoothing:
        return each * _minus_log_no(logits, original_classes)
    masked = logits.isneginf()
    logits = torch.where(masked, 0, logits)
    no, yes = _minus_log_no(logits, original_classes), _minus_log_no(-logits, original_classes)
    return torch.where(masked, 0, each * ((1 - label_smoothing) * no + label_smoothing * yes))


def _minus_log_no(logits: Tensor, original_classes: int | None) -> Tensor:
    """Compute -log(1 - sigma), or with a number of classes what the authors' code has in its place."""
    if original_classes is None:
        return softplus(logits)
    return -torch.log(torch.sigmoid(-logits) + 1e-5) / original_classes


def _check_options(negative_weight: float | None, label_smoothing: float, normalization: str) -> None:
    check_choice("normalization", normalization, ("paper", "original"))
    if negative_weight is not None:
        check_number("negative_weight", negative_weight, low=0.0)
    check_number("label_smoothing", label_smoothing, low=0.0, below=0.5)


class AssumeNegativeLoss(ClassLoss):
    """Module of :func:`assume_negative_loss`."""

    check = staticmethod(_check_options)
    meaning = ScoreMeaning(sigmoid=True)

    @options_of(assume_negative_loss)
    def __init__(self, **options: Any) -> None: ...
