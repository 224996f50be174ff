"""Find the class that comes k-th in each of several noisy draws, without drawing noise that cannot matter.

Where scores differ by much more than the noise, only the classes near the k-th place are drawn. Where they
differ by less, only the upper end of the noise can bring a class among the first k: which classes draw from
it is decided by geometric jumps over the classes, at a cost that does not grow with their number. Otherwise
every class is drawn. All ways have the same distribution.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

import shortlist.ops._noisy_draws as general
from shortlist.ops.expected_topk import leave_out, tail_quantile
from shortlist.ops.selection import kth_largest

# Drawing only the upper end pays while it is at most this share of the noise.
_LARGEST_SHARE = 0.15
# Chance that the upper end is not enough for a draw, which is then completed.
_TOO_FEW = 1e-4


def kth_of_draws(
    scores: Tensor,
    k: int,
    noise_std: float,
    num_samples: int,
    generator: torch.Generator | None,
    tolerance: float,
) -> tuple[Tensor, Tensor]:
    """Return the class that comes k-th in each fresh draw (m, n), and its noise."""
    if not scores.numel():
        return general.kth_of_draws(scores, k, noise_std, num_samples, generator)
    share = _upper_share(scores, k, noise_std)
    if share <= _LARGEST_SHARE:
        return _draw_upper(scores, k, noise_std, num_samples, generator, share)
    near, where = leave_out(scores, kth_largest_at_least(scores, k), k, noise_std, tolerance)
    index, noise = general.kth_of_draws(near, k, noise_std, num_samples, generator)
    return (index if where is None else where.gather(1, index.T).T), noise


def kth_largest_at_least(scores: Tensor, k: int) -> Tensor:
    """Return a cheap lower bound of the k-th largest score (n, 1): the k-th largest maximum of a group."""
    c = scores.shape[1]
    size = 10 if c >= 40 * k else 4
    groups = c // size
    if groups < 4 * k:
        return kth_largest(scores, k)[:, None]
    maxima = scores[:, : size * groups].unflatten(1, (size, groups)).amax(1)
    return maxima.topk(k, dim=1).values[:, -1:]


@lru_cache(maxsize=256)
def _enough(k: int, chance: float) -> float:
    """Return an expected count so high that fewer than k happen with less than the given chance.

    By Chernoff's bound a sum of independent indicators of mean m stays at a < m with chance at most
    exp(a - m) (m / a)^a.
    """
    low, high, most = float(k - 1), 8.0 * k - 8.0 * math.log(chance), k - 1
    for _ in range(60):
        mean = (low + high) / 2
        log_bound = most - mean + (most * math.log(mean / most) if most else 0.0)
        low, high = (low, mean) if log_bound < math.log(chance) else (mean, high)
    return high


def _upper_share(scores: Tensor, k: int, noise_std: float) -> float:
    """Return a share p of the noise's upper end that is almost surely enough to find the first k.

    A class that draws from below the share has noise under z = tail_quantile(p), and stays under the cap, the
    row's largest score plus z. The cap is set where a class of mean score exceeds it with chance q / c. As
    the tail of the noise is convex, all classes together then exceed it at least q times in the mean, and q
    is such that fewer than k times is rarer than `_TOO_FEW`. NaN and -inf give a share that is not used.
    """
    c = scores.shape[1]
    enough = _enough(k, _TOO_FEW) / c
    if enough >= _LARGEST_SHARE:
        return 1.0
    lead = float((scores.amax(1) - scores.mean(1)).max()) / noise_std
    z = tail_quantile(enough) - lead
    return 0.5 * math.erfc(z / math.sqrt(2)) if math.isfinite(z) else 1.0


def _draw_upper(
    scores: Tensor,
    k: int,
    noise_std: float,
    num_samples: int,
    generator: torch.Generator | None,
    share: float,
) -> tuple[Tensor, Tensor]:
    """Do what :func:`kth_of_draws` does, but draw only the noise that is in the upper share."""
    n, c = scores.shape
    expected = share * c
    slots = min(c, math.ceil(expected + 6 * math.sqrt(expected) + 6))

    def uniform(*shape: int) -> Tensor:  # in (0, 1]
        return 1 - torch.rand(*shape, generator=generator, dtype=scores.dtype)

    gaps = uniform(num_samples, n, slots).log_().div_(math.log1p(-share)).floor_().add_(1)
    place = gaps.cumsum(-1).sub_(1)
    inside = place < c
    index = torch.where(inside, place, 0).long()
    noise = torch.special.ndtri(uniform(num_samples, n, slots).mul_(share)).mul_(-noise_std)
    noisy = (
        scores.gather(1, index.transpose(0, 1).flatten(1)).view(n, num_samples, slots).transpose(0, 1) + noise
    )
    values, order = noisy.masked_fill_(~inside, -torch.inf).topk(k, dim=-1)
    chosen = order[..., -1:]
    kth, kth_noise = index.gather(-1, chosen).squeeze(-1), noise.gather(-1, chosen).squeeze(-1)
    cap = scores.amax(1) + noise_std * tail_quantile(share)
    # Where a class of the lower part may be among the first k, or the slots ran out, the rest is drawn too.
    draw, row = ((values[..., -1] < cap) | inside[..., -1]).nonzero(as_tuple=True)
    if draw.numel():
        upper = torch.where(inside[draw, row], place[draw, row], c).long()
        kth[draw, row], kth_noise[draw, row] = _complete(
            scores[row], k, noise_std, share, upper, noise[draw, row], uniform(len(row), c)
        )
    return kth, kth_noise


def _complete(
    scores: Tensor,
    k: int,
    noise_std: float,
    share: float,
    upper: Tensor,
    upper_noise: Tensor,
    uniform: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return noise (r, c): classes ``upper`` (r, slots; c for none) keep theirs, others get lower draws."""
    c = scores.shape[1]
    reached = upper.where(upper < c, -1).amax(1, keepdim=True)
    full = (upper == c).any(1, keepdim=True)  # else the slots ran out: nothing is known of the classes behind
    is_certain = full | (torch.arange(c) <= reached)
    lowest = torch.where(is_certain, share, 0.0).to(scores.dtype)
    noise = torch.special.ndtri(lowest + (1 - lowest) * uniform).mul_(-noise_std)
    noise = torch.cat([noise, noise[:, :1]], dim=1).scatter(1, upper, upper_noise)[:, :c]
    index, kth_noise = general.kth_of_given(scores, k, noise[None])
    return index[0], kth_noise[0]
