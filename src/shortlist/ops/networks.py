"""Sorting and selection networks as lists of comparators (Petersen et al., ICML 2022; Batcher 1968).

A comparator (a, b) of wires sends the smaller value to wire a and the larger to wire b. All networks here
sort upwards: the largest value ends on the last wire.
"""

from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

import torch
from torch import Tensor

# A layer is (2, comparators): the wires of the smaller values, and those of the larger.


def _odd_even(n: int, k: int) -> list[Tensor]:
    """Return as many layers as wires, which compare neighbors, by turns from the first or second wire on."""
    if n == 1:
        return []
    layers = [torch.stack([torch.arange(first, n - 1, 2), torch.arange(first + 1, n, 2)]) for first in (0, 1)]
    return [layers[turn % 2] for turn in range(n)]


def _bitonic(n: int, k: int) -> list[Tensor]:
    """Return Batcher's merge of ever longer blocks, with all comparators pointing upwards.

    The first layer of a merge compares mirror images, which is the usual network with each second block
    upside down; `_bitonic_start` says on which wire an input of the usual one starts. A number of wires that
    is no power of two is filled up with wires that hold nothing: they would stay lowest, so their comparators
    are left out.
    """
    bits = (n - 1).bit_length()
    wires, missing = torch.arange(1 << bits), (1 << bits) - n
    layers = []
    for block in (1 << bit for bit in range(1, bits + 1)):
        partners = [wires ^ (block - 1)]
        while block > 2:
            block //= 2
            partners.append(wires ^ (block // 2))
        for partner in partners:
            low = wires[(wires < partner) & (wires >= missing)]
            layers.append(torch.stack([low, partner[low]]) - missing)
    return layers


def _bitonic_start(n: int) -> Tensor:
    """Return the wire on which each input starts, so that the reversed blocks meet the same inputs."""
    order = torch.zeros(1, dtype=torch.int64)
    while len(order) < n:
        order = torch.cat([order, len(order) + order.flip(0)])
    missing = len(order) - n
    return order[order >= missing] - missing


def _merge_selection(n: int, k: int) -> list[Tensor]:
    """Return sorted blocks of at least k wires, of which pairs are merged, each time the largest alone.

    The selection network before the splitter's (Wah and Chen, 1984): blocks have a power of two of wires, and
    a merge compares the largest block of one half with that of the other, mirrored.
    """
    bits, block_bits = (n - 1).bit_length(), (k - 1).bit_length()
    layers = _bitonic(n, k)[: block_bits * (block_bits + 1) // 2]
    size, wires, missing = 1 << block_bits, torch.arange(1 << bits), (1 << bits) - n
    for half in (1 << bit for bit in range(block_bits, bits)):
        place = wires % (2 * half) - (half - size)  # among the largest of the lower half
        low = wires[(place >= 0) & (place < size)]
        pairs = [torch.stack([low, low + half + size - 1 - 2 * place[low]])]
        largest, distance = wires[wires % (2 * half) >= 2 * half - size], size // 2
        while distance:
            low = largest[largest & distance == 0]
            pairs.append(torch.stack([low, low + distance]))
            distance //= 2
        layers += [layer[:, layer[0] >= missing] - missing for layer in pairs]
    return layers


def _cascade(wires: Tensor) -> list[Tensor]:
    """Compare wires at distances that halve; position i then has at least 2^popcount(i) - 1 larger inputs."""
    layers, distance = [], 1 << ((len(wires) - 1).bit_length() - 1)
    while distance:
        position = torch.arange(len(wires) - distance)
        position = position[position & distance == 0]
        layers.append(torch.stack([wires[position + distance], wires[position]]))
        distance //= 2
    return layers


class Cascade(NamedTuple):
    """A cascade of the splitter network.

    Args:
        minimum_rank: Number of values that are known to be larger than those on its wires.
        wires: Its wires, counted from the one where the largest value ends.
        start: Its first layer.
        end: The layer after its last one.
    """

    minimum_rank: int
    wires: list[int]
    start: int
    end: int


@lru_cache(maxsize=256)
def splitter_cascades(n: int, k: int) -> list[Cascade]:
    """Return cascades on wires that may hold the same rank, until the top k are told apart."""
    rank, free = [0] * n, [0] * n  # of each wire: values known to be larger, first layer without a cascade
    cascades: list[Cascade] = []
    while True:
        wires_of: dict[int, list[int]] = {}
        for wire, value in enumerate(rank):
            wires_of.setdefault(value, []).append(wire)
        undecided = [value for value, wires in wires_of.items() if value < k and len(wires) > 1]
        if not undecided:
            return cascades
        for value in sorted(undecided, reverse=True):
            wires = wires_of[value]
            start = max(free[wire] for wire in wires)
            end = start + (len(wires) - 1).bit_length()
            cascades.append(Cascade(value, wires, start, end))
            for place, wire in enumerate(wires):
                rank[wire] += 2 ** place.bit_count() - 1
                free[wire] = end


def _splitter(n: int, k: int) -> list[Tensor]:
    layers: list[list[Tensor]] = [[] for _ in range(network_depth("splitter", n, k))]
    for cascade in splitter_cascades(n, k):
        for depth, comparators in enumerate(_cascade(torch.tensor(cascade.wires)), cascade.start):
            layers[depth].append(n - 1 - comparators)
    return [torch.cat(layer, dim=1) for layer in layers]


NETWORKS = {
    "odd_even": _odd_even,
    "bitonic": _bitonic,
    "merge_selection": _merge_selection,
    "splitter": _splitter,
}


def network_depth(network: str, n: int, k: int) -> int:
    """Return the number of layers without building them, since ``torch.compile`` allows no tensors here."""
    if network == "odd_even":
        return n if n > 1 else 0
    if network == "bitonic":
        bits = (n - 1).bit_length()
        return bits * (bits + 1) // 2
    if network == "merge_selection":
        bits, block_bits = (n - 1).bit_length(), (k - 1).bit_length()
        return block_bits * (block_bits + 1) // 2 + (bits - block_bits) * (block_bits + 1)
    return max((cascade.end for cascade in splitter_cascades(n, k)), default=0)


@lru_cache(maxsize=32)
def comparator_layers(network: str, n: int, k: int) -> list[Tensor]:
    """Return the network's comparators, layer by layer."""
    return NETWORKS[network](n, k)


def _inputs(network: str, n: int) -> Tensor:
    """Return the input on each wire."""
    inputs = torch.arange(n)
    if network == "bitonic":
        inputs[_bitonic_start(n)] = torch.arange(n)
    return inputs


@lru_cache(maxsize=32)
def needed_layers(network: str, n: int, k: int) -> list[Tensor]:
    """Return the comparators from which a way leads to the k last wires, layer by layer.

    The others cannot change what is selected: at n = 1,000 and k = 5, 2,039 of 5,085 of the splitter network.
    Those of the odd-even network are all returned: it would no longer repeat two layers.
    """
    layers = comparator_layers(network, n, k)
    if network == "odd_even":
        return layers
    reaches, needed = torch.arange(n) >= n - k, []
    for layer in reversed(layers):
        used = layer[:, reaches[layer].any(0)]
        reaches[used.flatten()] = True
        needed.append(used)
    return needed[::-1]


@lru_cache(maxsize=32)
def pair_layers(
    network: str, n: int, k: int, device: torch.device
) -> tuple[Tensor, list[tuple[int, Tensor, Tensor]]]:
    """Return the input at each place (n,); per layer, its number of comparators and the ways on and back.

    A layer with p comparators finds the smaller outputs in places 1..p, the larger ones in places p+1..2p,
    and the other wires that are still needed behind. Place 0 holds nothing. "On" says where the next layer's
    places stand in this one, after the last layer where the k last wires do; "back" the reverse, with place 0
    for wires that are no longer needed. Layers that repeat are held once.
    """
    layers, wires = needed_layers(network, n, k), torch.arange(n)
    orders: dict[int, Tensor] = {}
    after = wires if network == "odd_even" else wires[n - k :]
    for layer in reversed(layers):
        if id(layer) not in orders:
            orders[id(layer)] = _pairs_first(layer, after, n)
        after = orders[id(layer)]
    ways, steps = {}, []
    for layer, following in zip_longest(layers, layers[1:]):
        key = id(layer), id(following)
        if key not in ways:
            order, wanted = orders[id(layer)], wires[n - k :] if following is None else orders[id(following)]
            ways[key] = layer.shape[1], _ways(order, wanted, n, device), _ways(wanted, order, n, device)
        steps.append(ways[key])
    first = orders[id(layers[0])] if layers else wires
    return _inputs(network, n)[first].to(device), steps


def _pairs_first(layer: Tensor, needed: Tensor, n: int) -> Tensor:
    """Return the wires of the comparators, then the other wires that are needed after this layer."""
    single = torch.zeros(n, dtype=torch.bool)
    single[needed] = True
    single[layer.flatten()] = False
    return torch.cat([layer[0], layer[1], single.nonzero().squeeze(1)])


def _ways(source: Tensor, wanted: Tensor, n: int, device: torch.device) -> Tensor:
    """Return the place in ``source``, counted from 1, of each wire in ``wanted``, after a 0; 0 if missing."""
    place = torch.zeros(n, dtype=torch.int64)
    place[source] = torch.arange(1, len(source) + 1)
    return torch.cat([torch.zeros(1, dtype=torch.int64), place[wanted]]).to(device)
