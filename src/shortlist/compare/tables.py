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
from shortlist.metrics import Estimate, format_metric, is_share, metric_words, predictor_of

Row = tuple[str, list[tuple[str, bool]]]
"""The label of a row, and its cells: text, and whether it is bold."""

_NONE = Estimate(None)


def _heading(name: str, words: str | None = None) -> str:
    return f"{words or name}{' (%)' if is_share(name) else ''}"


def _is_bold(comparison: Comparison, label: str, name: str) -> bool:
    best = comparison.best.get(name)
    return best is not None and best.significant and label in best.rows


def _body(comparison: Comparison) -> list[Row]:
    """Return the number of runs and the metrics of each row."""
    rows = []
    for row in comparison.rows:
        texts = [format_metric(name, row.metrics.get(name, _NONE)) for name in comparison.metrics]
        bold = [_is_bold(comparison, row.label, name) for name in comparison.metrics]
        rows.append((row.label, [(str(len(row.runs)), False), *zip(texts, bold, strict=True)]))
    return rows


def _differences(comparison: Comparison) -> list[Row]:
    """Return the differences of each row except the baseline."""
    columns = comparison.differences.items()
    return [
        (row.label, [_difference(name, column[row.label]) for name, column in columns])
        for row in comparison.rows
        if comparison.baseline is not None and row.label != comparison.baseline
    ]


def _lower_part(comparison: Comparison) -> list[Row]:
    """Return the differences below the columns of the metrics: no number of runs, and nothing for sizes."""
    rows = []
    for label, cells in _differences(comparison):
        by_name = dict(zip(comparison.differences, cells, strict=True))
        shown = [by_name.get(name, ("", False)) for name in comparison.metrics]
        rows.append((f"{label} - {comparison.baseline}", [("", False), *shown]))
    return rows


def _difference(name: str, difference: Difference) -> tuple[str, bool]:
    if difference.value is None:
        return "-", False
    factor, digits = (100, 1) if is_share(name) else (1, 2)
    text = f"{factor * difference.value:+.{digits}f}"
    if difference.half_width is not None:
        text += f" ± {factor * difference.half_width:.{digits}f}"
    return text, difference.significant


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
    differences = [difference for column in comparison.differences.values() for difference in column.values()]
    if differences:
        tests = dict.fromkeys(difference.test for difference in differences)
        tested = [
            sum(difference.p_value is not None for difference in column.values())
            for column in comparison.differences.values()
        ]
        notes.append(
            f"differences to {comparison.baseline}: mean of pairs, bold if p < 0.05 after Holm's correction "
            f"for the {max(tested)} method{'' if max(tested) == 1 else 's'} of a column ({'; '.join(tests)})"
        )
    return notes + [f"left out: {reason}" for reason in comparison.left_out.values()]


def _predictors(comparison: Comparison) -> list[str]:
    """Return the predictors of whose sets a metric is shown."""
    predictors = [predictor_of(name) for name in comparison.metrics]
    return list(dict.fromkeys(name for name in predictors if name is not None))


def to_rich(comparison: Comparison, *, title: str | None = None) -> Any:
    """Return a table for ``rich``; the differences to a baseline are its lower part."""
    heads = ["method", "runs", *(_heading(name).replace(".", ".\n") for name in comparison.metrics)]
    return rich_table(heads, _body(comparison), _lower_part(comparison), title=title)


def rich_table(heads: Sequence[str], *parts: Sequence[Row], title: str | None = None) -> Any:
    """Return a table for ``rich``, with a line between its parts."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column(heads[0])
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    for part in parts:
        for label, cells in part:
            texts = [f"[bold]{text}[/bold]" if bold else text for text, bold in cells]
            table.add_row(escape(label), *texts)
        table.add_section()
    return table


def to_markdown(comparison: Comparison) -> str:
    """Return a table in Markdown, one of differences if there is a baseline, and the notes below."""
    heads = ["method", "runs", *map(_heading, comparison.metrics)]
    tables = [markdown_table(heads, _body(comparison))]
    if differences := _differences(comparison):
        heads = [f"method - {comparison.baseline}", *map(_heading, comparison.differences)]
        tables.append(markdown_table(heads, differences))
    return "\n\n".join([*tables, markdown_notes(footnotes(comparison))])


def markdown_table(heads: Sequence[str], rows: Sequence[Row]) -> str:
    """Return a table in Markdown."""
    lines = [pipe_row(heads), pipe_row(["---", *("---:" for _ in heads[1:])])]
    for label, cells in rows:
        texts = [f"**{text}**" if bold else text for text, bold in cells]
        lines.append(pipe_row([label.replace("|", "\\|"), *texts]))
    return "\n".join(lines)


def markdown_notes(notes: Sequence[str]) -> str:
    """Return notes as a list in Markdown."""
    return "\n".join(f"- {note}" for note in notes)


def pipe_row(cells: Sequence[str]) -> str:
    """Return a line of a table in Markdown."""
    return "| " + " | ".join(cells) + " |"


def to_latex(comparison: Comparison) -> str:
    """Return a ``tabular`` with booktabs rules, differences as its lower part, and the notes as comments."""
    heads = ["method", "runs", *(_heading(name, metric_words(name)) for name in comparison.metrics)]
    return latex_table(heads, footnotes(comparison), _body(comparison), _lower_part(comparison))


def latex_table(heads: Sequence[str], notes: Sequence[str], *parts: Sequence[Row]) -> str:
    """Return a ``tabular`` with booktabs rules between its parts, and the notes as comments."""
    lines = [f"% {latex_text(note)}" for note in notes]
    lines += [rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", r"\toprule"]
    lines.append(" & ".join(map(latex_text, heads)) + r" \\")
    for part in filter(None, parts):
        lines.append(r"\midrule")
        lines += [" & ".join([latex_text(label), *map(_in_math, cells)]) + r" \\" for label, cells in part]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _in_math(cell: tuple[str, bool]) -> str:
    text, bold = cell[0].replace("±", r"\pm"), cell[1]
    return rf"$\mathbf{{{text}}}$" if bold else f"${text}$" if text else ""


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
        for column in comparison.differences.values():
            difference = column.get(row.label)
            cells += [None, None] if difference is None else [difference.value, difference.p_value]
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
            | {"promises": {key: [entry.to_dict() for entry in items] for key, items in row.promises.items()}}
        )
    best = {name: asdict(items) for name, items in comparison.best.items()}
    content = {"metrics": list(comparison.metrics), "rows": rows}
    differences = {
        name: {label: asdict(entry) for label, entry in items.items()}
        for name, items in comparison.differences.items()
    }
    content |= {"best": best, "baseline": comparison.baseline, "differences": differences}
    return content | {"left_out": dict(comparison.left_out)}
