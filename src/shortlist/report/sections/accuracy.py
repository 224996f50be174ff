"""Accuracy of the methods: tables of all metrics, the tests of the best, accuracy against K."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shortlist._text import format_percent, format_points
from shortlist.compare import Best
from shortlist.metrics import is_share
from shortlist.report.columns import group_columns, method_table, score_columns
from shortlist.report.drawings import Plot, Series, describe, line_plot
from shortlist.report.parts import Cell, Drawing, Sign, Table
from shortlist.report.views import ExperimentView
from shortlist.runs import Experiment, Group

_TABLE_KS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 70, 100)
_NEAR = 10  # the longest list of the second panel


@dataclass(frozen=True)
class Accuracy:
    """Tables of metrics, the tests of the best (None without any), and accuracy against K."""

    tables: Sequence[Table]
    tests: Table | None
    drawing: Drawing


def measure_accuracy(view: ExperimentView) -> Accuracy:
    """Put the metrics of the scores together, over all classes and by group."""
    experiment, leaders = view.experiment, view.leaders
    caption = "Accuracy in percent: over rows, and macro, over classes. "
    caption += "Bold: the best, where a paired test tells it from the second best (p < 0.05)."
    tables = [method_table(caption, experiment.methods, score_columns(experiment), leaders)]
    columns = group_columns(experiment)
    if columns:
        words = experiment.first.recipe.evaluation.group_words
        caption = f"Macro accuracy in percent by training rows of the class ({words})"
        tables.append(method_table(caption, experiment.methods, columns, leaders))
    drawing = _draw_curves(f"accuracy-{view.number}", experiment)
    return Accuracy(tables, _tests_table(leaders) if leaders else None, drawing)


def _tests_table(leaders: Mapping[str, Best]) -> Table:
    rows = [
        [
            name,
            ", ".join(best.rows),
            best.second,
            _difference(name, best),
            "-" if best.p_value is None else f"{best.p_value:.2g}",
            Cell(best.test, style="long"),
        ]
        for name, best in leaders.items()
    ]
    heads = ["metric", "best", "second best", "difference", "p", "test"]
    return Table("Best and second best, by paired tests", heads, rows, words=(0, 1, 2, 5))


def _difference(name: str, best: Best) -> str:
    if best.difference is None:
        return "-"
    return format_points(best.difference) if is_share(name) else f"{best.difference:+.3f}"


def mean_curve(method: Group) -> list[float]:
    """Average top-K accuracy for K = 1, 2, ... over the runs."""
    curves = [run.results.scores.topk_curve for run in method.runs]
    return [sum(values) / len(values) for values in zip(*curves, strict=True)]


def _draw_curves(name: str, experiment: Experiment) -> Drawing:
    curves = [mean_curve(method) for method in experiment.methods]
    lines = [
        Series(method.label, range(1, len(curve) + 1), curve, style)
        for style, (method, curve) in enumerate(zip(experiment.methods, curves, strict=True))
    ]
    longest = max(map(len, curves))
    ks = [k for k in _TABLE_KS if k <= longest]
    rows = [[line.label, *(format_percent(line.ys[k - 1]) for k in ks)] for line in lines]
    return Drawing(
        name,
        "Accuracy against K",
        "Share of test rows whose K best scores hold the true class; the mean over a method's runs.",
        [_whole_curve(lines), _first_of_curve(lines)] if longest > _NEAR else [_first_of_curve(lines)],
        signs=[Sign(line.label, line.style) for line in lines],
        tables=[Table("Top-K accuracy in percent", ["method", *(f"K = {k}" for k in ks)], rows)],
    )


def _whole_curve(lines: Sequence[Series]) -> Plot:
    return line_plot(
        lines,
        title="Right class among the first K",
        x_label="K (logarithmic)",
        y_label="percent of rows",
        description=describe("Accuracy against K", lines),
        x_log=True,
    )


def _first_of_curve(lines: Sequence[Series]) -> Plot:
    near = [
        Series(line.label, line.xs[:_NEAR], line.ys[:_NEAR], line.style, [2.5] * len(line.ys[:_NEAR]))
        for line in lines
    ]
    return line_plot(
        near,
        title=f"The same for K up to {_NEAR}",
        x_label="K",
        y_label="percent of rows",
        description=describe(f"Accuracy against K up to {_NEAR}", near),
    )
