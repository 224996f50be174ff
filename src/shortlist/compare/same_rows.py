"""Tell whether two runs were tested on the same rows."""

import inspect
from typing import Any

from shortlist.datasets import DATASETS
from shortlist.recipes import Recipe

# options that change training and validation rows only, or how images are read
_NOT_OF_TEST_ROWS = (
    *(
        "label_noise",
        "noise_level",
        "noise_blocks",
        "max_per_class",
        "val_is_test",
        "train",
        "val",
        "workers",
        "cache",
    ),
    *("train_transform", "eval_transform", "transform", "image_size", "image_options", "on_error", "verify"),
)


def on_same_rows(first: Recipe, second: Recipe) -> bool:
    """Tell whether two recipes have the same test rows; equal numbers of rows and classes do not suffice."""
    return _test_rows(first) == _test_rows(second)


def _test_rows(recipe: Recipe) -> dict[str, Any]:
    name = recipe.data.name
    if name not in DATASETS:  # somebody's own code, which is not run to compare
        return {k: v for k, v in recipe.data.model_dump(mode="json").items() if k not in _NOT_OF_TEST_ROWS}
    if not DATASETS[name].rows_by_options:
        return {"name": name}
    parameters = inspect.signature(DATASETS[name].build).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    options = defaults | recipe.data.model_dump(mode="json")
    return {key: value for key, value in options.items() if key not in _NOT_OF_TEST_ROWS}
