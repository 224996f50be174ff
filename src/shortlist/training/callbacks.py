"""What happens beside the training steps: metrics on disk, whole checkpoints, progress."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from shortlist._files import replacing, write_text

__all__ = [
    "BestEpoch",
    "EpochMetrics",
    "EpochProgress",
    "LastEpoch",
    "Patience",
    "ValidationEpochs",
    "WholeCheckpoints",
]


class WholeCheckpoints(TorchCheckpointIO):
    """Checkpoints that are replaced in one go: a killed run never leaves half a file."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write to a temporary name first."""
        with replacing(Path(path)) as temporary:
            torch.save(checkpoint, temporary)


class ValidationEpochs(pl.Callback):
    """Validation every so many epochs, and always after the last one."""

    def __init__(self, every: int) -> None:
        self.every = every

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """At the first batch, as no epoch starts where a run is resumed."""
        if batch_idx == 0:
            last = trainer.current_epoch + 1 == trainer.max_epochs
            trainer.check_val_every_n_epoch = 1 if last else self.every


def _was_validated(trainer: pl.Trainer) -> bool:
    """Whether the metrics are of the epoch that ends; those of an earlier one stay where they were logged."""
    return (trainer.current_epoch + 1) % (trainer.check_val_every_n_epoch or 1) == 0


class _MovableCheckpoint(ModelCheckpoint):
    """Remembers its files by their names: a run's folder may have been moved when it is resumed."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Return what was best so far, in the folder as it is called now."""
        state: dict[str, Any] = state_dict | {"dirpath": self.dirpath}
        for key in ("best_model_path", "kth_best_model_path", "last_model_path"):
            state[key] = self._here(state.get(key, ""))
        state["best_k_models"] = {self._here(path): score for path, score in state["best_k_models"].items()}
        super().load_state_dict(state)

    def _here(self, path: str) -> str:
        return str(Path(str(self.dirpath)) / Path(path).name) if path else ""


class BestEpoch(_MovableCheckpoint):
    """``best.ckpt``: of the epochs that were validated, the one with the best metric."""

    def __init__(self, folder: Path, *, monitor: str, mode: str) -> None:
        super().__init__(
            folder,
            "best",
            monitor=monitor,
            mode=mode,
            enable_version_counter=False,
            save_on_train_epoch_end=True,
        )

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare metrics that are new."""
        if _was_validated(trainer):
            super().on_train_epoch_end(trainer, pl_module)


class LastEpoch(_MovableCheckpoint):
    """``last.ckpt``: of every epoch, to go on from; ``save_last`` writes it for epochs that are best only."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "last", enable_version_counter=False, save_on_train_epoch_end=True)


class Patience(EarlyStopping):
    """Stops after so many validated epochs without a better one."""

    def __init__(self, patience: int, *, monitor: str, mode: str) -> None:
        super().__init__(monitor, mode=mode, patience=patience, check_on_train_epoch_end=True)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """A run that had stopped does not go on where it is resumed: that it had is in the checkpoint."""
        if self.stopped_epoch or self.wait_count >= self.patience:
            trainer.should_stop = True

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare metrics that are new."""
        if _was_validated(trainer):
            super().on_train_epoch_end(trainer, pl_module)


class EpochMetrics(pl.Callback):
    """One line of metrics for each epoch, in a CSV file that is replaced whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[dict[str, float]] = []
        self.rate = 0.0

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Note the learning rate: when an epoch ends it is that of the next step already."""
        self.rate = float(trainer.optimizers[0].param_groups[0]["lr"])

    def state_dict(self) -> dict[str, Any]:
        """Travels in the checkpoint, so that file and checkpoint agree after a kill."""
        return {"lines": self.lines}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Lines up to the checkpoint."""
        self.lines = list(state_dict["lines"])

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Add the epoch's line."""
        metrics = {
            name: float(value)
            for name, value in trainer.callback_metrics.items()
            if _was_validated(trainer) or not name.startswith("val_")
        }
        self.lines.append({"epoch": trainer.current_epoch, "lr": self.rate, **metrics})
        self._write()

    @rank_zero_only
    def _write(self) -> None:
        text = io.StringIO()
        columns = list(dict.fromkeys(key for line in self.lines for key in line))
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.lines)
        write_text(self.path, text.getvalue())


class EpochProgress(pl.Callback):
    """Tells a function how many of all steps are done, and the last metrics."""

    def __init__(self, progress: Callable[[int, int, dict[str, float]], None]) -> None:
        self.progress = progress
        self.metrics: dict[str, float] = {}

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Read the metrics once: after each step the device would be waited for."""
        found = trainer.callback_metrics.items()
        self.metrics = {name: float(value) for name, value in found if name.startswith("val_")}

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """After each step."""
        self.progress(trainer.global_step, int(trainer.estimated_stepping_batches), self.metrics)
