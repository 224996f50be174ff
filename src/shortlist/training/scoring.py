"""Scores of whole parts of the data, and what is made of them: adjustment, predictors, results."""

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from shortlist._files import write_text
from shortlist.adjust import fit_tau, fit_temperature, fit_temperature_and_tau
from shortlist.class_table import ClassTable
from shortlist.classifiers import classifier_name
from shortlist.datasets import Split
from shortlist.heads import LinearHead, ScaledHead, TwoHead
from shortlist.metrics import Results, evaluate
from shortlist.predictors import SetPredictor, load, save
from shortlist.priors import class_priors
from shortlist.training.build import build_predictor
from shortlist.training.loaders import evaluation_loader
from shortlist.training.module import in_channels_last, predicted_scores
from shortlist.training.recipe import Recipe, save_recipe
from shortlist.training.runs import Run, RunError

__all__ = [
    "adjust_scores",
    "calibrate_run",
    "class_norms",
    "evaluate_run",
    "fit_adjustment",
    "load_adjustment",
    "normalisation",
    "score_split",
]

Progress = Callable[[str, int, int], None]
Adjustment = dict[str, Any]  # temperature and tau; of weight normalisation, class_factors and class_offsets


@torch.inference_mode()
def score_split(
    model: nn.Module,
    split: Split,
    *,
    batch_size: int,
    workers: int = 0,
    progress: Progress | None = None,
    part: str = "",
) -> tuple[Tensor, Tensor]:
    """Scores (n, c) in float32 and targets (n,) of all rows; rows that could not be read are left out."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    scores, targets = [], []
    loader = evaluation_loader(split, batch_size=batch_size, workers=workers, shared=False)
    for number, (inputs, target, _) in enumerate(loader):
        output = predicted_scores(model(in_channels_last(inputs.to(device)))).float().cpu()
        kept = target != -100
        scores.append(output[kept])
        targets.append(target[kept])
        if progress is not None:
            progress(part, number + 1, len(loader))
    model.train(training)
    return torch.cat(scores), torch.cat(targets)


def class_norms(model: nn.Module, name: str | None = None) -> tuple[Tensor, Tensor] | None:
    """Norms of the class weights (c,) and offsets (c,) that a model's scores come from; of a cosine, none."""
    head = model.get_submodule(classifier_name(model, name))
    head = head.set_head if isinstance(head, TwoHead) else head
    factors = torch.ones(())
    if isinstance(head, ScaledHead):
        factors, head = head.scale.detach().cpu(), head.head
    if not isinstance(head, LinearHead | nn.Linear):
        return None
    norms = head.weight.detach().float().norm(dim=1).cpu() * factors
    offsets = torch.zeros_like(norms) if head.bias is None else head.bias.detach().float().cpu()
    return norms, offsets


def normalisation(norms: Tensor, offsets: Tensor, *, tau: float) -> Adjustment:
    """What divides the class weights by a power of their norms, as a change of the scores that they give.

    With w / |w|^tau for w, a score s = w x + b becomes (s - b) / |w|^tau + b: the classifier that
    :func:`~shortlist.adjust.normalise_classifier` returns, without running the network again.
    """
    if not ((norms > 0) & norms.isfinite()).all():
        raise ValueError("adjust.weight_normalisation needs class weights of finite norm > 0, got others")
    factors = norms.double() ** -tau
    return {"class_factors": factors.tolist(), "class_offsets": offsets.double().tolist()}


def fit_adjustment(recipe: Recipe, scores: Tensor, target: Tensor, counts: Tensor) -> dict[str, float]:
    """Temperature and tau of the recipe, fitted on validation rows where it says so; 1 and 0 do nothing."""
    section = recipe.adjust
    priors = class_priors(counts, zero_counts="floor")
    fitted = {"temperature": 1.0, "tau": 0.0}
    if section.temperature == "fit" and section.tau == "fit":
        both = fit_temperature_and_tau(scores, target, source_priors=priors)
        return {"temperature": float(both.temperature), "tau": float(both.tau)}
    if section.temperature is not None:
        value = section.temperature
        fitted["temperature"] = float(fit_temperature(scores, target)) if value == "fit" else float(value)
    if section.tau is not None:
        adjusted = scores / fitted["temperature"]
        value = section.tau
        fitted["tau"] = float(
            fit_tau(adjusted, target, source_priors=priors).tau if value == "fit" else value
        )
    return fitted


def adjust_scores(scores: Tensor, adjustment: Adjustment, counts: Tensor) -> Tensor:
    """Scores (n, c), if so of normalised weights, over the temperature, minus tau times the log priors."""
    if "class_factors" in adjustment:
        offsets = scores.new_tensor(adjustment["class_offsets"])
        scores = (scores - offsets) * scores.new_tensor(adjustment["class_factors"]) + offsets
    if adjustment["temperature"] != 1.0:
        scores = scores / adjustment["temperature"]
    if adjustment["tau"]:
        scores = scores - adjustment["tau"] * class_priors(counts, zero_counts="floor").log()
    return scores


def calibrate_run(run: Run, recipe: Recipe | None = None) -> dict[str, SetPredictor]:
    """Fit the adjustment and calibrate all predictors of a run on its validation scores, and save them.

    Nothing is changed on disk if one of them fails. Predictors that the recipe no longer has are removed:
    they were calibrated on scores that may have been adjusted otherwise.
    """
    adjustment, predictors = _calibrate(run, run.recipe if recipe is None else recipe)
    _save_calibration(run, adjustment, predictors)
    return predictors


def calibrate_again(run: Run, recipe: Recipe) -> dict[str, SetPredictor]:
    """Calibrate a finished run by a recipe that replaces its own, and evaluate it.

    A run that is stopped in the midst of it says so from then on: its files are of two calibrations.
    """
    with run.locked():
        if run.state not in ("finished", "calibrating"):
            raise RunError(f"{run.path} is not finished: go on with shortlist train --resume {run.path}")
        adjustment, predictors = _calibrate(run, recipe)
        run.set_state("calibrating")
        _save_calibration(run, adjustment, predictors)
        save_recipe(recipe, run.path / "recipe.yaml")
        evaluate_run(run)
        run.set_state("finished")
    return predictors


def _calibrate(run: Run, recipe: Recipe) -> tuple[Adjustment, dict[str, SetPredictor]]:
    scores, target = run.load_scores("val")
    counts = run.class_table.class_counts
    adjustment: Adjustment = {"temperature": 1.0, "tau": 0.0}
    if (tau := recipe.adjust.weight_normalisation) is not None:
        adjustment |= normalisation(*run.load_norms(), tau=tau)
    adjustment |= fit_adjustment(recipe, adjust_scores(scores, adjustment, counts), target, counts)
    scores = adjust_scores(scores, adjustment, counts)
    predictors = {}
    for key in recipe.predictors:
        predictors[key] = build_predictor(recipe, key, counts).calibrate(scores, target)
        predictors[key](scores[:1])  # what cannot be used is not kept
    return adjustment, predictors


def _save_calibration(run: Run, adjustment: Adjustment, predictors: dict[str, SetPredictor]) -> None:
    write_text(run.path / "adjustment.json", json.dumps(adjustment) + "\n")
    for key, predictor in predictors.items():
        save(predictor, run.path / "predictors" / f"{key}.json")
    for key, path in run.predictor_paths().items():
        if key not in predictors:
            state = json.loads(path.read_text(encoding="utf-8"))["state"]
            path.unlink()
            path.with_name(state).unlink(missing_ok=True)


def load_adjustment(run: Run) -> Adjustment:
    """What :func:`calibrate_run` fitted."""
    path = run.path / "adjustment.json"
    if not path.is_file():
        return {"temperature": 1.0, "tau": 0.0}
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or not {"temperature", "tau"} <= found.keys():
        raise RunError(f"{path} must hold a temperature and a tau, got {found!r}")
    return found


def evaluate_run(run: Run, part: str = "test") -> Results:
    """Figures of scores and sets on a part of the data; ``results.json`` holds those of the test part."""
    scores, target = run.load_scores(part)
    table: ClassTable = run.class_table
    scores = adjust_scores(scores, load_adjustment(run), table.class_counts)
    predictors: dict[str, Any] = {name: load(path) for name, path in run.predictor_paths().items()}
    results = evaluate(scores, target, predictors, table)
    results.save(run.path / ("results.json" if part == "test" else f"results_{part}.json"))
    return results
