"""Tables to print: heads over groups of columns, parts with titles, notes; one writer for each form."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from itertools import groupby
from typing import Any

from shortlist._tables import safe_cell

Cell = tuple[str, bool]
"""Text, and whether it is bold."""

# what is a number with its interval, or several of them: LaTeX sets it as mathematics
_NUMBERS = re.compile(r"[-+]?[\d.,]+(?: ± [\d.,]+)?")
# signs that pdfLaTeX takes for commands, or has in no font of text
_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}"},
    **{"[": "{[}", "]": "{]}", "*": "{*}", "–": "--", "—": "---", "…": r"\dots{}", "\n": " "},
    **{"±": r"$\pm$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$", "≠": r"$\neq$", "−": "$-$"},
    **{"α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "ε": r"$\varepsilon$", "λ": r"$\lambda$"},
    **{"τ": r"$\tau$", "Γ": r"$\Gamma$", "’": "'", "“": "``", "”": "''"},
}


@dataclass(frozen=True)
class SheetPart:
    """Rows of a table below a line, with a title over all columns or none."""

    rows: Sequence[Sequence[Cell]]
    title: str = ""


@dataclass(frozen=True)
class Sheet:
    """A table.

    Args:
        heads: Rows of heads, the last one over single columns; equal neighbors in the others are one head.
        parts: The rows.
        stubs: Number of columns at the left that name a row.
        caption: Title, or none.
        notes: Sentences below the table.
    """

    heads: Sequence[Sequence[str]]
    parts: Sequence[SheetPart]
    stubs: int = 1
    caption: str = ""
    notes: Sequence[str] = ()

    @property
    def rows(self) -> list[Sequence[Cell]]:
        """The rows of all parts."""
        return [row for part in self.parts for row in part.rows]

    @property
    def flat_heads(self) -> list[str]:
        """One head for each column, with that of its group before it."""
        return [", ".join(filter(None, dict.fromkeys(column))) for column in zip(*self.heads, strict=True)]


def write_sheets(sheets: Sequence[Sheet], form: str) -> str:
    """Write tables as ``markdown``, ``latex``, ``html`` or ``csv``, one below the other."""
    writers: dict[str, Callable[[Sheet], str]] = {
        "markdown": to_markdown, "latex": to_latex, "html": to_html, "csv": to_csv
    }  # fmt: skip
    return "\n\n".join(writers[form](sheet).rstrip("\n") for sheet in sheets)


def to_rich(sheet: Sheet) -> Any:
    """Return a table for ``rich``."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=sheet.caption or None, title_justify="left")
    for place, head in enumerate(zip(*sheet.heads, strict=True)):
        shown = "\n".join(filter(None, dict.fromkeys(head)))
        is_stub = place < sheet.stubs
        table.add_column(escape(shown), justify="left" if is_stub else "right", no_wrap=not is_stub)
    for part in sheet.parts:
        if part.title:
            table.add_row(f"[italic]{escape(part.title)}[/italic]")
        for row in part.rows:
            table.add_row(*(f"[bold]{escape(text)}[/bold]" if bold else escape(text) for text, bold in row))
        table.add_section()
    return table


def to_markdown(sheet: Sheet) -> str:
    """Return a table in Markdown, its caption above and its notes as a list below."""
    width = len(sheet.heads[-1])
    rules = ["---" if place < sheet.stubs else "---:" for place in range(width)]
    lines = [f"**{sheet.caption}**\n"] if sheet.caption else []
    lines += [pipe_row(map(_no_pipe, sheet.flat_heads)), pipe_row(rules)]
    for part in sheet.parts:
        if part.title:
            lines.append(pipe_row([f"*{_no_pipe(part.title)}*", *[""] * (width - 1)]))
        for row in part.rows:
            texts = [f"**{_no_pipe(text)}**" if bold and text else _no_pipe(text) for text, bold in row]
            lines.append(pipe_row(texts))
    notes = [f"- {note}" for note in sheet.notes]
    return "\n".join([*lines, "", *notes] if notes else lines)


def pipe_row(cells: Iterable[str]) -> str:
    """Return a line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def _no_pipe(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def to_latex(sheet: Sheet) -> str:
    r"""Return a ``tabular`` with rules of booktabs.

    With a caption it stands in a ``table`` with its notes below; without one the notes are comments before.
    It compiles with ``\usepackage{booktabs}`` and ``\usepackage[T1]{fontenc}``; letters of other scripts
    than Latin need LuaLaTeX.
    """
    width = len(sheet.heads[-1])
    tabular = [rf"\begin{{tabular}}{{{'l' * sheet.stubs}{'r' * (width - sheet.stubs)}}}", r"\toprule"]
    for row in sheet.heads[:-1]:
        tabular += _latex_groups(row)
    tabular.append(_latex_row(map(latex_text, sheet.heads[-1])))
    for part in sheet.parts:
        if not part.rows:
            continue
        tabular.append(r"\midrule")
        if part.title:
            tabular.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{latex_text(part.title)}}}}} \\")
        tabular += [_latex_row(map(_latex_cell, row)) for row in part.rows]
    tabular += [r"\bottomrule", r"\end{tabular}"]
    if not sheet.caption:
        return "\n".join([*(f"% {latex_text(note)}" for note in sheet.notes), *tabular])
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{latex_text(sheet.caption)}}}", *tabular]
    lines += [rf"\par {{\footnotesize {latex_text(note)}\par}}" for note in sheet.notes]
    return "\n".join([*lines, r"\end{table}"])


def _latex_groups(heads: Sequence[str]) -> list[str]:
    """Return a row of heads over groups of columns, and the rules below those that have text."""
    cells, rules, place = [], [], 0
    for text, group in groupby(heads):
        span = len(list(group))
        if text:
            cells.append(rf"\multicolumn{{{span}}}{{c}}{{{latex_text(text)}}}")
            rules.append(rf"\cmidrule(lr){{{place + 1}-{place + span}}}")
        else:
            cells += [""] * span
        place += span
    return [_latex_row(cells), "".join(rules)]


def _latex_row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    text, bold = cell
    if _NUMBERS.fullmatch(text):
        number = text.replace("±", r"\pm")
        return rf"$\mathbf{{{number}}}$" if bold else f"${number}$"
    return rf"\textbf{{{latex_text(text)}}}" if bold and text else latex_text(text)


def latex_text(text: str) -> str:
    """Return text with the signs of LaTeX escaped."""
    escaped = "".join(_LATEX.get(sign, sign) for sign in text)
    return re.sub(r"(?<![\w.}-])-(?=\d)", "$-$", escaped)


def to_html(sheet: Sheet) -> str:
    """Return a ``table`` of HTML, and its notes as a list."""
    lines = ["<table>"]
    lines += [f"<caption>{escape_html(sheet.caption)}</caption>"] if sheet.caption else []
    lines.append("<thead>")
    for row in sheet.heads[:-1]:
        groups = [(text, len(list(group))) for text, group in groupby(row)]
        cells = [f'<th scope="colgroup" colspan="{span}">{escape_html(text)}</th>' for text, span in groups]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    heads = [f'<th scope="col">{escape_html(text)}</th>' for text in sheet.heads[-1]]
    lines += [f"<tr>{''.join(heads)}</tr>", "</thead>"]
    for part in sheet.parts:
        lines.append("<tbody>")
        if part.title:
            title = escape_html(part.title)
            lines.append(f'<tr><th scope="rowgroup" colspan="{len(sheet.heads[-1])}">{title}</th></tr>')
        lines += [_html_row(row, sheet.stubs) for row in part.rows]
        lines.append("</tbody>")
    lines.append("</table>")
    notes = [f"<li>{escape_html(note)}</li>" for note in sheet.notes]
    return "\n".join([*lines, "<ul>", *notes, "</ul>"] if notes else lines)


def _html_row(row: Sequence[Cell], stubs: int) -> str:
    texts = [f"<b>{escape_html(text)}</b>" if bold and text else escape_html(text) for text, bold in row]
    cells = [f'<th scope="row">{text}</th>' for text in texts[:stubs]]
    return f"<tr>{''.join([*cells, *(f'<td>{text}</td>' for text in texts[stubs:])])}</tr>"


def to_csv(sheet: Sheet) -> str:
    """Return the table as CSV: a head for each column, and the title of a part in a column before it."""
    titled = any(part.title for part in sheet.parts)
    head = ["part"] if titled else []
    lines = [[*head, *sheet.flat_heads]]
    for part in sheet.parts:
        lines += [[*([part.title] if titled else []), *(text for text, _ in row)] for row in part.rows]
    return csv_lines(lines)


def csv_lines(lines: Iterable[Sequence[Any]]) -> str:
    """Write values as CSV, with text that a spreadsheet would run as a formula quoted."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for line in lines:
        writer.writerow([safe_cell(value) if isinstance(value, str) else value for value in line])
    return text.getvalue()
