"""Write the comparison with a person as a table to print, or as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shortlist._sheets import Cell, Sheet, SheetPart
from shortlist._text import format_points
from shortlist.compare.person import EqualSets, PersonComparison
from shortlist.metrics import format_metric

HEADS = (
    *("method", "runs", "same mean size (%)", "sizes", "difference", "p"),
    *("same size in each row (%)", "difference", "p"),
)


def _sizes(ends: Sequence[int]) -> str:
    return "–".join(map(str, dict.fromkeys(ends)))


def _body(beside: PersonComparison) -> list[list[Cell]]:
    """Return the cells: the person first, then the methods; differences that are significant are bold."""
    person = format_metric("coverage", beside.coverage)
    texts = ["", person, _sizes(beside.sizes), "", "", person, "", ""]
    rows: list[list[Cell]] = [[(text, False) for text in ("person", *texts)]]
    for row in beside.rows:
        mean, each = row.same_mean, row.same_sizes
        cells = [(str(len(row.runs)), False), _share(mean), (_sizes(mean.sizes), False), *_tested(mean)]
        rows.append([(row.label, False), *cells, _share(each), *_tested(each)])
    return rows


def _share(sets: EqualSets) -> tuple[str, bool]:
    return format_metric("coverage", sets.coverage), False


def _tested(sets: EqualSets) -> list[tuple[str, bool]]:
    return [(format_points(sets.difference), sets.significant), (f"{sets.p_value:.2g}", False)]


def person_footnotes(beside: PersonComparison) -> list[str]:
    """Return notes: what the numbers are, which tests were made, and what is left out."""
    sizes = f"{beside.mean_size:.2f} classes on average ({_sizes(beside.sizes)})"
    rows = f"{beside.num_rows} test rows of {beside.answers}"
    notes = [
        f"{rows}, {sizes}: share of sets that contain the right class",
        "mean ± half the 95 % interval over seeds (for one run and for the person: over test rows)",
    ]
    tests = dict.fromkeys(sets.test for row in beside.rows for sets in (row.same_mean, row.same_sizes))
    number = len(beside.rows)
    notes.append(
        f"differences to the person, in points: bold if p < 0.05 after Holm's correction for "
        f"{number} method{'' if number == 1 else 's'} ({'; '.join(tests)})"
    )
    return notes + [f"left out: {reason}" for reason in beside.left_out.values()]


def person_sheet(beside: PersonComparison) -> Sheet:
    """Return the table to print."""
    return Sheet([HEADS], [SheetPart(_body(beside))], 1, "", person_footnotes(beside))


def person_to_json(beside: PersonComparison) -> dict[str, Any]:
    """Return plain values for ``json.dumps``."""
    return asdict(beside)
