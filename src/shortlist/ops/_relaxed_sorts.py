"""The first k relaxed ranks (n, k, c) in closed form or by transport: NeuralSort, SoftSort, SinkhornSort."""

import torch
from torch import Tensor

from shortlist.ops._transport import transport_ranks
from shortlist.ops.selection import largest

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
    """Compute the entropic transport from the squashed scores to evenly spaced ranks (Cuturi 2019)."""
    return transport_ranks(_squash(scores, masked), k, 1 / temperature)
