"""Compute relaxed ranks by soft comparators on the wires of a sorting network.

A comparator with the values x and y (steepness times the scores) on its wires for the smaller and the larger
moves ``w = F(x - y)`` of the difference across: ``x - w (x - y)`` and ``y + w (x - y)``. A layer is thus a
sparse linear map that is its own transpose, and the rows of the product of all layers that belong to the top
wires are the relaxed ranks. They are built from the outputs back to the inputs, as a flow over the wires for
each row wanted: the same map, applied to the flow behind a layer, gives the flow before it. The derivative
runs the flow's sweep forwards, then the wires' backwards.

Only comparators that reach an output are computed (:func:`shortlist.ops.networks.pair_layers`): in front of a
layer, a state (places, ...) has 0 in place 0, then the wires for the smaller values, those for the larger,
and what else is still needed. Shallow networks keep every layer for the derivative; deep ones keep each 48th
and compute the others again.
"""

import torch
from torch import Tensor

from shortlist.ops.comparators import mix
from shortlist.ops.networks import network_depth, pair_layers

_STRETCH = 48

Layers = list[tuple[int, Tensor, Tensor]]


def network_ranks(
    scores: Tensor, weights: Tensor, *, network: str, comparator: str, steepness: float, art_lambda: float
) -> Tensor:
    """Sum weights[..., r] P[r, :] over ranks r, (rows, n, c), for weights (rows, k) or (rows, n, k)."""
    n = scores.shape[0]
    rows, k = weights.shape[0], weights.shape[-1]
    weights = weights.detach().to(scores.dtype)
    weights = weights[:, None, :].expand(rows, n, k) if weights.ndim == 2 else weights
    return _ranks(scores, weights, network, comparator, steepness, art_lambda, scores.requires_grad)[0]


def _at_places(values: Tensor) -> Tensor:
    """Put nothing in place 0, and the values (wires, ...) behind it."""
    return torch.cat([torch.zeros_like(values[:1]), values])


def _top_flow(weights: Tensor) -> Tensor:
    """Return the flow (1 + k, rows, n) behind the last layer: the weight of the first rank is last."""
    return _at_places(weights.permute(2, 0, 1).flip(0))


def _pair(state: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """Return the places of the smaller and of the larger values of a layer's comparators."""
    return state[1 : pairs + 1], state[pairs + 1 : 2 * pairs + 1]


def _move(state: Tensor, pairs: int, w: Tensor) -> Tensor:
    """Apply a layer to a state in place; return the differences that it found, (pairs, ...)."""
    low, high = _pair(state, pairs)
    gap = low - high
    step = gap * w
    low.sub_(step)
    high.add_(step)
    return gap


class _Stretch:
    """A stretch of layers and the sweeps over it; of each layer it keeps what they need.

    That is ``kept`` (3, layers, pairs, n): w, d(w gap)/d gap and dw/d gap; and ``gaps`` (layers, pairs, rows,
    n): the differences of the flow behind a layer. Both have room for as many pairs as there can be.
    """

    def __init__(self, layers: Layers, comparator: str, steepness: float, art_lambda: float) -> None:
        self.layers = layers
        self.options = comparator, steepness, art_lambda
        self.kept = self.gaps = torch.empty(0)

    def run(self, wires: Tensor, *, derivatives: bool) -> Tensor:
        """Compute the wires behind the stretch from those before it, (places, n)."""
        (places, n), depth = wires.shape, len(self.layers)
        self.kept = wires.new_empty(3 if derivatives else 1, depth, places // 2, n)
        wires = wires.clone()  # what is given stays as it is
        for index, (pairs, on, _) in enumerate(self.layers):
            kept = self.kept[:, index, :pairs]
            low, high = _pair(wires, pairs)
            gap = low - high
            w, slope = mix(gap, *self.options)
            kept[0] = w
            if derivatives:
                torch.addcmul(w, gap, slope, out=kept[1])
                kept[2] = slope
            step = gap.mul_(w)
            low.sub_(step)
            high.add_(step)
            wires = wires.index_select(0, on)
        return wires

    def flow_back(self, flow: Tensor, *, keep: bool) -> Tensor:
        """Return the flow (places, rows, n) before the stretch; if asked, keep the differences it had."""
        _, depth, room, n = self.kept.shape
        self.gaps = flow.new_empty(depth, room, flow.shape[1], n) if keep else torch.empty(0)
        for index in reversed(range(depth)):
            pairs, _, back = self.layers[index]
            flow = flow.index_select(0, back)
            gap = _move(flow, pairs, self.kept[0, index, :pairs, None])
            if keep:
                self.gaps[index, :pairs] = gap
        return flow

    def gradient_forward(self, gradient: Tensor, *, of_weights: bool) -> tuple[Tensor, list[Tensor]]:
        """Return the flow's gradient behind the stretch, and that of each layer's weights (pairs, n)."""
        slopes, gradient = [], gradient.clone()
        for index, (pairs, on, _) in enumerate(self.layers):
            gap = _move(gradient, pairs, self.kept[0, index, :pairs, None])
            if of_weights:
                slopes.append(gap.mul_(self.gaps[index, :pairs]).sum(1).neg_())
            gradient = gradient.index_select(0, on)
        return gradient, slopes

    def wires_gradient(self, of_wires: Tensor, of_weights: list[Tensor]) -> Tensor:
        """Return the wires' gradient before the stretch, from that behind it and that of the weights."""
        for index in reversed(range(len(self.layers))):
            pairs, _, back = self.layers[index]
            of_wires = of_wires.index_select(0, back)
            low, high = _pair(of_wires, pairs)
            _, of_step, slope = self.kept[:, index, :pairs]
            of_gap = of_weights[index].mul_(slope).addcmul_(high - low, of_step)
            low.add_(of_gap)
            high.sub_(of_gap)
        return of_wires


def _stretches(scores: Tensor, k: int, network: str, *options) -> tuple[Tensor, list[_Stretch]]:
    inputs, layers = pair_layers(network, scores.shape[1], k, scores.device)
    return inputs, [_Stretch(layers[i : i + _STRETCH], *options) for i in range(0, len(layers), _STRETCH)]


def _from_places(state: Tensor, inputs: Tensor) -> Tensor:
    """Return a state (1 + c, ...) before the first layer in the order of the inputs, (c, ...)."""
    return torch.empty_like(state[1:]).index_copy_(0, inputs, state[1:])


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
    """Return the ranks (rows, n, c); of a shallow network also what its only stretch keeps."""
    k = weights.shape[-1]
    inputs, stretches = _stretches(scores, k, network, comparator, steepness, art_lambda)
    wires, starts = _at_places(scores.T[inputs].mul_(steepness)), []
    keep = with_gradient and len(stretches) == 1
    for stretch in stretches:
        starts.append(wires)
        wires = stretch.run(wires, derivatives=keep)
        if len(stretches) > 1:
            stretch.kept = torch.empty(0)
    flow = _top_flow(weights)
    for stretch, start in zip(reversed(stretches), reversed(starts), strict=True):
        if len(stretches) > 1:
            stretch.run(start, derivatives=False)
        flow = stretch.flow_back(flow, keep=keep)
        if len(stretches) > 1:
            stretch.kept = torch.empty(0)
    out = _from_places(flow, inputs).permute(1, 2, 0).contiguous()
    if not keep:
        return out, scores.new_empty(0), scores.new_empty(0)
    return out, stretches[0].kept, stretches[0].gaps


@torch.library.custom_op("shortlist::network_ranks_gradient", mutates_args=())
def _ranks_gradient(
    upstream: Tensor,
    scores: Tensor,
    weights: Tensor,
    kept: Tensor,
    gaps: Tensor,
    network: str,
    comparator: str,
    steepness: float,
    art_lambda: float,
) -> Tensor:
    """Return the gradient (n, c) with respect to the scores."""
    k = weights.shape[-1]
    inputs, stretches = _stretches(scores, k, network, comparator, steepness, art_lambda)
    gradient = _at_places(upstream.permute(2, 0, 1)[inputs])
    of_wires = scores.new_zeros(1 + (k if stretches else scores.shape[1]), scores.shape[0])
    if len(stretches) == 1:
        stretches[0].kept, stretches[0].gaps = kept, gaps
        of_weights = stretches[0].gradient_forward(gradient, of_weights=True)[1]
        of_wires = stretches[0].wires_gradient(of_wires, of_weights)
    else:
        wires = _at_places(scores.T[inputs].mul_(steepness))
        starts, ends, gradients = _boundaries(wires, _top_flow(weights), gradient, stretches)
        for stretch in reversed(stretches):
            stretch.run(starts.pop(), derivatives=True)
            stretch.flow_back(ends.pop(), keep=True)
            of_weights = stretch.gradient_forward(gradients.pop(), of_weights=True)[1]
            of_wires = stretch.wires_gradient(of_wires, of_weights)
            stretch.kept = stretch.gaps = torch.empty(0)
    return _from_places(of_wires, inputs).T.contiguous().mul_(steepness)


def _boundaries(
    wires: Tensor, flow: Tensor, gradient: Tensor, stretches: list[_Stretch]
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    """Return the wires at the start, flow at the end and flow's gradient at the start of each stretch."""
    starts, gradients, ends = [], [], []
    for stretch in stretches:
        starts.append(wires)
        gradients.append(gradient)
        wires = stretch.run(wires, derivatives=False)
        gradient, _ = stretch.gradient_forward(gradient, of_weights=False)
        stretch.kept = torch.empty(0)
    for stretch, start in zip(reversed(stretches), reversed(starts), strict=True):
        ends.append(flow)
        stretch.run(start, derivatives=False)
        flow = stretch.flow_back(flow, keep=False)
        stretch.kept = torch.empty(0)
    return starts, ends[::-1], gradients


@_ranks.register_fake
def _(scores, weights, network, comparator, steepness, art_lambda, with_gradient):
    n, c = scores.shape
    rows, k = weights.shape[0], weights.shape[-1]
    out = scores.new_empty(rows, n, c)
    depth = network_depth(network, int(c), int(k))
    if not with_gradient or not 0 < depth <= _STRETCH:
        return out, scores.new_empty(0), scores.new_empty(0)
    room = (c + 1) // 2
    return out, scores.new_empty(3, depth, room, n), scores.new_empty(depth, room, rows, n)


@_ranks_gradient.register_fake
def _(upstream, scores, weights, kept, gaps, network, comparator, steepness, art_lambda):
    return torch.empty_like(scores)


def _setup_context(ctx, inputs, output) -> None:
    scores, weights, *ctx.options, _ = inputs
    ctx.save_for_backward(scores, weights, output[1], output[2])


def _backward(ctx, upstream: Tensor, _kept: Tensor, _gaps: Tensor):
    return _ranks_gradient(upstream, *ctx.saved_tensors, *ctx.options), None, None, None, None, None, None


_ranks.register_autograd(_backward, setup_context=_setup_context)
