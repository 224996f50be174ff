"""The tree of a taxonomy as tensors on one device, and the probabilities of its nodes."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import can_read_values
from shortlist._precision import wide_type
from shortlist.taxonomy import Taxonomy


class Tree(NamedTuple):
    """A tree of v nodes above c classes; one node more, the last, is empty."""

    order: Tensor  # classes (c,), those of each node together
    chains: Tensor  # nodes (c, d) that hold each class, from itself up to the root
    starts: Tensor  # place (v + 1,) in the order of each node's first class
    ends: Tensor  # place (v + 1,) after its last class
    parents: Tensor  # parent (v + 1,) of each node; the root's is the root

    @property
    def root(self) -> int:
        """Number of the root."""
        return len(self.starts) - 2

    @property
    def empty(self) -> int:
        """Number of the node that holds no class."""
        return len(self.starts) - 1

    def sizes(self, nodes: Tensor) -> Tensor:
        """Return the number of classes that each node holds."""
        return self.ends[nodes] - self.starts[nodes]


def tensors_of(taxonomy: Taxonomy) -> Tree:
    """Return the tensors of a taxonomy."""
    start, end = taxonomy.bounds
    none, root = torch.zeros(1, dtype=torch.int64), len(taxonomy) - 1
    parents = torch.tensor([*taxonomy.parents[:-1], root, root])
    return Tree(taxonomy.order, taxonomy.chains, torch.cat([start, none]), torch.cat([end, none]), parents)


def nodes_hold(tree: Tree, nodes: Tensor, target: Tensor) -> Tensor:
    """Return whether each of some nodes (n, m) of each row holds the row's class (n,)."""
    place = tree.starts[target][:, None]
    return (tree.starts[nodes] <= place) & (place < tree.ends[nodes])


def first_largest(values: Tensor) -> Tensor:
    """Return the class (n,) of the largest value (n, c), the first of several."""
    if can_read_values(values) and len(values):
        return torch.from_numpy(values.detach().numpy().argmax(1))  # in a tenth of PyTorch's time
    return values.argmax(1)


def climb(values: Tensor, best: Tensor, tree: Tree, steps: Tensor) -> Tensor:
    """Return the masses (n, d) of the nodes from a class (n,) of each row up, as far as they are wanted.

    Args:
        values: Probabilities (n, c).
        best: Class (n,) whose nodes ``tree.chains[best]`` are meant.
        tree: Tree over the classes.
        steps: Number of nodes (n,) that are wanted, without the root; the masses of those above are infinite.

    Returns:
        Masses that never fall.
    """
    nodes = tree.chains[best]
    beyond = torch.arange(nodes.shape[1], device=nodes.device) >= steps[:, None]
    masses = NodeMasses(values, tree).of(None, nodes.masked_fill(beyond, tree.empty))
    if can_read_values(values):
        # a parent's sum is added up in another order, and can be lower in the last bit
        masses = torch.from_numpy(np.maximum.accumulate(masses.numpy(), axis=1))
    return masses.to(values.dtype).masked_fill(beyond, torch.inf)


class NodeMasses:
    """The sums of probabilities (n, c) over the classes of nodes, in float64.

    On the CPU, a mass depends on its row and node alone: it is always the same to the bit. Elsewhere, it is
    the difference of two sums over the first classes in the order of the tree. It then never falls from a
    node to its parent, since rounding keeps the order of numbers.
    """

    def __init__(self, values: Tensor, tree: Tree) -> None:
        self._values, self._tree = values.detach(), tree
        self._sums: Tensor | None = None
        if not can_read_values(values):
            in_order = values.index_select(1, tree.order)
            self._sums = torch.nn.functional.pad(in_order.cumsum(1, dtype=wide_type(values)), (1, 0))

    def of(self, rows: Tensor | None, nodes: Tensor) -> Tensor:
        """Return the masses (k, m) of nodes (k, m) of some rows (k,), or of all; 0 for root and empty node.

        The root is never asked for: it is the answer where no other node is. To add it up would take long.
        """
        tree = self._tree
        if self._sums is not None:
            sums = self._sums if rows is None else self._sums[rows]
            masses = sums.gather(1, tree.ends[nodes]) - sums.gather(1, tree.starts[nodes])
            return masses.masked_fill(nodes == tree.root, 0.0)
        masses = np.zeros(nodes.shape)
        rows_with_nodes, places = np.nonzero(nodes.numpy() < tree.root)
        if len(rows_with_nodes):
            of_values = rows_with_nodes if rows is None else rows.numpy()[rows_with_nodes]
            masses[rows_with_nodes, places] = self._added_up(
                of_values, nodes.numpy()[rows_with_nodes, places]
            )
        return torch.from_numpy(masses)

    def _added_up(self, rows: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return the masses (k,) of nodes (k,) of rows (k,), for each in the order of its classes."""
        values, tree = self._values.numpy(), self._tree
        starts, order = tree.starts.numpy()[nodes], tree.order.numpy()
        sizes = tree.ends.numpy()[nodes] - starts
        first = np.cumsum(sizes) - sizes
        places = np.arange(sizes.sum()) + np.repeat(starts - first, sizes)
        picked = values.ravel()[order[places] + np.repeat(rows * values.shape[1], sizes)]
        return np.add.reduceat(picked.astype(np.float64), first)
