"""Run one stage of a training with Lightning's trainer, from the first or the last complete epoch."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import TQDMProgressBar

from shortlist._progress import Progress
from shortlist.datasets import Splits, evaluation_loader, training_loader, training_rows
from shortlist.recipes import Recipe
from shortlist.runs import RunFolder, kept_file, read_checkpoint, watched_metric
from shortlist.training.callbacks import (
    BestEpoch,
    EpochMetrics,
    EpochProgress,
    LastEpoch,
    Patience,
    ValidationEpochs,
    WholeCheckpoints,
    write_lines,
)
from shortlist.training.module import SetClassifier
from shortlist.training.processes import same_everywhere, uses_cuda
from shortlist.training.trackers import make_loggers

# what Lightning says about choices that are made here on purpose
_NOT_OF_INTEREST = (
    ".*does not have many workers.*",
    ".*sync_dist=True.*",  # metrics are of all processes already
    ".*treespec.*deprecated.*",
    ".*exists and is not empty.*",
    ".*number of training batches.*",
)


@dataclass(frozen=True)
class Stage:
    """A stage of a training.

    Args:
        title: Name of the stage while it runs.
        folder: Folder of its checkpoints, in the run folder.
        epochs_file: File of the metrics of its epochs, in the run folder.
        balanced: Whether its batches are class-balanced.
    """

    title: str
    folder: str
    epochs_file: str
    balanced: bool


SECOND_STAGE = Stage("second stage", "second_stage", "epochs_second_stage.csv", balanced=True)


def first_stage(recipe: Recipe) -> Stage:
    """Return the stage that every training has."""
    return Stage("training", "checkpoints", "epochs.csv", recipe.sampler.name == "class_balanced")


def run_stage(
    stage: Stage,
    run: RunFolder,
    recipe: Recipe,
    module: SetClassifier,
    data: Splits,
    progress: Progress | None,
) -> None:
    """Train to the end of a stage, from its last complete epoch if it was begun."""
    last = run.path / stage.folder / "last.ckpt"
    # a resumed loader starts before it is told its epoch
    first_epoch = read_checkpoint(last)["epoch"] + 1 if last.is_file() else 0
    same_everywhere(f"the first epoch after {last}", first_epoch)
    settings: dict[str, Any] = {"batch_size": recipe.batch_size, "workers": recipe.workers}
    loaders = _Loaders(
        lambda: training_loader(
            training_rows(data.train),
            seed=recipe.seed,
            class_balanced=stage.balanced,
            first_epoch=first_epoch,
            **settings,
        ),
        lambda: evaluation_loader(data.val, **settings),
    )
    with quiet_lightning():
        made = make_loggers(run, recipe)
        trainer = _trainer(run, recipe, module, _callbacks(stage, run, recipe, progress), made, progress)
        ckpt_path = str(last) if last.is_file() else None
        trainer.fit(module, datamodule=loaders, ckpt_path=ckpt_path, weights_only=True)


def keep_given_network(run: RunFolder, recipe: Recipe, module: SetClassifier) -> None:
    """Write a network that is not trained as the best epoch by each metric, and as the last one."""
    stage = first_stage(recipe)
    callbacks = {EpochMetrics.__name__: {"lines": []}}
    content = {"epoch": -1, "state_dict": module.state_dict(), "callbacks": callbacks}
    further = map(kept_file, recipe.selection.metrics[1:])
    write_lines(run.path / stage.epochs_file, [])
    for name in dict.fromkeys(["last.ckpt", *further, "best.ckpt"]):
        WholeCheckpoints().save_checkpoint(content, run.path / stage.folder / name)


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Hide Lightning's tips and notes."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for message in _NOT_OF_INTEREST:
                warnings.filterwarnings("ignore", message)
            yield
    finally:
        logger.setLevel(level)


def _callbacks(stage: Stage, run: RunFolder, recipe: Recipe, progress: Progress | None) -> list[pl.Callback]:
    monitor, mode = watched_metric(recipe.selection.metric)
    checkpoints = run.path / stage.folder
    callbacks: list[pl.Callback] = [
        ValidationEpochs(recipe.validate_every),
        EpochMetrics(run.path / stage.epochs_file),
        BestEpoch(checkpoints, monitor=monitor, mode=mode),
        *_further_epochs(stage, checkpoints, recipe),
        LastEpoch(checkpoints),  # after the best ones: what was best is in it
    ]
    if recipe.selection.patience is not None:
        callbacks.append(Patience(recipe.selection.patience, monitor=monitor, mode=mode))
    if progress is None:
        return [*callbacks, TQDMProgressBar()]
    return [*callbacks, EpochProgress(stage.title, progress)]


def _further_epochs(stage: Stage, checkpoints: Path, recipe: Recipe) -> Iterator[BestEpoch]:
    """Make what keeps the best epochs of further metrics; a second stage begins with that of its own."""
    for metric in [] if stage is SECOND_STAGE else recipe.selection.metrics[1:]:
        if metric != "last":  # which is kept in any case
            monitor, mode = watched_metric(metric)
            yield BestEpoch(
                checkpoints, monitor=monitor, mode=mode, name=kept_file(metric).removesuffix(".ckpt")
            )


def _trainer(
    run: RunFolder,
    recipe: Recipe,
    module: SetClassifier,
    callbacks: list[pl.Callback],
    made: list[Any],
    progress: Progress | None,
) -> pl.Trainer:
    """Make the trainer; the error names in one line what this machine does not have."""
    several = recipe.devices * recipe.num_nodes > 1
    try:
        return pl.Trainer(
            default_root_dir=run.path,
            accelerator=recipe.accelerator,
            devices=recipe.devices,
            num_nodes=recipe.num_nodes,
            strategy="ddp" if several else "auto",
            sync_batchnorm=several and uses_cuda(recipe),  # PyTorch has it for accelerators alone
            precision=recipe.precision,  # type: ignore[arg-type]
            callbacks=callbacks,
            logger=made,
            plugins=[WholeCheckpoints()],
            gradient_clip_val=recipe.optimizer.clip_norm,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            enable_model_summary=False,
            enable_progress_bar=progress is None,
            log_every_n_steps=10**9 if not recipe.loggers else 50,
            max_epochs=recipe.epochs if recipe.steps is None else -(-recipe.steps // module.steps_per_epoch),
        )
    except MisconfigurationException as error:
        wanted = f"accelerator {recipe.accelerator}, devices {recipe.devices}, precision {recipe.precision}"
        raise ValueError(f"this machine cannot train with {wanted}: {error}") from error


class _Loaders(pl.LightningDataModule):
    """Loaders that are made after the processes start, so that each gets its share."""

    def __init__(self, training: Callable[[], Any], validation: Callable[[], Any]) -> None:
        super().__init__()
        self.train_dataloader, self.val_dataloader = training, validation
