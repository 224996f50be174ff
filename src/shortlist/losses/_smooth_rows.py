"""Compute the rows of the smooth top-k loss, value and gradient in one pass."""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from shortlist.ops import ratio_and_gradient, row_operator


def smooth_topk_rows(scores: Tensor, target: Tensor, *, k: int, temperature: float, margin: float) -> Tensor:
    """Compute the smooth top-k loss (n,): ``T softplus(r + margin / T)`` at temperature T.

    r is :func:`shortlist.ops.log_esp_ratio` of ``(scores - the target's score) / (k T)`` of all classes but
    the target. Where the target's score is ``-inf`` the loss is ``inf``, where fewer than k others are left
    it is 0, both without a gradient.
    """
    return _operator(scores, target, k, temperature, margin)


def _rows(
    scores: Tensor, target: Tensor, k: int, temperature: float, margin: float, needs_gradient: bool
) -> tuple[Tensor, Tensor]:
    index, scale = target[:, None], 1 / (k * temperature)
    true = scores.gather(1, index)
    masked = true.isneginf()
    others = scores.sub(true.masked_fill_(masked, 0)).mul_(scale).scatter_(1, index, -torch.inf)
    ratio, gradient = ratio_and_gradient(others, k, needs_gradient)
    lead = ratio.add_(margin / temperature).masked_fill_(masked[:, 0], torch.inf)
    rows = logsigmoid(-lead).mul_(-temperature)
    if needs_gradient:
        # a common shift of the scores shifts the ratio: without the target's, its gradients add up to 1
        gradient.scatter_(1, index, -1.0).mul_((torch.sigmoid(lead) * (temperature * scale))[:, None])
        gradient.masked_fill_(lead[:, None].isinf(), 0)
    return rows, gradient


_operator = row_operator("smooth_topk", _rows, called="smooth_topk_loss")
