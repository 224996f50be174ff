"""Read the sets of classes that a person gave for test rows."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePath

import torch
from torch import Tensor

from shortlist.class_table import ClassTable, class_finder

LAYOUT = (
    "a .csv file with the column row (number of the test row, from 0) or path, and the column class: an id "
    "or name, several with ; between them or on several lines, nothing for no class"
)


@dataclass(frozen=True)
class Answers:
    """Sets of a person.

    Args:
        rows: Numbers of the test rows (m,), in the order of the file.
        sets: Whether each class is in the answer to each row, bool (m, c).
    """

    rows: tuple[int, ...]
    sets: Tensor


def read_answers(
    path: str | Path,
    class_table: ClassTable,
    *,
    num_rows: int,
    paths: Callable[[], Sequence[str]] | None = None,
) -> Answers:
    """Read answers: a line with a test row and a class, or several with ``;`` between them.

    Lines of the same row add up. A row with an empty class is an empty set.

    Args:
        path: File with the columns ``row`` (number of the test row, from 0) or ``path``, and ``class`` (id or
            name).
        class_table: The classes.
        num_rows: Number of test rows.
        paths: Function that returns the path of each test row, called only if the file has paths. A path of
            the file may also be the end of one, in whole parts, if it is that of one row.

    Raises:
        ValueError: If the file has other columns or no rows, or a row or class is not known; the message
            names the line.
    """
    where, lines = _lines(path)
    find_row = _by_number(num_rows) if where == "row" else _by_path([] if paths is None else paths())
    find_class = _by_class(class_table)
    answers: dict[int, set[int]] = {}
    for number, row, text in lines:
        try:
            answers.setdefault(find_row(row), set()).update(find_class(text))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    if not answers:
        raise ValueError(f"{path} has no answers, only its head; expected {LAYOUT}")
    sets = torch.zeros(len(answers), len(class_table), dtype=torch.bool)
    for place, chosen in enumerate(answers.values()):
        sets[place, sorted(chosen)] = True
    return Answers(tuple(answers), sets)


def _lines(path: str | Path) -> tuple[str, list[tuple[int, str, str]]]:
    """Return the column that names rows, and the number, row and classes of each line."""
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            heads = [head.strip() for head in reader.fieldnames or []]
            reader.fieldnames = heads
            named = [head for head in ("row", "path") if head in heads]
            if len(named) != 1 or "class" not in heads:
                raise ValueError(f"{path} has the columns {', '.join(heads) or 'none'}; expected {LAYOUT}")
            lines = [
                (reader.line_num, (line[named[0]] or "").strip(), (line["class"] or "").strip())
                for line in reader
            ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as CSV: {error}") from error
    return named[0], lines


def _by_number(num_rows: int) -> Callable[[str], int]:
    def find(text: str) -> int:
        if not text.isdecimal() or int(text) >= num_rows:
            raise ValueError(f"row must be an integer in [0, {num_rows - 1}], a test row, got {text!r}")
        return int(text)

    return find


def _by_path(paths: Sequence[str]) -> Callable[[str], int]:
    """Find rows by their paths, or by the ends of these: the last part is looked up, then compared."""
    by_name: dict[str, list[int]] = {}
    for number, path in enumerate(paths):
        by_name.setdefault(PurePath(path).name, []).append(number)

    def find(text: str) -> int:
        parts = PurePath(text).parts
        same = by_name.get(parts[-1], []) if parts else []
        matching = [row for row in same if PurePath(paths[row]).parts[-len(parts) :] == parts]
        if len(matching) != 1:
            many = f"it is the end of {len(matching)} of them" if matching else "none of them has this end"
            raise ValueError(f"path must be that of one of the {len(paths)} test rows, got {text!r}: {many}")
        return matching[0]

    return find


def _by_class(table: ClassTable) -> Callable[[str], list[int]]:
    """Find classes by id or by a name that only one class has; ``;`` divides, if the whole is no class."""
    find_one = class_finder(table)

    def find(text: str) -> list[int]:
        whole = find_one(text) if text else None
        if whole is not None:
            return [whole]
        classes = []
        for part in filter(None, (part.strip() for part in text.split(";"))):
            class_index = find_one(part)
            if class_index is None:
                near = get_close_matches(part, [*table.names, *table.ids], n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"class must be an id or a name of the class table, got {part!r}{hint}")
            classes.append(class_index)
        return classes

    return find
