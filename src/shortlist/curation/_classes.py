"""Some classes of a table, and classes of two tables as one: with all that the tables say about them."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from shortlist.class_table import ClassTable


def take_classes(table: ClassTable, rows: Iterable[int]) -> ClassTable:
    """Return the table of some of the classes, by their numbers."""
    rows = list(rows)

    def taken(column: Any) -> Any:
        if isinstance(column, Mapping):
            return {key: taken(part) for key, part in column.items()}
        return [column[row] for row in rows] if column else ()

    return ClassTable(**{field.name: taken(getattr(table, field.name)) for field in fields(table)})


def add_classes(table: ClassTable, more: ClassTable) -> ClassTable:
    """Return one table with the classes of both; what only one of them says is empty for the other."""

    def joined(first: Any, second: Any) -> Any:
        if isinstance(first, Mapping):
            return {key: joined(first.get(key, ()), second.get(key, ())) for key in {**first, **second}}
        if not first and not second:
            return ()
        empty = type((first or second)[0])()
        return [*(first or [empty] * len(table)), *(second or [empty] * len(more))]

    columns = {
        field.name: joined(getattr(table, field.name), getattr(more, field.name)) for field in fields(table)
    }
    return ClassTable(**columns)
