"""The LightningModule: a network, a loss, and the metrics of each epoch."""

import re
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from shortlist._checks import tensor_words
from shortlist.datasets import DeferredReweighting, training_rows
from shortlist.losses import call_loss
from shortlist.metrics import AverageKAccuracy
from shortlist.metrics.modules import TopKAccuracy
from shortlist.models import in_channels_last
from shortlist.priors import class_balanced_weights
from shortlist.recipes import Parts, Recipe, annealed_options, build_optimizer, learning_rate_factor
from shortlist.runs import check_not_diverged


class SetClassifier(pl.LightningModule):
    """A Lightning module that trains the network of a recipe with its loss, and measures validation rows."""

    class_counts: Tensor

    def __init__(self, recipe: Recipe, parts: Parts, *, lr: float | None = None) -> None:
        super().__init__()
        data, loss = parts.data, parts.loss
        self.recipe, self.model, self.loss, self._lr = recipe, parts.network, loss, lr
        self._measured_scores = parts.measured_scores
        class_counts = data.class_table.class_counts
        self.steps_per_epoch = max(1, len(training_rows(data.train)) // recipe.batch_size)
        self.register_buffer("class_counts", class_counts, persistent=False)
        metrics = recipe.selection.metrics
        for key, metric in zip(("metric", *["keep"] * len(metrics)), metrics, strict=False):
            chosen = re.search(r"(top|average)([\d.]+)", metric)
            if chosen is not None and not 0 < float(chosen[2]) <= len(class_counts):
                raise ValueError(
                    f"selection.{key} must be for at most {len(class_counts)} classes, got {metric}"
                )
        asked = " ".join(metrics)
        numbers = sorted({int(k) for k in re.findall(r"top(\d+)", asked)} | {1, 5})
        self.topk = TopKAccuracy(
            num_classes=len(class_counts), k=[k for k in numbers if k <= len(class_counts)]
        )
        sizes = {name: float(name[7:]) for name in re.findall(r"average[\d.]+", asked)}
        self._average = AverageKAccuracy(sizes, num_classes=len(class_counts), max_rows=max(1, len(data.val)))
        self._reweighting = None
        if recipe.reweighting is not None:
            beta, after = recipe.reweighting.beta, recipe.reweighting.after
            weights = class_balanced_weights(class_counts, beta=beta, zero_counts="floor")
            self._reweighting = DeferredReweighting(loss, weights=weights, start_epoch=after)

    def forward(self, inputs: Tensor) -> Any:
        """Return the output of the network."""
        return self.model(in_channels_last(inputs))

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> Tensor:
        """Return the loss of a batch."""
        inputs, target, rows = batch
        loss = call_loss(self.loss, self(inputs), target, rows, size_weight=self.recipe.head.size_weight)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:  # of somebody's own
            raise ValueError(
                f"the loss {self.recipe.loss.name} must return one number that depends on the scores, got "
                f"{tensor_words(loss)}"
            )
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(target), sync_dist=True)
        return loss

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Set what changes with epochs at the first batch, since a resumed run starts no epoch."""
        if batch_idx:
            return
        if self._reweighting is not None:
            self._reweighting.set_epoch(self.current_epoch)
        steps = self.recipe.steps
        epochs = self.recipe.epochs if steps is None else -(-steps // self.steps_per_epoch)
        for option, value in annealed_options(self.recipe, self.current_epoch, epochs).items():
            setattr(self.loss, option, value)

    def on_validation_epoch_start(self) -> None:
        """Reset the metrics of the epoch before."""
        self._average.reset()

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> None:
        """Add a batch to the metrics."""
        inputs, target, _rows = batch
        scores = self._measured_scores(self(inputs))
        self.topk.update(scores, target)
        if self._average.sizes:
            check_not_diverged(scores[target != -100])
            self._average.update(scores, target)

    def on_validation_epoch_end(self) -> None:
        """Log the metrics."""
        metrics = self.topk.compute()
        self.topk.reset()
        names = [name for name in metrics if re.fullmatch(r"(macro_)?top\d+", name)]
        logged = {f"val_{name}": metrics[name].float() for name in names}
        logged |= {f"val_{name}": value.float() for name, value in self._average.compute().items()}
        self.log_dict(logged, prog_bar=False, rank_zero_only=False, sync_dist=False)

    def configure_optimizers(self) -> Any:
        """Return the optimizer, and a learning rate that depends on the step."""
        optimizer = build_optimizer(self.recipe, self.model, self.loss, lr=self._lr)
        total = int(self.trainer.estimated_stepping_batches)
        factor = learning_rate_factor(self.recipe, self.steps_per_epoch, total)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
