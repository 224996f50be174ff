"""The sum of the k largest scores under Gaussian noise, without sampling, and its gradient: a soft mask."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._checks import (
    check_count,
    check_k,
    check_number,
    check_scores,
    promote,
    refuse_second_derivative,
    refuse_transforms,
)
from shortlist.ops._counting import CountTree, slab_points
from shortlist.ops.expected_topk import integration_range, leave_out, stay_below, tail_quantile
from shortlist.ops.perturbed_topk import NUM_NODES, TOLERANCE
from shortlist.ops.row_operator import row_operator
from shortlist.ops.selection import largest

_SCALE = math.sqrt(0.5)
_DENSITY = 1 / math.sqrt(2 * math.pi)
_FAR = 9.0  # gaps beyond this have density 0 in what is added up
_STEP = 1e-25  # its square is 0 beside anything: a complex number with it is a value and a derivative


def perturbed_topk_sum(
    scores: Float[Tensor, "n c"],
    *,
    k: int,
    noise_std: float,
    tolerance: float = TOLERANCE,
    num_nodes: int = NUM_NODES,
) -> Float[Tensor, " n"]:
    r"""Compute the mean of the sum of the k largest scores when Gaussian noise is added, exactly.

    .. math::
        \mathrm{top}\Sigma_{k,\varepsilon}(s) = \mathbb{E}\, \mathrm{top}\Sigma_k(s + \varepsilon Z),
        \qquad Z \sim N(0, I_c)

    It is convex, and its gradient is :func:`perturbed_topk_mask`, the chance of each class to be among the
    first k. The difference between k and k - 1 is :func:`shortlist.ops.perturbed_topk`.

    Args:
        scores: Scores (n, c); ``-inf`` leaves a class out.
        k: How many of the largest are added up, ``1 <= k <= c``.
        noise_std: Standard deviation of the noise, > 0.
        tolerance: Probability that may be neglected.
        num_nodes: Number of integration nodes. At the defaults the value is within ``1e-4 * noise_std``.

    Returns:
        A tensor (n,): ``-inf`` where fewer than k scores are finite, NaN where a score is NaN.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> perturbed_topk_sum(torch.zeros(1, 2), k=1, noise_std=1.0)  # 1 / sqrt(pi)
        tensor([0.5642])

    References:
        C. Garcin, M. Servajean, A. Joly, J. Salmon, "Stochastic smoothing of the top-K calibrated hinge loss
        for deep imbalanced classification", ICML 2022, Definition 3.2 and Proposition 3.3.
    """
    return _sum(_checked(scores, k, noise_std, tolerance, num_nodes), k, noise_std, tolerance, num_nodes)


def perturbed_topk_mask(
    scores: Float[Tensor, "n c"],
    *,
    k: int,
    noise_std: float,
    tolerance: float = TOLERANCE,
    num_nodes: int = NUM_NODES,
) -> Float[Tensor, "n c"]:
    r"""Compute the chance of each class to be among the k largest when Gaussian noise is added, exactly.

    .. math:: \Pr(s_j + \varepsilon Z_j \text{ is among the } k \text{ largest}), \qquad Z \sim N(0, I_c)

    A soft mask of the k largest: entries in [0, 1] that add up to k, smooth in the scores, and the hard mask
    as the noise goes to 0. For nearest neighbors, recommendation or sparse attention: multiply by it what the
    k largest would select. It is the gradient of :func:`perturbed_topk_sum`; its own derivative is exact too.

    Args:
        scores: Scores (n, c); ``-inf`` leaves a class out.
        k: How many are selected, ``1 <= k <= c``.
        noise_std: Standard deviation of the noise, > 0: how far around the k-th score the mask is soft.
        tolerance: Probability that may be neglected.
        num_nodes: Number of integration nodes. At the defaults each row is within 1e-4 of the chances, in the
            sum of absolute differences; 64 nodes at ``tolerance=1e-13`` give 5 digits in float64. Measured by
            ``tests/ops/test_perturbed_topk_sum.py``.

    Returns:
        Chances (n, c); 0 where fewer than k scores are finite.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> scores = torch.tensor([[2.0, 1.0, 1.0, -9.0]])
        >>> perturbed_topk_mask(scores, k=2, noise_std=0.1).round(decimals=4)  # the second place is even
        tensor([[1.0000, 0.5000, 0.5000, 0.0000]])
    """
    scores = _checked(scores, k, noise_std, tolerance, num_nodes)
    refuse_transforms("perturbed_topk_mask", scores)
    return _mask(scores, k, noise_std, tolerance, num_nodes)


def _checked(scores: Tensor, k: int, noise_std: float, tolerance: float, num_nodes: int) -> Tensor:
    check_scores(scores, name="scores")
    check_k(k, scores.shape[-1], up_to=True)
    check_number("noise_std", noise_std, above=0.0)
    check_number("tolerance", tolerance, above=0.0, below=0.5)
    check_count("num_nodes", num_nodes)
    return promote(scores)


def _sum_and_mask(
    scores: Tensor,
    k: int,
    noise_std: float,
    tolerance: float,
    num_nodes: int,
    needs_gradient: bool,
    direction: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return value (n,) and mask (n, c), or with a direction (n, c) the mask's derivative along it.

    Beyond the range that holds the k-th largest, less than k classes exceed a level t; the sum of their
    excesses there has a closed form, as has what the equidistant nodes miss where the range ends.
    """
    c = scores.shape[1]
    kth = largest(scores, k)[0][:, -1:]
    near, index = leave_out(scores, kth, k, noise_std, tolerance)
    empty = torch.isneginf(kth)
    units = (near - torch.where(empty, torch.zeros_like(kth), kth)) / noise_std
    along = None
    if direction is not None:
        along = (direction if index is None else direction.gather(1, index)) / noise_std
        along = torch.where(torch.isneginf(units), torch.zeros_like(along), along)
    low, high = -tail_quantile(tolerance / k), tail_quantile(tolerance / (c - k + 1))
    start, stop = integration_range(units, k, low, high, tolerance)
    value, mask = scores.new_empty(len(scores)), torch.zeros_like(units)
    rows_at_once = max(1, slab_points(units.shape[1]) // num_nodes)
    for first in range(0, len(scores), rows_at_once):
        rows = slice(first, first + rows_at_once)
        moved = None if along is None else along[rows]
        value[rows], mask[rows] = _block(units[rows], start[rows], stop[rows], k, num_nodes, moved)
    value = torch.where(empty[:, 0], kth[:, 0], k * kth[:, 0] + noise_std * value)
    if not needs_gradient:
        return value, scores.new_empty(0, c)
    mask = mask.masked_fill(empty | torch.isneginf(units), 0)
    return value, mask if index is None else torch.zeros_like(scores).scatter_add_(1, index, mask)


def _block(
    units: Tensor, start: Tensor, stop: Tensor, k: int, num_nodes: int, along: Tensor | None
) -> tuple[Tensor, Tensor]:
    m = units.shape[1]
    step = (stop - start) / num_nodes
    nodes = start + step * (torch.arange(num_nodes, dtype=units.dtype, device=units.device) + 0.5)
    gap = (nodes - units.T[:, :, None]).clamp(-_FAR, _FAR)  # (m, rows, nodes)
    below = stay_below(_SCALE * gap)
    density = _DENSITY * torch.exp(-0.5 * gap.square())
    end = (stop - units).clamp(-_FAR, _FAR)
    end_density = _DENSITY * torch.exp(-0.5 * end.square())
    above_end = 1 - stay_below(_SCALE * end)
    if along is not None:
        moved = along.T[:, :, None] * _STEP
        below, density = torch.complex(below, -density * moved), torch.complex(density, gap * density * moved)
    tree = CountTree(below, m, k, nodes.numel())
    tree.factors[0] = below.reshape(m, -1)
    if k > 1:
        tree.factors[1] = 1 - tree.factors[0]
    chance = tree.multiply()
    at_most = tree.gradient(torch.ones_like(chance), part=0).reshape(gap.shape)  # k - 1 of the others exceed
    inner = (density * at_most).sum(-1).T * (step if along is None else step / _STEP)
    # of equidistant nodes, what is missing where the range ends; then what lies beyond it
    correction = step.square() / 24
    if along is not None:
        beyond = end_density + correction * (end.square() - 1) * end_density * -1.0
        return nodes[:, 0], inner.imag + along * beyond
    mask = inner - correction * end * end_density + above_end
    missing = (torch.arange(k, 0, -1, dtype=units.dtype, device=units.device)[:, None] * chance).sum(0)
    value = k * start[:, 0] + step[:, 0] * (k - missing.view_as(nodes)).sum(-1)
    finite = torch.where(torch.isneginf(units), torch.zeros_like(units), units - stop)
    tail = (end_density + finite * above_end - correction * end_density).sum(-1)
    return value + tail, mask


_sum = row_operator("perturbed_topk_sum", _sum_and_mask, called="perturbed_topk_sum")


# Opaque to torch.compile, which would unroll the product tree.


@torch.library.custom_op("shortlist::perturbed_topk_mask", mutates_args=())
def _mask(scores: Tensor, k: int, noise_std: float, tolerance: float, num_nodes: int) -> Tensor:
    return _sum_and_mask(scores, k, noise_std, tolerance, num_nodes, True)[1].clone()


@torch.library.custom_op("shortlist::perturbed_topk_mask_gradient", mutates_args=())
def _mask_gradient(
    upstream: Tensor, scores: Tensor, k: int, noise_std: float, tolerance: float, num_nodes: int
) -> Tensor:
    """Return the gradient (n, c): the second derivative of the sum is symmetric."""
    return _sum_and_mask(scores, k, noise_std, tolerance, num_nodes, True, upstream)[1].clone()


@_mask.register_fake
def _(scores: Tensor, *options: Any) -> Tensor:
    return torch.empty_like(scores)


@_mask_gradient.register_fake
def _(upstream: Tensor, scores: Tensor, *options: Any) -> Tensor:
    return torch.empty_like(scores)


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    scores, *ctx.options = inputs
    ctx.save_for_backward(scores)


def _backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    refuse_second_derivative("perturbed_topk_mask")
    return _mask_gradient(upstream, *ctx.saved_tensors, *ctx.options), None, None, None, None


_mask.register_autograd(_backward, setup_context=_setup_context)
