"""Set-valued classification for PyTorch: losses, heads, predictors and metrics for short lists of classes."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shortlist import losses, metrics, models, ops, predictors, priors, scores
    from shortlist.class_table import ClassTable
    from shortlist.model import Model
    from shortlist.preprocessing import Preprocessing
    from shortlist.recipes.recipe import Recipe
    from shortlist.runs.run import Run
    from shortlist.taxonomy import Taxonomy
    from shortlist.training.fit import train

__all__ = [
    "ClassTable",
    "Model",
    "Preprocessing",
    "Recipe",
    "Run",
    "Taxonomy",
    "__version__",
    "losses",
    "metrics",
    "models",
    "ops",
    "predictors",
    "priors",
    "scores",
    "train",
]

__version__ = "0.1.0"

# Everything is imported when it is first asked for, so that `shortlist --help` need not wait for torch, and
# a program that only predicts imports nothing that trains.
_ROOMS = ("losses", "metrics", "models", "ops", "predictors", "priors", "scores")
_NAMES = {
    "ClassTable": "shortlist.class_table",
    "Model": "shortlist.model",
    "Preprocessing": "shortlist.preprocessing",
    "Recipe": "shortlist.recipes.recipe",
    "Run": "shortlist.runs.run",
    "Taxonomy": "shortlist.taxonomy",
    "train": "shortlist.training.fit",
}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"shortlist.{name}")
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_NAMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
