"""Compute the rows of the ranked top-k loss, from a distribution over k and relaxed ranks."""

from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax

from shortlist._checks import can_read_values
from shortlist.losses._ranked_column import column_and_gradient, relaxed_column
from shortlist.ops import NETWORKS, is_masked, relaxed_topk, with_gradient

Top1 = Literal["softmax", "softmax_ce", "sort"]

# As in the original, a chance x enters the logarithm as x * _KEEP + _GUARD.
_GUARD = 1e-7
_KEEP = 1 - 2e-7


def with_rank_weights(chances: Tensor, top1: Top1, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cast the chances of k, (K,) or (n, K), to the type of the scores; compute the weights of the ranks."""
    if chances.ndim == 1 and can_read_values(chances):
        return _known_rank_weights(tuple(chances.tolist()), top1, like.dtype, like.device)
    chances = chances.to(like)
    return chances, _rank_weights(chances, top1)


@lru_cache(maxsize=32)
def _known_rank_weights(
    chances: tuple[float, ...], top1: Top1, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the rank weights of a distribution, and keep them for the next step."""
    with torch.inference_mode(False):  # what is made there could not be used in training
        made = torch.tensor(chances, dtype=dtype, device=device)
        return made, _rank_weights(made, top1)


def ranked_rows(
    logits: Tensor,
    target: Tensor | None,
    chances: Tensor,
    weights: Tensor,
    top1: Top1,
    ranks: dict[str, Any],
) -> Tensor:
    """Compute the loss (n,) of the target, or (n, c) of each class as the target.

    Chances and weights are those of :func:`with_rank_weights`.
    """
    by_network = ranks["method"] in NETWORKS and (chances.shape[-1] > 1 or top1 == "sort")
    if target is not None and by_network and _is_plain(logits):
        rows, gradient = _by_network(logits, target, chances, weights, top1, ranks)
        return with_gradient(logits, rows, gradient, called="ranked_topk_loss")
    if top1 == "sort":
        return -_guarded_log(_within(logits, weights, ranks, target))
    all_classes = target is None
    plain = -log_softmax(logits, -1) if all_classes else cross_entropy(logits, target, reduction="none")
    if chances.shape[-1] == 1:
        return plain
    first = chances[..., :1] if all_classes else chances[..., 0]
    within = _within(logits, weights, ranks, target)
    if top1 == "softmax":
        return -_guarded_log(first * torch.exp(-plain) + within)
    return first * plain - (1 - first) * _guarded_log(within)


def _is_plain(logits: Tensor) -> bool:
    """Tell whether there is a gradient to compute, nothing to trace, and no class that is masked."""
    return logits.requires_grad and can_read_values(logits) and not is_masked(logits).any()


def _within(logits: Tensor, weights: Tensor, ranks: dict, target: Tensor | None) -> Tensor:
    if target is None:
        return relaxed_topk(logits, k=weights.shape[-1], rank_weights=weights, **ranks)
    return relaxed_column(logits, target, rank_weights=weights, **ranks)


def _rank_weights(chances: Tensor, top1: Top1) -> Tensor:
    """Weigh rank r by the chance that k >= r; k = 1 counts only if the softmax does not treat it."""
    at_least = chances.flip(-1).cumsum(-1).flip(-1)
    if top1 != "sort" and chances.shape[-1] > 1:
        at_least[..., 0] = at_least[..., 1]
    return at_least


def _guarded_log(chance: Tensor) -> Tensor:
    return torch.log(chance * _KEEP + _GUARD)


@torch.no_grad()
def _by_network(
    logits: Tensor, target: Tensor, chances: Tensor, weights: Tensor, top1: Top1, ranks: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """Compute the rows for a target by a network, with their gradient (n, c); no class may be masked.

    The operations are so small that differentiating them one by one takes as long as the network.
    """
    options = ranks["method"], ranks["comparator"], ranks["steepness"], ranks["art_lambda"]
    within, gradient = column_and_gradient(logits, target, weights, *options, needs_gradient=True)
    index, first = target[:, None], chances[..., 0].expand(len(target))
    log_share = log_softmax(logits, -1)
    log_true = log_share.gather(1, index)[:, 0]
    of_plain = log_share.exp_().scatter_add_(1, index, logits.new_full(index.shape, -1.0))
    in_sum = torch.exp(log_true) * first if top1 == "softmax" else torch.zeros_like(log_true)
    kept = within.add_(in_sum).mul_(_KEEP).add_(_GUARD)
    rows, slope = -kept.log(), -_KEEP / kept
    factor = -in_sum * slope
    if top1 == "softmax_ce":
        rows, slope, factor = torch.lerp(rows, -log_true, first), (1 - first) * slope, first
    return rows, gradient.mul_(slope[:, None]).addcmul_(of_plain, factor[:, None])
