"""The numbers that papers report, as data: one YAML file for each paper, with its tables as printed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from shortlist._store.yaml import parse_yaml
from shortlist.class_table import GROUPS

_FORMAT = "shortlist published results 2"
# a number, half its interval, the numbers of few, medium and many shot classes, and a mark, such as
# "36.3±0.3 (12.6/42.9/71.7) cui"
_CELL = re.compile(
    r"(?P<value>[\d.]+)(?:±(?P<half>[\d.]+))?(?: \((?P<groups>[\d./]+)\))?(?: (?P<mark>[a-z]+))?"
)


@dataclass(frozen=True)
class PublishedNumber:
    """One published number.

    Args:
        metric: Name of the metric as in ``Results.metrics``; ``average5.micro`` is the coverage of sets of 5
            on average, ``validation.top5`` the best of all epochs on the validation rows.
        value: The number as printed: in percent, or in the unit of the table.
        half: Half the width of its 95 % interval, if the paper gives one.
        digits: Number of printed digits after the point.
        remark: What the paper says about this number, such as where it is quoted from.
    """

    metric: str
    value: float
    half: float | None
    digits: int
    remark: str = ""


@dataclass(frozen=True)
class PublishedColumn:
    """A column of a published table.

    Args:
        name: Head of the column.
        metrics: Metrics that each of its cells has.
        when: Values that a recipe must have for this column; see :class:`PublishedRow`.
        setting: Settings of the paper for this column alone.
    """

    name: str
    metrics: tuple[str, ...]
    when: Mapping[str, Any] = field(default_factory=dict)
    setting: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedRow:
    """One method of a published table.

    Args:
        method: Name of the method, in our words.
        cells: The numbers of each column; an empty cell has none.
        when: Values that a recipe must have, by dotted key; ``"*"`` for anything that is not empty, a list
            for any of its entries.
        setting: Settings of the paper's training; if a recipe differs, this is noted.
    """

    method: str
    cells: tuple[tuple[PublishedNumber, ...], ...]
    when: Mapping[str, Any] = field(default_factory=dict)
    setting: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishedTable:
    """A published table, or the part of one that is about one data set.

    Args:
        paper: Name of its file, such as ``menon2021``.
        name: Name of the data set and of what was measured.
        source: Reference of the paper.
        table: Number of the table in the paper, or the section of a number in its text.
        thesis: Number of the same table in C. Garcin's thesis, if it is there.
        suite: Name of the suite of ``shortlist papers`` that makes all its runs.
        when: Values that a recipe must have for any of its cells.
        setting: Settings of the paper's training.
        columns: The columns.
        rows: The methods.
        runs: Number of runs whose mean is given, if the paper says it.
        t_test_level: Significance level of the t-test that the paper uses, if it names one.
        unit: Unit of the numbers.
        compared: Whether a run can have these numbers.
        note: Further remark.
    """

    paper: str
    name: str
    source: str
    table: str
    columns: tuple[PublishedColumn, ...]
    rows: tuple[PublishedRow, ...]
    thesis: str = ""
    suite: str = ""
    when: Mapping[str, Any] = field(default_factory=dict)
    setting: Mapping[str, Any] = field(default_factory=dict)
    runs: int | None = None
    t_test_level: float | None = None
    unit: str = "%"
    compared: bool = True
    note: str = ""

    @property
    def place(self) -> str:
        """Where the numbers stand in the paper, such as ``table 2`` or ``section 4.3``."""
        return f"table {self.table}" if self.table[0].isdigit() else self.table


def load_published(data_name: str | None = None) -> tuple[PublishedTable, ...]:
    """Read the tables of all papers that come with the package.

    Args:
        data_name: Name of a data set; papers that do not mention it are left out, which saves time.

    Example:
        >>> sorted({table.paper for table in load_published()})
        ['garcin2021', 'garcin2022', 'garcin2023', 'menon2021', 'petersen2022']
    """
    folder = files("shortlist.papers").joinpath("tables")
    tables: list[PublishedTable] = []
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        text = file.read_text(encoding="utf-8")
        if data_name is None or re.search(rf"data\.name: {re.escape(data_name)}\b", text):
            tables += _tables(file.name.removesuffix(".yaml"), text)
    return tuple(tables)


@cache
def _tables(paper: str, text: str) -> list[PublishedTable]:
    content: Any = parse_yaml(text)
    if content.get("format") != _FORMAT:
        raise ValueError(f"{paper}.yaml must be of the format {_FORMAT!r}, got {content.get('format')!r}")
    marks, settings, tables = content.get("marks", {}), content["settings"], []
    for entry in content["tables"]:
        columns = tuple(
            PublishedColumn(**column | {"metrics": tuple(column["metrics"])}) for column in entry["columns"]
        )
        setting = entry.get("setting", {})
        parts = {
            "columns": columns,
            "rows": tuple(_row(row, columns, marks) for row in entry["rows"]),
            "setting": settings[setting] if isinstance(setting, str) else setting,
            "table": str(entry["table"]),
            "thesis": str(entry.get("thesis", "")),
            "t_test_level": content.get("t_test_level"),
        }
        tables.append(PublishedTable(**entry | parts, paper=paper, source=content["source"]))
    return tables


def _row(
    row: Mapping[str, Any], columns: Sequence[PublishedColumn], marks: Mapping[str, str]
) -> PublishedRow:
    pairs = zip(columns, row["values"], strict=True)
    cells = tuple(_numbers(column, cell, marks) for column, cell in pairs)
    return PublishedRow(row["method"], cells, row.get("when", {}), row.get("setting", {}))


def _numbers(column: PublishedColumn, cell: Any, marks: Mapping[str, str]) -> tuple[PublishedNumber, ...]:
    """Read a cell as printed: a number for each metric, with ``|`` between them and ``-`` for none."""
    if cell is None:
        return ()
    numbers = []
    for metric, text in zip(column.metrics, str(cell).split(" | "), strict=True):
        if text == "-":
            continue
        cell = _CELL.fullmatch(text)
        if cell is None:
            raise ValueError(f"a cell must be such as '36.3±0.3 (12.6/42.9/71.7)', got {text!r}")
        half = None if cell["half"] is None else float(cell["half"])
        remark = marks[cell["mark"]] if cell["mark"] else ""
        digits = _digits(cell["value"])
        numbers.append(PublishedNumber(metric, float(cell["value"]), half, digits, remark))
        if cell["groups"]:
            start = metric.rpartition(".")[0]
            parts = zip(GROUPS, cell["groups"].split("/"), strict=True)
            numbers += [PublishedNumber(f"{start}.{g}", float(v), None, _digits(v), remark) for g, v in parts]
    return tuple(numbers)


def _digits(text: str) -> int:
    return len(text.partition(".")[2])


def number_text(number: PublishedNumber) -> str:
    """Write a number as it is printed, with half its interval."""
    half = "" if number.half is None else f" ± {number.half:.{number.digits}f}"
    return f"{number.value:.{number.digits}f}{half}"


def cell_text(numbers: Sequence[PublishedNumber], texts: Sequence[str]) -> str:
    """Write the texts of the numbers of a cell as it is printed: groups of classes behind their mean.

    Example:
        >>> names = ("top1.macro", "top1.few", "top1.medium", "top1.many")
        >>> cell_text([PublishedNumber(name, 0.0, None, 1) for name in names], ["36.3", "12", "43", "72"])
        '36.3 (12/43/72)'
    """
    groups = [text for number, text in zip(numbers, texts, strict=True) if _is_group(number)]
    means = [text for number, text in zip(numbers, texts, strict=True) if not _is_group(number)]
    return " | ".join(means) + (f" ({'/'.join(groups)})" if groups else "")


def _is_group(number: PublishedNumber) -> bool:
    return number.metric.rpartition(".")[2] in GROUPS
