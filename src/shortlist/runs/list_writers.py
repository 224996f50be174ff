"""Write short lists as CSV, JSONL, parquet or text for people, batch by batch."""

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from shortlist._files import replacing
from shortlist._messages import one_line
from shortlist.datasets.lists import safe_cell
from shortlist.predictors import Candidate

__all__ = ["Batch", "Counts", "Form", "check_suffix", "print_lists", "write_lists"]

Form = Literal["text", "csv", "jsonl"]

Batch = tuple[Sequence[str], Sequence[Sequence[Candidate] | str], int]
COLUMNS = ("item", "rank", "class", "id", "name", "probability", "in_set")
_NAMED = 10  # items that could not be read and are named; the others are counted
NODE_COLUMNS = ("node", "level", "mass", "node_size")  # of the node of a taxonomy that holds the class


@dataclass(frozen=True)
class Counts:
    """The counts of what was written, and in words which items could not be read, the first of them."""

    items: int
    unreadable: int
    average_size: float
    first_unreadable: tuple[str, ...] = ()


def write_lists(
    out: Path,
    batches: Iterable[Batch],
    *,
    with_nodes: bool = False,
    promise: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Counts:
    """Write the short lists of items, batch by batch, to a file that appears only when it is complete.

    Args:
        out: File to write (``.csv``, ``.jsonl`` or ``.parquet``).
        batches: Names of items, the list of each (or the reason why it could not be read), and the number of
            all items. An item that could not be read keeps a line in the file.
        with_nodes: Whether the answers are made of nodes of a taxonomy, which are then written too.
        promise: What the lists promise, to be written into each line of a ``.jsonl`` file.
        progress: Function that is called with the number of items done and in all.

    Raises:
        ValueError: If there are items, but none that could be read.
    """
    with replacing(out) as temporary, _open_writer(temporary, with_nodes, promise) as writer:
        return _add_all(writer, batches, progress)


def print_lists(
    stream: TextIO,
    batches: Iterable[Batch],
    form: Form = "text",
    *,
    with_nodes: bool = False,
    promise: Mapping[str, Any] | None = None,
) -> Counts:
    """Write the short lists of items to an open stream as they come; see :func:`write_lists`."""
    if form == "jsonl":
        return _add_all(_JsonLinesWriter(stream, with_nodes, promise), batches, None)
    return _add_all((_TextWriter if form == "text" else _CsvWriter)(stream, with_nodes), batches, None)


def _add_all(
    writer: "ListWriter", batches: Iterable[Batch], progress: Callable[[int, int], None] | None
) -> Counts:
    items = readable = members = 0
    unreadable: list[str] = []
    for names, lists, total in batches:
        items += len(names)
        for name, found in zip(names, lists, strict=True):
            if isinstance(found, str):
                writer.add_unreadable(name, found)
                if len(unreadable) < _NAMED:
                    unreadable.append(found if found.startswith(name) else f"{name}: {found}")
            else:
                writer.add(name, found)
                readable += 1
                members += sum(candidate.in_set for candidate in found)
        if progress is not None:
            progress(items, total)
    if items and not readable:
        what = "scores that are numbers or images that can be read"
        raise ValueError(f"inputs must hold {what}, got none among {items}; the first: {unreadable[0]}")
    size = members / readable if readable else 0.0
    return Counts(items, items - readable, size, tuple(unreadable))


class ListWriter(ABC):
    """A writer of items with their candidates."""

    @abstractmethod
    def add(self, item: str, candidates: Sequence[Candidate]) -> None:
        """Add one item with its candidates, the best first."""

    @abstractmethod
    def add_unreadable(self, item: str, reason: str) -> None:
        """Add one item that has no candidates, since it could not be read."""


class _CsvWriter(ListWriter):
    def __init__(self, file: TextIO, with_nodes: bool) -> None:
        self._lines, self._with_nodes = csv.writer(file, lineterminator="\n"), with_nodes
        self._lines.writerow(COLUMNS + NODE_COLUMNS * with_nodes)

    def add(self, item: str, candidates: Sequence[Candidate]) -> None:
        for rank, c in enumerate(candidates, start=1):
            texts = [safe_cell(text) for text in (item, c.id, c.name)]
            line = [texts[0], rank, c.index, *texts[1:], _number(c.probability), int(c.in_set)]
            if self._with_nodes:
                node = c.node
                line += (
                    [""] * len(NODE_COLUMNS)
                    if node is None
                    else [safe_cell(node.name), safe_cell(node.level), _number(node.mass), node.size]
                )
            self._lines.writerow(line)

    def add_unreadable(self, item: str, reason: str) -> None:
        empty = len(COLUMNS + NODE_COLUMNS * self._with_nodes) - 1
        self._lines.writerow([safe_cell(item), *[""] * empty])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


class _TextWriter(ListWriter):
    """Lists for people: the name of the item, then a line for each class."""

    def __init__(self, file: TextIO, with_nodes: bool) -> None:
        self._file, self._with_nodes = file, with_nodes

    def add(self, item: str, candidates: Sequence[Candidate]) -> None:
        size = sum(candidate.in_set for candidate in candidates)
        self._file.write(f"{one_line(item)}: {size} {'class' if size == 1 else 'classes'}\n")
        for c in candidates:
            chance = "      ?" if c.probability is None else f"{100 * c.probability:5.1f} %"
            words = [f"  {chance}  {one_line(c.name)}"]
            if c.node is not None and self._with_nodes and c.node.name != c.name:
                words.append(f"(in {one_line(c.node.level)} {one_line(c.node.name)})")
            if not c.in_set:
                words.append("(not in the set)")
            self._file.write("  ".join(words) + "\n")

    def add_unreadable(self, item: str, reason: str) -> None:
        self._file.write(f"{one_line(item)}: no list, it could not be read\n")


class _JsonLinesWriter(ListWriter):
    def __init__(self, file: TextIO, with_nodes: bool, promise: Mapping[str, Any] | None) -> None:
        self._file, self._with_nodes, self._promise = file, with_nodes, promise

    def add(self, item: str, candidates: Sequence[Candidate]) -> None:
        listed = [
            {"class": c.index, "id": c.id, "name": c.name, "probability": c.probability, "in_set": c.in_set}
            for c in candidates
        ]
        content: dict[str, Any] = {"item": item, "candidates": listed}
        if self._with_nodes:
            nodes = dict.fromkeys(c.node for c in candidates if c.node is not None)
            content["nodes"] = [
                {"name": node.name, "level": node.level, "mass": node.mass, "size": node.size}
                for node in nodes
            ]
        if self._promise is not None:
            content["promise"] = self._promise
        self._file.write(json.dumps(content, ensure_ascii=False) + "\n")

    def add_unreadable(self, item: str, reason: str) -> None:
        self._file.write(json.dumps({"item": item, "error": reason}, ensure_ascii=False) + "\n")


class _ParquetWriter(ListWriter):
    def __init__(self, path: Path, with_nodes: bool) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = (pa.string(), pa.int32(), pa.int32(), pa.string(), pa.string(), pa.float32(), pa.bool_())
        kinds += (pa.string(), pa.string(), pa.float32(), pa.int32()) * with_nodes
        self._schema = pa.schema(list(zip(COLUMNS + NODE_COLUMNS * with_nodes, kinds, strict=True)))
        self._file = pq.ParquetWriter(path, self._schema)
        self._rows: list[dict[str, Any]] = []

    def add(self, item: str, candidates: Sequence[Candidate]) -> None:
        for rank, c in enumerate(candidates, start=1):
            values = (item, rank, c.index, c.id, c.name, c.probability, c.in_set)
            row: dict[str, Any] = dict(zip(COLUMNS, values, strict=True))
            if c.node is not None:
                of_node = (c.node.name, c.node.level, c.node.mass, c.node.size)
                row |= dict(zip(NODE_COLUMNS, of_node, strict=True))
            self._rows.append(row)
        if len(self._rows) >= 2**16:
            self._flush()

    def add_unreadable(self, item: str, reason: str) -> None:
        self._rows.append({"item": item})  # the other columns are null

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
def _open_writer(path: Path, with_nodes: bool, promise: Mapping[str, Any] | None) -> Iterator[ListWriter]:
    """Return a writer for the format that the suffix names."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        writer = _ParquetWriter(path, with_nodes)
        try:
            yield writer
        finally:
            writer.close()
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            is_csv = suffix == ".csv"
            yield _CsvWriter(file, with_nodes) if is_csv else _JsonLinesWriter(file, with_nodes, promise)
