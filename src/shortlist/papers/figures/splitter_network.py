"""The splitter selection network with minimum ranks (Petersen et al., ICML 2022, figure 5)."""

from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist.ops import Cascade, comparator_layers, splitter_cascades
from shortlist.palette import BAD, GOOD, PRINT
from shortlist.papers.figures._frame import Figure, Numbers, Progress, new_figure, with_progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MOST_VALUES = 40_000_000


def measure(*, n: int = 16, k: int = 5, progress: Progress | None = None) -> Numbers:
    """List the comparators of :func:`shortlist.ops.relaxed_topk`, and find what can arrive on each wire.

    A network treats values by their order alone, so that wire w can hold a value of rank r (the number of
    larger ones) iff, with the r + 1 largest inputs set to 1 and the others to 0, it can hold a 1. All such
    inputs with up to k ones are sent through the layers: the minimum ranks below k are exact.

    Args:
        n: Number of wires.
        k: Number of values to select, ``k <= n``.
        progress: Called after each layer.

    Returns:
        Wires are counted from the one where the largest value ends. ``layers`` have comparators ``[wire of
        the larger, wire of the smaller]``; ``minimum_ranks`` has a row for the start and for the end of each
        layer, where ``k`` stands for k or more; ``promised_ranks`` has what the construction counts on, which
        may be less. ``dropped_after`` has the number of layers after which a wire holds none of the k largest
        for good (``null``: never), ``found_after`` that after which a rank is settled. A comparator is not at
        ``work`` if it never swaps one of the k largest values.
    """
    check_count("n", n)
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= n:
        raise ValueError(f"k must be an integer with 1 <= k <= n ({n}), got {k!r}")
    inputs = sum(comb(n, ones) for ones in range(1, k + 1))
    if inputs * n > _MOST_VALUES:
        got = f"{inputs:,} inputs of n={n} values for k={k}"
        raise ValueError(f"n and k must leave at most {_MOST_VALUES:,} values to try, got {got}")
    cascades = splitter_cascades(n, k)
    layers = [(n - 1 - layer.flip(0)).T.tolist() for layer in comparator_layers("splitter", n, k)]
    ranks, work = _send_through(layers, n, k, progress)
    described = [
        [
            {"wires": wires, "work": works, "cascade": _cascade_of(cascades, depth, wires[0])}
            for wires, works in zip(layer, working, strict=True)
        ]
        for depth, (layer, working) in enumerate(zip(layers, work, strict=True))
    ]
    counted = {"num_comparators": sum(map(len, layers)), "num_at_work": sum(map(sum, work))}
    return {"n": n, "k": k, "depth": len(layers), **counted, "inputs_tried": inputs} | {
        "layers": described,
        "cascades": [cascade._asdict() for cascade in cascades],
        "minimum_ranks": ranks,
        "promised_ranks": [_promised(cascades, depth, n, k) for depth in range(len(layers) + 1)],
        "dropped_after": [_dropped([row[wire] for row in ranks], k) for wire in range(n)],
        "found_after": [_settled(ranks, rank) for rank in range(k)],
    }


def _send_through(
    layers: list[list[list[int]]], n: int, k: int, progress: Progress | None
) -> tuple[list[list[int]], list[list[bool]]]:
    """Find the minimum ranks after each layer, and which comparators ever swap, for up to k ones."""
    groups = []
    for ones in range(1, k + 1):
        where = torch.tensor(list(combinations(range(n), ones)))
        groups.append(torch.zeros(len(where), n, dtype=torch.bool).scatter_(1, where, True))
    ranks, work = [_least(groups, n, k)], []
    for layer in with_progress(layers, "layers", progress):
        larger, smaller = torch.tensor(layer).T
        swapped = torch.zeros(len(layer), dtype=torch.bool)
        for values in groups:
            a, b = values[:, larger], values[:, smaller]
            swapped |= (b & ~a).any(0)
            values[:, larger], values[:, smaller] = a | b, a & b
        ranks.append(_least(groups, n, k))
        work.append(swapped.tolist())
    return ranks, work


def _least(groups: list[Tensor], n: int, k: int) -> list[int]:
    """Count for each wire the least ones, less one, with which it holds a one; k if there are none."""
    least = torch.full((n,), k)
    for rank, values in reversed(list(enumerate(groups))):
        least[values.any(0)] = rank
    return least.tolist()


def _cascade_of(cascades: list[Cascade], layer: int, wire: int) -> int:
    """Find the cascade of a wire in a layer: it is in one at a time."""
    return next(
        number
        for number, cascade in enumerate(cascades)
        if cascade.start <= layer < cascade.end and wire in cascade.wires
    )


def _promised(cascades: list[Cascade], depth: int, n: int, k: int) -> list[int]:
    """Find what the construction counts on: place i of a cascade has 2^popcount(i) - 1 wires above it."""
    ranks = [0] * n
    for cascade in cascades:
        left = max(cascade.end - max(depth, cascade.start), 0)  # layers still to come
        for place, wire in enumerate(cascade.wires):
            ranks[wire] += 2 ** (place >> left).bit_count() - 1
    return [min(rank, k) for rank in ranks]


def _dropped(ranks: list[int], k: int) -> int | None:
    """Find the layer from which on the rank is always k or more; a wire may take up a value again."""
    below = [layer for layer, rank in enumerate(ranks) if rank < k]
    return None if below[-1] == len(ranks) - 1 else below[-1] + 1


def _settled(ranks: list[list[int]], rank: int) -> int:
    """Count the layers after which only one wire each can hold rank 0, 1, ..., ``rank``."""
    return next(
        layer
        for layer, row in enumerate(ranks)
        if all(sum(least <= r for least in row) == r + 1 for r in range(rank + 1))
    )


def draw(numbers: Numbers) -> Figure:
    """Draw wires from left to right, comparators between them, and ranks where they change."""
    n, k, ranks = numbers["n"], numbers["k"], numbers["minimum_ranks"]
    starts, ends = [], [0.0]
    for layer in numbers["layers"]:
        starts.append(ends[-1] + 0.5)
        ends.append(starts[-1] + 0.24 * (max(_lanes(layer), default=0)) + 0.5)
    figure = new_figure(max(0.42 * ends[-1] + 1.3, 4.0), 0.27 * n + 0.9)
    axes = figure.subplots()
    for wire in range(n):
        drop = numbers["dropped_after"][wire]
        last = ends[-1] if drop is None else ends[drop]
        axes.plot([-0.5, last], [wire, wire], color="0.35", linewidth=0.7, zorder=1)
        if drop is not None:
            axes.plot([last, ends[-1]], [wire, wire], color="0.85", linewidth=0.6, zorder=0)
            axes.plot(last + 0.16, wire, "x", color=BAD, markersize=4.5, markeredgewidth=1.2, zorder=4)
        _write_ranks(axes, [row[wire] for row in ranks[:drop]], wire, ends, k)
    for layer, start in zip(numbers["layers"], starts, strict=True):
        for comparator, lane in zip(layer, _lanes(layer), strict=True):
            _draw_comparator(axes, comparator, start + 0.24 * lane)
    for rank, layer in enumerate(numbers["found_after"]):
        axes.plot(ends[layer] + 0.14, rank, marker="$\\checkmark$", color=GOOD, markersize=6, zorder=4)
        axes.text(ends[-1] + 0.5, rank, _ordinal(rank), va="center", fontsize=7.5, color=GOOD)
    middles = [(start + end - 0.26) / 2 for start, end in zip(starts, ends[1:], strict=True)]
    axes.set_xticks(middles, [str(i + 1) for i in range(len(middles))], fontsize=7.5)
    axes.set(ylim=(n - 0.4, -0.6), xlim=(-0.9, ends[-1] + 1.1), yticks=[])
    axes.set_xlabel(_caption(numbers), fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def _lanes(layer: list[dict[str, Any]]) -> list[int]:
    """Find for each comparator of a layer the first column in which it overlaps no other."""
    taken: list[list[tuple[int, int]]] = []
    lanes = []
    for comparator in layer:
        low, high = sorted(comparator["wires"])
        lane = next((i for i, spans in enumerate(taken) if all(high < a or low > b for a, b in spans)), None)
        if lane is None:
            taken.append([])
            lane = len(taken) - 1
        taken[lane].append((low, high))
        lanes.append(lane)
    return lanes


def _draw_comparator(axes: "Axes", comparator: dict[str, Any], x: float) -> None:
    """Draw an arrow to the wire of the larger value, in its cascade's color; gray if it is not at work."""
    larger, smaller = comparator["wires"]
    color = PRINT[comparator["cascade"] % len(PRINT)] if comparator["work"] else "0.75"
    style = {"arrowstyle": "-|>,head_width=0.12,head_length=0.22", "color": color, "linewidth": 0.9}
    style |= {"shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (x, larger), (x, smaller), arrowprops=style, zorder=3)
    axes.plot(x, smaller, "o", color=color, markersize=2.2, zorder=3)


def _write_ranks(axes: "Axes", ranks: list[int], wire: int, ends: list[float], k: int) -> None:
    """Write the minimum rank where it changes."""
    for layer, rank in enumerate(ranks):
        if layer == 0 or rank != ranks[layer - 1]:
            words = str(rank) if rank < k else f"{k}+"
            axes.text(ends[layer] - 0.06, wire, words, ha="center", va="center", fontsize=6.5, zorder=5,
                      bbox={"boxstyle": "circle,pad=0.12", "facecolor": "white", "edgecolor": "0.6",
                            "linewidth": 0.4})  # fmt: skip


def _ordinal(rank: int) -> str:
    return "largest" if rank == 0 else f"rank {rank}"


def _caption(numbers: Numbers) -> str:
    counts = f"{numbers['num_comparators']} comparators; {numbers['num_at_work']} ever swap one of the"
    return f"layer\n{counts} {numbers['k']} largest values"
