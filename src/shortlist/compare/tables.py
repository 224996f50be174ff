"""A comparison as a table to print, as CSV or JSON; bold means significant."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from shortlist._sheets import Cell, Sheet, SheetPart, csv_lines, to_rich, write_sheets
from shortlist.compare.comparison import Comparison
from shortlist.compare.paired import Difference
from shortlist.compare.promises import promise_notes
from shortlist.metrics import Estimate, format_metric, is_share, metric_words, predictor_of

_NONE = Estimate(None)


def _heading(name: str, words: str | None = None) -> str:
    return f"{words or name}{' (%)' if is_share(name) else ''}"


def _is_bold(comparison: Comparison, label: str, name: str) -> bool:
    best = comparison.best.get(name)
    return best is not None and best.significant and label in best.rows


def _body(comparison: Comparison) -> list[list[Cell]]:
    """Return the label, the number of runs and the metrics of each row."""
    rows = []
    for row in comparison.rows:
        texts = [format_metric(name, row.metrics.get(name, _NONE)) for name in comparison.metrics]
        bold = [_is_bold(comparison, row.label, name) for name in comparison.metrics]
        cells = [*zip(texts, bold, strict=True)]
        rows.append([(row.label, False), (str(len(row.runs)), False), *cells])
    return rows


def _lower_part(comparison: Comparison) -> list[list[Cell]]:
    """Return the differences below the columns of the metrics: no number of runs, and nothing for sizes."""
    rows = []
    for row in comparison.rows:
        if comparison.baseline is None or row.label == comparison.baseline:
            continue
        columns = [comparison.differences.get(name, {}).get(row.label) for name in comparison.metrics]
        pairs = zip(comparison.metrics, columns, strict=True)
        shown = [("", False) if column is None else _difference(name, column) for name, column in pairs]
        rows.append([(f"{row.label} - {comparison.baseline}", False), ("", False), *shown])
    return rows


def _difference(name: str, difference: Difference) -> Cell:
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


def comparison_sheet(comparison: Comparison, *, title: str = "", words: bool = False) -> Sheet:
    """Return the table to print; differences to a baseline are its lower part.

    Args:
        comparison: The comparison.
        title: Its caption, such as the value of the axis that its rows share.
        words: Whether heads are words, as for readers of a paper, in the place of names of metrics.
    """
    heads = [
        "method",
        "runs",
        *(_heading(name, metric_words(name) if words else None) for name in comparison.metrics),
    ]
    parts = [SheetPart(_body(comparison)), SheetPart(_lower_part(comparison))]
    return Sheet([heads], [part for part in parts if part.rows], 1, title, footnotes(comparison))


def rich_comparison(comparison: Comparison, *, title: str = "") -> Any:
    """Return a table for ``rich``, the names of metrics broken at their points."""
    sheet = comparison_sheet(comparison, title=title)
    return to_rich(replace(sheet, heads=[[head.replace(".", ".\n") for head in sheet.heads[0]]]))


def comparisons_text(comparisons: Mapping[str, Comparison], form: str) -> str:
    """Write comparisons, one for each value of an axis, as ``markdown``, ``latex``, ``csv`` or ``html``."""
    if form == "csv":
        return to_csv(comparisons)
    sheets = [
        comparison_sheet(comparison, title=title, words=form == "latex")
        for title, comparison in comparisons.items()
    ]
    return write_sheets(sheets, form)


def to_csv(comparisons: Mapping[str, Comparison]) -> str:
    """Return a line for each method: the mean of each metric, the ends of its interval, and differences.

    Of several comparisons the first column is the title of the line's.
    """
    shown = list(dict.fromkeys(name for comparison in comparisons.values() for name in comparison.metrics))
    tested = list(
        dict.fromkeys(name for comparison in comparisons.values() for name in comparison.differences)
    )
    head = ["method", "runs", *(f"{name}{end}" for name in shown for end in ("", ".low", ".high"))]
    head += [f"{name}{end}" for name in tested for end in (".difference", ".p")]
    titled = any(comparisons)
    lines: list[list[Any]] = [["table", *head] if titled else head]
    for title, comparison in comparisons.items():
        for row in comparison.rows:
            cells: list[Any] = [title, row.label, len(row.runs)] if titled else [row.label, len(row.runs)]
            for name in shown:
                metric = row.metrics.get(name, _NONE)
                cells += [metric.value, metric.low, metric.high]
            for name in tested:
                difference = comparison.differences.get(name, {}).get(row.label)
                cells += [None, None] if difference is None else [difference.value, difference.p_value]
            lines.append(cells)
    return csv_lines(lines)


def comparisons_to_json(comparisons: Mapping[str, Comparison]) -> dict[str, Any]:
    """Return the plain values of a comparison; of several, one for each value of an axis, with its title."""
    if not any(comparisons):
        return to_json(comparisons[""])
    return {"tables": [{"title": title, **to_json(entry)} for title, entry in comparisons.items()]}


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
