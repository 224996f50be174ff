"""The first k relaxed ranks (n, k, c) in closed form or by transport: NeuralSort, SoftSort, SinkhornSort."""

import torch
from torch import Tensor

from shortlist.ops.selection import largest

__all__ = ["neuralsort", "sinkhornsort", "softsort"]

_SINKHORN_STEPS = 20
_SINKHORN_ANCHORS = 32
_SPREAD_FLOOR = 0.01  # keeps the gradient bounded where scores tie


def neuralsort(scores: Tensor, k: int, temperature: float, masked: Tensor) -> Tensor:
    """Compute softmax(((c + 1 - 2r) s - A 1) / temperature) for rank r, A_ij = |s_i - s_j| (Grover 2019).

    Up to a constant of the row the argument is ``-(2r - 1) s_j - 2 sum_{i: s_i > s_j} (s_i - s_j)``, whose
    sum comes from one sort and a running sum, in O(c log c), with no large numbers that cancel.
    """
    c = scores.shape[-1]
    scores = scores - scores.amax(-1, keepdim=True)
    descending, order = scores.sort(dim=-1, descending=True)
    place = torch.arange(c, dtype=scores.dtype, device=scores.device)
    above = (descending.cumsum(-1) - descending) - place * descending
    above = torch.empty_like(above).scatter(-1, order, above)
    factor = 1 + 2 * torch.arange(k, dtype=scores.dtype, device=scores.device)[:, None]
    return ((-factor * scores[:, None] - 2 * above[:, None]) / temperature).softmax(-1)


def softsort(scores: Tensor, k: int, temperature: float, masked: Tensor) -> Tensor:
    """Compute softmax(-|s_(r) - s| / temperature) for rank r (Prillo and Eisenschlos, 2020)."""
    top = largest(scores, k)[0]
    return (-(top[:, :, None] - scores[:, None]).abs() / temperature).softmax(-1)


def _squash(scores: Tensor, masked: Tensor) -> Tensor:
    """Standardize scores, apply a sigmoid and stretch to [0, 1]; masked scores become -1."""
    counted = (~masked).to(scores.dtype)
    count = counted.sum(-1, keepdim=True).clamp_min(1)
    centered = (scores - (scores * counted).sum(-1, keepdim=True) / count) * counted
    spread = (centered.square().sum(-1, keepdim=True) / count + _SPREAD_FLOOR**2).sqrt()
    bent = torch.sigmoid(centered / spread)
    low = bent.masked_fill(masked, torch.inf).amin(-1, keepdim=True)
    high = bent.masked_fill(masked, -torch.inf).amax(-1, keepdim=True)
    return ((bent - low) / (high - low + _SPREAD_FLOOR)).masked_fill(masked, -1)


def sinkhornsort(scores: Tensor, k: int, temperature: float, masked: Tensor) -> Tensor:
    """Compute the entropic transport from the squashed scores to evenly spaced ranks (Cuturi et al., 2019).

    By Sinkhorn's steps in the log domain. The ranks below the first k need not be told apart: from 32 anchors
    on they share anchors that take several classes each, so that nothing of size c x c is built. Up to 32
    classes every rank has its own.
    """
    c = scores.shape[-1]
    squashed = _squash(scores, masked)
    ranks = torch.arange(c, dtype=scores.dtype, device=scores.device)
    groups = max(1, min(c - k, _SINKHORN_ANCHORS - k)) if c > k else 0
    shared = list(ranks[k:].tensor_split(groups)) if groups else []
    anchor = torch.stack([*ranks[:k], *(group.mean() for group in shared)])
    mass = torch.ones_like(anchor)
    for place, group in enumerate(shared, k):
        mass[place] = len(group)
    log_mass = mass.log()
    position = 1 - anchor / max(1, c - 1)
    log_kernel = -(squashed[:, None] - position[:, None]).square() / temperature  # (n, anchors, c)
    to_class = torch.zeros_like(scores)
    to_rank = log_mass - (log_kernel + to_class[:, None]).logsumexp(-1)
    for _ in range(_SINKHORN_STEPS):
        to_class = -(log_kernel + to_rank[:, :, None]).logsumexp(1)
        to_rank = log_mass - (log_kernel + to_class[:, None]).logsumexp(-1)
    return (log_kernel[:, :k] + to_rank[:, :k, None] + to_class[:, None]).exp()
