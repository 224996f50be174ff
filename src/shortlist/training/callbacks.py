"""Callbacks of the training: metrics on disk, complete checkpoints, progress."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from shortlist._progress import Progress
from shortlist._store.files import replacing
from shortlist._tables import write_csv

_SECONDS = "seconds"


class WholeCheckpoints(TorchCheckpointIO):
    """Write checkpoints completely or not at all, so that a killed run never leaves half a file."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write to a temporary name first."""
        with replacing(Path(path)) as temporary:
            torch.save(checkpoint, temporary)


class ValidationEpochs(pl.Callback):
    """A callback that validates every few epochs, and always after the last one."""

    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Choose at the first batch whether to validate, since a resumed run starts no epoch."""
        if batch_idx == 0:
            last = trainer.current_epoch + 1 == trainer.max_epochs
            trainer.check_val_every_n_epoch = 1 if last else self.every


def _was_validated(trainer: pl.Trainer) -> bool:
    """Return whether the logged metrics belong to the epoch that ends, and not to an earlier one."""
    return (trainer.current_epoch + 1) % (trainer.check_val_every_n_epoch or 1) == 0


class _MovableCheckpoint(ModelCheckpoint):
    """A checkpoint callback that finds its files by name, since the run folder may have been moved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the best checkpoint so far, in the present folder."""
        state: dict[str, Any] = state_dict | {"dirpath": self.dirpath}
        for key in ("best_model_path", "kth_best_model_path", "last_model_path"):
            state[key] = self._here(state.get(key, ""))
        state["best_k_models"] = {self._here(path): score for path, score in state["best_k_models"].items()}
        super().load_state_dict(state)

    def _here(self, path: str) -> str:
        return str(Path(str(self.dirpath)) / Path(path).name) if path else ""


class BestEpoch(_MovableCheckpoint):
    """A callback that keeps the validated epoch with the best metric: ``best.ckpt``, or another name."""

    def __init__(self, folder: Path, *, monitor: str, mode: str, name: str = "best") -> None:
        super().__init__(
            folder,
            name,
            monitor=monitor,
            mode=mode,
            enable_version_counter=False,
            save_on_train_epoch_end=True,
        )

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the metrics if they are new."""
        if _was_validated(trainer):
            super().on_train_epoch_end(trainer, pl_module)


class LastEpoch(_MovableCheckpoint):
    """A callback that keeps ``last.ckpt`` of every epoch; ``save_last`` writes it only for best epochs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "last", enable_version_counter=False, save_on_train_epoch_end=True)


class Patience(EarlyStopping):
    """A callback that stops after so many validated epochs without a better one."""

    def __init__(self, patience: int, *, monitor: str, mode: str) -> None:
        super().__init__(monitor, mode=mode, patience=patience, check_on_train_epoch_end=True)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop a resumed run at once if it had stopped before, as its checkpoint says."""
        if self.stopped_epoch or self.wait_count >= self.patience:
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the metrics if they are new."""
        if _was_validated(trainer):
            super().on_train_epoch_end(trainer, pl_module)


class EpochMetrics(pl.Callback):
    """A callback that writes one line of metrics for each epoch to a CSV file.

    The seconds of each epoch are in the checkpoint alone, so that a recipe always writes the same file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[dict[str, float]] = []
        self.rate = self.began = self.ended = 0.0

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock, since a resumed run starts no epoch."""
        self.began = perf_counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self.began = perf_counter()

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note the learning rate now, since it is already that of the next step when an epoch ends."""
        self.rate = float(trainer.optimizers[0].param_groups[0]["lr"])

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Read the clock: after the last step of an epoch the validation follows."""
        self.ended = perf_counter()

    def state_dict(self) -> dict[str, Any]:
        """Return the lines for the checkpoint, so that file and checkpoint agree after a kill."""
        return {"lines": self.lines}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the lines up to the checkpoint."""
        self.lines = list(state_dict["lines"])

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Add the epoch's line."""
        metrics = {
            name: float(value)
            for name, value in trainer.callback_metrics.items()
            if _was_validated(trainer) or not name.startswith("val_")
        }
        line = {"epoch": trainer.current_epoch, "lr": self.rate, **metrics}
        self.lines.append(line | {_SECONDS: self.ended - self.began})
        self._write()

    @rank_zero_only
    def _write(self) -> None:
        write_lines(self.path, self.lines)


def write_lines(path: Path, lines: Sequence[Mapping[str, float]]) -> None:
    """Write a line for each epoch, with a column for each metric but the seconds."""
    write_csv(path, [{key: line[key] for key in line if key != _SECONDS} for line in lines])


def epoch_seconds(checkpoint: Mapping[str, Any]) -> list[float]:
    """Return from a checkpoint the seconds of the training steps in each epoch."""
    lines = checkpoint["callbacks"][EpochMetrics.__name__]["lines"]
    return [round(line[_SECONDS], 4) for line in lines if _SECONDS in line]


class EpochProgress(pl.Callback):
    """A callback that tells a function how many of all steps are done, and the metrics so far.

    These are ``epoch`` (from 1), ``epochs``, ``train_loss`` of the epoch ``loss_epoch``, and the metrics of
    the validation rows, ``val_...``, which are those after the epoch ``measured_epoch``. What is told at the
    end of an epoch has its metrics, the last of all too.
    """

    def __init__(self, title: str, progress: Progress) -> None:
        self.title, self.progress = title, progress
        self.metrics: dict[str, float] = {}

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Tell the progress after each step, but for the last of an epoch, whose metrics are yet to come."""
        if batch_idx + 1 < trainer.num_training_batches:
            self._tell(trainer, trainer.global_step)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Read the metrics once per epoch, since reading them after each step is slow."""
        logged = trainer.callback_metrics.items()
        wanted = {name for name, _ in logged if name == "train_loss" or name.startswith("val_")}
        self.metrics |= {name: float(value) for name, value in logged if name in wanted}
        self.metrics["loss_epoch"] = trainer.current_epoch + 1
        self._tell(trainer, trainer.global_step)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remember which epoch the metrics of the validation rows are of."""
        self.metrics["measured_epoch"] = trainer.current_epoch + 1

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Tell that nothing is left to do, also where the training ends early."""
        last = int(self.metrics.get("loss_epoch", trainer.current_epoch))
        self._tell(trainer, int(trainer.estimated_stepping_batches), last)

    def _tell(self, trainer: pl.Trainer, done: int, epoch: int | None = None) -> None:
        epochs = {"epoch": trainer.current_epoch + 1 if epoch is None else epoch}
        epochs["epochs"] = trainer.max_epochs or 1
        self.progress(self.title, done, int(trainer.estimated_stepping_batches), epochs | self.metrics)
