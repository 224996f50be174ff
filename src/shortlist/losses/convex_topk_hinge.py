"""Convex top-k hinge loss (Lapin, Hein, Schiele, NeurIPS 2015)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import check_k, check_number
from shortlist.losses._contract import Reduction, class_loss, lead_over, options_of
from shortlist.losses._list_loss import ListLoss
from shortlist.ops import largest, perturbed_topk_sum


def convex_topk_hinge_loss(
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
    r"""Compute the hinge of the mean of the k largest scores, with a margin added to all but the true one.

    .. math:: \ell(s, y) = \max\Bigl(0,\; \tfrac1k \sum_{i \le k} \mathrm{top}_i(s + m - m\,1_y) - s_y\Bigr)

    A convex upper bound of the top-k error. ``k=1`` is the multi-class hinge, as for ``topk_hinge_loss``. k
    classes of each row have a gradient.

    Args:
        logits: Scores (n, c).
        target: Class indices (n,), or class probabilities (n, c) over which the loss is averaged.
        k: Size of the short list, ``1 <= k < c``.
        margin: Number that is added to the scores of the other classes. Leave it at 1 unless the scores are
            bounded.
        noise_std: Standard deviation of Gaussian noise on the raised scores. The sum of the k largest is
            replaced by its expectation, which is computed exactly, stays convex and has a gradient in all
            classes near the first k. Only for class indices; 0 is the plain hinge.
        weight: Weight of each class (c,), as in ``cross_entropy``.
        ignore_index: Rows with this target are ignored.
        reduction: ``"mean"`` (weighted), ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or (n,) with ``reduction="none"``.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.5, 0.0]])
        >>> convex_topk_hinge_loss(scores, torch.tensor([1]), k=2)  # (4 + 3.5) / 2 - 1
        tensor(2.7500)

    References:
        M. Lapin, M. Hein, B. Schiele, "Top-k Multiclass SVM", NeurIPS 2015, equation 5.
    """
    _check_options(k, margin, noise_std, logits.shape[-1])

    def smooth_row_loss(logits: Tensor, target: Tensor) -> Tensor:
        index = target[:, None]
        raised = logits + margin * torch.ones_like(logits).scatter(1, index, 0.0)
        total = perturbed_topk_sum(raised, k=k, noise_std=noise_std)
        return lead_over(logits.gather(1, index).squeeze(1), total / k).clamp_min(0)

    def row_loss(logits: Tensor, target: Tensor) -> Tensor:
        raised = logits.detach() + margin
        raised.scatter_add_(1, target[:, None], raised.new_full((len(target), 1), -margin))
        values, index = largest(raised, k)
        both = logits.gather(1, torch.cat([index, target[:, None]], dim=1))
        gain = margin * (index != target[:, None]).to(logits.dtype)
        mean = (both[:, :k] + gain).mean(1)
        mean = torch.where(values[:, 0].isnan(), values[:, 0], mean)
        return lead_over(both[:, k], mean).clamp_min(0)

    def class_losses(logits: Tensor, share: Tensor) -> Tensor:
        finite = logits.clamp_min(torch.finfo(logits.dtype).min / (4 * k))  # sums of k are finite too
        raised = finite + margin
        top = largest(raised, k + 1)[0]
        # a class among the first k falls back by the margin, at most to the place of the next one
        fallen = torch.maximum(finite, top[:, k:])
        total = top[:, :k].sum(1, keepdim=True)
        total = torch.where(raised >= top[:, k - 1 : k], total - raised + fallen, total)
        return (total / k - logits).clamp_min(0)

    losses = (smooth_row_loss, None) if noise_std > 0 else (row_loss, class_losses)
    return class_loss(logits, target, *losses, weight, ignore_index, reduction)


def _check_options(k: int, margin: float, noise_std: float, num_classes: int | None = None) -> None:
    check_k(k, num_classes)
    check_number("margin", margin, low=0.0)
    check_number("noise_std", noise_std, low=0.0)


class ConvexTopKHingeLoss(ListLoss):
    """Module of :func:`convex_topk_hinge_loss`."""

    check = staticmethod(_check_options)

    @options_of(convex_topk_hinge_loss)
    def __init__(self, **options: Any) -> None: ...
