"""Write short lists as CSV, JSONL or parquet, batch by batch."""

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import Tensor

from shortlist.class_table import ClassTable
from shortlist.predictors import Candidate, to_lists

__all__ = ["ListWriter", "open_writer"]

Listed = list[tuple[Candidate, float | None]]
COLUMNS = ("item", "rank", "class", "id", "name", "probability", "in_set")


class ListWriter(ABC):
    """A writer that takes batches of items with their candidates."""

    def __init__(self, table: ClassTable) -> None:
        self.table = table

    def write(
        self,
        names: list[str],
        scores: Tensor,
        probabilities: Tensor | None,
        sets: Tensor,
        at_least: int,
    ) -> None:
        """Add a batch: item names, scores (n, c) to sort by, probabilities (n, c) if known, sets (n, c).

        At least so many classes are listed of each item.
        """
        shown = torch.zeros_like(scores) if probabilities is None else probabilities
        lists = to_lists(sets, shown, self.table, order=scores, at_least=at_least)
        for name, candidates in zip(names, lists, strict=True):
            self.add(name, [(c, None if probabilities is None else c.probability) for c in candidates])

    @abstractmethod
    def add(self, item: str, candidates: Listed) -> None:
        """Add one item: its candidates, the best first, each with its probability if known."""


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
    def __init__(self, file: TextIO, table: ClassTable) -> None:
        super().__init__(table)
        self._lines = csv.writer(file, lineterminator="\n")
        self._lines.writerow(COLUMNS)

    def add(self, item: str, candidates: Listed) -> None:
        for rank, (c, probability) in enumerate(candidates, start=1):
            shown = "" if probability is None else f"{probability:.6g}"
            texts = [_safe_cell(text) for text in (item, c.id, c.name)]
            self._lines.writerow([texts[0], rank, c.index, *texts[1:], shown, int(c.in_set)])


class _JsonLinesWriter(ListWriter):
    def __init__(self, file: TextIO, table: ClassTable) -> None:
        super().__init__(table)
        self._file = file

    def add(self, item: str, candidates: Listed) -> None:
        listed = [
            {"class": c.index, "id": c.id, "name": c.name, "probability": probability, "in_set": c.in_set}
            for c, probability in candidates
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

    def add(self, item: str, candidates: Listed) -> None:
        for rank, (c, probability) in enumerate(candidates, start=1):
            values = (item, rank, c.index, c.id, c.name, probability, c.in_set)
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
    """Return a writer for the format that the suffix names."""
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
