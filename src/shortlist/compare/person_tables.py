"""Write the comparison with a person for the terminal or as Markdown, LaTeX or JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shortlist._text import format_points
from shortlist.compare.person import EqualSets, PersonComparison
from shortlist.compare.tables import Row, latex_table, markdown_notes, markdown_table, rich_table
from shortlist.metrics import format_metric

HEADS = (
    *("method", "runs", "same mean size (%)", "sizes", "difference", "p"),
    *("same size in each row (%)", "difference", "p"),
)


def _sizes(ends: Sequence[int]) -> str:
    return "–".join(map(str, dict.fromkeys(ends)))


def _body(beside: PersonComparison) -> list[Row]:
    """Return the cells: the person first, then the methods; differences that are significant are bold."""
    person = format_metric("coverage", beside.coverage)
    texts = ["", person, _sizes(beside.sizes), "", "", person, "", ""]
    rows: list[Row] = [("person", [(text, False) for text in texts])]
    for row in beside.rows:
        mean, each = row.same_mean, row.same_sizes
        cells = [(str(len(row.runs)), False), _share(mean), (_sizes(mean.sizes), False), *_tested(mean)]
        rows.append((row.label, [*cells, _share(each), *_tested(each)]))
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


def person_to_rich(beside: PersonComparison) -> Any:
    """Return a table for ``rich``."""
    return rich_table(HEADS, _body(beside))


def person_to_markdown(beside: PersonComparison) -> str:
    """Return a table in Markdown, and the notes below."""
    return f"{markdown_table(HEADS, _body(beside))}\n\n{markdown_notes(person_footnotes(beside))}"


def person_to_latex(beside: PersonComparison) -> str:
    """Return a ``tabular`` with booktabs rules, and the notes as comments."""
    return latex_table(HEADS, person_footnotes(beside), _body(beside))


def person_to_json(beside: PersonComparison) -> dict[str, Any]:
    """Return plain values for ``json.dumps``."""
    return asdict(beside)
