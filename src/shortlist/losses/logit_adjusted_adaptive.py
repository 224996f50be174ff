"""Logit-adjusted cross-entropy with an adaptive margin."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from shortlist.losses._contract import CountedLoss, Reduction, Weighting, options_of
from shortlist.losses._margins import Margins, counts_of, margin_loss
from shortlist.priors import Counts, ZeroCounts

__all__ = ["LogitAdjustedAdaptiveLoss", "logit_adjusted_adaptive_loss"]


def logit_adjusted_adaptive_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    class_counts: Counts,
    zero_counts: ZeroCounts = "error",
    weighting: Weighting = "consistent",
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute cross-entropy with logit adjustment and the adaptive margin of LDAM together.

    .. math:: \ell(s, y) = \log \Bigl( 1 + \sum_{j \ne y} e^{\Delta_{yj} + s_j - s_y} \Bigr), \qquad
        \Delta_{yj} = \log \frac{\pi_j}{\pi_y} + \pi_y^{-1/4}

    Not consistent for the balanced error, but published ahead of both on iNaturalist 2018. With equal counts
    of c classes it is cross-entropy with one margin, :math:`c^{1/4}`. Nothing to sweep.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        class_counts: Number of training examples of each class (c,): a tensor, an array or a list.
        zero_counts: ``"error"`` or ``"floor"``, see :func:`shortlist.priors.class_priors`.
        weighting: With class weights w, ``"consistent"`` adds the margins ``log(w_j / w_y)`` of theorem 1, so
            that the weights do not change what the scores converge to; ``"plain"`` only weighs the rows.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target are ignored.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> scores, counts = torch.tensor([[0.0, 0.0]]), torch.tensor([1, 1])
        >>> target = torch.tensor([1])
        >>> logit_adjusted_adaptive_loss(scores, target, class_counts=counts)  # log(1 + exp(2 ** 0.25))
        tensor(1.4550)

    References:
        A. Menon, S. Jayasumana, A. Rawat, H. Jain, A. Veit, S. Kumar, "Long-tail learning via logit
        adjustment", ICLR 2021, equation 11 and section 5.
    """
    counts = counts_of(logits, class_counts, zero_counts)
    priors = counts / counts.sum()
    margins = Margins(on_all=priors.log(), on_true=priors.log() - priors.pow(-0.25))
    return margin_loss(
        logits, target, margins, weighting, weight=weight, ignore_index=ignore_index, reduction=reduction
    )


class LogitAdjustedAdaptiveLoss(CountedLoss):
    """Module of :func:`logit_adjusted_adaptive_loss`."""

    function = staticmethod(logit_adjusted_adaptive_loss)

    @options_of(logit_adjusted_adaptive_loss)
    def __init__(self, **options: Any) -> None:
        super().__init__(options)
