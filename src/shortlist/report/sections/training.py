"""Learning curves: every metric of every run, by epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

from shortlist.report.drawings import Plot, Series, describe, line_plot
from shortlist.report.parts import Drawing, Sign, Table
from shortlist.report.views import ExperimentView
from shortlist.runs.finished import FinishedRun

__all__ = ["Training", "measure_training"]

_MOST_ROWS = 25  # of a run's table


@dataclass(frozen=True)
class Training:
    """The learning curves; None if no run has any."""

    drawing: Drawing | None


def measure_training(view: ExperimentView) -> Training:
    """Draw a panel for each metric of ``epochs.csv`` with a line for each run."""
    methods = view.experiment.methods
    curves = [(style, run) for style, method in enumerate(methods) for run in method.runs if run.epochs]
    columns = list(dict.fromkeys(key for _, run in curves for line in run.epochs for key in line))
    shown = sorted(
        (key for key in columns if key not in ("epoch", "lr")), key=lambda key: key != "train_loss"
    )
    if not shown:
        return Training(None)
    note = "One line for each run, in the color of its method. Losses of different methods do not compare."
    if any(run.recipe.second_stage is not None for _, run in curves):
        note += " The epochs of a second stage follow those of the first."
    drawing = Drawing(
        f"learning-{view.number}",
        "Learning curves",
        note,
        [_panel(key, curves) for key in shown],
        signs=[Sign(method.label, style) for style, method in enumerate(methods)],
        tables=[_epoch_table(run, [key for key in columns if key != "epoch"]) for _, run in curves],
    )
    return Training(drawing)


def _panel(key: str, curves: Sequence[tuple[int, FinishedRun]]) -> Plot:
    share = key.startswith("val_") and "loss" not in key
    lines = []
    for style, run in curves:
        ys = [line.get(key) for line in run.epochs]
        lines.append(Series(run.name, range(1, len(ys) + 1), ys, style, [2.0] if len(ys) == 1 else None))
    return line_plot(
        lines,
        title=key.replace("_", " "),
        x_label="epoch",
        y_label="percent" if share else "loss",
        description=describe(key, lines, percent=share),
        percent=share,
    )


def _epoch_table(run: FinishedRun, keys: Sequence[str]) -> Table:
    epochs = run.epochs
    every = -(-len(epochs) // _MOST_ROWS)
    chosen = [i for i in range(len(epochs)) if i % every == 0 or i == len(epochs) - 1]
    rows = [[i + 1, *(f"{epochs[i][key]:.4g}" if key in epochs[i] else "-" for key in keys)] for i in chosen]
    caption = run.name if every == 1 else f"{run.name}, every {every} epochs"
    return Table(caption, ["epoch", *(key.replace("_", " ") for key in keys)], rows)
