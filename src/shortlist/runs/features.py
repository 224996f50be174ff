"""Compute the features of rows by the network of a run, and the class means that strangers are far from."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from shortlist.datasets import ChangedSplit, ImageFiles, Split, TensorSplit, evaluation_loader, unchanged
from shortlist.models import classifier_input, in_channels_last
from shortlist.predictors import FeatureMeans
from shortlist.recipes import Recipe, build_data
from shortlist.runs.folder import RunFolder
from shortlist.runs.network import load_network
from shortlist.runs.run import Run


def means_and_features(
    run: Run, recipe: Recipe, part: str, *, network: nn.Module | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return class means (p, d) of the training rows, and the features (n, d) and classes (n,) of a part.

    They are computed once and kept in the run, in ``scores/features_PART.safetensors``. ``network`` is the
    run's trained one; left out, it is made as the recipe says, unless that needs code of somebody's own.
    """
    kept = f"features_{part}"
    if run.has_scores(kept):
        return run.load_scores(kept, "means")[0], *run.load_scores(kept, "features")
    data = build_data(recipe)
    network = load_network(run) if network is None else network
    means = None
    for features, target, _ in feature_batches(network, recipe, unaugmented(data.train, data.val)):
        if means is None:
            means = FeatureMeans(num_classes=len(data.class_table), dim=features.shape[1])
        means.update(features, target)
    assert means is not None  # a data set has training rows
    rows = zip(*feature_batches(network, recipe, getattr(data, part)), strict=True)
    features, target, _ = (torch.cat(batches) for batches in rows)
    RunFolder(run.path).save_scores(kept, {"means": means.means(), "features": features}, target)
    return means.means(), features, target


@torch.inference_mode()
def feature_batches(
    network: nn.Module, recipe: Recipe, split: Split
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Give, batch by batch, features (n, d) of the rows that could be read, their classes and row numbers."""
    batch_size = max(256, recipe.batch_size)
    loader = evaluation_loader(split, batch_size=batch_size, workers=recipe.workers, shared=False)
    device = next(network.parameters()).device
    for inputs, target, numbers in loader:
        features = classifier_input(network, in_channels_last(inputs.to(device)), name=recipe.head.classifier)
        kept = target != -100
        yield features.float().cpu()[kept], target[kept], numbers[kept]


def unaugmented(train: Split, like: Split) -> Split:
    """Return the training rows, prepared like validation rows."""
    if isinstance(train, ChangedSplit):
        return ChangedSplit(unaugmented(train.split, like), train.rows, train.targets)
    like, _ = unchanged(like)
    if isinstance(train, TensorSplit) and isinstance(like, TensorSplit):
        return TensorSplit(train.inputs, train.targets, transform=like.transform)
    if isinstance(train, ImageFiles) and isinstance(like, ImageFiles):
        return ImageFiles(train.paths, train.targets, transform=like.transform, on_error=train.on_error)
    return train
