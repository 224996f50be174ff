"""Sections of a user's own: functions from an experiment to a table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shortlist._named_code import find_code
from shortlist.report.parts import Table
from shortlist.report.views import ExperimentView

Section = Callable[[ExperimentView], Any]


def own_sections(names: Sequence[str]) -> dict[str, Section]:
    """Import the functions ``package.module:function`` that the user named, by title.

    Raises:
        ValueError: If one is not there.
    """
    functions = {name: find_code("--section", name) for name in names}
    return {f"{name.rpartition(':')[2].replace('_', ' ')}": function for name, function in functions.items()}


def measure_own(functions: Mapping[str, Section], view: ExperimentView) -> dict[str, Table] | None:
    """Return the tables of these functions, without those that have nothing to say.

    Raises:
        ValueError: If a function returns anything but a table or ``None``.
    """
    tables = {}
    for title, function in functions.items():
        table = function(view)
        if table is not None and not isinstance(table, Table):
            got = type(table).__name__
            raise ValueError(f"--section {title} must return a shortlist.report.Table or None, got {got}")
        if table is not None:
            tables[title] = table
    return tables or None
