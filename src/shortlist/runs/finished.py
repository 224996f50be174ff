"""Read and check a finished run, for compare, suites, report and papers."""

from pathlib import Path

import torch

from shortlist._messages import one_line
from shortlist.runs.run import Run, RunError


def read_finished(path: str | Path) -> Run:
    """Read a finished run, and check that its files belong together.

    Raises:
        RunError: If it is not finished, or a file is missing or of another run; the message names it.
    """
    run = Run.open(path)
    needed = ("model/class_table.json", "results.json", "scores/test.safetensors")
    missing = [name for name in needed if not (run.path / name).is_file()]
    if run.state != "finished":
        raise RunError(f"{path} is not finished: its state is {run.state!r}")
    if missing:
        raise RunError(f"{path} lacks {' and '.join(missing)}")
    table, results, *_ = run.class_table, run.results, run.recipe, run.epochs  # each is read and checked
    if results.classes != len(table):
        raise RunError(
            f"{path} holds results.json of {results.classes} classes, class_table.json of {len(table)}"
        )
    shape, expected = run.score_shape("test"), (results.rows + results.ignored_rows, results.classes)
    if shape != expected:
        raise RunError(
            f"{path} holds test scores {shape}, results.json is of {expected}: evaluate the run again"
        )
    run.score_map(torch.zeros(1, len(table)))
    if run.predictors.keys() != set(results.sets):
        raise RunError(
            f"{path}: results.json is not of the predictors that are there: evaluate the run again"
        )
    return run


def why(path: str | Path, error: Exception) -> str:
    """Say why a run is left out, in one line that names it."""
    reason = one_line(error)
    return reason if str(path) in reason else f"{path}: {reason}"
