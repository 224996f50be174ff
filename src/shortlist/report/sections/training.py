"""Learning curves: every metric of every run, by epoch; and which epoch was kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from shortlist.report.drawings import Plot, Series, describe, line_plot
from shortlist.report.parts import Cell, Drawing, Sign, Table
from shortlist.report.views import ExperimentView
from shortlist.runs import Run, kept_epoch_of

_MOST_ROWS = 25  # of a run's table


@dataclass(frozen=True)
class Training:
    """The learning curves, and which epoch of each run was kept; None if no run has any."""

    drawing: Drawing | None
    kept: Table | None


def measure_training(view: ExperimentView) -> Training:
    """Draw a panel for each metric of ``epochs.csv`` with a line for each run."""
    methods = view.experiment.methods
    curves = [(style, run) for style, method in enumerate(methods) for run in method.runs if run.epochs]
    columns = list(dict.fromkeys(key for _, run in curves for line in run.epochs for key in line))
    shown = sorted(
        (key for key in columns if key not in ("epoch", "lr")), key=lambda key: key != "train_loss"
    )
    kept = _kept_table([run for method in methods for run in method.runs])
    if not shown:
        return Training(None, kept)
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
    return Training(drawing, kept)


def _kept_table(runs: Sequence[Run]) -> Table | None:
    """Say which epoch is the model of each run, and why."""
    kept_epochs = [(run.name, kept_epoch_of(run.info)) for run in runs]
    rows = [
        [name, kept.epoch, kept.epochs, Cell(kept.reason(), style="long")]
        for name, kept in kept_epochs
        if kept is not None
    ]
    caption = "The epoch that was kept of each run, whose network all metrics are of"
    if any(kept is not None and kept.second_stage for _, kept in kept_epochs):
        caption += "; where there is a second stage, among the epochs of that stage"
    return Table(caption, ["run", "epoch", "of", "because"], rows, words=(0, 3)) if rows else None


def _panel(key: str, curves: Sequence[tuple[int, Run]]) -> Plot:
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


def _epoch_table(run: Run, keys: Sequence[str]) -> Table:
    epochs = run.epochs
    every = -(-len(epochs) // _MOST_ROWS)
    chosen = [i for i in range(len(epochs)) if i % every == 0 or i == len(epochs) - 1]
    rows = [[i + 1, *(f"{epochs[i][key]:.4g}" if key in epochs[i] else "-" for key in keys)] for i in chosen]
    caption = run.name if every == 1 else f"{run.name}, every {every} epochs"
    return Table(caption, ["epoch", *(key.replace("_", " ") for key in keys)], rows)
