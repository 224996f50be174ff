"""The table of what is known about each class. Data sets, models and reports carry it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from shortlist._messages import examples
from shortlist._names import split_author
from shortlist._store.files import write_text
from shortlist._store.json import read_json
from shortlist._text import composed

GROUPS = ("few", "medium", "many")
"""Groups of classes by their number of training examples."""


def group_names(count_bins: Sequence[int] = ()) -> tuple[str, ...]:
    """Return the names of the groups of classes: ``GROUPS``, or those of bins of training counts.

    Example:
        >>> group_names([10, 50])
        ('up_to_10', 'up_to_50', 'over_50')
    """
    if not count_bins:
        return GROUPS
    return (*(f"up_to_{bound}" for bound in count_bins), f"over_{count_bins[-1]}")


@dataclass(frozen=True, repr=False)
class ClassTable:
    """A table with the name, id, parents and number of training examples of each class, by class index.

    Args:
        names: Name of each class, for people.
        ids: Unique id of each class, for files and other tools. The names by default.
        counts: Number of training examples of each class; empty if not known.
        parents: For each level above the classes (``"genus"``, ``"superclass"``), the parent of each class.
            An empty name is no parent: the class is a group of its own.

    Text is kept in Unicode's composed form (NFC): two ways to write the same accent make no two classes.

    Example:
        >>> table = ClassTable(names=("oak", "beech", "birch"), counts=(150, 20, 3))
        >>> [GROUPS[g] for g in table.groups()]
        ['many', 'medium', 'few']
    """

    names: Sequence[str]
    ids: Sequence[str] = ()
    counts: Sequence[int] = ()
    parents: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _texts(self.names))
        object.__setattr__(self, "ids", _texts(self.ids) or self.names)
        object.__setattr__(self, "counts", tuple(map(_whole, self.counts)))
        parents = {str(level): _texts(column) for level, column in self.parents.items()}
        object.__setattr__(self, "parents", parents)
        columns = {"ids": self.ids, **{f"parents[{level!r}]": column for level, column in parents.items()}}
        if self.counts:
            columns["counts"] = self.counts
        for name, column in columns.items():
            if len(column) != len(self.names):
                raise ValueError(f"{name} must have one entry per class ({len(self)}), got {len(column)}")
        if len(set(self.ids)) != len(self.ids):
            seen: set[str] = set()
            twice = next(i for i in self.ids if i in seen or seen.add(i))
            raise ValueError(f"ids must all be different, got {twice!r} twice")
        if self.counts and min(self.counts) < 0:
            raise ValueError(f"counts must be >= 0, got {min(self.counts)}")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        """Show how many classes there are, the first names, and what else is known.

        Example:
            >>> ClassTable(names=("oak", "beech", "birch", "ash"), counts=(150, 20, 3, 4))
            ClassTable(4 classes: oak, beech, birch, ...; 177 training rows)
        """
        names = ", ".join([*self.names[:3], *(["..."] if len(self) > 3 else [])])
        known = [f"{len(self):,} classes: {names}"]
        known += [f"levels: {', '.join(self.parents)}"] if self.parents else []
        known += [f"{sum(self.counts):,} training rows"] if self.counts else []
        return f"ClassTable({'; '.join(known)})"

    @cached_property
    def parents_by_class(self) -> tuple[Mapping[str, str], ...]:
        """Parents of each class, by level."""
        return tuple({level: column[i] for level, column in self.parents.items()} for i in range(len(self)))

    @cached_property
    def plain_names(self) -> Mapping[str, int]:
        """Index of each class by its name without the author, of names that only one class has."""
        index: dict[str, int] = {}
        several: set[str] = set()
        for number, name in enumerate(self.names):
            plain = split_author(name)[0]
            if index.setdefault(plain, number) != number:
                several.add(plain)
        return {plain: number for plain, number in index.items() if plain not in several}

    @property
    def class_counts(self) -> Tensor:
        """Number of training examples of each class (c,), int64."""
        if not self.counts:
            raise ValueError("the class table has no training counts: counts is empty")
        return torch.tensor(self.counts, dtype=torch.int64)

    def groups(self, *, few_below: int = 20, many_above: int = 100, count_bins: Sequence[int] = ()) -> Tensor:
        """Return each class's group by training count (c,): 0 few, 1 medium, 2 many (see ``GROUPS``).

        Args:
            few_below: Classes with fewer training examples are in group 0.
            many_above: Classes with more training examples are in group 2.
            count_bins: In place of these three, the largest count of each group but the last (see
                :func:`group_names`).

        Example:
            >>> table = ClassTable(names=("oak", "beech", "birch"), counts=(51, 50, 3))
            >>> table.groups(count_bins=[10, 50]).tolist()
            [2, 1, 0]
        """
        if not 0 <= few_below <= many_above + 1:
            raise ValueError(f"few_below must be in [0, many_above + 1 = {many_above + 1}], got {few_below}")
        if any(low >= high for low, high in pairwise(count_bins)):
            raise ValueError(f"count_bins must rise, got {list(count_bins)}")
        counts = self.class_counts
        if count_bins:
            return torch.bucketize(counts, torch.tensor(list(count_bins)))
        return (counts >= few_below).long() + (counts > many_above).long()

    def parent_index(self, level: str) -> tuple[Tensor, tuple[str, ...]]:
        """Return the parent of each class as a number (c,), and the names of the parents in that order."""
        if level not in self.parents:
            known = ", ".join(self.parents) or "none"
            raise ValueError(f"level must be one of the table's ({known}), got {level!r}")
        keys = [name or index for index, name in enumerate(self.parents[level])]
        number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        names = tuple(key if isinstance(key, str) else "" for key in number)
        return torch.tensor([number[key] for key in keys], dtype=torch.int64), names

    def with_counts(self, counts: Sequence[int] | Tensor) -> "ClassTable":
        """Return the same classes with other training counts."""
        return ClassTable(self.names, self.ids, [_whole(count) for count in counts], self.parents)

    def save(self, path: str | Path) -> None:
        """Write the table as JSON, one list per column."""
        content = {"format": "shortlist class table 1", "names": self.names, "ids": self.ids}
        content |= {"counts": self.counts, "parents": self.parents}
        write_text(path, json.dumps(content, ensure_ascii=False, indent=0) + "\n")

    @staticmethod
    def load(path: str | Path) -> "ClassTable":
        """Read what :meth:`save` wrote."""
        content = read_json(path)
        try:
            if content.pop("format") != "shortlist class table 1":
                raise KeyError("format")
            return ClassTable(**content)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path} is not a class table written by shortlist: {error!r}") from error


def class_finder(classes: ClassTable) -> Callable[[object], int | None]:
    """Return the function from a label to the index of its class, ``None`` if there is no such class.

    A label is the id of a class. If no class has this id, it is the name of a class, if only one class has
    this name. A whole number is a class index only if the classes have no ids of their own, which are other
    than their names, and no name is a whole number: otherwise nobody could tell 10, the id, from 10, the
    index. It is written as usual: 7, not 007. Accents may be written in either way of Unicode.

    The function raises a ``ValueError`` for the name of several classes, and for a label that is neither
    text nor a whole number.

    Example:
        >>> find = class_finder(ClassTable(["oak", "ash", "ash"], ids=["1", "10", "2"]))
        >>> find(10), find("oak"), find(0)
        (1, 0, None)
        >>> class_finder(ClassTable(["ash", "oak"]))(1)
        1
    """
    index: dict[str, int] = {}
    several: dict[str, list[str]] = {}
    for number, name in enumerate(classes.names):
        several.setdefault(name, []).append(classes.ids[number])
        index[name] = number
    if classes.ids == classes.names and not any(name.isdecimal() for name in classes.names):
        index = {str(number): number for number in range(len(classes))} | index
    index |= {id: number for number, id in enumerate(classes.ids)}
    several = {name: ids for name, ids in several.items() if len(ids) > 1 and name not in classes.ids}

    def find(label: object) -> int | None:
        if isinstance(label, bool) or not isinstance(label, str | int):
            raise ValueError(f"a class must be text or a whole number, got {label!r}")
        text = composed(str(label))
        if text in several:
            raise ValueError(
                f"class must be one class, got {label!r}, the name of {examples(several[text])}: write an id"
            )
        return index.get(text)

    return find


def _texts(column: Sequence[object]) -> tuple[str, ...]:
    return tuple(composed(str(text)) for text in column)


def _whole(count: int | float | Tensor) -> int:
    """Return a count as an integer, if it is one."""
    if not float(count).is_integer():
        raise ValueError(f"counts must be whole numbers, got {float(count)}")
    return int(count)
