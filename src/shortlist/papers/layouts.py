"""The tables of the publications as they are printed: which number stands in which row and column."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from shortlist._store.yaml import parse_yaml
from shortlist.papers.published import PublishedColumn, PublishedNumber, PublishedTable, load_published

_ADDRESS = ("numbers", "method", "column", "metrics", "part")
DOCUMENTS = {
    "garcin2022": "Garcin et al., ICML 2022",
    "garcin2023": "Garcin et al., 2023",
    "menon2021": "Menon et al., ICLR 2021",
    "petersen2022": "Petersen et al., ICML 2022",
    "thesis": "Garcin, thesis",
}
"""The documents whose tables are here, and how they are called; the thesis has those of garcin2021 too."""


@dataclass(frozen=True)
class Line:
    """A row or a column of a printed table.

    Args:
        labels: What stands before the row, or over the column from the outermost head inwards.
        at: Its part of the address of each of its cells: keys of ``numbers`` (name of the published table),
            ``method``, ``column``, ``metrics``.
        section: Title of the rows that it is among.
        words: Cells of a row that has words in the place of numbers.
    """

    labels: tuple[str, ...]
    at: Mapping[str, Any]
    section: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where the numbers of a cell stand: published table, method, column, and which of its metrics."""

    table: PublishedTable
    method: str
    column: str
    metrics: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """Name of the published table, method and column."""
        return self.table.name, self.method, self.column

    def has(self, metric: str) -> bool:
        """Whether a metric is one of this cell, as that of a group of classes is with its mean."""
        return not self.metrics or any(metric == name or _group_of(metric, name) for name in self.metrics)

    @property
    def numbers(self) -> tuple[PublishedNumber, ...]:
        """The published numbers; none where the publication has none."""
        (row,) = (row for row in self.table.rows if row.method == self.method)
        names = [column.name for column in self.table.columns]
        return tuple(number for number in row.cells[names.index(self.column)] if self.has(number.metric))


@dataclass(frozen=True)
class Layout:
    """A printed table.

    Args:
        name: Document and number, such as ``garcin2022:5``.
        caption: What it shows, in our words.
        stubs: Heads of the columns that name a row.
        columns: The columns.
        rows: The rows.
    """

    name: str
    caption: str
    stubs: tuple[str, ...]
    columns: tuple[Line, ...]
    rows: tuple[Line, ...]

    @property
    def document(self) -> str:
        """Name of the document."""
        return self.name.partition(":")[0]

    @property
    def source(self) -> str:
        """The document, in words."""
        return DOCUMENTS[self.document]

    @property
    def suites(self) -> list[str]:
        """Names of the suites of ``shortlist papers`` that make its runs."""
        return list(dict.fromkeys(p.table.suite for p in self.places() if p.table.suite))

    @property
    def title(self) -> str:
        """Document and table, in words."""
        table = self.name.partition(":")[2]
        place = f"table {table}" if table[0].isdigit() else _spaced(table)
        return f"{self.source}, {place}"

    @property
    def has_numbers(self) -> bool:
        """Whether cells are published numbers and not words."""
        return not any(row.words for row in self.rows)

    @property
    def methods_are_rows(self) -> bool:
        """Whether a method is a row, not a column."""
        return not any("method" in column.at for column in self.columns)

    def place(self, row: Line, column: Line) -> Place | None:
        """Return where the numbers of a cell stand, None where nothing is printed."""
        return find_place({**row.at, **column.at})

    def places(self) -> Iterator[Place]:
        """Give the place of each cell that has numbers."""
        for row in self.rows if self.has_numbers else ():
            for column in self.columns:
                place = self.place(row, column)
                if place is not None:
                    yield place


def layout_names() -> list[str]:
    """Return the names of all printed tables, by document.

    Example:
        >>> "garcin2022:5" in layout_names()
        True
    """
    return sorted(_texts(), key=_order)


def list_tables() -> list[Layout]:
    """Return the layouts of all printed tables, by document."""
    return [load_layout(name) for name in layout_names()]


def load_layout(name: str) -> Layout:
    """Read the layout of a printed table.

    Example:
        >>> load_layout("garcin2022:5").stubs
        ('K',)
    """
    texts = _texts()
    if name not in texts:
        near = get_close_matches(name, texts, 1, 0.0)[0]
        raise ValueError(f"table must be one of 'shortlist papers', got {name!r}; the nearest is {near}")
    content = parse_yaml(texts[name])
    if "same_as" in content:
        content = parse_yaml(texts[content["same_as"].replace("_", ":", 1)]) | content
    base = {key: content[key] for key in _ADDRESS if key in content}
    columns = tuple(_lines(content["columns"], base, ()))
    rows = tuple(_lines(content["rows"], {}, ()))
    return Layout(name, content["caption"], tuple(content["stubs"]), columns, rows)


def _lines(
    entries: Sequence[Mapping[str, Any]], at: Mapping[str, Any], above: tuple[str, ...], section: str = ""
) -> Iterator[Line]:
    """Give the rows or columns, those inside of groups and sections with what these say."""
    deep = any("columns" in entry for entry in entries)
    for entry in entries:
        here = {**at, **{key: entry[key] for key in _ADDRESS if key in entry}}
        if "rows" in entry:
            yield from _lines(entry["rows"], here, above, entry["section"])
        elif "columns" in entry:
            yield from _lines(entry["columns"], here, (*above, entry["group"]))
        else:
            label = entry.get("head", entry.get("stub"))
            labels = tuple(label) if isinstance(label, list) else (label,)
            blank = ("",) if deep else ()
            yield Line((*above, *blank, *labels), here, section, tuple(entry.get("words", ())))


def find_place(address: Mapping[str, Any]) -> Place | None:
    """Find the cell of a published table; None if the publication prints nothing there.

    Raises:
        ValueError: If there is no such table, method or column.
    """
    table, column = find_column(address)
    rows = {row.method: row for row in table.rows}
    method = _of(rows, address.get("method"), f"method of {table.name}").method
    place = Place(table, method, column.name, tuple(address.get("metrics", ())))
    return place if place.numbers else None


def find_column(address: Mapping[str, Any]) -> tuple[PublishedTable, PublishedColumn]:
    """Find the column of a published table."""
    table = _of({table.name: table for table in load_published()}, address.get("numbers"), "numbers")
    name = address.get("column")
    if isinstance(name, list):  # of a table that is printed in parts below each other
        name = name[address["part"]]
    return table, _of({head.name: head for head in table.columns}, name, f"column of {table.name}")


def _of(choices: Mapping[str, Any], name: str | None, what: str) -> Any:
    """Return the entry of a name, or the only one where none is named."""
    if name is None and len(choices) == 1:
        return next(iter(choices.values()))
    if name is None or name not in choices:
        raise ValueError(f"{what} must be one of {', '.join(choices)}, got {name}")
    return choices[name]


def _group_of(metric: str, mean: str) -> bool:
    return metric.rpartition(".")[0] == mean.rpartition(".")[0] and metric != mean


@cache
def _texts() -> dict[str, str]:
    """Read the files, by name of the table: ``thesis_4.5.yaml`` has thesis:4.5."""
    folder = files("shortlist.papers").joinpath("layouts")
    texts = {file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8") for file in folder.iterdir()}
    return {name.replace("_", ":", 1): text for name, text in texts.items()}


def _order(name: str) -> tuple[Any, ...]:
    document, _, table = name.partition(":")
    digits = [int(part) for part in table.split(".") if part.isdigit()]
    return document, not table[0].isdigit(), digits, table


def _spaced(table: str) -> str:
    """Write ``section4.3`` as ``section 4.3``."""
    words = table.removeprefix("section").removeprefix("appendix")
    return f"{table.removesuffix(words)} {words}"
