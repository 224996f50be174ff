"""The gradients of the scores while a network learns for the first epoch."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from shortlist.demo import BASE
from shortlist.losses import call_loss
from shortlist.recipes import Recipe, make_recipe
from shortlist.training import SetClassifier, fit


def first_epoch_recipe(k: int, noise_std: float, num_draws: int, seed: int) -> Recipe:
    """Make the demonstration's recipe for one epoch with the noised top-k loss."""
    loss = ["loss=noised_topk", f"loss.k={k}", f"loss.noise_std={noise_std}", f"loss.num_samples={num_draws}"]
    settings = ["epochs=1", "novelty=null", "predictors={}", f"seed={seed}"]
    return make_recipe(BASE, [*loss, *settings])


def first_epoch_counts(recipe: Recipe, count: Callable[[Tensor], Tensor]) -> Tensor:
    """Train, and apply ``count`` to the gradient (rows, c) of the summed loss of each batch; join the rows.

    The gradient is that of the loss by which the network learns, with the same draws.
    """
    counts: list[Tensor] = []

    class Counting(SetClassifier):
        def training_step(self, batch: tuple[Tensor, Tensor, Tensor], _: int) -> Tensor:
            inputs, target, rows = batch
            scores = self(inputs)
            loss = call_loss(self.loss, scores, target, rows)
            (gradient,) = torch.autograd.grad(loss, scores, retain_graph=True)
            counts.append(count(len(target) * gradient))  # the loss is the mean over rows
            self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(target))
            return loss

    with tempfile.TemporaryDirectory() as folder, patch.object(fit, "SetClassifier", Counting):
        fit.train(recipe, Path(folder) / "run", progress=lambda *_: None, test=False)  # no bar of its own
    return torch.cat(counts)
