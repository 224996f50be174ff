"""Assume-negative loss: every class but the observed one is taken as a negative."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from shortlist._checks import check_choice, check_number, check_scores
from shortlist.losses._contract import ClassLoss, Normalisation, Reduction, ScoreMeaning, class_loss

__all__ = ["AssumeNegativeLoss", "assume_negative_loss"]


def assume_negative_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    negative_weight: float | None = None,
    label_smoothing: float = 0.0,
    normalisation: Normalisation = "paper",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Binary cross-entropy of each class on its own, the unobserved ones taken as negatives.

    .. math:: \ell(z, y) = -\log \sigma(z_y) - \frac{1}{c-1} \sum_{j \ne y} \log(1 - \sigma(z_j))

    ``negative_weight=1`` gives the plain sum over negatives in place of their mean, which with c = 2 is the
    same. A baseline for sets of k classes on average; nothing to sweep.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c), of which the mean loss is taken.
        negative_weight: Weight of each negative, ``1 / (c - 1)`` if not given.
        label_smoothing: Share in [0, 0.5) by which each label, 0 or 1, is moved towards the other.
        normalisation: ``"paper"``, or ``"original"`` for the authors' code: a mean over n c entries, with
            -log(x + 1e-5) for each -log(x).
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target count for nothing.
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
    _check_options(negative_weight, label_smoothing, normalisation)
    check_scores(logits)
    c = logits.shape[1]
    each = 1 / max(1, c - 1) if negative_weight is None else negative_weight
    keep, move = 1 - label_smoothing, label_smoothing

    def minus_log_no(logits: Tensor) -> Tensor:
        """-log(1 - sigma); -log(sigma) is that of minus the scores."""
        if normalisation == "original":
            return -torch.log(torch.sigmoid(-logits) + 1e-5) / c
        return softplus(logits)

    def positive(logits: Tensor) -> Tensor:
        """What a class adds as the positive."""
        yes = minus_log_no(-logits)
        return keep * yes + move * minus_log_no(logits) if move else yes

    def negative(logits: Tensor) -> Tensor:
        """What a class adds as a negative; nothing if it is masked."""
        if not move:
            return each * minus_log_no(logits)
        masked = logits.isneginf()
        logits = torch.where(masked, 0, logits)
        terms = keep * minus_log_no(logits) + move * minus_log_no(-logits)
        return torch.where(masked, 0, each * terms)

    # Of a sum over the other classes the own term is left out rather than taken off again, which would leave
    # the rounding error of the largest.
    def of_target(logits: Tensor, target: Tensor) -> Tensor:
        index = target[:, None]
        return negative(logits).scatter_(1, index, positive(logits.gather(1, index))).sum(1)

    def of_all(logits: Tensor, share: Tensor) -> Tensor:
        terms = negative(logits)
        largest = terms.argmax(1, keepdim=True)
        rest = terms.scatter(1, largest, 0)
        others = terms.sum(1, keepdim=True) - terms
        others = others.scatter(1, largest, rest.sum(1, keepdim=True))
        return others + positive(logits)

    return class_loss(
        logits,
        target,
        of_target=of_target,
        of_all=of_all,
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
    )


def _check_options(negative_weight: float | None, label_smoothing: float, normalisation: str) -> None:
    check_choice("normalisation", normalisation, ("paper", "original"))
    if negative_weight is not None:
        check_number("negative_weight", negative_weight, low=0.0)
    check_number("label_smoothing", label_smoothing, low=0.0)
    if label_smoothing >= 0.5:
        raise ValueError(f"label_smoothing must be < 0.5, got {label_smoothing!r}")


class AssumeNegativeLoss(ClassLoss):
    """Module of :func:`assume_negative_loss`."""

    def __init__(
        self,
        *,
        negative_weight: float | None = None,
        label_smoothing: float = 0.0,
        normalisation: Normalisation = "paper",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        _check_options(negative_weight, label_smoothing, normalisation)
        self.normalisation: Normalisation = normalisation
        self.negative_weight, self.label_smoothing = negative_weight, label_smoothing

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """See :func:`assume_negative_loss`."""
        return assume_negative_loss(
            logits,
            target,
            negative_weight=self.negative_weight,
            label_smoothing=self.label_smoothing,
            normalisation=self.normalisation,
            **self.common,
        )

    def score_meaning(self) -> ScoreMeaning:
        """A sigmoid of its own for each class."""
        return ScoreMeaning(sigmoid=True)
