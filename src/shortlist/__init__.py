"""Set-valued classification for PyTorch: losses, heads, predictors and metrics for short lists of classes."""

import importlib
from typing import TYPE_CHECKING, Any

from shortlist import losses, metrics, models, ops, predictors, priors, scores
from shortlist.class_table import ClassTable
from shortlist.model import Model
from shortlist.preprocessing import Preprocessing

if TYPE_CHECKING:
    from shortlist.recipes.recipe import Recipe
    from shortlist.runs.run import Run
    from shortlist.training.fit import train

__all__ = [
    "ClassTable",
    "Model",
    "Preprocessing",
    "Recipe",
    "Run",
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

# what trains is imported when it is first asked for
_LATER = {
    "Recipe": "shortlist.recipes.recipe",
    "Run": "shortlist.runs.run",
    "train": "shortlist.training.fit",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_LATER[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
