"""Run a recipe: train, keep the best epoch, score, calibrate, evaluate."""

import copy
import os
from pathlib import Path

import torch
from torch import nn

from shortlist.datasets import Splits
from shortlist.datasets.splits import have_same_rows
from shortlist.recipes.build import build_data, build_loss, build_model, build_predictor
from shortlist.recipes.code import check_code
from shortlist.recipes.loss_use import declared_maps
from shortlist.recipes.recipe import Recipe
from shortlist.recipes.score_rules import scales_weights, trains_balanced, validation_is_test
from shortlist.runs.network import (
    best_state,
    last_stage,
    load_network,
    prepare_second_stage,
    write_model,
)
from shortlist.runs.run import Run
from shortlist.runs.scoring import calibrate_run, class_norms, evaluate_run, score_split
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.training.module import SetClassifier, check_not_diverged
from shortlist.training.remake import find_lost, prepare_remake
from shortlist.training.stage import SECOND_STAGE, Progress, first_stage, run_stage

__all__ = ["is_first_process", "resume", "train"]


def is_first_process() -> bool:
    """Return whether this process writes the files that are written once."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


def train(
    recipe: Recipe,
    folder: str | Path,
    *,
    progress: Progress | None = None,
    test: bool = True,
    allow_code: bool = False,
) -> Run:
    """Run a recipe in a new folder.

    Args:
        recipe: Recipe to run.
        folder: Run folder to make; it must not exist. It is removed again if the run fails before the first
            epoch ends, since there is nothing to resume.
        progress: Function that is called with (what, done, of how many, metrics) as the run proceeds.
        test: Whether to evaluate the test rows; their scores are saved in any case, for :func:`evaluate_run`.
        allow_code: Whether to run code that the recipe names (a network or a logger by
            ``package.module:function``); see ``SECURITY.md``. Code that the user's settings trust always may.
    """
    check_code(recipe, allow_code=allow_code)
    if not is_first_process():
        return _proceed(Run(folder), recipe, progress, test)
    run = Run.create(folder, recipe)
    try:
        return _proceed(run, recipe, progress, test)
    except Exception:
        run.discard_if_untrained()
        raise


def resume(
    folder: str | Path, *, progress: Progress | None = None, test: bool = True, allow_code: bool = False
) -> Run:
    """Continue a run from its last complete epoch, with the same result as without the stop.

    Files of a finished run that were lost or damaged since are made again from its best epoch, with a
    warning that names them. The arguments are those of :func:`train`.
    """
    run = Run.open(folder)
    run.check_recipe()
    recipe = run.recipe
    check_code(recipe, allow_code=allow_code)
    return _proceed(run, recipe, progress, test)


def _proceed(run: Run, recipe: Recipe, progress: Progress | None, test: bool) -> Run:
    """Do what is left of a run whose recipe names no code, or such as may be run."""
    if not is_first_process():
        if not (run.path / "run.json").is_file() or run.state == "started":  # else there is nobody to join
            _fit(run, recipe, progress)
        return run
    with run.locked():
        lost = find_lost(run) if run.state == "finished" else []
        if run.state == "finished" and not lost:
            return run
        if run.state == "started":
            data = _fit(run, recipe, progress)
            run.set_state("trained")
        else:
            data = build_data(recipe)
            if lost:  # only now: without the data nothing could be made again
                prepare_remake(run)
            data.class_table.save(run.model_path / "class_table.json")
        _finish(run, recipe, data, progress, test)
    return run


def _fit(run: Run, recipe: Recipe, progress: Progress | None) -> Splits:
    tell = None if progress is None else lambda what, done, total: progress(what, done, total, {})
    data = build_data(recipe, progress=tell)
    if is_first_process():
        data.class_table.save(run.model_path / "class_table.json")
        run.set_state("started", input_shape=list(data.train[0][0].shape))
    torch.manual_seed(recipe.seed)
    model = build_model(recipe, len(data.class_table), data.train[0][0], allow_code=True)
    module = SetClassifier(recipe, model, build_loss(recipe, data), data)
    _check_what_follows(recipe, model, data)
    run_stage(first_stage(recipe), run, recipe, module, data, progress)
    if recipe.second_stage is not None:
        _second_stage(run, recipe, data, progress)
    return data


def _check_what_follows(recipe: Recipe, model: nn.Module, data: Splits) -> None:
    """Check before the training whether the steps after it are possible."""
    if have_same_rows(data.val, data.test) and not validation_is_test(recipe):
        raise ValueError(
            "the validation rows are the test rows, on which nothing may be fitted or chosen: keep apart "
            "some training rows for validation (data.val_fraction), or write data.val_is_test: true"
        )
    counts = data.class_table.class_counts
    some = ScoreMap(len(counts), contains=PriorRecord.training(counts))  # what is fitted will be like it
    for key, section in recipe.predictors.items():
        try:
            build_predictor(recipe, key, counts, some)
        except ValueError as error:
            raise ValueError(f"predictors.{key}: {error}") from error
        k = section.options.get("k", 0)
        if k > len(counts):
            raise ValueError(f"predictors.{key}.k must be <= the number of classes ({len(counts)}), got {k}")
    if recipe.second_stage is not None:
        model = copy.deepcopy(model)
        prepare_second_stage(model, recipe)
    norms = class_norms(model, recipe.head.classifier)
    if recipe.adjust.weight_normalization is not None and None in norms.values():
        raise ValueError(
            "adjust.weight_normalization must be left out: the head, a cosine, looks at no norms of weights"
        )


def _second_stage(run: Run, recipe: Recipe, data: Splits, progress: Progress | None) -> None:
    """Train only the classifier, on class-balanced batches, from the best epoch of the first stage."""
    stage = recipe.second_stage
    assert stage is not None
    torch.manual_seed(recipe.seed)
    sample = data.train[0][0]
    model = build_model(recipe, len(data.class_table), sample, pretrained=False, allow_code=True)
    model.load_state_dict(best_state(run, first_stage(recipe).folder))
    prepare_second_stage(model, recipe)
    changed = recipe.model_copy(update={"epochs": stage.epochs, "steps": None, "reweighting": None})
    module = SetClassifier(changed, model, build_loss(recipe, data), data, lr=stage.lr)
    run_stage(SECOND_STAGE, run, changed, module, data, progress)


def _finish(run: Run, recipe: Recipe, data: Splits, progress: Progress | None, test: bool) -> None:
    """Score validation and test rows by the best epoch, and write the finished model and the results."""
    model = load_network(run, allow_code=True)
    if torch.cuda.is_available() and recipe.accelerator in ("auto", "gpu", "cuda"):
        model.cuda()
    tell = None if progress is None else lambda what, done, total: progress(what, done, total, {})
    norms = class_norms(model, recipe.head.classifier)
    for part in ("val", "test"):
        split = getattr(data, part)
        scores, target = score_split(
            model,
            split,
            batch_size=max(recipe.batch_size, 256),
            workers=recipe.workers,
            progress=tell,
            part=f"scoring {part}",
        )
        for output in scores.values():
            check_not_diverged(output)
        run.save_scores(part, scores, target, norms)
    loss = _kept_loss(run, recipe, data)
    counts, free = data.class_table.class_counts, not scales_weights(recipe)
    maps = declared_maps(loss, counts, balanced_rows=trains_balanced(recipe), free_scores=free)
    run.save_declared(maps, getattr(loss, "weight", None))
    write_model(run, recipe, data, model.cpu())
    calibrate_run(run, recipe, network=model)
    if test:
        evaluate_run(run)
    run.set_state("finished", scores=run.score_map.words())


def _kept_loss(run: Run, recipe: Recipe, data: Splits) -> nn.Module:
    """Return the loss with the class weights that it had at the best epoch."""
    loss = build_loss(recipe, data)
    weight = best_state(run, last_stage(recipe), "loss.").get("weight")
    if weight is not None:
        loss.weight = weight
    return loss
