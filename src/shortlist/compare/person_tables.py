"""Write the comparison with a person for the terminal or as Markdown, LaTeX or JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shortlist.compare.person import EqualSets, PersonComparison
from shortlist.compare.tables import latex_text, pipe_row
from shortlist.metrics import Estimate
from shortlist.metrics.names import format_metric, format_points

__all__ = ["person_footnotes", "person_to_json", "person_to_latex", "person_to_markdown", "person_to_rich"]

HEADS = (
    *("method", "runs", "same mean size (%)", "sizes", "difference", "p"),
    *("same size in each row (%)", "difference", "p"),
)


def _coverage(found: Estimate, plus_minus: str) -> str:
    return format_metric("coverage", found, plus_minus=plus_minus)


def _sizes(ends: Sequence[int]) -> str:
    return "–".join(map(str, dict.fromkeys(ends)))


def _body(found: PersonComparison, plus_minus: str, bold: tuple[str, str]) -> list[list[str]]:
    """Return the cells: the person first, then the methods; differences that are significant are bold."""
    person = _coverage(found.coverage, plus_minus)
    lines = [["person", "", person, _sizes(found.sizes), "", "", person, "", ""]]
    for row in found.rows:
        mean, each = row.same_mean, row.same_sizes
        lines.append(
            [
                row.label,
                str(len(row.runs)),
                _coverage(mean.coverage, plus_minus),
                _sizes(mean.sizes),
                *_tested(mean, bold),
                _coverage(each.coverage, plus_minus),
                *_tested(each, bold),
            ]
        )
    return lines


def _tested(sets: EqualSets, bold: tuple[str, str]) -> list[str]:
    text = format_points(sets.difference)
    return [f"{bold[0]}{text}{bold[1]}" if sets.significant else text, f"{sets.p_value:.2g}"]


def person_footnotes(found: PersonComparison) -> list[str]:
    """Return notes: what the numbers are, which tests were made, and what is left out."""
    sizes = f"{found.mean_size:.2f} classes on average ({_sizes(found.sizes)})"
    notes = [
        f"{found.num_rows} test rows of {found.answers}, {sizes}: share of sets that contain the right class",
        "mean ± half the 95 % interval over seeds (for one run and for the person: over test rows)",
    ]
    tests = dict.fromkeys(sets.test for row in found.rows for sets in (row.same_mean, row.same_sizes))
    number = len(found.rows)
    notes.append(
        f"differences to the person, in points: bold if p < 0.05 after Holm's correction for "
        f"{number} method{'' if number == 1 else 's'} ({'; '.join(tests)})"
    )
    return notes + [f"left out: {reason}" for reason in found.left_out.values()]


def person_to_rich(found: PersonComparison) -> Any:
    """Return a table for ``rich``."""
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for place, head in enumerate(HEADS):
        table.add_column(head, justify="right" if place else "left")
    for line in _body(found, " ± ", ("[bold]", "[/bold]")):
        table.add_row(escape(line[0]), *line[1:])
    return table


def person_to_markdown(found: PersonComparison) -> str:
    """Return a table in Markdown, and the notes below."""
    lines = [pipe_row(HEADS), pipe_row(["---", *("---:" for _ in HEADS[1:])])]
    for label, *cells in _body(found, " ± ", ("**", "**")):
        lines.append(pipe_row([label.replace("|", "\\|"), *cells]))
    return "\n".join([*lines, "", *(f"- {note}" for note in person_footnotes(found))])


def person_to_latex(found: PersonComparison) -> str:
    """Return a ``tabular`` with booktabs rules, and the notes as comments."""
    lines = [f"% {latex_text(note)}" for note in person_footnotes(found)]
    lines += [rf"\begin{{tabular}}{{l{'r' * (len(HEADS) - 1)}}}", r"\toprule"]
    lines += [" & ".join(map(latex_text, HEADS)) + r" \\", r"\midrule"]
    for label, *cells in _body(found, r" \pm ", (r"\mathbf{", "}")):
        shown = [latex_text(label), *(f"${cell}$" if cell else "" for cell in cells)]
        lines.append(" & ".join(shown) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def person_to_json(found: PersonComparison) -> dict[str, Any]:
    """Return plain values for ``json.dumps``."""
    return asdict(found)
