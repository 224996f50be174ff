"""Write short lists as CSV, JSONL or parquet, batch by batch."""

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from shortlist._files import replacing
from shortlist.predictors import Candidate

__all__ = ["Counts", "check_suffix", "write_lists"]

Batch = tuple[Sequence[str], Sequence[Sequence[Candidate] | None], int]
COLUMNS = ("item", "rank", "class", "id", "name", "probability", "in_set")


@dataclass(frozen=True)
class Counts:
    """The counts of what was written."""

    items: int
    unreadable: int
    average_size: float


def write_lists(
    out: Path, batches: Iterable[Batch], *, progress: Callable[[int, int], None] | None = None
) -> Counts:
    """Write the short lists of items, batch by batch, to a file that appears only when it is complete.

    Args:
        out: File to write (``.csv``, ``.jsonl`` or ``.parquet``).
        batches: Names of items, the list of each (``None`` if it could not be read), and the number of all
            items.
        progress: Function that is called with the number of items done and in all.

    Raises:
        ValueError: If there are items, but none that could be read.
    """
    items = readable = members = 0
    with replacing(out) as temporary, _open_writer(temporary) as writer:
        for names, lists, total in batches:
            items += len(names)
            for name, candidates in zip(names, lists, strict=True):
                if candidates is not None:
                    writer.add(name, candidates)
                    readable += 1
                    members += sum(candidate.in_set for candidate in candidates)
            if progress is not None:
                progress(items, total)
        if items and not readable:
            what = "scores that are numbers or images that can be read"
            raise ValueError(f"inputs must hold {what}, got none among {items}")
    return Counts(items, items - readable, members / readable if readable else 0.0)


class ListWriter(ABC):
    """A writer of items with their candidates."""

    @abstractmethod
    def add(self, item: str, candidates: Sequence[Candidate]) -> None:
        """Add one item with its candidates, the best first."""


def _safe_cell(text: str) -> str:
    """Put a quote before text that a spreadsheet would run as a formula.

    Example:
        >>> _safe_cell("=HYPERLINK(1)"), _safe_cell("oak"), _safe_cell("-2.5")
        ("'=HYPERLINK(1)", 'oak', '-2.5')
    """
    if not text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text  # a number


class _CsvWriter(ListWriter):
    def __init__(self, file: TextIO) -> None:
        self._lines = csv.writer(file, lineterminator="\n")
        self._lines.writerow(COLUMNS)

    def add(self, item: str, candidates: Sequence[Candidate]) -> None:
        for rank, c in enumerate(candidates, start=1):
            shown = "" if c.probability is None else f"{c.probability:.6g}"
            texts = [_safe_cell(text) for text in (item, c.id, c.name)]
            self._lines.writerow([texts[0], rank, c.index, *texts[1:], shown, int(c.in_set)])


class _JsonLinesWriter(ListWriter):
    def __init__(self, file: TextIO) -> None:
        self._file = file

    def add(self, item: str, candidates: Sequence[Candidate]) -> None:
        listed = [
            {"class": c.index, "id": c.id, "name": c.name, "probability": c.probability, "in_set": c.in_set}
            for c in candidates
        ]
        self._file.write(json.dumps({"item": item, "candidates": listed}, ensure_ascii=False) + "\n")


class _ParquetWriter(ListWriter):
    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = (pa.string(), pa.int32(), pa.int32(), pa.string(), pa.string(), pa.float32(), pa.bool_())
        self._schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)))
        self._file = pq.ParquetWriter(path, self._schema)
        self._rows: list[dict[str, Any]] = []

    def add(self, item: str, candidates: Sequence[Candidate]) -> None:
        for rank, c in enumerate(candidates, start=1):
            values = (item, rank, c.index, c.id, c.name, c.probability, c.in_set)
            self._rows.append(dict(zip(COLUMNS, values, strict=True)))
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
def _open_writer(path: Path) -> Iterator[ListWriter]:
    """Return a writer for the format that the suffix names."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        writer = _ParquetWriter(path)
        try:
            yield writer
        finally:
            writer.close()
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            yield _CsvWriter(file) if suffix == ".csv" else _JsonLinesWriter(file)
