"""Read the network of a run from its best epoch or its finished model, and describe it."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shortlist._messages import one_line
from shortlist._store.files import check_regular
from shortlist.curation import KEEP_GOOD, bounds_of
from shortlist.datasets import ImageFiles, Splits, preprocessing_of, unchanged
from shortlist.model import write_description
from shortlist.models import build_within
from shortlist.recipes import Recipe, build_model, network_spec, prepare_second_stage, scales_weights
from shortlist.runs.folder import RunFolder
from shortlist.runs.run import Run, RunError


def load_network(run: Run, *, network: nn.Module | None = None, allow_code: bool = False) -> nn.Module:
    """Return the trained network of a run, at its best epoch, in evaluation mode.

    It is that of the finished model, or where there is none yet, of the checkpoint. Its scores are those in
    ``scores/``: the score map is not part of it.

    Args:
        run: The run.
        network: To be filled with the weights of the finished model; made as the recipe says if ``None``.
        allow_code: Whether code that the recipe names may be run: only where the user asked for it.
    """
    if network is not None:
        return run.saved.fill(network).eval()
    recipe, shape = run.recipe, run.info.get("input_shape")
    if shape is None:
        raise RunError(f"{run.path} has no network that could be built: none was trained in it")
    sample, classes = torch.empty(shape, device="meta"), len(run.class_table)

    def build() -> nn.Module:
        model = build_model(recipe, classes, sample, pretrained=False, allow_code=allow_code)
        if recipe.second_stage is not None:
            prepare_second_stage(model, recipe)
        return model

    if (weights := run.model_path / "network.safetensors").is_file():
        model = build() if allow_code else build_within(weights, build)
        run.saved.fill(model)
    else:
        model = build()
        model.load_state_dict(best_state(run, last_stage(recipe)))
    return model.eval()


def description_of(run: Run, recipe: Recipe, data: Splits) -> dict[str, Any]:
    """Return what ``model.json`` says of a run's network: how it is made, and what it does with images."""
    info, prepared = run.info, preprocessing_of(data.val)
    shape, scaled = info["input_shape"], scales_weights(recipe)
    return {
        "network": network_spec(recipe, len(data.class_table), shape, scaled_head=scaled).to_dict(),
        "preprocessing": None if prepared is None else prepared.to_dict(),
        "classifier": recipe.head.classifier,
        "about": {
            "name": recipe.name,
            "trained": info["created"],
            "versions": info.get("versions", {}),
            "training": _training_of(recipe),
            **quality_facts(data),
        },
    }


def quality_facts(data: Splits) -> dict[str, Any]:
    """Return the bounds of blurred and small photos, by the held-out photos, if these are files."""
    split, rows = unchanged(data.val)
    if not isinstance(split, ImageFiles):
        return {}
    files = [path for row in rows.tolist() if isinstance(path := split.paths[row], str)]
    bounds = bounds_of(files, keep=KEEP_GOOD)
    return {"quality": {"keep_good": KEEP_GOOD, **asdict(bounds)}}


def _training_of(recipe: Recipe) -> dict[str, Any]:
    """Facts of a training for people who get the model; no paths, which are private."""
    names = {"data set": recipe.data.name, "loss": recipe.loss.name}
    return {**names, "epochs": recipe.epochs, "seed": recipe.seed, "notes": recipe.about.strip()}


def describe_model(run: RunFolder) -> None:
    """Write the description of the finished model of a run without a network, before it is calibrated."""
    nothing = {"network": None, "preprocessing": None, "head": "set", "classifier": None}
    uncalibrated = {"predictors": [], "promises": {}, "novelty": False}
    write_description(run.model_path, {**nothing, **uncalibrated, "about": {}})


def last_stage(recipe: Recipe) -> str:
    """Return the folder of the checkpoints of the stage that a run ends with."""
    return "second_stage" if recipe.second_stage is not None else "checkpoints"


def best_state(run: Run, folder: str, prefix: str = "model.") -> dict[str, Any]:
    """Return the weights of the network at the best epoch, or of the loss with the prefix ``"loss."``."""
    path = run.path / folder / "best.ckpt"
    if not path.is_file():
        raise RunError(
            f"{run.path} has lost its best epoch: {path} is missing. Put it back, or train the run again"
        )
    state = read_checkpoint(run.checked(f"{folder}/best.ckpt"))["state_dict"]
    return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint; no code in it is run."""
    try:
        check_regular(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file fails in many ways
        raise RunError(f"{path} cannot be read: {one_line(error)}") from error
