"""Compute relaxed ranks of one class in each row, by soft comparators on the wires of a network.

Where one class's chance is wanted, as in a loss, its column of the relaxed permutation matrix can be sent
through the network with the values: layer by layer, a comparator with the values x and y (steepness times the
scores) on its wires for the smaller and the larger moves ``w = F(x - y)`` of the difference across,

    step = w (state_x - state_y),    state_x -= step,    state_y += step,

where the state of a wire is its value and the chance that it holds the class. The chance of each rank is then
on the top wires. The derivative runs back once. Compared with the matrix of all classes
(:func:`shortlist.ops.relaxed_topk`), this takes one sweep each way in place of four, over half the wires.

Value and gradient come from one pass; deep networks keep the state before each 48th layer, and compute what
is between again.
"""

import torch
from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.ops import (
    NETWORKS,
    Comparator,
    Relaxation,
    cached_workspace,
    is_masked,
    lower_masked,
    mix,
    pair_layers,
    relaxed_topk,
    row_operator,
)

_STRETCH = 48

Layers = list[tuple[int, Tensor, Tensor]]


def relaxed_column(
    scores: Tensor,
    target: Tensor,
    *,
    rank_weights: Tensor,
    method: Relaxation,
    steepness: float,
    comparator: Comparator,
    art_lambda: float,
) -> Tensor:
    """Compute :func:`shortlist.ops.relaxed_topk` with rank weights, for the true class of each row only (n,).

    With the networks it is cheaper than the sums of all classes, and has no second derivative.
    """
    index = target[:, None]
    if method not in NETWORKS:
        sums = relaxed_topk(
            scores, k=rank_weights.shape[-1], method=method, steepness=steepness, rank_weights=rank_weights
        )
        return sums.gather(1, index).squeeze(1)
    masked = is_masked(scores)
    nothing_masked = can_read_values(masked) and not masked.any()
    scores = scores if nothing_masked else lower_masked(scores, masked)
    weights = rank_weights.detach().to(scores.dtype)
    column = _column(scores, target, weights, method, comparator, steepness, art_lambda)
    return column if nothing_masked else column.masked_fill(masked.gather(1, index).squeeze(1), 0)


class _Sweep:
    """The memory of a stretch of layers, divided into what each layer needs, and the sweeps over it.

    The state (wires, 2, n) is written to ``start`` and taken from ``end``, its gradient the other way round.
    Wires that no longer matter are left behind: their places take the gradient of place 0, which stays 0.
    """

    def __init__(self, like: Tensor, layers: Layers, n: int) -> None:
        places = [len(back) for _, _, back in layers] + [len(layers[-1][1])]
        before, after = (like.new_zeros(max(places), 2, n) for _ in range(2))
        self.layers = []
        for (pairs, on, back), size, next_size in zip(layers, places, places[1:], strict=False):
            gap, step = like.new_empty(2, pairs, 2, n)
            low, high = before[1 : pairs + 1], before[pairs + 1 : 2 * pairs + 1]
            parts = low, high, gap, gap[:, :1], gap[:, 1:], step, step[:, :1]
            self.layers.append((before[:size], after[:next_size], on, back, parts))
            before, after = after, before
        self.start, self.end = self.layers[0][0][1:], self.layers[-1][1][1:]
        self.mixed: list[tuple[Tensor, Tensor]] = []

    def run(self, comparator: str, steepness: float, art_lambda: float, *, keep: bool) -> None:
        """Compute the state at the end from that at the start; if asked, keep what :meth:`run_back` needs."""
        self.mixed = []
        for before, after, on, _, (low, high, gap, gap_of_values, _, step, _) in self.layers:
            torch.sub(low, high, out=gap)
            w, slope = mix(gap_of_values, comparator, steepness, art_lambda)
            torch.mul(gap, w, out=step)
            low.sub_(step)
            high.add_(step)
            torch.index_select(before, 0, on, out=after)
            if keep:
                self.mixed.append((w, slope))

    def run_back(self) -> None:
        """Compute the gradient at the start from that at the end. Call it once after each :meth:`run`."""
        for before, after, _, back, parts in reversed(self.layers):
            low, high, gap, of_w, of_w_by_chances, step, step_of_values = parts
            w, slope = self.mixed.pop()
            torch.index_select(after, 0, back, out=before)
            torch.sub(high, low, out=step)
            gap.mul_(step)
            step.mul_(w)
            step_of_values.addcmul_(of_w.add_(of_w_by_chances), slope)
            low.add_(step)
            high.sub_(step)


def column_and_gradient(
    scores: Tensor,
    target: Tensor,
    weights: Tensor,
    network: str,
    comparator: str,
    steepness: float,
    art_lambda: float,
    needs_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Compute by a network the chance (n,) and its gradient (n, c), or (0, c) if it is not needed."""
    (n, c), k = scores.shape, weights.shape[-1]
    inputs, layers = pair_layers(network, c, k, scores.device)
    stretches = [layers[i : i + _STRETCH] for i in range(0, len(layers), _STRETCH)]

    def sweep_from(state: Tensor, stretch: Layers) -> _Sweep:
        numbers = 2 * state.numel() + 4 * n * sum(pairs for pairs, _, _ in stretch)
        if len(stretches) == 1:
            sweep = cached_workspace(
                scores, (_Sweep, network, n, c, k), numbers, lambda: _Sweep(scores, stretch, n)
            )
        else:
            sweep = _Sweep(scores, stretch, n)
        sweep.start.copy_(state)
        sweep.run(comparator, steepness, art_lambda, keep=needs_gradient)
        return sweep

    state = scores.new_empty(c, 2, n)
    torch.mul(scores.T.index_select(0, inputs), steepness, out=state[:, 0])
    state[:, 1] = target == inputs[:, None]
    starts, sweep = [], None
    for stretch in stretches:
        starts.append(state)
        sweep = sweep_from(state, stretch)
        state = sweep.end
    top = weights.T.flip(0) if weights.ndim == 2 else weights.flip(0)[:, None]  # the first rank is last
    value = (state[:, 1] * top).sum(0)
    if not needs_gradient:
        return value, scores.new_empty(0, c)
    gradient = torch.zeros_like(state)
    gradient[:, 1] = top
    for stretch, start in zip(reversed(stretches), reversed(starts), strict=True):
        sweep = sweep_from(start, stretch) if sweep is None else sweep
        sweep.end.copy_(gradient)
        sweep.run_back()
        gradient, sweep = sweep.start, None
    out = scores.new_empty(n, c)
    out.T.index_copy_(0, inputs, gradient[:, 0])
    return value, out.mul_(steepness)


_column = row_operator("network_column", column_and_gradient, called="ranked_topk_loss")
