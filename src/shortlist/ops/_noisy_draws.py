"""Find the class that comes k-th in each of several draws of the noise."""

import torch
from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.ops.selection import kth_largest_index

# Noisy scores held at a time, so many that they fit the cache, or 64 MB of an accelerator in float32; beyond,
# the draws are made in turns.
_NUMBERS_AT_ONCE, _NUMBERS_OF_DEVICE = 1 << 18, 1 << 24


def kth_of_given(scores: Tensor, k: int, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the class that comes k-th (m, n) when noise (m, n, c) is added, and its noise."""
    index = kth_largest_index(scores + noise, k)
    return index, noise.gather(-1, index[..., None]).squeeze(-1)


def kth_of_draws(
    scores: Tensor, k: int, noise_std: float, num_samples: int, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Return the class that comes k-th in each fresh draw (m, n), and its noise; every class is drawn."""
    at_once = num_samples
    if not torch.compiler.is_compiling():
        numbers = _NUMBERS_AT_ONCE if can_read_values(scores) else _NUMBERS_OF_DEVICE
        at_once = max(1, numbers // max(1, scores.numel()))
    parts = []
    for done in range(0, num_samples, at_once):
        shape = (min(at_once, num_samples - done), *scores.shape)
        noise = scores.new_empty(shape).normal_(generator=generator)
        parts.append(kth_of_given(scores, k, noise.mul_(noise_std)))
    if len(parts) == 1:
        return parts[0]
    index, noise = (torch.cat(part) for part in zip(*parts, strict=True))
    return index, noise
