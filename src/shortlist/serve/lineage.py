"""The parents of classes, and the one that several classes share."""

from collections import Counter
from collections.abc import Sequence

from shortlist.class_table import ClassTable
from shortlist.serve.exchange import CommonAncestor


class Lineage:
    """The levels above the classes of a table.

    Attributes:
        levels: The levels, the most specific first: the one with the most parents.
        look_alikes: Levels whose parents are named after one of their own classes: groups of classes that
            look like it.
    """

    def __init__(self, table: ClassTable) -> None:
        self._columns = table.parents
        self._counts = {level: Counter(column) for level, column in table.parents.items()}
        self.levels = sorted(self._columns, key=lambda level: -len(self._counts[level]))
        self.look_alikes = [
            level for level in self.levels if self._is_named_after_classes(level, table.names)
        ]

    def common_ancestor(self, classes: Sequence[int]) -> CommonAncestor | None:
        """Return the most specific parent that two or more classes share; ``None`` if they share none.

        An empty name is no parent.
        """
        if len(classes) < 2:
            return None
        for level in self.levels:
            names = {self._columns[level][index] for index in classes}
            if len(names) == 1 and (name := names.pop()):
                return CommonAncestor(level, name, self._counts[level][name])
        return None

    def _is_named_after_classes(self, level: str, names: Sequence[str]) -> bool:
        """Return whether most parents of several classes bear the name of one of these classes."""
        named = {parent for name, parent in zip(names, self._columns[level], strict=True) if name == parent}
        shared = [parent for parent, count in self._counts[level].items() if parent and count > 1]
        return 2 * sum(parent in named for parent in shared) > len(shared)
