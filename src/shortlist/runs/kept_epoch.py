"""Which epoch of a training was kept, and by which metric it was chosen."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shortlist.recipes import Recipe
from shortlist.runs.network import last_stage, read_checkpoint
from shortlist.runs.run import Run, RunError


@dataclass(frozen=True)
class KeptEpoch:
    """The epoch whose network is the model of a run.

    Args:
        epoch: Number of the epoch, from 1; 0 if nothing was trained.
        epochs: Number of epochs that were trained.
        metric: The metric that chose it, as in ``selection.metric`` of the recipe.
        value: That metric at this epoch; ``None`` if the last epoch is kept.
        second_stage: Whether the epochs are those of a second stage.

    Example:
        >>> KeptEpoch(7, 12, "macro_top5", 0.831).words()
        'Epoch 7 of 12 was kept: it has the best macro_top5 on the validation rows, 83.1 %.'
    """

    epoch: int
    epochs: int
    metric: str
    value: float | None
    second_stage: bool = False

    def words(self) -> str:
        """Say it in a sentence."""
        if not self.epochs:
            return "Nothing was trained: the network is that of model.weights_file."
        of = " of the second stage" if self.second_stage else ""
        return f"Epoch {self.epoch} of {self.epochs}{of} was kept: {self.reason()}."

    def reason(self) -> str:
        """Say why it was kept."""
        if not self.epochs:
            return "nothing was trained"
        if self.metric == "last" or self.value is None:
            return "it is the last one"
        if self.metric == "loss":
            return f"it has the lowest training loss, {self.value:.4g}"
        return f"it has the best {self.metric} on the validation rows, {100 * self.value:.1f} %"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def watched_metric(metric: str) -> tuple[str, str]:
    """Return the column of ``epochs.csv`` that chooses the epoch, and whether its ``min`` or ``max`` is best.

    Args:
        metric: The metric, as in ``selection.metric`` of the recipe.
    """
    if metric == "last":  # every epoch is better than the one before
        return "epoch", "max"
    return ("train_loss", "min") if metric == "loss" else (f"val_{metric}", "max")


def find_kept_epoch(run: Run, recipe: Recipe) -> KeptEpoch:
    """Look up the best epoch of the last stage in its checkpoint, and its metric in ``epochs.csv``."""
    epoch = read_checkpoint(run.checked(f"{last_stage(recipe)}/best.ckpt"))["epoch"]
    lines = run.epochs
    metric = recipe.selection.metric
    if not lines:
        return KeptEpoch(0, 0, metric, None)
    start = max(place for place, line in enumerate(lines) if line["epoch"] == 0)  # of the last stage
    value = None if metric == "last" else lines[start + epoch].get(watched_metric(metric)[0])
    return KeptEpoch(epoch + 1, len(lines) - start, metric, value, recipe.second_stage is not None)


def kept_epoch_of(info: Mapping[str, Any]) -> KeptEpoch | None:
    """Return the kept epoch that ``run.json`` tells; ``None`` for a run that was made of other scores."""
    content = info.get("kept_epoch")
    try:
        return None if content is None else KeptEpoch(**content)
    except TypeError as error:
        raise RunError(f"kept_epoch of run.json cannot be read: {error}") from error
