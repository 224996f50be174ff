"""The parents of classes, and the one that several classes share."""

from collections import Counter
from collections.abc import Sequence

from shortlist.class_table import ClassTable
from shortlist.serve.exchange import CommonAncestor


class Lineage:
    """The levels above the classes of a table.

    Attributes:
        levels: The levels, the most specific first: the one with the most parents.
    """

    def __init__(self, table: ClassTable) -> None:
        self._columns = table.parents
        self._counts = {level: Counter(column) for level, column in table.parents.items()}
        self.levels = sorted(self._columns, key=lambda level: -len(self._counts[level]))

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
