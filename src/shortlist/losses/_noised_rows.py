"""The gap of the noised top-k losses: the noisy k-th score minus the true one."""

import torch
from torch import Tensor

from shortlist.ops.expected_topk import expected_topk
from shortlist.ops.perturbed_topk import NUM_NODES, TOLERANCE, noisy_places
from shortlist.ops.row_operator import row_operator

__all__ = ["perturbed_gap"]


def perturbed_gap(
    scores: Tensor,
    target: Tensor,
    *,
    k: int,
    noise_std: float,
    num_samples: int | None,
    noise: Tensor | None,
    generator: torch.Generator | None,
) -> Tensor:
    """Compute :func:`shortlist.ops.perturbed_topk` minus the target's score (n,).

    Sampled or exact, one gradient is filled, not two.
    """
    scores, places = noisy_places(
        scores, k=k, noise_std=noise_std, num_samples=num_samples, noise=noise, generator=generator
    )
    if places is None:
        return _operator(scores, target, k, noise_std)
    index, drawn = places
    draws = index.shape[1]
    both = scores.gather(1, torch.cat([index, target[:, None]], dim=1))
    share = scores.new_full((draws + 1,), 1 / draws)
    share[-1] = -1.0
    return (both * share).sum(1) + drawn.mean(1)  # a product of matrices would be rounded under autocast


def _expected_gap(
    scores: Tensor, target: Tensor, k: int, noise_std: float, needs_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Return the expected k-th score minus the target's (n,), and the gradient (n, c)."""
    value, gradient = expected_topk(scores, k, noise_std, TOLERANCE, NUM_NODES, needs_gradient)
    index = target[:, None]
    if needs_gradient:
        gradient.scatter_add_(1, index, gradient.new_full(index.shape, -1.0))
    return value - scores.gather(1, index).squeeze(1), gradient


_operator = row_operator("expected_gap", _expected_gap, called="noised_topk_loss with num_samples=None")
