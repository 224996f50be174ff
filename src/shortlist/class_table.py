"""The table of what is known about each class. Data sets, models and reports carry it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from shortlist._languages import best_language, language_key
from shortlist._messages import examples
from shortlist._names import split_author
from shortlist._store.files import write_text
from shortlist._store.json import read_json
from shortlist._text import composed

GROUPS = ("few", "medium", "many")
"""Groups of classes by their number of training examples."""
_FORMATS = ("shortlist class table 1", "shortlist class table 2")  # 1 has no authors, and nothing after them


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
    """A table of what is known about each class, by class index: name, id, parents, training examples.

    Args:
        names: Name of each class, for people.
        ids: Unique id of each class, for files and other tools. The names by default.
        counts: Number of training examples of each class; empty if not known.
        parents: For each level above the classes (``"genus"``, ``"superclass"``), the parent of each class.
            An empty name is no parent: the class is a group of its own.
        authors: Author of each scientific name, such as ``"L."``; empty if a class has none.
        common_names: For each language (``"fr"``), the names that people call each class, the best first.
        synonyms: Other scientific names of each class.
        external: For each other place (``"gbif"``, ``"powo"``), the id of each class there; empty if none.

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
    authors: Sequence[str] = ()
    common_names: Mapping[str, Sequence[Sequence[str]]] = field(default_factory=dict)
    synonyms: Sequence[Sequence[str]] = ()
    external: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = _texts(self.names)
        common = {language_key(key): _text_lists(column) for key, column in self.common_names.items()}
        columns = {
            "names": names,
            "ids": _texts(self.ids) or names,
            "counts": tuple(map(_whole, self.counts)),
            "parents": {str(level): _texts(column) for level, column in self.parents.items()},
            "authors": _texts(self.authors),
            "common_names": {key: column for key, column in common.items() if any(column)},
            "synonyms": _text_lists(self.synonyms),
            "external": {str(place): _texts(column) for place, column in self.external.items()},
        }
        for name, column in columns.items():
            object.__setattr__(self, name, column)
            groups = column.items() if isinstance(column, dict) else [("", column)]
            for key, entries in groups:
                if len(entries) != len(self) and (entries or key):
                    what = f"{name}[{key!r}]" if key else name
                    raise ValueError(
                        f"{what} must have one entry per class ({len(self)}), got {len(entries)}"
                    )
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
        facts = [f"{len(self):,} classes: {names}"]
        facts += [f"levels: {', '.join(self.parents)}"] if self.parents else []
        facts += [f"common names: {', '.join(self.common_names)}"] if self.common_names else []
        facts += [f"{sum(self.counts):,} training rows"] if self.counts else []
        return f"ClassTable({'; '.join(facts)})"

    @cached_property
    def parents_by_class(self) -> tuple[Mapping[str, str], ...]:
        """Parents of each class, by level."""
        return tuple({level: column[i] for level, column in self.parents.items()} for i in range(len(self)))

    @cached_property
    def scientific_names(self) -> tuple[tuple[str, str], ...]:
        """Name of each class without its author, and the author."""
        names: list[tuple[str, str]] = []
        for text, given in zip(self.names, self.authors or [""] * len(self), strict=True):
            name, author = (text, "") if given and not text.endswith(given) else split_author(text)
            names.append((name, given or author))
        return tuple(names)

    @cached_property
    def other_names(self) -> Mapping[str, int | None]:
        """Index of each class by its names without and with author, and by synonyms; ``None`` for several.

        A name of a class counts before the synonym of another.
        """
        names: dict[str, int | None] = {}
        synonyms: dict[str, int | None] = {}
        for number, (plain, author) in enumerate(self.scientific_names):
            for name in {plain, f"{plain} {author}".strip()}:
                names[name] = number if names.get(name, number) == number else None
        for number, column in enumerate(self.synonyms):
            for name in {part for synonym in column for part in (synonym, split_author(synonym)[0])}:
                synonyms[name] = number if synonyms.get(name, number) == number else None
        return synonyms | names

    def common_names_in(self, language: str) -> Sequence[Sequence[str]]:
        """Return the common names of each class in a language; those of ``"pt"`` also for ``"pt-BR"``.

        Args:
            language: A code, or several with weights, as in the header ``Accept-Language``.

        Example:
            >>> table = ClassTable(["Quercus robur", "Fagus"], common_names={"fr": [["chêne pédonculé"], []]})
            >>> table.common_names_in("fr-CA,en;q=0.5")
            (('chêne pédonculé',), ())
        """
        key = best_language(language, self.common_names)
        return ((),) * len(self) if key is None else self.common_names[key]

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
            levels = ", ".join(self.parents) or "none"
            raise ValueError(f"level must be one of the table's ({levels}), got {level!r}")
        keys = [name or index for index, name in enumerate(self.parents[level])]
        number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        names = tuple(key if isinstance(key, str) else "" for key in number)
        return torch.tensor([number[key] for key in keys], dtype=torch.int64), names

    def with_counts(self, counts: Sequence[int] | Tensor) -> "ClassTable":
        """Return the same classes with other training counts."""
        return replace(self, counts=[_whole(count) for count in counts])

    def save(self, path: str | Path) -> None:
        """Write the table as JSON, one list per column."""
        columns = {column.name: getattr(self, column.name) for column in fields(self)}
        content = {"format": _FORMATS[-1], **columns}
        write_text(path, json.dumps(content, ensure_ascii=False, indent=0) + "\n")

    @staticmethod
    def load(path: str | Path) -> "ClassTable":
        """Read what :meth:`save` wrote."""
        content = read_json(path)
        try:
            if (form := content.pop("format")) not in _FORMATS:
                raise ValueError(f"format must be one of {', '.join(_FORMATS)}, got {str(form)[:80]!r}")
            return ClassTable(**content)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{path} is not a class table written by shortlist: {error!r}") from error


def class_finder(classes: ClassTable) -> Callable[[object], int | None]:
    """Return the function from a label to the index of its class, ``None`` if there is no such class.

    A label is the id of a class. If no class has this id, it is the name of a class, if only one class has
    this name. Else it is a name without or with its author, or a synonym, if it is that of one class only;
    an author in the label that the class does not have is left out.

    A whole number is a class index only if the classes have no ids of their own, which are other than their
    names, and no name is a whole number: otherwise nobody could tell 10, the id, from 10, the index. It is
    written as usual: 7, not 007. Accents may be written in either way of Unicode.

    The function raises a ``ValueError`` for the name of several classes, and for a label that is neither
    text nor a whole number.

    Example:
        >>> find = class_finder(ClassTable(["oak", "ash", "ash"], ids=["1", "10", "2"]))
        >>> find(10), find("oak"), find(0)
        (1, 0, None)
        >>> class_finder(ClassTable(["ash", "oak"]))(1)
        1
        >>> find = class_finder(ClassTable(["Quercus robur L."], synonyms=[["Quercus pedunculata Ehrh."]]))
        >>> find("Quercus robur"), find("Quercus pedunculata"), find("Quercus rubra")
        (0, 0, None)
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
        if text in index:
            return index[text]
        others = classes.other_names
        return others[text] if text in others else others.get(split_author(text)[0])

    return find


def _texts(column: Sequence[object]) -> tuple[str, ...]:
    return tuple(composed(str(text)) for text in column)


def _text_lists(column: Sequence[Sequence[object]]) -> tuple[tuple[str, ...], ...]:
    for entry in column:
        if isinstance(entry, str):
            raise ValueError(f"common_names and synonyms must have a list of names per class, got {entry!r}")
    return tuple(_texts(entry) for entry in column)


def _whole(count: int | float | Tensor) -> int:
    """Return a count as an integer, if it is one."""
    if not float(count).is_integer():
        raise ValueError(f"counts must be whole numbers, got {float(count)}")
    return int(count)
