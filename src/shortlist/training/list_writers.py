"""Short lists as CSV, JSONL or parquet, written batch by batch."""

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from torch import Tensor

from shortlist.class_table import ClassTable
from shortlist.predictors import Candidate, to_lists

__all__ = ["ListWriter", "open_writer"]

COLUMNS = ("item", "rank", "class", "id", "name", "score", "in_set")


class ListWriter(ABC):
    """Takes batches of items with their candidates."""

    def __init__(self, table: ClassTable) -> None:
        self.table = table

    def write(self, names: list[str], scores: Tensor, sets: Tensor, shown: Tensor) -> None:
        """Add a batch: item names, scores and sets (n, c), and the classes to show (n, c)."""
        for row, (name, candidates) in enumerate(
            zip(names, to_lists(shown, scores, self.table), strict=True)
        ):
            inside = sets[row]
            self.add(name, [(candidate, bool(inside[candidate.index])) for candidate in candidates])

    @abstractmethod
    def add(self, item: str, candidates: list[tuple[Candidate, bool]]) -> None:
        """Add one item: its candidates, the best first, and whether each is in the set."""


class _CsvWriter(ListWriter):
    def __init__(self, file: TextIO, table: ClassTable) -> None:
        super().__init__(table)
        self._lines = csv.writer(file, lineterminator="\n")
        self._lines.writerow(COLUMNS)

    def add(self, item: str, candidates: list[tuple[Candidate, bool]]) -> None:
        for rank, (c, inside) in enumerate(candidates, start=1):
            self._lines.writerow([item, rank, c.index, c.id, c.name, f"{c.score:.6g}", int(inside)])


class _JsonLinesWriter(ListWriter):
    def __init__(self, file: TextIO, table: ClassTable) -> None:
        super().__init__(table)
        self._file = file

    def add(self, item: str, candidates: list[tuple[Candidate, bool]]) -> None:
        listed = [
            {"class": c.index, "id": c.id, "name": c.name, "score": c.score, "in_set": inside}
            for c, inside in candidates
        ]
        self._file.write(json.dumps({"item": item, "candidates": listed}, ensure_ascii=False) + "\n")


class _ParquetWriter(ListWriter):
    def __init__(self, path: Path, table: ClassTable) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        super().__init__(table)
        kinds = (pa.string(), pa.int32(), pa.int32(), pa.string(), pa.string(), pa.float32(), pa.bool_())
        self._schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)))
        self._file = pq.ParquetWriter(path, self._schema)
        self._rows: list[dict[str, Any]] = []

    def add(self, item: str, candidates: list[tuple[Candidate, bool]]) -> None:
        for rank, (c, inside) in enumerate(candidates, start=1):
            values = (item, rank, c.index, c.id, c.name, c.score, inside)
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
def open_writer(path: Path, table: ClassTable) -> Iterator[ListWriter]:
    """A writer for the format that the suffix names."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        writer = _ParquetWriter(path, table)
        try:
            yield writer
        finally:
            writer.close()
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            yield _CsvWriter(file, table) if suffix == ".csv" else _JsonLinesWriter(file, table)
