"""Entropic transport from points on a line to ranks, to a tolerance, with the gradient of its fixed point.

Points x_j (c of them, mass 1 each) go to anchors at positions t_a with masses m_a. At steepness s the plan is

    P_aj = softmax over a of (phi_a + 2 s t_a x_j),    with phi such that    sum_j P_aj = m_a  for each a:

what -s (t_a - x_j)^2 has beyond this depends on a or on j alone. So points are always given away to the last
digit, and the few potentials phi are found by Newton's method. They maximize sum_a m_a phi_a minus the sum of
the columns' logsumexp, whose second derivative is minus the Laplacian of the graph with weights sum_j P_aj
P_bj. The start is the solution without entropy, which on a line is known: boundaries halfway between sorted
points. A damping that shrinks after each step that helped makes it safe; 4 to 10 steps are enough.

The gradient is that of the solution, not of the steps. With upstream W, and lambda the solution of
(Laplacian) lambda = sum_j P_aj (W_aj - sum_b W_bj P_bj), it is that of a softmax with upstream W - lambda.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist._checks import can_read_values, is_transformed, refuse_second_derivative
from shortlist._precision import wide_type

_ANCHORS = 32
_TOLERANCE = 1e-10  # of the mass at each anchor, as a part of it; what rounding leaves at large steepness:
_ROUNDING = 1e-13  # times the steepness
_MAX_STEPS = 24
_FIRST_DAMPING, _LEAST_DAMPING, _DAMPING_FACTOR = 1e-3, 1e-15, 8.0
_SLAB = 1 << 20  # numbers of the plan held at a time


def transport_ranks(points: Tensor, k: int, steepness: float) -> Tensor:
    """Return the first k rows (n, k, c) of the plan from points (n, c) in [0, 1] to ranks, largest first.

    Ranks below the first k need not be told apart: beyond 32 anchors they share anchors that take several
    points each, so that nothing of size c x c is built. Up to 32 points every rank has its own.
    """
    if is_transformed(points):
        return _Transformed.apply(points, k, steepness)[0]
    return _ranks(points, k, steepness)[0]


class _Anchors(NamedTuple):
    """Where ranks are, from the first at 1 to the last near 0; a rank may be shared."""

    position: Tensor
    mass: Tensor
    ends: Tensor  # how many points the anchors up to each take together, without the last anchor


@lru_cache(maxsize=32)
def _anchors(c: int, k: int, dtype: torch.dtype, device: torch.device) -> _Anchors:
    """Make the anchors of c points, and keep them for the next step."""
    with torch.inference_mode(False):  # what is made there could not be used in training
        ranks = torch.arange(c, dtype=dtype)
        shared = list(ranks[k:].tensor_split(max(1, min(c, _ANCHORS) - k))) if c > k else []
        place = torch.stack([*ranks[:k], *(group.mean() for group in shared)])
        mass = torch.tensor([1.0] * k + [float(len(group)) for group in shared], dtype=dtype)
        ends = mass.cumsum(0)[:-1].long()
        return _Anchors((1 - place / max(1, c - 1)).to(device), mass.to(device), ends.to(device))


def _anchors_for(working: Tensor, k: int) -> _Anchors:
    return _anchors(working.shape[1], k, working.dtype, working.device)


def _plan(points: Tensor, potentials: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Return the plan (n, anchors, c), whose columns add up to 1, and the points' potentials (n, c)."""
    exponent = torch.baddbmm(potentials[:, :, None], slope.expand(len(points), 1, -1).mT, points[:, None])
    level = exponent.logsumexp(1)
    return exponent.sub_(level[:, None]).exp_(), level


def _laplacian(plan: Tensor, mass: Tensor, damping: Tensor | float) -> Tensor:
    """Return the Laplacian (n, anchors, anchors), made regular: it says nothing of a common constant.

    Its diagonal is summed from the weights, so that weak ties between groups of anchors keep their digits.
    """
    weights = plan @ plan.mT
    diagonal = weights.diagonal(dim1=1, dim2=2)
    before = diagonal.clone()
    diagonal.zero_()
    diagonal.sub_(weights.sum(-1) + damping * (weights.sum(-1) + before))
    return torch.addcmul(-weights, mass[:, None], mass, value=1 / float(plan.shape[2]))


def _solve(matrix: Tensor, right: Tensor) -> Tensor:
    """Solve for symmetric positive definite matrices; no check, which would wait for a device."""
    return torch.cholesky_solve(right[:, :, None], torch.linalg.cholesky_ex(matrix)[0])[:, :, 0]


def _start(points: Tensor, slope: Tensor, anchors: _Anchors) -> Tensor:
    """Return potentials (n, anchors) of the transport without entropy, and of the masses alone."""
    falling = points.sort(dim=-1, descending=True)[0]
    boundary = (falling[:, anchors.ends - 1] + falling[:, anchors.ends]) / 2
    steps = (boundary * (slope[:-1] - slope[1:])).cumsum(1)
    return torch.cat([torch.zeros_like(points[:, :1]), steps], 1) + anchors.mass.log()


def _potentials(points: Tensor, anchors: _Anchors, steepness: float) -> Tensor:
    """Return the potentials (n, anchors) at which every anchor gets its mass, up to the tolerance."""
    slope, mass = 2 * steepness * anchors.position, anchors.mass
    potentials = _start(points, slope, anchors)
    damping = points.new_full((len(points), 1), _FIRST_DAMPING)
    plan, level = _plan(points, potentials, slope)
    gain, excess = potentials @ mass - level.sum(1), plan.sum(-1) - mass
    tolerance = max(_TOLERANCE, _ROUNDING * steepness)
    for _ in range(_MAX_STEPS):
        off = (excess.abs() / mass).amax(1)
        if can_read_values(off) and bool((off <= tolerance).all()):
            break
        following = potentials - _solve(_laplacian(plan, mass, damping), excess)
        next_plan, level = _plan(points, following, slope)
        next_gain, next_excess = following @ mass - level.sum(1), next_plan.sum(-1) - mass
        # close to the solution the gain is all rounding, but what is in excess still falls
        better = ((next_gain > gain) | ((next_excess.abs() / mass).amax(1) < off))[:, None]
        damping = torch.where(better, damping / _DAMPING_FACTOR, damping * _DAMPING_FACTOR)
        damping = damping.clamp_min(_LEAST_DAMPING)
        potentials, excess = (
            torch.where(better, following, potentials),
            torch.where(better, next_excess, excess),
        )
        plan = torch.where(better[:, :, None], next_plan, plan)
        gain = torch.where(better[:, 0], next_gain, gain)
    return potentials


def _slabs(points: Tensor) -> int:
    """Return how many rows to treat at a time."""
    return max(1, _SLAB // (_ANCHORS * max(1, points.shape[1])))


def _working(tensor: Tensor) -> Tensor:
    """Use float64, where the device has it: exponents reach the steepness, and lose its digits."""
    return tensor.to(wide_type(tensor))


# Opaque to torch.compile, which would unroll the steps.


@torch.library.custom_op("shortlist::transport_ranks", mutates_args=())
def _ranks(points: Tensor, k: int, steepness: float) -> tuple[Tensor, Tensor]:
    """Return the first k rows of the plan (n, k, c), and the potentials (n, anchors)."""
    working = _working(points)
    anchors = _anchors_for(working, k)
    ranks, potentials = points.new_empty(len(points), k, points.shape[1]), []
    for first in range(0, len(points), _slabs(points)):
        rows = slice(first, first + _slabs(points))
        potentials.append(_potentials(working[rows], anchors, steepness))
        ranks[rows] = _plan(working[rows], potentials[-1], 2 * steepness * anchors.position)[0][:, :k]
    return ranks, torch.cat(potentials) if potentials else working.new_empty(0, len(anchors.mass))


@torch.library.custom_op("shortlist::transport_ranks_gradient", mutates_args=())
def _ranks_gradient(upstream: Tensor, points: Tensor, potentials: Tensor, steepness: float) -> Tensor:
    """Return the gradient (n, c) in the points, from that in the ranks (n, k, c)."""
    working, k = _working(points), upstream.shape[1]
    position, mass, _ = _anchors_for(working, k)
    gradient = torch.empty_like(points)
    for first in range(0, len(points), _slabs(points)):
        rows = slice(first, first + _slabs(points))
        plan, _ = _plan(working[rows], potentials[rows], 2 * steepness * position)
        weighted = torch.zeros_like(plan)
        weighted[:, :k] = plan[:, :k] * upstream[rows].to(plan.dtype)
        direct = (weighted - plan * weighted.sum(1, keepdim=True)).sum(-1)
        shift = _solve(_laplacian(plan, mass, _LEAST_DAMPING), direct)
        weighted -= plan * shift[:, :, None]
        weighted -= plan * weighted.sum(1, keepdim=True)
        gradient[rows] = 2 * steepness * (position[:, None] * weighted).sum(1)
    return gradient


@_ranks.register_fake
def _(points: Tensor, k: int, steepness: float) -> tuple[Tensor, Tensor]:
    n, c = points.shape
    num_anchors = k if c == k else max(k + 1, min(c, _ANCHORS))
    return points.new_empty(n, k, c), _working(points).new_empty(n, num_anchors)


@_ranks_gradient.register_fake
def _(upstream: Tensor, points: Tensor, potentials: Tensor, steepness: float) -> Tensor:
    return torch.empty_like(points)


def _setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    points, _, ctx.steepness = inputs
    ctx.save_for_backward(points, output[1])


def _backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
    refuse_second_derivative("relaxed_topk with method='sinkhorn'")
    return _ranks_gradient(upstream, *ctx.saved_tensors, ctx.steepness), None, None


_ranks.register_autograd(_backward, setup_context=_setup_context)


class _Transformed(torch.autograd.Function):
    """The same under the transforms of ``torch.func``, which do not take operators of ``torch.library``."""

    @staticmethod
    def forward(points: Tensor, k: int, steepness: float) -> tuple[Tensor, Tensor]:
        return _ranks(points, k, steepness)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        _setup_context(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _TransformedGradient.apply(gradients[0], *ctx.saved_tensors, ctx.steepness), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        points = inputs[0].movedim(in_dims[0], 0)
        ranks, potentials = _Transformed.apply(points.flatten(0, 1), *inputs[1:])
        shape = points.shape[:2]
        return (ranks.unflatten(0, shape), potentials.unflatten(0, shape)), (0, 0)


class _TransformedGradient(torch.autograd.Function):
    @staticmethod
    def forward(upstream: Tensor, points: Tensor, potentials: Tensor, steepness: float) -> Tensor:
        return _ranks_gradient(upstream, points, potentials, steepness)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        raise RuntimeError("relaxed_topk with method='sinkhorn' has no second derivative")

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *inputs: Any) -> tuple[Tensor, int]:
        size = info.batch_size
        tensors = [
            each.expand(size, *each.shape) if dim is None else each.movedim(dim, 0)
            for each, dim in zip(inputs[:3], in_dims[:3], strict=True)
        ]
        flat = _TransformedGradient.apply(*(each.flatten(0, 1) for each in tensors), inputs[3])
        return flat.unflatten(0, tensors[1].shape[:2]), 0
