"""Relaxed ranks of one class in each row, by soft comparators on the wires of a network.

Where one class's chance is wanted, as in a loss, its column of the relaxed permutation matrix can be sent
through the network with the values: layer by layer, a comparator with the values x and y (steepness times the
scores) on its wires for the smaller and the larger moves ``w = F(x - y)`` of the difference across,

    step = w (state_x - state_y),    state_x -= step,    state_y += step,

where the state of a wire is its value and the chance that it holds the class. The chance of each rank is then
on the top wires. The derivative runs back once. Compared with the matrix of all classes
(:mod:`shortlist.ops._network_ranks`), this takes one sweep each way in place of four, over half the wires.

Value and gradient come from one pass; deep networks keep the state before each 48th layer, and compute what
is between again.
"""

import torch
from torch import Tensor

from shortlist._checks import refuse_second_derivative
from shortlist.ops._comparators import mix
from shortlist.ops._networks import pair_layers

__all__ = ["network_column"]

_STRETCH = 48

Layers = list[tuple[int, Tensor, Tensor]]
Kept = list[tuple[Tensor, Tensor, Tensor]]  # of each layer the differences of states, w and its derivative
Mix = tuple[str, float, float]  # the arguments of mix


def network_column(
    scores: Tensor,
    target: Tensor,
    weights: Tensor,
    *,
    network: str,
    comparator: str,
    steepness: float,
    art_lambda: float,
) -> Tensor:
    """Sum over ranks r of weights[..., r] P[r, target] of each row, (n,), for weights (k,) or (n, k)."""
    weights = weights.detach().to(scores.dtype)
    with_gradient = scores.requires_grad
    return _column(scores, target, weights, network, comparator, steepness, art_lambda, with_gradient)[0]


def _run(state: Tensor, layers: Layers, options: Mix, *, keep: bool) -> tuple[Tensor, Kept]:
    """The state (c, 2, n) after the layers; it is overwritten."""
    kept: Kept = []
    for pairs, on, _ in layers:
        low, high = state[:pairs], state[pairs : 2 * pairs]
        gap = low - high
        w, slope = mix(gap[:, :1], *options)
        step = gap * w
        low.sub_(step)
        high.add_(step)
        state = state.index_select(0, on)
        if keep:
            kept.append((gap, w, slope))
    return state, kept


def _run_back(gradient: Tensor, layers: Layers, kept: Kept) -> Tensor:
    """The gradient (c, 2, n) of the state before the layers, from that after them; uses up what was kept."""
    for pairs, _, back in reversed(layers):
        gap, w, slope = kept.pop()
        gradient = gradient.index_select(0, back)
        low, high = gradient[:pairs], gradient[pairs : 2 * pairs]
        of_step = high - low
        of_w = gap.mul_(of_step)
        of_gap = of_step.mul_(w)
        of_gap[:, :1].addcmul_(of_w[:, :1].add_(of_w[:, 1:]), slope)
        low.add_(of_gap)
        high.sub_(of_gap)
    return gradient


# Opaque to torch.compile, which would unroll the layers.


@torch.library.custom_op("shortlist::network_column", mutates_args=())
def _column(
    scores: Tensor,
    target: Tensor,
    weights: Tensor,
    network: str,
    comparator: str,
    steepness: float,
    art_lambda: float,
    with_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """The chance (n,), and its gradient (n, c) if wanted."""
    (n, c), k, options = scores.shape, weights.shape[-1], (comparator, steepness, art_lambda)
    inputs, layers = pair_layers(network, c, k, scores.device)
    stretches = [layers[i : i + _STRETCH] for i in range(0, len(layers), _STRETCH)]
    one = len(stretches) == 1
    state = scores.new_zeros(c, 2, n)
    torch.mul(scores.T.index_select(0, inputs), steepness, out=state[:, 0])
    state[:, 1] = target == inputs[:, None]
    starts, kept = [], []
    for stretch in stretches:
        starts.append(state.clone() if with_gradient and not one else state)
        state, kept = _run(state, stretch, options, keep=with_gradient and one)
    top = weights.T.flip(0) if weights.ndim == 2 else weights.flip(0)[:, None]  # the first rank is last
    value = (state[c - k :, 1] * top).sum(0)
    if not with_gradient:
        return value, scores.new_empty(0, c)
    gradient = torch.zeros_like(state)
    gradient[c - k :, 1] = top
    for stretch in reversed(stretches):
        start = starts.pop()
        if not one:
            kept = _run(start, stretch, options, keep=True)[1]
        gradient = _run_back(gradient, stretch, kept)
    out = scores.new_empty(n, c)
    out.T.index_copy_(0, inputs, gradient[:, 0])
    return value, out.mul_(steepness)


@_column.register_fake
def _(scores, target, weights, network, comparator, steepness, art_lambda, with_gradient):
    n, c = scores.shape
    return scores.new_empty(n), scores.new_empty(n if with_gradient else 0, c)


def _save_gradient(ctx, inputs, output) -> None:
    ctx.save_for_backward(output[1])


def _backward(ctx, upstream: Tensor, _: Tensor):
    refuse_second_derivative("relaxed_topk")
    return upstream[:, None] * ctx.saved_tensors[0], None, None, None, None, None, None, None


_column.register_autograd(_backward, setup_context=_save_gradient)
