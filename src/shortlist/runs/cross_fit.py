"""Compute held-out scores of training rows, by classifiers trained again on folds of the features."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from shortlist.datasets import ClassBalancedSampler, Splits, rank_within_class
from shortlist.losses import call_loss, in_one_process
from shortlist.models import classifier_name, head_outputs
from shortlist.recipes import (
    Recipe,
    build_data,
    build_loss,
    build_optimizer,
    learning_rate_factor,
    trains_balanced,
)
from shortlist.runs.features import feature_batches, unaugmented
from shortlist.runs.folder import RunFolder
from shortlist.runs.network import load_network
from shortlist.runs.run import Run

NUM_FOLDS = 5
_EPOCHS = 20  # of each classifier, on features that are there already


def fold_scores(
    run: Run, recipe: Recipe, head: str, *, network: nn.Module | None = None
) -> tuple[Tensor, Tensor]:
    """Score the training rows (n, c), each by a classifier that did not see it; return also the classes (n,).

    The network is not trained again: its features of the training rows are kept, and the classifier is
    trained anew on four fifths of them, five times, for 20 epochs with the loss and the optimizer of the
    recipe. The features were learned from all of these rows, and the classifiers are not quite the network's
    own, so that the temperature of a hinge may come out a quarter off. What is found is kept in the run, in
    ``scores/folds.safetensors``. ``network`` is the run's trained one; left out, it is made as the recipe
    says, unless that needs code of somebody's own.
    """
    if run.has_scores("folds"):
        return run.load_scores("folds", head)
    data = build_data(recipe)
    network = load_network(run) if network is None else network
    batches = zip(*feature_batches(network, recipe, unaugmented(data.train, data.val)), strict=True)
    inputs, targets, rows = (torch.cat(parts) for parts in batches)
    folds = rank_within_class(targets, generator=torch.Generator().manual_seed(recipe.seed)) % NUM_FOLDS
    held_out: dict[str, Tensor] = {}
    for fold in range(NUM_FOLDS):
        inside = folds != fold
        classifier = _train_classifier(
            network,
            recipe,
            data,
            (inputs[inside], targets[inside], rows[inside]),
            weight=run.loss_weight,
            seed=recipe.seed + fold,
        )
        with torch.inference_mode():
            for name, output in head_outputs(classifier(inputs[~inside])).items():
                kept = held_out.setdefault(name, torch.empty(len(targets), output.shape[1]))
                kept[~inside] = output.float()
    RunFolder(run.path).save_scores("folds", held_out, targets)
    return held_out[head], targets


@in_one_process()  # others of a training wait meanwhile
def _train_classifier(
    network: nn.Module,
    recipe: Recipe,
    data: Splits,
    features: tuple[Tensor, Tensor, Tensor],
    *,
    weight: Tensor | None,
    seed: int,
) -> nn.Module:
    """Train a new classifier of the network on features, classes and numbers of some rows."""
    inputs, targets, rows = features
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        original = network.get_submodule(classifier_name(network, recipe.head.classifier))
        classifier: Any = copy.deepcopy(original).requires_grad_(True).train()
        classifier.reset_parameters()
        loss: Any = build_loss(recipe, data)
        if weight is not None:
            loss.weight = weight
        optimizer = build_optimizer(recipe, classifier, loss)
        steps_per_epoch = max(1, len(targets) // recipe.batch_size)
        total = _EPOCHS * steps_per_epoch
        factor = learning_rate_factor(
            recipe.model_copy(update={"schedule": type(recipe.schedule)()}), steps_per_epoch, total
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        for epoch in range(_EPOCHS):
            order = _order(targets, recipe, epoch, generator)
            for batch in order.split(recipe.batch_size)[:steps_per_epoch]:
                optimizer.zero_grad()
                call_loss(loss, classifier(inputs[batch]), targets[batch], rows[batch]).backward()
                optimizer.step()
                schedule.step()
    return classifier.eval()


def _order(targets: Tensor, recipe: Recipe, epoch: int, generator: torch.Generator) -> Tensor:
    """Return the rows of an epoch, drawn as the recipe draws them."""
    if not trains_balanced(recipe):
        return torch.randperm(len(targets), generator=generator)
    sampler = ClassBalancedSampler(targets, num_samples=len(targets), seed=recipe.seed)
    sampler.set_epoch(epoch)
    drawn: Sequence[int] = list(sampler)
    return torch.tensor(drawn)
