"""The LightningModule: a network, a loss, and the metrics of each epoch."""

import re
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from torch import Tensor

from shortlist.datasets import DeferredReweighting, training_rows
from shortlist.losses import call_loss
from shortlist.metrics import average_rows
from shortlist.metrics.modules import TopKAccuracy
from shortlist.models import head_scores, in_channels_last
from shortlist.predictors import AverageK
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
        self._head, self.score_map = parts.head, parts.score_map
        class_counts = data.class_table.class_counts
        self._val_rows = max(1, len(data.val))
        self.steps_per_epoch = max(1, len(training_rows(data.train)) // recipe.batch_size)
        self.register_buffer("class_counts", class_counts, persistent=False)
        metric = recipe.selection.metric
        chosen = re.search(r"(top|average)([\d.]+)", metric)
        if chosen is not None and not 0 < float(chosen[2]) <= len(class_counts):
            raise ValueError(
                f"selection.metric must be for at most {len(class_counts)} classes, got {metric}"
            )
        numbers = sorted({int(k) for k in re.findall(r"top(\d+)", metric)} | {1, 5})
        self.topk = TopKAccuracy(
            num_classes=len(class_counts), k=[k for k in numbers if k <= len(class_counts)]
        )
        self.average_sizes = {name: float(name[7:]) for name in re.findall(r"average[\d.]+", metric)}
        self._average: dict[str, AverageK] = {}
        self._reweighting = None
        if recipe.reweighting is not None:
            beta, after = recipe.reweighting.beta, recipe.reweighting.after
            weights = class_balanced_weights(class_counts, beta=beta, zero_counts="floor")
            self._reweighting = DeferredReweighting(loss, weights=weights, start_epoch=after)
        self._true: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Any:
        """Return the output of the network."""
        return self.model(in_channels_last(inputs))

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> Tensor:
        """Return the loss of a batch."""
        inputs, target, rows = batch
        loss = call_loss(self.loss, self(inputs), target, rows, size_weight=self.recipe.head.size_weight)
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
        rows = self._val_rows  # whatever their order, the threshold is exact
        self._average = {name: AverageK(k, max_rows=rows) for name, k in self.average_sizes.items()}
        self._true = []

    def validation_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> None:
        """Add a batch to the metrics."""
        inputs, target, _rows = batch
        scores = self.score_map(head_scores(self(inputs), self._head))
        self.topk.update(scores, target)
        counted = target != -100
        if self._average and bool(counted.any()):
            scores, target = scores[counted], target[counted]
            check_not_diverged(scores)
            for predictor in self._average.values():
                predictor.update(scores)
            chance = scores.softmax(1).gather(1, target[:, None]).squeeze(1)
            self._true.append(torch.stack([chance.double(), target.double()], 1).cpu())

    def on_validation_epoch_end(self) -> None:
        """Log the metrics."""
        metrics = self.topk.compute()
        self.topk.reset()
        names = [name for name in metrics if re.fullmatch(r"(macro_)?top\d+", name)]
        logged = {f"val_{name}": metrics[name].float() for name in names}
        logged |= self._average_metrics()
        self.log_dict(logged, prog_bar=False, rank_zero_only=False, sync_dist=False)

    def _average_metrics(self) -> dict[str, Tensor]:
        """Compute the average-k accuracy on the validation rows, with thresholds from their own scores."""
        if not self._average:
            return {}
        true = torch.cat(self._true) if self._true else torch.zeros(0, 2, dtype=torch.float64)
        collected = [(self._average, true)]
        if dist.is_initialized():
            collected = [collected[0]] * dist.get_world_size()
            dist.all_gather_object(collected, (self._average, true))
        true = torch.cat([part for _, part in collected])
        chance, target = true[:, 0], true[:, 1].long()
        metrics = {}
        for name in self.average_sizes:
            first, *others = [predictors[name] for predictors, _ in collected]
            for other in others:
                first.merge(other)
            hits, classes = chance >= first.finish().threshold, len(self.class_counts)
            metrics[f"val_{name}"] = average_rows(hits, target, num_classes=classes).float()
            of_classes = average_rows(hits, target, num_classes=classes, average="macro")
            metrics[f"val_macro_{name}"] = of_classes.float()
        return metrics

    def configure_optimizers(self) -> Any:
        """Return the optimizer, and a learning rate that depends on the step."""
        optimizer = build_optimizer(self.recipe, self.model, self.loss, lr=self._lr)
        total = int(self.trainer.estimated_stepping_batches)
        factor = learning_rate_factor(self.recipe, self.steps_per_epoch, total)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
