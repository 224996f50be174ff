"""Train and apply a network whose rows have several labels."""

from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from shortlist._checks import check_count, check_number
from shortlist.datasets.label_sets import LabelSetPart
from shortlist.datasets.loaders import EpochShuffle, SeededLoader
from shortlist.losses.label_sets import set_size_loss
from shortlist.models.label_set_head import LabelSetScores, predicted_sizes
from shortlist.models.spec import in_channels_last
from shortlist.training.stage import quiet_lightning

__all__ = ["LabelSetPredictions", "predict_label_sets", "train_label_sets"]


class LabelSetPredictions(NamedTuple):
    """The scores (n, c), predicted sizes (n,) and labels (n, c) of all rows of a part."""

    scores: Tensor
    sizes: Tensor
    labels: Tensor


def train_label_sets(
    network: nn.Module,
    loss: nn.Module,
    train: LabelSetPart,
    *,
    epochs: int = 10,
    batch_size: int = 64,
    lr: float = 0.1,
    weight_decay: float = 1e-4,
    size_weight: float = 1.0,
    seed: int = 0,
) -> nn.Module:
    """Train a network on rows with several labels, and return it as it is after the last epoch.

    The loss of the labels and that of their number are added. Steps are those of SGD with Nesterov's momentum
    of 0.9 and a learning rate that falls to 0 along half a cosine.

    Args:
        network: Network whose classifier is a :class:`~shortlist.models.label_set_head.LabelSetHead`; it is
            changed.
        loss: Loss of scores (n, c) and labels (n, c), such as one of ``LABEL_SET_LOSSES``.
        train: Training rows.
        epochs: Number of passes over them.
        batch_size: Rows of each step; rows that do not fill a batch are left out of an epoch.
        lr: First learning rate, > 0.
        weight_decay: Weight decay, >= 0.
        size_weight: Factor of the loss of the size head, >= 0.
        seed: Seed of the order of the rows.
    """
    check_count("epochs", epochs)
    check_count("batch_size", batch_size)
    check_number("lr", lr, above=0.0)
    check_number("size_weight", size_weight, low=0.0)
    sampler = EpochShuffle(len(train), seed=seed, batch_size=batch_size)
    rows: Any = train
    loader = SeededLoader(rows, batch_size=batch_size, sampler=sampler, collate_fn=_as_it_is, seed=seed)
    module = _Module(network, loss, lr=lr, weight_decay=weight_decay, size_weight=size_weight)
    with quiet_lightning():
        trainer = pl.Trainer(
            max_epochs=epochs,
            accelerator="auto",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            use_distributed_sampler=False,
        )
        trainer.fit(module, loader)
    return network


@torch.inference_mode()
def predict_label_sets(
    network: nn.Module, split: LabelSetPart, *, batch_size: int = 256
) -> LabelSetPredictions:
    """Return scores, predicted sizes and labels of all rows of a part, in order.

    Raises:
        ValueError: If the scores are not finite numbers, since the training diverged.
    """
    device = next(network.parameters()).device
    training = network.training
    network.eval()
    scores, sizes = [], []
    rows: Any = split
    for inputs, _ in DataLoader(rows, batch_size=batch_size, collate_fn=_as_it_is):
        output = _output(network, inputs.to(device))
        scores.append(output.scores.float().cpu())
        sizes.append(predicted_sizes(output.size_logits, num_classes=output.scores.shape[1]).cpu())
    network.train(training)
    found = torch.cat(scores)
    if not bool(found.isfinite().all()):
        raise ValueError("the network's scores are not numbers: the training diverged; try a smaller lr")
    return LabelSetPredictions(found, torch.cat(sizes), split.labels)


def _as_it_is(batch: Any) -> Any:
    return batch


def _output(network: nn.Module, inputs: Tensor) -> LabelSetScores:
    output = network(in_channels_last(inputs))
    if not isinstance(output, LabelSetScores):
        raise ValueError(
            f"network must return LabelSetScores, which a LabelSetHead does, got {type(output).__name__}"
        )
    return output


class _Module(pl.LightningModule):
    """A Lightning module that adds the loss of the labels and that of their number."""

    def __init__(
        self, network: nn.Module, loss: nn.Module, *, lr: float, weight_decay: float, size_weight: float
    ) -> None:
        super().__init__()
        self.network, self.loss, self.size_weight = network, loss, size_weight
        self._lr, self._weight_decay = lr, weight_decay

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Return the loss of a batch."""
        inputs, labels = batch
        output = _output(self.network, inputs)
        return self.loss(output.scores, labels) + self.size_weight * set_size_loss(output.size_logits, labels)

    def configure_optimizers(self) -> Any:
        """Return SGD and a cosine of its learning rate."""
        optimizer = torch.optim.SGD(
            self.network.parameters(),
            lr=self._lr,
            momentum=0.9,
            nesterov=True,
            weight_decay=self._weight_decay,
        )
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
