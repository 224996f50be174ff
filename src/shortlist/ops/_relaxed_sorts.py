"""The first k relaxed ranks (n, k, c) in closed form or by transport: NeuralSort, SoftSort, SinkhornSort."""

import torch
from torch import Tensor

from shortlist.ops._select import largest

__all__ = ["neuralsort", "sinkhornsort", "softsort"]

_SINKHORN_STEPS = 20
_SINKHORN_ANCHORS = 32


def neuralsort(scores: Tensor, k: int, temperature: float) -> Tensor:
    """Row r is softmax(((c + 1 - 2r) s - A 1) / temperature) with A_ij = |s_i - s_j| (Grover et al., 2019).

    The sums of distances come from one sort and running sums, in O(c log c).
    """
    c = scores.shape[-1]
    scores = scores - scores.amax(-1, keepdim=True)  # changes nothing but keeps digits
    ascending, order = scores.sort(dim=-1)
    total, running = ascending.sum(-1, keepdim=True), ascending.cumsum(-1)
    place = torch.arange(c, dtype=scores.dtype, device=scores.device)
    distances = (2 * place + 2 - c) * ascending - 2 * running + total
    distances = torch.empty_like(distances).scatter(-1, order, distances)
    factor = c - 1 - 2 * torch.arange(k, dtype=scores.dtype, device=scores.device)[:, None]
    return ((factor * scores[:, None] - distances[:, None]) / temperature).softmax(-1)


def softsort(scores: Tensor, k: int, temperature: float) -> Tensor:
    """Row r is softmax(-|s_(r) - s| / temperature) (Prillo and Eisenschlos, 2020)."""
    top = largest(scores, k)[0]
    return (-(top[:, :, None] - scores[:, None]).abs() / temperature).softmax(-1)


def sinkhornsort(scores: Tensor, k: int, temperature: float) -> Tensor:
    """Entropic transport from the squashed scores to evenly spaced ranks (Cuturi et al., 2019).

    By Sinkhorn's steps in the log domain. The ranks below the first k need not be told apart: from 32 anchors
    on they share anchors that take several classes each, so that nothing of size c x c is built. Up to 32
    classes every rank has its own.
    """
    c = scores.shape[-1]
    spread = scores.std(-1, keepdim=True, correction=0)
    squashed = torch.sigmoid((scores - scores.mean(-1, keepdim=True)) / spread.clamp_min(1e-12))
    ranks = torch.arange(c, dtype=scores.dtype, device=scores.device)
    groups = max(1, min(c - k, _SINKHORN_ANCHORS - k)) if c > k else 0
    shared = list(ranks[k:].tensor_split(groups)) if groups else []
    anchor = torch.stack([*ranks[:k], *(group.mean() for group in shared)])
    log_mass = anchor.new_tensor([1.0] * k + [float(len(group)) for group in shared]).log()
    position = 1 - anchor / max(1, c - 1)
    log_kernel = -(squashed[:, None] - position[:, None]).square() / temperature  # (n, anchors, c)
    to_class = torch.zeros_like(scores)
    to_rank = log_mass - (log_kernel + to_class[:, None]).logsumexp(-1)
    for _ in range(_SINKHORN_STEPS):
        to_class = -(log_kernel + to_rank[:, :, None]).logsumexp(1)
        to_rank = log_mass - (log_kernel + to_class[:, None]).logsumexp(-1)
    return (log_kernel[:, :k] + to_rank[:, :k, None] + to_class[:, None]).exp()
