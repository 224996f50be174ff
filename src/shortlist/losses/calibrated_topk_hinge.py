"""Top-k calibrated hinge loss (Yang and Koyejo, ICML 2020)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_k, check_number
from shortlist.losses._contract import Reduction, class_loss, lead_over, options_of
from shortlist.losses._list_loss import ListLoss
from shortlist.ops import kth_largest, kth_largest_index


def calibrated_topk_hinge_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    k: int = 5,
    margin: float = 1.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute the hinge of the gap between the (k+1)-th largest of all scores and the true score.

    .. math:: \ell(s, y) = \max(0,\; m + \mathrm{top}_{k+1}(s) - s_y)

    Minimizing it minimizes the top-k error (it is top-k calibrated), but a deep net does not learn with it:
    the gradient reaches two classes only, and none where the true class is just the (k+1)-th.
    ``noised_topk_loss`` is this loss with the (k+1)-th score smoothed, which mends that; with ``noise_std=0``
    it is this loss.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        k: Size of the short list, ``1 <= k < c``.
        margin: By how much the true score must lead. Leave it at 1 unless the scores are bounded.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target are ignored.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.5, 0.0]])
        >>> calibrated_topk_hinge_loss(scores, torch.tensor([3]), k=2)  # 1 + 1 - 0
        tensor(2.)

    References:
        F. Yang, S. Koyejo, "On the consistency of top-k surrogate losses", ICML 2020, section 4.
    """
    _check_options(k, margin, logits.shape[-1])

    def row_loss(logits: Tensor, target: Tensor) -> Tensor:
        index = torch.stack([kth_largest_index(logits, k + 1), target], dim=1)
        other, true = logits.gather(1, index).unbind(1)
        return lead_over(true, margin + other).clamp_min(0)

    def class_losses(logits: Tensor, share: Tensor) -> Tensor:
        return lead_over(logits, margin + kth_largest(logits, k + 1)[:, None]).clamp_min(0)

    return class_loss(logits, target, row_loss, class_losses, weight, ignore_index, reduction)


def _check_options(k: int, margin: float, num_classes: int | None = None) -> None:
    check_k(k, num_classes)
    check_number("margin", margin)


class CalibratedTopKHingeLoss(ListLoss):
    """Module of :func:`calibrated_topk_hinge_loss`."""

    check = staticmethod(_check_options)

    @options_of(calibrated_topk_hinge_loss)
    def __init__(self, **options: Any) -> None: ...
