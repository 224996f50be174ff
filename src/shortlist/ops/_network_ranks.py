"""Compute relaxed ranks by soft comparators on the wires of a sorting network.

A wire with value x, steepness times a score, and partner x' takes ``x + w (x' - x)``, where ``w = F(x' - x)``
if it is to take the larger value and ``F(x - x')`` if the smaller. A layer is thus a sparse linear map, and
the rows of the product of all layers that belong to the top wires are the relaxed ranks. They are built from
the outputs back to the inputs, as a flow over the wires for each row wanted: in layer t,

    wires[t+1] = wires[t] + w gap,     flow[t] = flow[t+1] + (P - 1)(w flow[t+1]),

with P exchanging partners, its own inverse. The derivative runs the flow's sweep forwards, then the wires'
backwards. Shallow networks keep every layer for it; deep ones keep each 48th and compute the others again.
"""

import torch
from torch import Tensor

from shortlist.ops.comparators import mix
from shortlist.ops.networks import network_depth, wire_layers

__all__ = ["network_ranks"]

_STRETCH = 48

Layers = list[tuple[Tensor, Tensor]]


def network_ranks(
    scores: Tensor, weights: Tensor, *, network: str, comparator: str, steepness: float, art_lambda: float
) -> Tensor:
    """Sum weights[..., r] P[r, :] over ranks r, (rows, n, c), for weights (rows, k) or (rows, n, k)."""
    n = scores.shape[0]
    rows, k = weights.shape[0], weights.shape[-1]
    weights = weights.detach().to(scores.dtype)
    weights = weights[:, None, :].expand(rows, n, k) if weights.ndim == 2 else weights
    return _ranks(scores, weights, network, comparator, steepness, art_lambda, scores.requires_grad)[0]


def _top_flow(scores: Tensor, weights: Tensor) -> Tensor:
    """Return the flow (c, rows, n) at the outputs: rank weights on the last k wires, rank 1 on the last."""
    rows, n, k = weights.shape
    flow = scores.new_zeros(scores.shape[1], rows, n)
    flow[-k:] = weights.permute(2, 0, 1).flip(0)
    return flow


class _Stretch:
    """A stretch of layers, run from the wires (c, n) at its start; it keeps what the sweeps need."""

    def __init__(self, layers: Layers, comparator: str, steepness: float, art_lambda: float) -> None:
        self.layers = layers
        self.options = comparator, steepness, art_lambda
        self.kept: list[tuple[Tensor, Tensor, Tensor]] = []  # w, d(w gap)/d gap, dw/d gap

    def run(self, wires: Tensor, *, derivatives: bool) -> Tensor:
        comparator, steepness, art_lambda = self.options
        self.kept = []
        for partner, sign in self.layers:
            gap = wires.index_select(0, partner).sub_(wires)
            sign = sign.to(wires.dtype)
            w, slope = mix(gap * sign, comparator, steepness, art_lambda)
            wires = torch.addcmul(wires, w, gap)
            slope.mul_(sign)
            self.kept.append((w, gap.mul_(slope).add_(w), slope) if derivatives else (w, w, w))
        return wires

    def flow_back(self, flow: Tensor) -> list[Tensor]:
        """Return the flow before the first layer and after each layer."""
        flows = [flow]
        for (partner, _), (w, _, _) in zip(reversed(self.layers), reversed(self.kept), strict=True):
            passed = flow * w[:, None]
            flow = passed.index_select(0, partner).sub_(passed).add_(flow)
            flows.append(flow)
        return flows[::-1]

    def gradient_forward(self, gradient: Tensor, flows: list[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        """Return the flow's gradient at the end; given the flows, also that of each layer's weights."""
        of_weights = []
        for index, ((partner, _), (w, _, _)) in enumerate(zip(self.layers, self.kept, strict=True)):
            step = gradient.index_select(0, partner).sub_(gradient)
            gradient = torch.addcmul(gradient, w[:, None], step)
            if flows is not None:
                of_weights.append(step.mul_(flows[index + 1]).sum(1))
        return gradient, of_weights

    def wires_gradient(self, of_wires: Tensor, of_weights: list[Tensor]) -> Tensor:
        """Return the wires' gradient at the start, from that at the end and that of the weights."""
        for (partner, _), (_, of_step, slope), of_w in zip(
            reversed(self.layers), reversed(self.kept), reversed(of_weights), strict=True
        ):
            of_gap = torch.addcmul(of_w.mul_(slope), of_wires, of_step)
            of_wires = of_gap.index_select(0, partner).sub_(of_gap).add_(of_wires)
        return of_wires


def _stretches(scores: Tensor, k: int, network: str, *options) -> tuple[Tensor, list[_Stretch]]:
    inputs, layers = wire_layers(network, scores.shape[1], k, scores.device)
    return inputs, [_Stretch(layers[i : i + _STRETCH], *options) for i in range(0, len(layers), _STRETCH)]


# Opaque to torch.compile, which would unroll the layers.


@torch.library.custom_op("shortlist::network_ranks", mutates_args=())
def _ranks(
    scores: Tensor,
    weights: Tensor,
    network: str,
    comparator: str,
    steepness: float,
    art_lambda: float,
    with_gradient: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ranks (rows, n, c); of a shallow network also what it kept (3, T, c, n) and its flows."""
    k = weights.shape[-1]
    inputs, stretches = _stretches(scores, k, network, comparator, steepness, art_lambda)
    wires, starts = scores.T[inputs].mul_(steepness), []
    keep = with_gradient and len(stretches) == 1
    for stretch in stretches:
        starts.append(wires)
        wires = stretch.run(wires, derivatives=keep)
        if len(stretches) > 1:
            stretch.kept = []
    flows = [_top_flow(scores, weights)]
    for stretch, start in zip(reversed(stretches), reversed(starts), strict=True):
        if len(stretches) > 1:
            stretch.run(start, derivatives=False)
        flows = stretch.flow_back(flows[0])
        if len(stretches) > 1:
            stretch.kept = []
    out = torch.empty_like(flows[0]).index_copy_(0, inputs, flows[0]).permute(1, 2, 0).contiguous()
    if not keep or not stretches:
        return out, scores.new_empty(0), scores.new_empty(0)
    kept = torch.stack([torch.stack(part) for part in zip(*stretches[0].kept, strict=True)])
    return out, kept, torch.stack(flows[1:])


@torch.library.custom_op("shortlist::network_ranks_gradient", mutates_args=())
def _ranks_gradient(
    upstream: Tensor,
    scores: Tensor,
    weights: Tensor,
    kept: Tensor,
    flows: Tensor,
    network: str,
    comparator: str,
    steepness: float,
    art_lambda: float,
) -> Tensor:
    """Return the gradient (n, c) with respect to the scores."""
    inputs, stretches = _stretches(scores, weights.shape[-1], network, comparator, steepness, art_lambda)
    gradient = upstream.permute(2, 0, 1)[inputs]
    of_wires = scores.new_zeros(scores.shape[1], scores.shape[0])
    if len(stretches) == 1:
        stretches[0].kept = list(zip(*kept, strict=True))
        known = [flows[0], *flows]  # the flow before the first layer is not needed
        of_wires = stretches[0].wires_gradient(of_wires, stretches[0].gradient_forward(gradient, known)[1])
    else:
        starts, ends, gradients = _boundaries(
            scores.T[inputs].mul_(steepness), _top_flow(scores, weights), gradient, stretches
        )
        for stretch in reversed(stretches):
            stretch.run(starts.pop(), derivatives=True)
            of_weights = stretch.gradient_forward(gradients.pop(), stretch.flow_back(ends.pop()))[1]
            of_wires = stretch.wires_gradient(of_wires, of_weights)
            stretch.kept = []
    return torch.empty_like(of_wires).index_copy_(0, inputs, of_wires).T.contiguous().mul_(steepness)


def _boundaries(
    wires: Tensor, flow: Tensor, gradient: Tensor, stretches: list[_Stretch]
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return the wires at the start, flow at the end and flow's gradient at the start of each stretch."""
    starts, gradients, ends = [], [], []
    for stretch in stretches:
        starts.append(wires)
        gradients.append(gradient)
        wires = stretch.run(wires, derivatives=False)
        gradient, _ = stretch.gradient_forward(gradient, None)
        stretch.kept = []
    for stretch, start in zip(reversed(stretches), reversed(starts), strict=True):
        ends.append(flow)
        stretch.run(start, derivatives=False)
        flow = stretch.flow_back(flow)[0]
        stretch.kept = []
    return starts, ends[::-1], gradients


@_ranks.register_fake
def _(scores, weights, network, comparator, steepness, art_lambda, with_gradient):
    n, c = scores.shape
    rows, k = weights.shape[0], weights.shape[-1]
    out = scores.new_empty(rows, n, c)
    depth = network_depth(network, int(c), int(k))
    if not with_gradient or not 0 < depth <= _STRETCH:
        return out, scores.new_empty(0), scores.new_empty(0)
    return out, scores.new_empty(3, depth, c, n), scores.new_empty(depth, c, rows, n)


@_ranks_gradient.register_fake
def _(upstream, scores, weights, kept, flows, network, comparator, steepness, art_lambda):
    return torch.empty_like(scores)


def _setup_context(ctx, inputs, output) -> None:
    scores, weights, *ctx.options, _ = inputs
    ctx.save_for_backward(scores, weights, output[1], output[2])


def _backward(ctx, upstream: Tensor, _kept: Tensor, _flows: Tensor):
    return _ranks_gradient(upstream, *ctx.saved_tensors, *ctx.options), None, None, None, None, None, None


_ranks.register_autograd(_backward, setup_context=_setup_context)
