"""Top-k hinge loss (Lapin, Hein, Schiele, NeurIPS 2015)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_k, check_number
from shortlist.losses._contract import Reduction, class_loss, lead_over, options_of
from shortlist.losses._list_loss import ListLoss
from shortlist.ops import kth_largest_index, largest, perturbed_topk


def topk_hinge_loss(
    logits: Float[Tensor, "n c"],
    target: Tensor,
    *,
    k: int = 5,
    margin: float = 1.0,
    noise_std: float = 0.0,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Compute the hinge of the gap between the k-th largest *other* score and the true score.

    .. math:: \ell(s, y) = \max(0,\; m + \mathrm{top}_k(s_{\setminus y}) - s_y)

    Zero iff the true score is among the first k by the margin. ``k=1`` is the multi-class hinge of Crammer
    and Singer. One class of each row has a gradient besides the true one, too few for a deep net; see
    ``noised_topk_loss`` for a cure.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        k: Size of the short list, ``1 <= k < c``.
        margin: By how much the true score must lead. Scores scale with it: leave it at 1 unless they are
            bounded.
        noise_std: Standard deviation of Gaussian noise on the other scores. The k-th largest is replaced by
            its expectation, which is computed exactly and has a gradient in all classes near it. Only for
            class indices; 0 is the plain hinge.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target are ignored.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.5, 0.0]])
        >>> topk_hinge_loss(scores, torch.tensor([1]), k=2)  # 1 + 2.5 - 1
        tensor(2.5000)

    References:
        M. Lapin, M. Hein, B. Schiele, "Top-k Multiclass SVM", NeurIPS 2015, equation 3.
    """
    _check_options(k, margin, noise_std, logits.shape[-1])

    def smooth_row_loss(logits: Tensor, target: Tensor) -> Tensor:
        index = target[:, None]
        others = logits.scatter(1, index, -torch.inf)
        other = perturbed_topk(others, k=k, noise_std=noise_std, num_samples=None)
        return lead_over(logits.gather(1, index).squeeze(1), margin + other).clamp_min(0)

    def row_loss(logits: Tensor, target: Tensor) -> Tensor:
        index = target[:, None]
        others = kth_largest_index(logits.detach().scatter(1, index, -torch.inf), k)
        other, true = logits.gather(1, torch.stack([others, target], dim=1)).unbind(1)
        other = torch.where(others == target, -torch.inf, other)  # fewer than k others are left
        return lead_over(true, margin + other).clamp_min(0)

    def class_losses(logits: Tensor, share: Tensor) -> Tensor:
        top = largest(logits, k + 1)[0]
        # without a class, the k-th of the others is the next one down if the class stood before it
        other = torch.where(logits >= top[:, k - 1, None], top[:, k, None], top[:, k - 1, None])
        other = torch.where(top[:, :1].isnan(), top[:, :1], other)
        return lead_over(logits, margin + other).clamp_min(0)

    losses = (smooth_row_loss, None) if noise_std > 0 else (row_loss, class_losses)
    return class_loss(logits, target, *losses, weight, ignore_index, reduction)


def _check_options(k: int, margin: float, noise_std: float, num_classes: int | None = None) -> None:
    check_k(k, num_classes)
    check_number("margin", margin)
    check_number("noise_std", noise_std, low=0.0)


class TopKHingeLoss(ListLoss):
    """Module of :func:`topk_hinge_loss`."""

    check = staticmethod(_check_options)

    @options_of(topk_hinge_loss)
    def __init__(self, **options: Any) -> None: ...
