"""A run that takes a second: few rows, few classes, all parts real."""

import csv
from pathlib import Path
from typing import Any

import torch

from shortlist.recipes.recipe import Recipe, make_recipe
from shortlist.runs.run import Run

RECIPE: dict[str, Any] = {
    "name": "small",
    "data": {
        "name": "gaussian_genera",
        "num_classes": 12,
        "num_genera": 3,
        "dim": 5,
        "num_rows": 600,
        "num_val_rows": 200,
        "num_test_rows": 300,
    },
    "model": {"name": "mlp", "hidden": [16], "dropout_rate": 0.1},
    "loss": {"name": "noised_topk", "k": 2, "num_samples": 3},
    "optimizer": {"lr": 0.05},
    "epochs": 4,
    "batch_size": 64,
    "selection": {"metric": "macro_average2"},
    "predictors": {
        "top2": {"name": "topk", "k": 2},
        "average2": {"name": "average_k", "k": 2},
        "average2_macro": {"name": "average_k", "k": 2, "macro": True},
        "conformal": {"name": "conformal", "coverage": 0.8},
    },
    "loggers": [],
}


def write_recipe(folder: Path, **changes: Any) -> Path:
    import yaml

    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE | changes))
    return path


def small(*overrides: str) -> Recipe:
    """The recipe with overrides."""
    return make_recipe(RECIPE, list(overrides))


def silent(*_: object) -> None:
    """Report no progress."""


class Stop(Exception):
    """Ends a training early."""


def epochs_of(run: Run) -> list[dict[str, str]]:
    """The lines of ``epochs.csv``."""
    with (run.path / "epochs.csv").open() as lines:
        return list(csv.DictReader(lines))


def same_numbers(a: Run, b: Run) -> None:
    """Assert that two runs have the same epochs, scores and results."""
    assert epochs_of(a) == epochs_of(b)
    for part in ("val", "test"):
        assert torch.equal(a.load_scores(part)[0], b.load_scores(part)[0])
    assert (a.path / "results.json").read_text() == (b.path / "results.json").read_text()
