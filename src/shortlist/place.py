"""A place: which classes occur there, and how often."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._messages import examples
from shortlist._tables import NO_NUMBER, text_rows
from shortlist._text import composed
from shortlist.class_table import ClassTable, class_finder

MOST_INLINE = 50_000
"""Largest number of classes that :meth:`Place.of` takes."""
_HEADS = frozenset("id class class_id name label taxon".split())  # of the first column of a CSV
_NAMES = ("scientificName", "acceptedScientificName", "species")  # columns of Darwin Core, and of GBIF
_YEAR = r" 1[789]\d\d| 20\d\d"  # behind a comma and a space
_COUNT = "numberOfOccurrences"  # in a species list of GBIF
_WEIGHT = "weight"  # column of a table with others


class PlaceMatch(NamedTuple):
    """A place in terms of a class table.

    Attributes:
        vector: Weight of each class (c,), float64, which sum to 1; 0 for a class that does not occur.
        matched: Number of classes that occur.
        unknown: Names of the place that are no class of the table.
    """

    vector: Float[Tensor, " c"]
    matched: int
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A place, a season or a checklist: weights over classes, by id or name; see :meth:`from_file`.

    Args:
        weights: How often each class occurs, by id or name of the class; only ratios matter, and 0 is never.
            ``None`` for all classes of a table, evenly.
        name: Short name, such as the name of its file.
        title: Name for people, plain or by language.
        synonyms: By a name in ``weights``, other names of the same class, for a table that has one of these.

    Raises:
        ValueError: If there is no weight above 0, or one is negative or not a number.

    Example:
        >>> garden = Place({"oak": 3, "Fagus sylvatica L.": 1, "yeti": 1}, name="garden")
        >>> match = garden.match(ClassTable(names=("oak", "ash", "Fagus sylvatica")))
        >>> match.vector.tolist(), match.unknown
        ([0.75, 0.0, 0.25], ('yeti',))
    """

    weights: Mapping[str, float] | None
    name: str = ""
    title: str | Mapping[str, str] = ""
    synonyms: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.weights is None:
            return
        where = f"place {self.name}: " if self.name else ""
        if not isinstance(self.weights, Mapping):
            kind = type(self.weights).__name__
            raise ValueError(f"{where}weights must be numbers by id or name of a class, got {kind}")
        weights: dict[str, float] = {}
        for label, weight in self.weights.items():
            name, what = composed(str(label)), f"{where}the weight of {str(label)[:80]!r}"
            # the same name may be written in two ways
            weights[name] = _weight(weights.get(name, 0.0) + _weight(weight, what), what)
        if not any(weights.values()):
            what = "only weights of 0" if weights else "no class"
            raise ValueError(f"{where}a place must have a class with a weight above 0, got {what}")
        synonyms: dict[str, tuple[str, ...]] = {}
        for label, others in self.synonyms.items():
            name = composed(label)
            synonyms[name] = tuple(dict.fromkeys([*synonyms.get(name, ()), *others]))
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "synonyms", synonyms)

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, None if self.weights is None else frozenset(self.weights.items())))

    def __hash__(self) -> int:
        return self._hash

    @property
    def shown(self) -> str:
        """Name for people."""
        title = self.title if isinstance(self.title, str) else next(iter(self.title.values()), "")
        return title or self.name

    @staticmethod
    def even() -> "Place":
        """Return the place where all classes of a model occur, equally often: the average class counts."""
        return Place(None)

    @staticmethod
    def of(classes: Iterable[object], *, name: str = "") -> "Place":
        """Return the place where these classes occur, equally often.

        Args:
            classes: Ids or names, at most 50,000.
            name: Name of the place.
        """
        labels = dict.fromkeys(map(str, classes), 1.0)
        if len(labels) > MOST_INLINE:
            raise ValueError(f"classes must be at most {MOST_INLINE:,} ids or names, got {len(labels):,}")
        return Place(labels, name)

    @staticmethod
    def from_file(path: str | Path) -> "Place":
        """Read a place from a Darwin Core table or a CSV, as its header says; see the two readers."""
        with text_rows(path, "a place") as (header, _):
            has_names = not _columns(header).keys().isdisjoint(map(str.casefold, _NAMES))
        return Place.from_dwc(path) if has_names else Place.from_csv(path)

    @staticmethod
    def from_csv(path: str | Path) -> "Place":
        """Read a CSV of ids or names, and weights: the column ``weight``, or the second one of two.

        A header is optional, but if there are more columns.

        Raises:
            ValueError: If the file is empty, cannot be read, or a weight is negative or not a number.
        """
        weights: dict[str, float] = {}
        with text_rows(path, "a place") as (first, rows):
            has_head = _is_head(first)
            column = _columns(first).get(_WEIGHT) if has_head else None
            heads = [name for name in first if name.strip()]
            if has_head and column is None and len(heads) > 2:
                names = ", ".join(heads)[:200]
                raise ValueError(f"{path} must have a column {_WEIGHT} among more than 2, got {names}")
            rows = rows if has_head else chain([first], rows)
            for number, cells in enumerate(rows, start=2 if has_head else 1):
                if label := cells[0].strip():
                    where = f"{path}, row {number}:"
                    if column is None:
                        _check_pair(cells, where, may_be_author=not has_head)
                    weight = (cells[1] if len(cells) > 1 else "") if column is None else cells[column]
                    weight = _weight(weight.strip() or "1", f"{where} the weight")
                    weights[label] = weights.get(label, 0.0) + weight
        return Place(weights, Path(path).stem)

    @staticmethod
    def from_dwc(path: str | Path, *, counts: str | None = None) -> "Place":
        """Count the rows of each name in a Darwin Core occurrence table, or read a species list of GBIF.

        The file is a TSV or CSV with at least one of the columns ``scientificName``,
        ``acceptedScientificName`` and ``species``. Records of absence do not count.

        Args:
            path: The file.
            counts: Column of counts to add up, such as ``"individualCount"``. By default it is
                ``numberOfOccurrences`` or ``weight`` if there is such a column, else each row counts 1.

        Raises:
            ValueError: If the file is empty, has none of the columns, or a count is not a number >= 0.
        """
        weights: dict[str, float] = {}
        synonyms: dict[str, dict[str, None]] = {}
        with text_rows(path, "a place") as (header, rows):
            column = _columns(header)
            names = [column[name] for name in map(str.casefold, _NAMES) if name in column]
            if not names or (counts is not None and counts.casefold() not in column):
                wanted = counts if names else " or ".join(_NAMES)
                raise ValueError(f"{path} must have a column {wanted}, got {', '.join(header)[:200]}")
            counted = column.get((counts or _COUNT).casefold(), None if counts else column.get(_WEIGHT))
            status = column.get("occurrencestatus")
            for number, cells in enumerate(rows, start=2):
                labels = [*dict.fromkeys(cells[place].strip() for place in names if cells[place].strip())]
                if not labels or (status is not None and cells[status].strip().lower() == "absent"):
                    continue
                where = f"{path}, row {number}: the count"
                count = 1.0 if counted is None else _weight(cells[counted].strip() or "1", where)
                weights[labels[0]] = weights.get(labels[0], 0.0) + count
                synonyms.setdefault(labels[0], {}).update(dict.fromkeys(labels[1:]))
        others = {label: tuple(names) for label, names in synonyms.items() if names}
        return Place(weights, Path(path).stem, synonyms=others)

    def vector(self, class_table: ClassTable) -> Float[Tensor, " c"]:
        """Return the weight of each class of a table (c,), float64; they sum to 1. See :meth:`match`."""
        return self.match(class_table).vector

    def match(self, class_table: ClassTable, *, strict: bool = False) -> PlaceMatch:
        """Find the classes of a table that occur here.

        A name is the id, a name or a synonym of a class (:func:`~shortlist.class_table.class_finder`).

        Args:
            class_table: Table of the c classes.
            strict: Whether to refuse a place with unknown names.

        Raises:
            ValueError: If no class of the table occurs here, or ``strict`` and a name is unknown.
        """
        if self.weights is None:
            even = torch.full((len(class_table),), 1 / len(class_table), dtype=torch.float64)
            return PlaceMatch(even, len(class_table), ())
        find, unknown, vector = _finder(class_table), [], [0.0] * len(class_table)
        largest = max(self.weights.values())  # so that no sum is beyond the largest number
        for label, weight in self.weights.items():
            others = self.synonyms.get(label, ())
            index = next((found for each in (label, *others) if (found := find(each)) is not None), None)
            if index is not None:
                vector[index] += weight / largest
            elif weight:
                unknown.append(label)
        total, where = math.fsum(vector), f"place {self.name}" if self.name else "the place"
        if not total or (strict and unknown):
            lacking = f"{len(unknown):,} unknown ({examples([name[:80] for name in unknown])})"
            wanted = "only classes of the model" if strict and total else "at least 1 class of the model"
            raise ValueError(
                f"{where} must name {wanted} by id or name, got {lacking if unknown else 'none'}"
            )
        weights = torch.tensor(vector, dtype=torch.float64) / total
        return PlaceMatch(weights, int((weights > 0).sum()), tuple(unknown))


def _columns(header: Sequence[str]) -> dict[str, int]:
    """Return the place of each column by its name, in small letters and without ``dwc:``."""
    return {name.strip().casefold().removeprefix("dwc:"): place for place, name in enumerate(header)}


def _is_head(first: Sequence[str]) -> bool:
    """Whether the first row of a CSV of ids and weights is its header: its second cell is a word, if any."""
    second = first[1].strip() if len(first) > 1 else ""
    return first[0].strip().lower() in _HEADS or (
        second[:1].isalpha() and second not in NO_NUMBER and not _is_number(second)
    )


def _check_pair(cells: Sequence[str], where: str, *, may_be_author: bool) -> None:
    """Require an id or a name, and perhaps a weight, that no comma parts."""
    if (number := len([cell for cell in cells[2:] if cell.strip()])) > 0:
        wanted = "a row must be an id or name and a weight"
        raise ValueError(f"{where} {wanted}, got {number + 2} cells: put what has a comma in quotes")
    if cells[0].count("(") > cells[0].count(")") or (may_be_author and _is_author(cells)):
        raise ValueError(f"{where} the name with a comma must be in quotes, got {cells[0].strip()[:80]}")


def _is_author(cells: Sequence[str]) -> bool:
    """Whether a row looks like a name with its author and year: ``Parus major Linnaeus, 1758``."""
    return len(cells) == 2 and " " in cells[0].strip() and re.fullmatch(_YEAR, cells[1]) is not None


def _finder(classes: ClassTable) -> Callable[[str], int | None]:
    """Return the function from a label to the index of its class; ``None`` also for a name of several."""
    find = class_finder(classes)

    def find_one(label: str) -> int | None:
        try:
            return find(label)
        except ValueError:  # the name of several classes
            return None

    return find_one


def _weight(weight: object, what: str) -> float:
    number = float(weight) if _is_number(weight) else math.nan  # type: ignore[arg-type]
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{what} must be a finite number >= 0, got {str(weight)[:80]}")
    return number


def _is_number(text: object) -> bool:
    try:
        float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return False
    return True
