"""A whole run: train, keep the best, score, calibrate, evaluate."""

import copy
import importlib
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import loggers
from lightning.pytorch.callbacks import TQDMProgressBar
from torch import nn

from shortlist.datasets import Splits
from shortlist.datasets.loaders import evaluation_loader, training_loader
from shortlist.datasets.splits import have_same_rows
from shortlist.recipes.build import build_data, build_loss, build_model, build_predictor
from shortlist.recipes.loss_use import declared_maps
from shortlist.recipes.recipe import Recipe
from shortlist.recipes.score_rules import scales_weights, trains_balanced, validation_is_test
from shortlist.runs.network import (
    best_state,
    last_stage,
    load_network,
    prepare_second_stage,
    read_checkpoint,
    write_model,
)
from shortlist.runs.run import Run
from shortlist.runs.scoring import calibrate_run, class_norms, evaluate_run, score_split
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.training.callbacks import (
    BestEpoch,
    EpochFigures,
    EpochProgress,
    LastEpoch,
    Patience,
    ValidationEpochs,
    WholeCheckpoints,
)
from shortlist.training.module import SetClassifier, check_not_diverged

__all__ = ["resume", "train"]

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # what it found, and tips

Report = Callable[[str, int, int, dict[str, float]], None]


def is_first_process() -> bool:
    """Whether this process writes the files that are written once."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))) == 0


def train(recipe: Recipe, folder: str | Path, *, report: Report | None = None, test: bool = True) -> Run:
    """Run a recipe in a new folder.

    Args:
        recipe: What to do.
        folder: Where to; must not exist. It is taken away again if there is nothing to resume in it, since
            the recipe or the data were found wanting before the first epoch was over.
        report: Called with (what, done, of how many, figures) as the run proceeds.
        test: Whether to evaluate the test rows; their scores are kept in any case, for :func:`evaluate_run`.
    """
    if not is_first_process():
        return _proceed(Run(folder), recipe, report, test)
    run = Run.create(folder, recipe)
    try:
        return _proceed(run, recipe, report, test)
    except Exception:
        run.discard_if_untrained()
        raise


def resume(folder: str | Path, *, report: Report | None = None, test: bool = True) -> Run:
    """Go on with a run from its last whole epoch, to the same numbers as without the stop."""
    run = Run.open(folder)
    run.check_recipe()
    return _proceed(run, run.recipe, report, test)


def _proceed(run: Run, recipe: Recipe, report: Report | None, test: bool) -> Run:
    if not is_first_process():
        if not (run.path / "run.json").is_file() or run.state == "started":  # else there is nobody to join
            _fit(run, recipe, report)
        return run
    with run.locked():
        if run.state == "finished":
            return run
        for left in run.path.glob("*/.*.ckpt"):  # of a process that was killed while it wrote
            left.unlink()
        if run.state == "started":
            data = _fit(run, recipe, report)
            run.set_state("trained")
        else:
            data = build_data(recipe)
        _finish(run, recipe, data, report, test)
    return run


def _fit(run: Run, recipe: Recipe, report: Report | None) -> Splits:
    tell = None if report is None else lambda what, done, total: report(what, done, total, {})
    data = build_data(recipe, progress=tell)
    if is_first_process():
        data.class_table.save(run.model_path / "class_table.json")
        run.set_state("started", input_shape=list(data.train[0][0].shape))
    torch.manual_seed(recipe.seed)
    model = build_model(recipe, len(data.class_table), data.train[0][0])
    module = SetClassifier(recipe, model, build_loss(recipe, data), data)
    _check_what_follows(recipe, model, data)
    _run_trainer(run, recipe, module, data, "checkpoints", recipe.sampler.name == "class_balanced", report)
    if recipe.second_stage is not None:
        _second_stage(run, recipe, data, report)
    return data


def _check_what_follows(recipe: Recipe, model: nn.Module, data: Splits) -> None:
    """Find out now, not after days of training, whether what comes after it can be done."""
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


def _second_stage(run: Run, recipe: Recipe, data: Splits, report: Report | None) -> None:
    """The classifier alone, on class-balanced batches, starting from the best epoch of the first stage."""
    stage = recipe.second_stage
    assert stage is not None
    torch.manual_seed(recipe.seed)
    model = build_model(recipe, len(data.class_table), data.train[0][0], pretrained=False)
    model.load_state_dict(best_state(run, "checkpoints"))
    prepare_second_stage(model, recipe)
    changed = recipe.model_copy(update={"epochs": stage.epochs, "steps": None, "reweighting": None})
    module = SetClassifier(changed, model, build_loss(recipe, data), data, lr=stage.lr)
    _run_trainer(run, changed, module, data, "second_stage", True, report)


def _run_trainer(
    run: Run,
    recipe: Recipe,
    module: SetClassifier,
    data: Splits,
    folder: str,
    balanced: bool,
    report: Report | None,
) -> None:
    figure = recipe.selection.figure
    monitor, mode = ("train_loss", "min") if figure == "loss" else (f"val_{figure}", "max")
    if figure == "last":  # every epoch is better than the one before
        monitor = "epoch"
    checkpoints = run.path / folder
    callbacks: list[pl.Callback] = [
        ValidationEpochs(recipe.validate_every),
        EpochFigures(run.path / f"{_epochs_name(folder)}.csv"),
        BestEpoch(checkpoints, monitor=monitor, mode=mode),
        LastEpoch(checkpoints),  # after the best one: what was best is in it
    ]
    if recipe.selection.patience is not None:
        callbacks.append(Patience(recipe.selection.patience, monitor=monitor, mode=mode))
    if report is not None:
        what = "training" if folder == "checkpoints" else "second stage"
        callbacks.append(EpochProgress(lambda done, total, figures: report(what, done, total, figures)))
    else:
        callbacks.append(TQDMProgressBar())
    trainer = _trainer(run, recipe, module, callbacks, report)
    settings: dict[str, Any] = {"batch_size": recipe.batch_size, "workers": recipe.workers}
    last = checkpoints / "last.ckpt"
    first_epoch = 0
    if last.is_file():  # a resumed loader starts before it is told its epoch
        first_epoch = read_checkpoint(last)["epoch"] + 1
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        warnings.filterwarnings("ignore", ".*sync_dist=True.*")  # figures are of all processes already
        warnings.filterwarnings("ignore", ".*treespec.*deprecated.*")
        warnings.filterwarnings("ignore", ".*exists and is not empty.*")
        warnings.filterwarnings("ignore", ".*number of training batches.*")
        trainer.fit(
            module,
            datamodule=_Loaders(
                lambda: training_loader(
                    data.train, seed=recipe.seed, class_balanced=balanced, first_epoch=first_epoch, **settings
                ),
                lambda: evaluation_loader(data.val, **settings),
            ),
            ckpt_path=str(last) if last.is_file() else None,
            weights_only=True,
        )


def _trainer(
    run: Run, recipe: Recipe, module: SetClassifier, callbacks: list[pl.Callback], report: Report | None
) -> pl.Trainer:
    """The trainer; what this machine does not have is said in a line."""
    try:
        return pl.Trainer(
            default_root_dir=run.path,
            accelerator=recipe.accelerator,
            devices=recipe.devices,
            strategy="ddp" if recipe.devices > 1 else "auto",
            precision=recipe.precision,  # type: ignore[arg-type]
            callbacks=callbacks,
            logger=_loggers(run, recipe),
            plugins=[WholeCheckpoints()],
            gradient_clip_val=recipe.optimiser.clip_norm,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            enable_model_summary=False,
            enable_progress_bar=report is None,
            log_every_n_steps=10**9 if not recipe.loggers else 50,
            max_epochs=recipe.epochs if recipe.steps is None else -(-recipe.steps // module.steps_per_epoch),
        )
    except MisconfigurationException as error:
        wanted = f"accelerator {recipe.accelerator}, devices {recipe.devices}, precision {recipe.precision}"
        raise ValueError(f"this machine cannot train with {wanted}: {error}") from error


class _Loaders(pl.LightningDataModule):
    """Makes the loaders when the processes are there, so that each gets its share."""

    def __init__(self, training: Callable[[], Any], validation: Callable[[], Any]) -> None:
        super().__init__()
        self.train_dataloader, self.val_dataloader = training, validation


def _epochs_name(folder: str) -> str:
    return "epochs" if folder == "checkpoints" else "epochs_second_stage"


def _loggers(run: Run, recipe: Recipe) -> list[Any]:
    """Loggers by name: csv, tensorboard, or package.module:Class, called with the run's log folder."""
    made = []
    for name in recipe.loggers:
        if name == "csv":
            made.append(loggers.CSVLogger(run.path, name="logs", version=""))
        elif name == "tensorboard":
            made.append(loggers.TensorBoardLogger(run.path, name="logs", version=""))
        else:
            module, _, kind = name.partition(":")
            made.append(getattr(importlib.import_module(module), kind)(run.path / "logs"))
    return made


def _finish(run: Run, recipe: Recipe, data: Splits, report: Report | None, test: bool) -> None:
    """Scores of validation and test rows by the best epoch, the finished model, results."""
    model = load_network(run)
    if torch.cuda.is_available() and recipe.accelerator in ("auto", "gpu", "cuda"):
        model.cuda()
    tell = None if report is None else lambda what, done, total: report(what, done, total, {})
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
    calibrate_run(run, recipe)
    if test:
        evaluate_run(run)
    run.set_state("finished", scores=run.score_map.words())


def _kept_loss(run: Run, recipe: Recipe, data: Splits) -> nn.Module:
    """The loss with the class weights that it had at the best epoch."""
    loss = build_loss(recipe, data)
    weight = best_state(run, last_stage(recipe), "loss.").get("weight")
    if weight is not None:
        loss.weight = weight
    return loss
