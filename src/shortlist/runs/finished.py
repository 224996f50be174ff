"""Read and check a finished run, for compare, suites, report and papers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from shortlist._messages import one_line
from shortlist.class_table import ClassTable
from shortlist.metrics import Results
from shortlist.recipes.recipe import Recipe
from shortlist.runs.run import Run, RunError

__all__ = ["FinishedRun", "read_finished", "why"]


@dataclass(frozen=True)
class FinishedRun:
    """A finished run with everything that other rooms need, except its scores.

    Args:
        run: Run folder, which has the scores, the score map and the predictors.
        recipe: Recipe of the run.
        info: Content of ``run.json``.
        class_table: Table of the classes.
        results: Results on the test rows.
        epochs: Metrics of each epoch, of both stages one after the other.
    """

    run: Run
    recipe: Recipe
    info: Mapping[str, Any]
    class_table: ClassTable
    results: Results
    epochs: Sequence[Mapping[str, float]]

    @property
    def path(self) -> Path:
        """Path of the run folder."""
        return self.run.path

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.run.path.name

    @property
    def is_limit(self) -> bool:
        """Whether the scores are the data's own probabilities, which no method can beat."""
        return self.info.get("scores_from") == "posterior"


def read_finished(path: str | Path) -> FinishedRun:
    """Read a finished run, and check that its files belong together.

    Raises:
        RunError: If it is none, or a file is missing or of something else; the message names it.
    """
    run = Run.open(path)
    needed = ("model/class_table.json", "results.json", "scores/test.safetensors")
    missing = [name for name in needed if not (run.path / name).is_file()]
    if run.state != "finished":
        raise RunError(f"{path} is not finished: its state is {run.state!r}")
    if missing:
        raise RunError(f"{path} lacks {' and '.join(missing)}")
    recipe, table, results = run.recipe, run.class_table, run.results()
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
    if run.predictors().keys() != set(results.sets):
        raise RunError(
            f"{path}: results.json is not of the predictors that are there: evaluate the run again"
        )
    return FinishedRun(run, recipe, run.info, table, results, run.epochs())


def why(path: str | Path, error: Exception) -> str:
    """Say why a run is left out, in one line that names it."""
    reason = one_line(error)
    return reason if str(path) in reason else f"{path}: {reason}"
