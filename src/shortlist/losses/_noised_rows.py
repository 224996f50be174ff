"""The gap of the noised top-k losses: the noisy k-th score minus the true one."""

import warnings
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.losses._contract import lead_over
from shortlist.ops import NUM_NODES, TOLERANCE, expected_topk, noisy_places, row_operator


@lru_cache(maxsize=256)
def _expected_normal(k: int, num_classes: int) -> float:
    """Return the expectation of the k-th largest of as many standard normal variables."""
    with torch.inference_mode(False):
        equal = torch.zeros(1, num_classes, dtype=torch.float64)
        return float(expected_topk(equal, k, 1.0, TOLERANCE, NUM_NODES, False)[0])


def warn_if_flat(*, k: int, num_classes: int, noise_std: float, margin: float | Tensor) -> None:
    """Warn where the loss is 0, with no gradient, for all classes of a network whose scores are equal."""
    if torch.compiler.is_compiling() or noise_std == 0 or 2 * (k + 1) <= num_classes + 1:
        return  # the expected (k+1)-th is not below the others
    if isinstance(margin, Tensor):
        if not can_read_values(margin) or not margin.numel():
            return
        margin = float(margin.max())
    shift = _expected_normal(k + 1, num_classes)
    if margin > 0 and margin + noise_std * shift <= 0:
        warnings.warn(
            f"noise_std={noise_std:g} leaves no gradient where scores are equal: with k={k} of {num_classes} "
            f"classes and a margin of {margin:g}, it must be < {-margin / shift:.3g}",
            stacklevel=3,
        )


def perturbed_gap(scores: Tensor, target: Tensor, *, k: int, noise_std: float, **draws: Any) -> Tensor:
    """Compute :func:`shortlist.ops.perturbed_topk` minus the target's score (n,).

    Sampled or exact, one gradient is filled, not two.
    """
    scores, places = noisy_places(scores, k=k, noise_std=noise_std, **draws)
    if places is None:
        return _operator(scores, target, k, noise_std)
    index, drawn = places
    both = scores.gather(1, torch.cat([index, target[:, None]], dim=1))
    other, true = both.split([index.shape[1], 1], dim=1)
    return lead_over(true.squeeze(1), other.mean(1)) + drawn.mean(1)


def _expected_gap(
    scores: Tensor, target: Tensor, k: int, noise_std: float, needs_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Return the expected k-th score minus the target's (n,), and the gradient (n, c)."""
    value, gradient = expected_topk(scores, k, noise_std, TOLERANCE, NUM_NODES, needs_gradient)
    index = target[:, None]
    if needs_gradient:
        gradient.scatter_add_(1, index, gradient.new_full(index.shape, -1.0))
    return lead_over(scores.gather(1, index).squeeze(1), value), gradient


_operator = row_operator("expected_gap", _expected_gap, called="noised_topk_loss with num_samples=None")
