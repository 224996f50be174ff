"""The model of a run with weights of fewer bits, calibrated and measured from its own scores."""

import shutil
import tempfile
from pathlib import Path

import torch
from torch import nn

from shortlist._messages import one_line
from shortlist._progress import Progress
from shortlist.datasets import Splits
from shortlist.model import Model, Weights, round_weights
from shortlist.recipes import Recipe, build_data, moved
from shortlist.runs import Run, RunError, RunFolder, load_network, make_model, score_run
from shortlist.training.remake import prepare_remake


def rounded_model(
    path: str | Path,
    weights: Weights,
    *,
    data: str | Path | None = None,
    network: nn.Module | None = None,
    progress: Progress | None = None,
) -> Model:
    """Return the model of a run with rounded weights. The run itself stays as it is.

    The rounded network scores the run's calibration and test rows. From these scores, score map, predictors,
    detector of strangers and calibration rows are made again, and coverage and sizes are measured again.

    Args:
        path: Folder of a finished run.
        weights: ``"float16"`` or ``"int8"``.
        data: Where the data lie now, if they were moved.
        network: Network to fill with the weights, if it is one of your own.
        progress: Function that is told how far the scoring is.

    Raises:
        RunError: If it is no finished run, or its data are not there, or others than those of the run.
    """
    run = Run.open(path)
    if run.state != "finished":
        raise RunError(f"{path} is not finished, it is {run.state}: weights of {weights} need a finished run")
    filled = load_network(run, network=network)
    recipe, splits = _data_of(run, weights, data, progress)
    with tempfile.TemporaryDirectory() as place:
        copy = RunFolder(Path(place) / run.name)
        shutil.copytree(run.path, copy.path, ignore=shutil.ignore_patterns("index", "last.ckpt", ".tmp-*"))
        prepare_remake(copy)
        splits.class_table.save(copy.model_path / "class_table.json")
        rounded = round_weights(filled, weights)
        score_run(copy, recipe, splits, rounded, progress=progress)
        _check_rows(run, copy.read())
        make_model(copy, recipe, splits, rounded)
        model = Model.load(copy.path, network=network)
        _ = model.calibration_rows  # which are read here, while they are there
    return model


def _data_of(
    run: Run, weights: str, data: str | Path | None, progress: Progress | None
) -> tuple[Recipe, Splits]:
    try:
        recipe = moved(run.recipe, data)
        splits = build_data(recipe, progress=progress)
        RunFolder(run.path).check_data(splits.class_table)
    except (ValueError, OSError) as error:
        raise RunError(
            f"weights of {weights} need the data of {run.path}, to calibrate again: {one_line(error)}"
        ) from error
    return recipe, splits


def _check_rows(run: Run, copy: Run) -> None:
    """Require that the same rows were scored: others may be rows that the network was trained on."""
    for part in dict.fromkeys(("val", run.calibration_part, "test")):
        before, now = (each.load_scores(part, run.head)[1] for each in (run, copy))
        if not torch.equal(before, now):
            raise RunError(f"the {part} rows of the data are not those of {run.path}: put its own data back")
