"""Write a comparison for the terminal or as Markdown, LaTeX, CSV or JSON; bold means significant."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from shortlist._tables import safe_cell
from shortlist.compare.comparison import Comparison
from shortlist.compare.paired import Difference
from shortlist.compare.promises import promise_notes
from shortlist.metrics import Estimate
from shortlist.metrics.names import format_metric, is_share, metric_words, predictor_of

__all__ = [
    "footnotes",
    "latex_text",
    "pipe_row",
    "to_csv",
    "to_json",
    "to_latex",
    "to_markdown",
    "to_rich",
    "wide_console",
]

Cells = list[tuple[str, bool]]
"""Texts, and whether each is bold."""

_NONE = Estimate(None)


def _heading(name: str, words: str | None = None) -> str:
    return f"{words or name}{' (%)' if is_share(name) else ''}"


def _is_bold(comparison: Comparison, label: str, name: str) -> bool:
    best = comparison.best.get(name)
    return best is not None and best.significant and label in best.rows


def _body(comparison: Comparison, plus_minus: str) -> list[tuple[str, str, Cells]]:
    """Return the label, number of runs and metrics of each row."""
    return [
        (
            row.label,
            str(len(row.runs)),
            [
                (
                    format_metric(name, row.metrics.get(name, _NONE), plus_minus=plus_minus),
                    _is_bold(comparison, row.label, name),
                )
                for name in comparison.metrics
            ],
        )
        for row in comparison.rows
    ]


def _differences(comparison: Comparison, plus_minus: str) -> list[tuple[str, str, Cells]]:
    """Return the label, an empty number of runs and the differences of each row except the baseline."""
    return [
        (
            row.label,
            "",
            [
                _difference(name, found[row.label], plus_minus)
                for name, found in comparison.differences.items()
            ],
        )
        for row in comparison.rows
        if comparison.baseline is not None and row.label != comparison.baseline
    ]


def _difference(name: str, found: Difference, plus_minus: str) -> tuple[str, bool]:
    if found.value is None:
        return "-", False
    factor, digits = (100, 1) if is_share(name) else (1, 2)
    text = f"{factor * found.value:+.{digits}f}"
    if found.half_width is not None:
        text += f"{plus_minus}{factor * found.half_width:.{digits}f}"
    return text, found.significant


def footnotes(comparison: Comparison) -> list[str]:
    """Return notes: what the numbers are, which tests were made, and what is left out."""
    notes = ["mean ± half the 95 % interval over seeds (for one run: over test rows)"]
    for name, best in comparison.best.items():
        if best.p_value is None:
            notes.append(f"{name}: {', '.join(best.rows)} before {best.second}, {best.test}")
        else:
            sign = "bold" if best.significant else "not significant"
            order = f"{', '.join(best.rows)} before {best.second}"
            notes.append(f"{name}: {order}, p = {best.p_value:.2g}, {best.test}: {sign}")
    notes += promise_notes({row.label: row.promises for row in comparison.rows}, _predictors(comparison))
    found = [one for column in comparison.differences.values() for one in column.values()]
    if found:
        tests = dict.fromkeys(one.test for one in found)
        tested = [
            sum(one.p_value is not None for one in column.values())
            for column in comparison.differences.values()
        ]
        notes.append(
            f"differences to {comparison.baseline}: mean of pairs, bold if p < 0.05 after Holm's correction "
            f"for the {max(tested)} method{'' if max(tested) == 1 else 's'} of a column ({'; '.join(tests)})"
        )
    return notes + [f"left out: {reason}" for reason in comparison.left_out.values()]


def _predictors(comparison: Comparison) -> list[str]:
    """Return the predictors of whose sets a metric is shown."""
    found = [predictor_of(name) for name in comparison.metrics]
    return list(dict.fromkeys(name for name in found if name is not None))


def to_rich(comparison: Comparison, *, title: str | None = None) -> Any:
    """Return a table for ``rich``; the differences to a baseline are its lower part."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("method")
    table.add_column("runs", justify="right")
    for name in comparison.metrics:
        table.add_column(_heading(name).replace(".", ".\n"), justify="right", no_wrap=True)
    for label, runs, cells in _body(comparison, " ± "):
        table.add_row(escape(label), runs, *_marked(cells, "[bold]", "[/bold]"))
    if comparison.baseline is not None:
        table.add_section()
        with_test = list(comparison.differences)
        for label, runs, cells in _differences(comparison, " ± "):
            texts = dict(zip(with_test, _marked(cells, "[bold]", "[/bold]"), strict=True))
            shown = [texts.get(name, "") for name in comparison.metrics]
            table.add_row(escape(f"{label} - {comparison.baseline}"), runs, *shown)
    return table


def _marked(cells: Cells, start: str, end: str) -> list[str]:
    return [f"{start}{text}{end}" if bold else text for text, bold in cells]


def wide_console() -> Any:
    """Return a console as wide as the terminal, or without limit if the output is a file."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=240)


def to_markdown(comparison: Comparison) -> str:
    """Return a table in Markdown, one of differences if there is a baseline, and the notes below."""
    head = ["method", "runs", *map(_heading, comparison.metrics)]
    lines = _pipe_table(head, _body(comparison, " ± "))
    if comparison.differences:
        head = [f"method - {comparison.baseline}", "", *map(_heading, comparison.differences)]
        body = _differences(comparison, " ± ")
        lines += ["", *_pipe_table(head, body)] if body else []
    return "\n".join([*lines, "", *(f"- {note}" for note in footnotes(comparison))])


def _pipe_table(head: list[str], body: list[tuple[str, str, Cells]]) -> list[str]:
    runs = any(runs for _, runs, _ in body)  # no empty column
    rows = [[label.replace("|", "\\|"), count, *_marked(cells, "**", "**")] for label, count, cells in body]
    ruled = [head, ["---", *("---:" for _ in head[1:])], *rows]
    return [pipe_row(row if runs else [row[0], *row[2:]]) for row in ruled]


def pipe_row(cells: Sequence[str]) -> str:
    """Return a line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def to_latex(comparison: Comparison) -> str:
    """Return a ``tabular`` with booktabs rules, differences as its lower part, and the notes as comments."""
    head = ["method", "runs", *(_heading(name, metric_words(name)) for name in comparison.metrics)]
    lines = [f"% {latex_text(note)}" for note in footnotes(comparison)]
    lines += [rf"\begin{{tabular}}{{lr{'r' * len(comparison.metrics)}}}", r"\toprule"]
    lines += [" & ".join(map(latex_text, head)) + r" \\", r"\midrule"]
    for label, runs, cells in _body(comparison, r" \pm "):
        lines.append(" & ".join([latex_text(label), runs, *_in_math(cells)]) + r" \\")
    if comparison.differences:
        lines.append(r"\midrule")
        for label, runs, cells in _differences(comparison, r" \pm "):
            texts = dict(zip(comparison.differences, _in_math(cells), strict=True))
            shown = [texts.get(name, "") for name in comparison.metrics]
            lines.append(" & ".join([latex_text(f"{label} - {comparison.baseline}"), runs, *shown]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _in_math(cells: Cells) -> list[str]:
    return [rf"$\mathbf{{{text}}}$" if bold else f"${text}$" for text, bold in cells]


def latex_text(text: str) -> str:
    """Return text with the signs of LaTeX escaped."""
    for sign in "&%$#_{}":
        text = text.replace(sign, "\\" + sign)
    return text.replace("±", r"$\pm$")


def to_csv(comparison: Comparison) -> str:
    """Return a line for each method: the mean of each metric, the ends of its interval, and differences."""
    head = ["method", "runs"]
    for name in comparison.metrics:
        head += [name, f"{name}.low", f"{name}.high"]
    for name in comparison.differences:
        head += [f"{name}.difference", f"{name}.p"]
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(head)
    for row in comparison.rows:
        cells: list[Any] = [safe_cell(row.label), len(row.runs)]
        for name in comparison.metrics:
            metric = row.metrics.get(name, _NONE)
            cells += [metric.value, metric.low, metric.high]
        for found in comparison.differences.values():
            one = found.get(row.label)
            cells += [None, None] if one is None else [one.value, one.p_value]
        lines.writerow(cells)
    return text.getvalue()


def to_json(comparison: Comparison) -> dict[str, Any]:
    """Return plain values for ``json.dumps``: the metrics of each row, tests, and what is left out."""
    rows = []
    for row in comparison.rows:
        metrics = {name: asdict(row.metrics.get(name, _NONE)) for name in comparison.metrics}
        rows.append(
            {"label": row.label, "runs": list(row.runs), "seeds": list(row.seeds)}
            | {"recipe_hash": row.recipe_hash, "metrics": metrics}
            | {"promises": {key: [one.to_dict() for one in found] for key, found in row.promises.items()}}
        )
    best = {name: asdict(found) for name, found in comparison.best.items()}
    content = {"metrics": list(comparison.metrics), "rows": rows}
    differences = {
        name: {label: asdict(one) for label, one in found.items()}
        for name, found in comparison.differences.items()
    }
    content |= {"best": best, "baseline": comparison.baseline, "differences": differences}
    return content | {"left_out": dict(comparison.left_out)}
