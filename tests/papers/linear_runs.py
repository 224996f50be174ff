"""Finished runs of a linear classifier with random weights, for the figures of runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shortlist.class_table import ClassTable
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.run import Run
from tests.run_factory import TOP_2, finished_run

CLASSES, DIM = 6, 3


def linear_run(
    path: Path,
    target: Tensor,
    counts: Sequence[int],
    *,
    seed: int = 0,
    draw: int = 0,
    skill: float = 1.0,
    overrides: Sequence[str] = (),
    predictors: Mapping[str, Any] = TOP_2,
) -> Run:
    """A run on random features near the weights of its classes: the larger ``skill``, the better.

    Runs with the same ``seed + draw`` have the same scores.
    """
    recipe = make_recipe({"predictors": predictors}, [f"seed={seed}", *overrides])
    layer, made = linear_layer(seed + draw), {}
    generator = torch.Generator().manual_seed(1000 + seed + draw)
    with torch.no_grad():
        for part in ("val", "test"):
            features = torch.randn(len(target), DIM, generator=generator) + skill * layer.weight[target]
            made[part] = (layer(features), target)
        norms = (layer.weight.norm(dim=1), layer.bias.clone())
    table = ClassTable(names=tuple("abcdef"), counts=counts)
    return finished_run(path, recipe, made, table, norms=norms)


def linear_layer(seed: int) -> nn.Linear:
    """The classifier of the runs with this seed."""
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(DIM, CLASSES)
    nn.init.normal_(layer.weight, generator=generator)
    nn.init.normal_(layer.bias, generator=generator)
    return layer
