"""A comparison as text, for the terminal, Markdown, LaTeX and JSON; bold only where a test says so."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shortlist.metrics import Figure
from shortlist.report.compare import Comparison
from shortlist.report.suite_figures import format_figure, is_share

__all__ = ["footnotes", "to_json", "to_latex", "to_markdown", "to_rich", "wide_console"]

_NONE = Figure(None)


def _heading(name: str) -> str:
    return f"{name} (%)" if is_share(name) else name


def _is_bold(comparison: Comparison, label: str, name: str) -> bool:
    best = comparison.best.get(name)
    return best is not None and best.significant and best.row == label


def _body(comparison: Comparison, plus_minus: str) -> list[tuple[str, str, list[tuple[str, bool]]]]:
    """For each row its label, its number of runs, and each figure with whether it is bold."""
    return [
        (
            row.label,
            str(len(row.runs)),
            [
                (
                    format_figure(name, row.figures.get(name, _NONE), plus_minus=plus_minus),
                    _is_bold(comparison, row.label, name),
                )
                for name in comparison.figures
            ],
        )
        for row in comparison.rows
    ]


def footnotes(comparison: Comparison) -> list[str]:
    """What the numbers are, each test that was made, and what is left out."""
    notes = ["mean ± half the 95 % interval over seeds (for one run: over test rows)"]
    for name, best in comparison.best.items():
        if best.p_value is None:
            notes.append(f"{name}: {best.row} before {best.second}, {best.test}")
        else:
            sign = "bold" if best.significant else "not significant"
            notes.append(
                f"{name}: {best.row} before {best.second}, p = {best.p_value:.2g}, {best.test}: {sign}"
            )
    return notes + [f"left out: {reason}" for reason in comparison.left_out.values()]


def to_rich(comparison: Comparison, *, title: str | None = None) -> Any:
    """A table for ``rich``."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("method")
    table.add_column("runs", justify="right")
    for name in comparison.figures:
        table.add_column(_heading(name).replace(".", ".\n"), justify="right", no_wrap=True)
    for label, runs, cells in _body(comparison, " ± "):
        table.add_row(
            escape(label), runs, *(f"[bold]{text}[/bold]" if bold else text for text, bold in cells)
        )
    return table


def wide_console() -> Any:
    """Where a table is printed: as wide as the terminal, or as wide as it likes in a file."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=240)


def to_markdown(comparison: Comparison) -> str:
    """A table in Markdown, with the notes below."""
    head = ["method", "runs", *map(_heading, comparison.figures)]
    lines = [_pipes(head), _pipes(["---", "---:", *("---:" for _ in comparison.figures)])]
    for label, runs, cells in _body(comparison, " ± "):
        texts = [f"**{text}**" if bold else text for text, bold in cells]
        lines.append(_pipes([label.replace("|", "\\|"), runs, *texts]))
    return "\n".join([*lines, "", *(f"- {note}" for note in footnotes(comparison))])


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def to_latex(comparison: Comparison) -> str:
    """A ``tabular`` with booktabs' rules, and the notes as comments."""
    head = ["method", "runs", *map(_heading, comparison.figures)]
    lines = [f"% {_escape(note)}" for note in footnotes(comparison)]
    lines += [rf"\begin{{tabular}}{{lr{'r' * len(comparison.figures)}}}", r"\toprule"]
    lines += [" & ".join(map(_escape, head)) + r" \\", r"\midrule"]
    for label, runs, cells in _body(comparison, r" \pm "):
        texts = [rf"$\mathbf{{{text}}}$" if bold else f"${text}$" for text, bold in cells]
        lines.append(" & ".join([_escape(label), runs, *texts]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _escape(text: str) -> str:
    for sign in "&%$#_{}":
        text = text.replace(sign, "\\" + sign)
    return text.replace("±", r"$\pm$")


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Plain values, for ``json.dumps``: the shown figures of each row, tests, and what is left out."""
    rows = []
    for row in comparison.rows:
        figures = {name: asdict(row.figures.get(name, _NONE)) for name in comparison.figures}
        rows.append(
            {"label": row.label, "runs": list(row.runs), "seeds": list(row.seeds)}
            | {"recipe_hash": row.recipe_hash, "figures": figures}
        )
    best = {name: asdict(found) for name, found in comparison.best.items()}
    content = {"figures": list(comparison.figures), "rows": rows}
    return content | {"best": best, "left_out": dict(comparison.left_out)}
