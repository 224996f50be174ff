"""Metrics of answers that are nodes of a taxonomy: how often they are right, and on which level they are."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from shortlist._checks import check_target
from shortlist.taxonomy import Taxonomy


class NodeSums(NamedTuple):
    """Sums over rows, int64; those of batches can be added up.

    ``hits`` (l,) is the number of nodes on each level, from the classes up, that hold the true class of their
    row, ``nodes`` (l,) the number of all nodes, ``rows`` the number of rows.
    """

    hits: Tensor
    nodes: Tensor
    rows: Tensor


@torch.no_grad()
def node_sums(
    sets: Bool[Tensor, "n c"], target: Int[Tensor, " n"], taxonomy: Taxonomy, *, ignore_index: int = -100
) -> NodeSums:
    """Compute the sums for the metrics of nodes; the nodes of a set are the fewest that make it up.

    Args:
        sets: Sets (n, c), such as those of :class:`~shortlist.predictors.TaxonomyNodes`.
        target: Class indices (n,).
        taxonomy: Tree over the c classes.
        ignore_index: Rows with this target are ignored.

    Example:
        >>> tree = Taxonomy(tuple("abcGR"), ("class", "class", "class", "genus", "root"), (3, 3, 4, 4, -1))
        >>> sets = torch.tensor([[True, True, False], [True, False, False]])
        >>> sums = node_sums(sets, torch.tensor([1, 2]), tree)
        >>> sums.hits.tolist(), sums.nodes.tolist()  # classes, genera, root
        ([0, 1, 0], [1, 1, 0])
    """
    check_target(target, sets, ignore_index=ignore_index)
    counted = (target != ignore_index).cpu()
    true = target.cpu()[counted]
    rows, nodes = taxonomy.nodes_of(sets[counted.to(sets.device)])
    start, end = taxonomy.bounds
    place = start[true[rows]]
    held = (start[nodes] <= place) & (place < end[nodes])
    levels = taxonomy.heights[nodes]
    number = len(taxonomy.level_names)
    hits, every = levels[held].bincount(minlength=number), levels.bincount(minlength=number)
    return NodeSums(hits, every, torch.tensor(len(true)))


def node_accuracy(sums: NodeSums) -> Float[Tensor, ""]:
    """Compute the share of rows that one of their nodes holds the true class of, float64.

    Example:
        >>> node_accuracy(NodeSums(torch.tensor([5, 3, 1]), torch.tensor([6, 3, 1]), torch.tensor(10)))
        tensor(0.9000, dtype=torch.float64)
    """
    return sums.hits.sum().double() / sums.rows


def node_shares(sums: NodeSums) -> Float[Tensor, " l"]:
    """Compute the mean number of nodes of a row on each level (l,), float64.

    Where each answer is one node, these are the shares of answers by level.

    Example:
        >>> node_shares(NodeSums(torch.tensor([5, 3, 1]), torch.tensor([6, 3, 1]), torch.tensor(10)))
        tensor([0.6000, 0.3000, 0.1000], dtype=torch.float64)
    """
    return sums.nodes.double() / sums.rows


def mean_level(sums: NodeSums) -> Float[Tensor, ""]:
    """Compute the mean level of the nodes, float64: 0 for classes, 1 for the level above, and so on.

    Example:
        >>> mean_level(NodeSums(torch.tensor([5, 3, 1]), torch.tensor([6, 3, 1]), torch.tensor(10)))
        tensor(0.5000, dtype=torch.float64)
    """
    levels = torch.arange(len(sums.nodes), dtype=torch.float64)
    return (sums.nodes * levels).sum() / sums.nodes.sum()
