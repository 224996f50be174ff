"""Growing unions of at most r nodes of a tree, from the most likely class to all classes."""

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from shortlist.ops import largest
from shortlist.predictors._tree import NodeMasses, Tree

LEADING = (16, 64)  # most likely classes that are put in order first: as a rule no union needs more

Stop = Callable[[Tensor, Tensor, Tensor], Tensor]


class _Rows(NamedTuple):
    """The rows that still grow."""

    rows: Tensor  # which rows they are (a,)
    ranked: Tensor  # their most likely classes (a, m), the most likely first
    used: Tensor  # whether each of these is in the union, or must not be used (a, m)
    nodes: Tensor  # the union (a, r + 1): numbers of nodes in ascending order, then the empty node
    before: Tensor  # largest mass (a,) of the unions before this one, 0 for none
    reached: Tensor  # largest mass (a,) of these and this one


def grow(values: Tensor, tree: Tree, num_nodes: int, stop: Stop) -> tuple[Tensor, Tensor]:
    """Let the union of each row grow until it is told to stop, or holds all classes.

    The first union is the most likely class. For the next one, the most likely class that is not in it is
    added; siblings that are complete become their parent; and if there are too many nodes, two of them become
    their lowest common ancestor, those for which it adds the fewest classes, then the most mass, then is
    the node of the smallest number.

    Args:
        values: Probabilities (n, c).
        tree: Tree over the c classes.
        num_nodes: Largest number of nodes r of a union, at least 2.
        stop: Function of the rows (a,) that still grow, their unions (a, r) and the largest mass (a,) of
            all their unions so far, which tells the rows (a,) to stop.

    Returns:
        The last unions (n, r), filled up with the empty node, and the largest mass (n,) of a union before.
    """
    c, masses_of = values.shape[1], NodeMasses(values, tree)
    unions = torch.full((len(values), num_nodes), tree.empty, device=values.device)
    masses = values.new_zeros(len(values))
    left = torch.arange(len(values), device=values.device)
    for leading in (*LEADING, c):  # more are put in order only in rows for which the first are too few
        if not len(left):
            break
        ranked, unsure = _in_order(values if len(left) == len(values) else values[left], min(leading, c))
        waiting, known = [left[unsure[:, 0]]], ~unsure[:, 0]
        rows = _start(left[known], ranked[known], unsure[known], masses_of, tree, num_nodes, masses)
        while True:
            done = stop(rows.rows, rows.nodes[:, :-1], rows.reached) | (rows.nodes[:, 0] == tree.root)
            unions[rows.rows[done]], masses[rows.rows[done]] = rows.nodes[done, :-1], rows.before[done]
            lacking = rows.used.all(1) & ~done
            waiting.append(rows.rows[lacking])
            rows = _Rows(*(part[~(done | lacking)] for part in rows))
            if not len(rows.rows):
                break
            rows = _step(rows, masses_of, tree)
        left = torch.cat(waiting)
    return unions, masses


def _start(
    index: Tensor,
    ranked: Tensor,
    unsure: Tensor,
    masses_of: NodeMasses,
    tree: Tree,
    num_nodes: int,
    masses: Tensor,
) -> _Rows:
    """Return rows whose union is their most likely class."""
    nodes = torch.full((len(index), num_nodes + 1), tree.empty, device=index.device)
    nodes[:, 0] = ranked[:, 0]
    used = unsure | (ranked == ranked[:, :1])
    rows = _Rows(index, ranked, used, nodes, masses[index], masses[index])
    return rows._replace(reached=_mass(masses_of, tree, rows))


def _in_order(values: Tensor, leading: int) -> tuple[Tensor, Tensor]:
    """Return the most likely classes (a, m), of equal ones the first, and which of them are not sure."""
    if leading == values.shape[1]:
        ranked = values.sort(dim=1, descending=True, stable=True).indices
        return ranked, torch.zeros_like(ranked, dtype=torch.bool)
    top_values, ranked = largest(values, leading)
    by_class = ranked.argsort(dim=1)
    top_values, ranked = top_values.gather(1, by_class), ranked.gather(1, by_class)
    in_order = top_values.sort(dim=1, descending=True, stable=True)
    # of classes that are equal to the last one, others may come first that are not among these
    return ranked.gather(1, in_order.indices), in_order.values == in_order.values[:, -1:]


def _step(rows: _Rows, masses_of: NodeMasses, tree: Tree) -> _Rows:
    """Add to each union the most likely class that is not in it."""
    first = (~rows.used).to(torch.uint8).argmax(1, keepdim=True)
    nodes = rows.nodes.clone()
    nodes[:, -1:] = rows.ranked.gather(1, first)
    nodes = _complete(nodes, tree)
    many = (nodes != tree.empty).all(1).nonzero().squeeze(1)
    if len(many):
        nodes[many] = _complete(_merge(nodes[many], rows.rows[many], masses_of, tree), tree)
    newest, place = nodes[:, -1:], tree.starts[rows.ranked]
    used = rows.used.scatter(1, first, True)  # two other nodes may have become one
    used |= (tree.starts[newest] <= place) & (place < tree.ends[newest])
    grown = rows._replace(nodes=nodes.sort(1).values, used=used, before=rows.reached)
    return grown._replace(reached=torch.maximum(rows.reached, _mass(masses_of, tree, grown)))


def _complete(nodes: Tensor, tree: Tree) -> Tensor:
    """Replace the last node and its siblings by their parent, as long as all of these are there."""
    while True:
        last = nodes[:, -1:]
        parent = tree.parents[last]
        inside = _inside(nodes, parent, tree)
        whole = (tree.sizes(nodes) * inside).sum(1, keepdim=True) == tree.sizes(parent)
        whole &= (last != tree.root) & (last != tree.empty)
        if not bool(whole.any()):
            return nodes
        nodes = nodes.masked_fill(inside & whole, tree.empty)
        nodes[:, -1:] = torch.where(whole, parent, last)


def _merge(nodes: Tensor, index: Tensor, masses_of: NodeMasses, tree: Tree) -> Tensor:
    """Replace the nodes below the lowest common ancestor of two by it, which becomes the last node."""
    pairs = torch.tensor(list(combinations(range(nodes.shape[1]), 2)), device=nodes.device)
    above = _common_ancestors(nodes[:, pairs[:, 0]], nodes[:, pairs[:, 1]], tree)  # (a, pairs)
    inside = _inside(nodes[:, None, :], above[:, :, None], tree)  # (a, pairs, r + 1)
    added = tree.sizes(above) - (tree.sizes(nodes)[:, None, :] * inside).sum(2)
    # where one of these holds the other and both add as many classes, they add the same ones: either will do
    mass = masses_of.of(index, above) - (masses_of.of(index, nodes)[:, None, :] * inside).sum(2)
    best = added == added.amin(1, keepdim=True)
    mass = mass.masked_fill(~best, -torch.inf)
    best &= mass == mass.amax(1, keepdim=True)
    chosen = above.masked_fill(~best, tree.empty).amin(1, keepdim=True)
    nodes = nodes.masked_fill(_inside(nodes, chosen, tree), tree.empty).sort(1).values
    nodes[:, -1:] = chosen
    return nodes


def _common_ancestors(first: Tensor, second: Tensor, tree: Tree) -> Tensor:
    """Return the lowest common ancestors of nodes that have no class in common."""
    chains = tree.chains[tree.order[tree.starts[first]]]
    place = tree.starts[second][..., None]
    outside = (place < tree.starts[chains]) | (place >= tree.ends[chains])
    return chains.gather(-1, outside.sum(-1, keepdim=True)).squeeze(-1)


def _inside(nodes: Tensor, above: Tensor, tree: Tree) -> Tensor:
    """Return whether each node is below another, or is it; the empty node is below none."""
    held = (tree.starts[nodes] >= tree.starts[above]) & (tree.ends[nodes] <= tree.ends[above])
    return held & (nodes != tree.empty)


def _mass(masses_of: NodeMasses, tree: Tree, rows: _Rows) -> Tensor:
    """Return the masses (a,) of the unions."""
    return masses_of.of(rows.rows, rows.nodes).sum(1).to(rows.before.dtype)
