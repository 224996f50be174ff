"""Write short lists as CSV, JSONL, parquet or text for people, batch by batch."""

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from shortlist._messages import one_line
from shortlist._store.files import replacing
from shortlist._tables import safe_cell
from shortlist.predictors import Candidate

Form = Literal["text", "csv", "jsonl"]

COLUMNS = ("item", "rank", "class", "id", "name", "probability", "in_set")
NOVEL = ("novel",)  # of models with a detector of strangers
COMMON_NAME = ("common_name",)  # in a language that was asked for
NODE_COLUMNS = ("node", "level", "mass", "node_size")  # of the node of a taxonomy that holds the class
_NAMED = 10  # items that could not be read and are named; the others are counted


@dataclass(frozen=True)
class Item:
    """One item with its list.

    Args:
        name: Path of the image, or file and row.
        candidates: Candidates, the best first; or in words why there are none.
        novel: Whether the item is flagged as a stranger; ``None`` if that is not known.
        common_names: What people call each candidate, the best name first, if a language was asked for.
    """

    name: str
    candidates: Sequence[Candidate] | str
    novel: bool | None = None
    common_names: Sequence[Sequence[str]] | None = None

    def common_name(self, place: int) -> str:
        """Return the best common name of a candidate; empty if there is none."""
        return next(iter(self.common_names[place]), "") if self.common_names else ""


@dataclass(frozen=True)
class Counts:
    """The counts of what was written, and in words which items could not be read, the first of them."""

    items: int
    unreadable: int
    novel: int
    average_size: float
    first_unreadable: tuple[str, ...] = ()


class Lists:
    """Writes items with their lists, and counts them."""

    def __init__(self, writer: "ListWriter") -> None:
        self._writer, self._items, self._readable, self._members, self._novel = writer, 0, 0, 0, 0
        self._unreadable: list[str] = []

    def add(self, items: Sequence[Item]) -> None:
        """Write items. One that could not be read keeps a line in the file."""
        self._items += len(items)
        for item in items:
            self._writer.add(item)
            reason = item.candidates
            if isinstance(reason, str):
                if len(self._unreadable) < _NAMED:
                    named = reason if reason.startswith(item.name) else f"{item.name}: {reason}"
                    self._unreadable.append(named)
                continue
            self._readable, self._novel = self._readable + 1, self._novel + bool(item.novel)
            self._members += sum(candidate.in_set for candidate in reason)

    def counts(self) -> Counts:
        """Return the counts of all that was written.

        Raises:
            ValueError: If there are items, but none that could be read.
        """
        if self._items and not self._readable:
            what = "scores that are numbers or images that can be read"
            first = self._unreadable[0]
            raise ValueError(f"inputs must hold {what}, got none among {self._items}; the first: {first}")
        size = self._members / self._readable if self._readable else 0.0
        unreadable = self._items - self._readable
        return Counts(self._items, unreadable, self._novel, size, tuple(self._unreadable))


@contextmanager
def open_lists(
    out: Path | TextIO,
    form: Form = "text",
    *,
    columns: Sequence[str] = COLUMNS,
    promise: Mapping[str, Any] | None = None,
) -> Iterator[Lists]:
    """Open what writes short lists: a file that appears only when it is complete, or a stream.

    Args:
        out: File to write (``.csv``, ``.jsonl`` or ``.parquet``), or an open stream.
        form: Form of what is written to a stream.
        columns: What is written: ``COLUMNS``, with ``NOVEL`` of strangers, ``NODE_COLUMNS`` of answers that
            are made of nodes of a taxonomy, and ``COMMON_NAME``.
        promise: What the lists promise, to be written into each line of JSON.
    """
    if isinstance(out, Path):
        with replacing(out) as temporary, _open_writer(temporary, columns, promise) as writer:
            yield Lists(writer)
    elif form == "jsonl":
        yield Lists(_JsonLinesWriter(out, columns, promise))
    else:
        yield Lists((_TextWriter if form == "text" else _CsvWriter)(out, columns))


class ListWriter(ABC):
    """A writer of items with their candidates."""

    @abstractmethod
    def add(self, item: Item) -> None:
        """Add one item with its candidates, or as one that could not be read."""


def _rows(item: Item) -> list[dict[str, Any]]:
    """Return a row by column for each candidate; of an item that could not be read, its name alone."""
    if isinstance(item.candidates, str):
        return [{"item": item.name}]
    rows = []
    for rank, c in enumerate(item.candidates, start=1):
        values = (item.name, rank, c.index, c.id, c.name, c.probability, c.in_set, item.novel)
        row: dict[str, Any] = dict(zip(COLUMNS + NOVEL, values, strict=True))
        row["common_name"] = item.common_name(rank - 1)
        if c.node is not None:
            of_node = (c.node.name, c.node.level, c.node.mass, c.node.size)
            row |= dict(zip(NODE_COLUMNS, of_node, strict=True))
        rows.append(row)
    return rows


class _CsvWriter(ListWriter):
    def __init__(self, file: TextIO, columns: Sequence[str]) -> None:
        self._lines, self._columns = csv.writer(file, lineterminator="\n"), columns
        self._lines.writerow(columns)

    def add(self, item: Item) -> None:
        for row in _rows(item):
            self._lines.writerow([_cell(row.get(column)) for column in self._columns])


def _cell(value: Any) -> Any:
    """Write a value as CSV has it: numbers short, yes and no as 1 and 0, text that is no formula."""
    if isinstance(value, str):
        return safe_cell(value)
    if isinstance(value, bool):
        return int(value)
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value


class _TextWriter(ListWriter):
    """Lists for people: the name of the item, then a line for each class."""

    def __init__(self, file: TextIO, columns: Sequence[str]) -> None:
        self._file, self._with_nodes = file, "node" in columns

    def add(self, item: Item) -> None:
        if isinstance(item.candidates, str):
            self._file.write(f"{one_line(item.name)}: no list, it could not be read\n")
            return
        size = sum(candidate.in_set for candidate in item.candidates)
        stranger = "; stranger: it looks like none of the known classes" if item.novel else ""
        count = f"{size} {'class' if size == 1 else 'classes'}" if size else "no class is sure enough"
        self._file.write(f"{one_line(item.name)}: {count}{stranger}\n")
        for place, c in enumerate(item.candidates):
            chance = "      ?" if c.probability is None else f"{100 * c.probability:5.1f} %"
            words = [f"  {chance}  {one_line(c.name)}"]
            words += [one_line(name)] if (name := item.common_name(place)) else []
            if c.node is not None and self._with_nodes and c.node.name != c.name:
                words.append(f"(in {one_line(c.node.level)} {one_line(c.node.name)})")
            if not c.in_set:
                words.append("(not in the set)" if size else "(unsure)")
            self._file.write("  ".join(words) + "\n")


class _JsonLinesWriter(ListWriter):
    def __init__(self, file: TextIO, columns: Sequence[str], promise: Mapping[str, Any] | None) -> None:
        self._file, self._columns, self._promise = file, columns, promise

    def add(self, item: Item) -> None:
        content: dict[str, Any] = {"item": item.name}
        if isinstance(item.candidates, str):
            content["error"] = item.candidates
        else:
            content |= self._listed(item.candidates, item.common_names)
            content |= {"novel": item.novel} if "novel" in self._columns else {}
            content |= {} if self._promise is None else {"promise": self._promise}
        self._file.write(json.dumps(content, ensure_ascii=False) + "\n")

    def _listed(
        self, candidates: Sequence[Candidate], common: Sequence[Sequence[str]] | None
    ) -> dict[str, Any]:
        listed: list[dict[str, Any]] = [
            {"class": c.index, "id": c.id, "name": c.name, "probability": c.probability, "in_set": c.in_set}
            for c in candidates
        ]
        for candidate, names in zip(listed, common or (), strict=False):
            candidate["common_names"] = list(names)
        if "node" not in self._columns:
            return {"candidates": listed}
        nodes = dict.fromkeys(c.node for c in candidates if c.node is not None)
        plain = [{"name": n.name, "level": n.level, "mass": n.mass, "size": n.size} for n in nodes]
        return {"candidates": listed, "nodes": plain}


class _ParquetWriter(ListWriter):
    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds: dict[str, Any] = dict.fromkeys(("rank", "class", "node_size"), pa.int32())
        kinds |= dict.fromkeys(("probability", "mass"), pa.float32())
        kinds |= dict.fromkeys(("in_set", "novel"), pa.bool_())
        self._schema = pa.schema([(column, kinds.get(column, pa.string())) for column in columns])
        self._file = pq.ParquetWriter(path, self._schema)
        self._rows: list[dict[str, Any]] = []

    def add(self, item: Item) -> None:
        self._rows += _rows(item)
        if len(self._rows) >= 2**16:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        self._file.write_table(pa.Table.from_pylist(self._rows, self._schema))
        self._rows = []

    def close(self) -> None:
        self._flush()
        self._file.close()


def check_suffix(path: Path) -> None:
    """Require a format that can be written."""
    if path.suffix.lower() not in (".csv", ".jsonl", ".parquet"):
        raise ValueError(f"--out must end in .csv, .jsonl or .parquet, got {path.name!r}")


@contextmanager
def _open_writer(
    path: Path, columns: Sequence[str], promise: Mapping[str, Any] | None
) -> Iterator[ListWriter]:
    """Return a writer for the format that the suffix names."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        writer = _ParquetWriter(path, columns)
        try:
            yield writer
        finally:
            writer.close()
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            is_csv = suffix == ".csv"
            yield _CsvWriter(file, columns) if is_csv else _JsonLinesWriter(file, columns, promise)
