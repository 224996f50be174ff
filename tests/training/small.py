"""A run that takes a second: few rows, few classes, all parts real."""

from pathlib import Path
from typing import Any

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
