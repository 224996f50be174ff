"""Compute the expectation of the k-th largest noisy score, without sampling.

In units of the noise, with the k-th score at 0, ``X_j = u_j + Z_j``. The k-th largest exceeds t when at least
k of the independent events ``X_j > t`` happen, so with levels low < high between which it almost surely lies

    E X_(k) = low + integral over (low, high) of P(at least k of the X_j exceed t) dt.

The integrand is analytic and flat at both ends, where equidistant nodes converge faster than any power of the
step. Its derivative in u_j is phi(t - u_j) P(exactly k - 1 of the others exceed t), integrated by the same
nodes.
"""

import math
from functools import lru_cache
from statistics import NormalDist

import torch
from torch import Tensor

from shortlist.ops._counting import CountTree, slab_points
from shortlist.ops.selection import largest, pack_above

_BISECTIONS = 5
_BLOCKS = 2
_TILTS = (1.0, 2.5, 6.0)
_SCALE = math.sqrt(0.5)  # gaps are scaled by it: erf and the density exp(-gap^2) then need no factor
_FAR = 6.5  # a scaled gap whose density, 4e-19, is taken as 0; further out there are slow denormal numbers


@lru_cache(maxsize=256)
def tail_quantile(chance: float) -> float:
    """Return the z that a standard normal variable exceeds with the given chance."""
    return -NormalDist().inv_cdf(max(chance, 1e-300))


def stay_below(scaled_gap: Tensor, out: Tensor | None = None) -> Tensor:
    """Return the chance that Z is below sqrt(2) times the scaled gap.

    By erf, whose results are 0 or 1 far out, where those of erfc would be denormal numbers, which are slow.
    """
    return torch.erf(scaled_gap, out=out).add_(1).mul_(0.5)


def integration_range(
    units: Tensor, k: int, low: float, high: float, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Return, per row (n, 1), a range that contains the k-th largest of units + Z up to the tolerance.

    By bisection on the level. With independent events of chances p_j, k or more happen with chance at most
    exp(-b k) prod(1 + p_j (exp(b) - 1)), and fewer with at most exp(b (k - 1)) prod(1 + p_j (exp(-b) - 1)),
    for any b > 0: the least over a few b is taken. Events that are certain cost nothing in it.
    """
    tilt = torch.stack(
        [units.new_full((), b) for b in _TILTS]
    )  # numbers copied to a device would wait for it
    factor = torch.stack([torch.expm1(-tilt), torch.expm1(tilt)])[:, :, None]  # (2, tilts, 1)
    shift = torch.stack([tilt * (k - 1), -tilt * k])
    units = units * _SCALE
    below, above = (units.new_full((units.shape[0], 2), end) for end in (low, high))
    for _ in range(_BISECTIONS):
        middle = (below + above) / 2
        chance = stay_below(units[:, None, :] - _SCALE * middle[:, :, None])  # to exceed, as Z is symmetric
        log_bound = ((chance[:, :, None] * factor).add_(1).log_().sum(-1) + shift).amin(-1)
        safe = log_bound < math.log(tolerance)
        up = torch.stack([safe[:, 0], ~safe[:, 1]], dim=1)  # a safe lower end may rise, a safe upper end fall
        below, above = torch.where(up, middle, below), torch.where(up, above, middle)
    return below[:, :1], above[:, 1:]


def expected_topk(
    scores: Tensor, k: int, noise_std: float, tolerance: float, num_nodes: int, needs_gradient: bool
) -> tuple[Tensor, Tensor]:
    """Return value (n,) and gradient (n, c) of E top_k(scores + noise_std Z), for noise_std > 0."""
    c = scores.shape[1]
    kth = largest(scores, k)[0][:, -1:]
    near, index = leave_out(scores, kth, k, noise_std, tolerance)
    empty = torch.isneginf(kth)  # fewer than k classes are left: the k-th largest is -inf, whatever the noise
    units = (near - torch.where(empty, torch.zeros_like(kth), kth)) / noise_std
    # All of the k largest exceed `low`, and none of the c - k + 1 others exceeds `high`, but for the
    # tolerance.
    low, high = -tail_quantile(tolerance / k), tail_quantile(tolerance / (c - k + 1))
    value, chance = _integrate(units, k, low, high, tolerance, num_nodes, needs_gradient, index is not None)
    value = torch.where(empty[:, 0], kth[:, 0], kth[:, 0] + noise_std * value)
    if not needs_gradient:
        return value, scores.new_empty(0, c)
    chance = torch.where(empty, torch.zeros_like(chance), chance)
    if index is None:
        return value, chance
    # Padding has chance 0 and points to class 0, so that adding it changes nothing.
    return value, torch.zeros_like(scores).scatter_add_(1, index, chance)


def leave_out(
    scores: Tensor, kth: Tensor, k: int, noise_std: float, tolerance: float
) -> tuple[Tensor, Tensor | None]:
    """Return the scores of the classes that can matter (n, m) and their indices (None if none was left out).

    A class at distance d below another overtakes it with chance P(Z > d / (sqrt 2 noise_std)), since the
    difference of two noises has variance 2. From the reach used here on, all classes below the k-th score (n,
    1), or a lower bound of it, together have less chance than the tolerance to come among the first k.
    """
    reach = math.sqrt(2) * noise_std * tail_quantile(tolerance / (scores.shape[1] * k))
    return pack_above(scores, kth - reach, at_least=k)


def _integrate(
    units: Tensor,
    k: int,
    low: float,
    high: float,
    tolerance: float,
    num_nodes: int,
    needs_gradient: bool,
    packed: bool,
) -> tuple[Tensor, Tensor]:
    """Return the mean of the k-th largest of units + Z (n,), and each unit's chance to be it (n, m)."""
    n, m = units.shape
    value, gradient = units.new_empty(n), torch.zeros_like(units) if needs_gradient else units
    block = max(1, min(n, slab_points(m) // num_nodes))
    order, width = torch.arange(n, device=units.device), [m] * n
    if packed:  # rows of like length together: less padding
        block = min(block, -(-n // _BLOCKS))
        lengths, order = (~torch.isneginf(units)).sum(1).clamp_min(k).sort()
        width = lengths.tolist()
    start, stop = integration_range(units, k, low, high, tolerance)
    tree = CountTree(units, m, k, block * num_nodes)
    for first in range(0, n, block):
        rows = order[first : first + block]
        columns = width[min(first + block, n) - 1]
        value[rows], chance = _integrate_block(
            units[rows, :columns], start[rows], stop[rows], num_nodes, tree, needs_gradient
        )
        if needs_gradient:
            gradient[rows, :columns] = chance
    return value, gradient


def _integrate_block(
    units: Tensor, start: Tensor, stop: Tensor, num_nodes: int, tree: CountTree, needs_gradient: bool
) -> tuple[Tensor, Tensor]:
    m = units.shape[1]
    step = (stop - start) / num_nodes
    nodes = start + step * (torch.arange(num_nodes, dtype=units.dtype, device=units.device) + 0.5)
    gap = _SCALE * nodes - (_SCALE * units).T.contiguous()[:, :, None]  # (m, rows, nodes)
    tree.reset(m, nodes.numel())
    stay_below(gap.view(m, -1), out=tree.factors[0])
    torch.sub(1, tree.factors[:1], out=tree.factors[1:])  # nothing to write where k = 1
    chance = tree.multiply()
    at_least = (1 - chance.sum(0)).view_as(nodes)
    value = start[:, 0] + step[:, 0] * at_least.sum(-1)
    if not needs_gradient:
        return value, units
    seed = torch.zeros_like(chance)
    seed[-1] = 1
    exactly = tree.gradient(seed, part=0).view_as(gap)  # P(exactly k - 1 of the others exceed the node)
    density = gap.clamp_(-_FAR, _FAR).square_().neg_().exp_().sub_(math.exp(-(_FAR**2)))
    density = density.mul_(exactly).sum(-1)
    return value, density.T * (step / math.sqrt(2 * math.pi))
