"""The tree above the classes: species, genera, families. Predictors and metrics of its nodes carry it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from shortlist.class_table import ClassTable


@dataclass(frozen=True)
class Taxonomy:
    """A tree whose leaves are the classes, by node number.

    The nodes 0, ..., c - 1 are the classes, in the order of the class table. The nodes above follow, those of
    lower levels first, and the last node is the root, which holds all classes. Every node above the classes
    has two children or more: where a genus has one species, or a family one genus, only the lower of the
    two is a node.

    Args:
        names: Name of each node.
        levels: Name of the level of each node, such as ``"genus"``.
        parents: Number of each node's parent, which is larger than the node's own; -1 for the root.

    Example:
        >>> names = ("robur", "cerris", "sylvatica", "pendula")
        >>> parents = {"genus": ["Quercus", "Quercus", "Fagus", "Betula"]}
        >>> parents["family"] = ["Fagaceae", "Fagaceae", "Fagaceae", "Betulaceae"]
        >>> tree = Taxonomy.from_class_table(ClassTable(names=names, parents=parents))
        >>> tree.names  # not Fagus, Betula and Betulaceae, which hold one class each
        ('robur', 'cerris', 'sylvatica', 'pendula', 'Quercus', 'Fagaceae', 'all classes')
        >>> tree.level_names
        ('class', 'genus', 'family', 'root')
    """

    names: tuple[str, ...]
    levels: tuple[str, ...]
    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        count = len(self.parents)
        if not count or len(self.names) != count or len(self.levels) != count:
            raise ValueError(
                f"names, levels and parents must have one entry per node, got {len(self.names)}, "
                f"{len(self.levels)} and {count}"
            )
        for node, parent in enumerate(self.parents):
            if not (node < parent < count if node < count - 1 else parent == -1):
                raise ValueError(f"parents must be larger than their children, got {parent} of node {node}")
        children = [0] * count
        for parent in self.parents[:-1]:
            children[parent] += 1
        first = self.num_classes
        if any(children[:first]) or any(number < 2 for number in children[first:]):
            raise ValueError("parents must have two children or more, and come after all classes")

    @staticmethod
    def from_class_table(table: ClassTable, *, levels: Sequence[str] | None = None) -> "Taxonomy":
        """Make the tree of the parents in a class table.

        The order of the levels in the table does not matter: a level with more parents is below one with
        fewer. The level of the classes themselves is called ``"class"`` (``"leaf"`` if the table has a level
        of this name), that of the node above all others ``"root"``.

        Args:
            table: Class table with parents.
            levels: Levels of the table to use; all by default.

        Raises:
            ValueError: If the table has no such level, or the levels do not make a tree.
        """
        if isinstance(levels, str):
            raise ValueError(f"levels must be a list of names, got {levels!r}")
        chosen = list(table.parents) if levels is None else list(dict.fromkeys(levels))
        if not chosen:
            raise ValueError("the class table has no parents, and a taxonomy is made of them")
        columns = {level: table.parent_index(level) for level in chosen}
        chosen = _from_below(columns)
        for lower, upper in pairwise(chosen):
            _check_tree(table, lower, upper)
        return _make(table, [(level, *columns[level]) for level in chosen])

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> "Taxonomy":
        """Make the tree that :meth:`to_dict` described."""
        return Taxonomy(tuple(content["names"]), tuple(content["levels"]), tuple(content["parents"]))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"names": list(self.names), "levels": list(self.levels), "parents": list(self.parents)}

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def num_classes(self) -> int:
        """Number of classes c."""
        return min(self.parents[:-1], default=1)

    @cached_property
    def level_names(self) -> tuple[str, ...]:
        """Names of the levels that have nodes, from the classes up."""
        return tuple(dict.fromkeys(self.levels))

    @cached_property
    def heights(self) -> Int[Tensor, " v"]:
        """Level of each node (v,) as a number: 0 for classes, the largest for the root."""
        return torch.tensor([self.level_names.index(level) for level in self.levels])

    @cached_property
    def chains(self) -> Int[Tensor, "c d"]:
        """Nodes that hold each class (c, d): itself, its parent, and so on up to the root, which repeats."""
        parent = torch.tensor(self.parents).where(torch.tensor(self.parents) >= 0, len(self) - 1)
        steps = [torch.arange(self.num_classes)]
        while bool((steps[-1] != len(self) - 1).any()):
            steps.append(parent[steps[-1]])
        return torch.stack(steps, dim=1)

    @cached_property
    def order(self) -> Int[Tensor, " c"]:
        """Classes (c,) in an order in which those of each node stand together."""
        return self.bounds[0][: self.num_classes].argsort()

    @cached_property
    def bounds(self) -> tuple[Int[Tensor, " v"], Int[Tensor, " v"]]:
        """Place in :attr:`order` of each node's first class (v,), and the place after its last (v,)."""
        sizes = [1] * self.num_classes + [0] * (len(self) - self.num_classes)
        for node, parent in enumerate(self.parents[:-1]):
            sizes[parent] += sizes[node]
        ends, free = sizes.copy(), sizes.copy()  # the root's end; and where the next child from behind ends
        starts = [0] * len(self)
        for node in range(len(self) - 2, -1, -1):
            parent = self.parents[node]
            ends[node] = free[node] = free[parent]
            starts[node] = free[parent] = ends[node] - sizes[node]
        return torch.tensor(starts), torch.tensor(ends)

    @cached_property
    def sizes(self) -> Int[Tensor, " v"]:
        """Number of classes that each node holds (v,)."""
        start, end = self.bounds
        return end - start

    def nodes_of(self, sets: Bool[Tensor, "n c"]) -> tuple[Int[Tensor, " k"], Int[Tensor, " k"]]:
        """Return the fewest nodes that hold exactly the classes of each set.

        Args:
            sets: Sets (n, c), of any origin.

        Returns:
            Row (k,) and node (k,) of each of them, row by row, on the CPU.

        Example:
            >>> levels = ("class", "class", "class", "genus", "root")
            >>> tree = Taxonomy(("a", "b", "c", "AB", "all"), levels, (3, 3, 4, 4, -1))
            >>> sets = torch.tensor([[True, True, False], [True, False, True]])
            >>> [part.tolist() for part in tree.nodes_of(sets)]
            [[0, 1, 1], [3, 0, 2]]
        """
        if sets.ndim != 2 or sets.dtype != torch.bool or sets.shape[1] != self.num_classes:
            raise ValueError(
                f"sets must be a bool tensor of shape (n, {self.num_classes}), got {sets.dtype} "
                f"{tuple(sets.shape)}"
            )
        sets, (start, end) = sets.cpu(), self.bounds
        before = torch.zeros(len(sets), self.num_classes + 1, dtype=torch.int32)
        torch.cumsum(sets[:, self.order], dim=1, dtype=torch.int32, out=before[:, 1:])
        inner = torch.arange(self.num_classes, len(self))
        count = before[:, end[inner]] - before[:, start[inner]]
        whole = torch.cat([sets, count == self.sizes[inner]], dim=1)
        parent = torch.tensor(self.parents)
        within = whole[:, parent] & (parent >= 0)
        rows, nodes = (whole & ~within).nonzero(as_tuple=True)
        return rows, nodes


def _from_below(columns: Mapping[str, tuple[Tensor, tuple[str, ...]]]) -> list[str]:
    """Return the levels from the lowest to the highest: the lower, the more parents it has.

    Of levels with as many, the lower is the one that stands on the side of the lower ones in the table.
    """
    counts = {level: (len(set(names) - {""}), len(names)) for level, (_, names) in columns.items()}
    levels = list(columns)
    if counts[levels[0]] < counts[levels[-1]]:
        levels.reverse()
    return sorted(levels, key=counts.__getitem__, reverse=True)


def _check_tree(table: ClassTable, lower: str, upper: str) -> None:
    """Require one parent at the upper level for each at the lower one."""
    seen: dict[str, str] = {}
    for low, high in zip(table.parents[lower], table.parents[upper], strict=True):
        if low and seen.setdefault(low, high) != high:
            raise ValueError(
                f"the parents of the class table must make a tree: the {lower} {low!r} has classes in two "
                f"parents of the level {upper!r}, {seen[low]!r} and {high!r}. Choose levels that do"
            )


def _make(table: ClassTable, columns: Sequence[tuple[str, Tensor, tuple[str, ...]]]) -> Taxonomy:
    """Number the nodes from below, leaving out those that hold no more than one node below them."""
    names = list(table.names)
    levels = ["leaf" if "class" in table.parents else "class"] * len(table)
    parents = [-1] * len(table)
    highest = list(range(len(table)))  # of the nodes so far, the one that holds each class
    root = ("root", torch.zeros(len(table), dtype=torch.int64), ("all classes",))
    for level, index, known in (*columns, root):
        children: list[dict[int, None]] = [{} for _ in known]
        for group, node in zip(index.tolist(), highest, strict=True):
            children[group][node] = None
        numbers = {}
        for group, nodes in enumerate(children):
            if len(nodes) > 1:
                numbers[group] = len(names)
                for node in nodes:
                    parents[node] = len(names)
                names.append(known[group])
                levels.append(level)
                parents.append(-1)
        highest = [numbers.get(group, node) for group, node in zip(index.tolist(), highest, strict=True)]
    return Taxonomy(tuple(names), tuple(levels), tuple(parents))
