"""Compare recipes as plain values: which are the same method, and where they differ."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from shortlist._text import flatten
from shortlist.recipes.places import PLACE_OPTIONS
from shortlist.recipes.recipe import Recipe

RUNTIME_KEYS = ("name", "about", "workers", "loggers", "accelerator", "devices", "num_nodes")
"""Keys of a recipe that do not change what a run computes."""
CALIBRATED_KEYS = ("adjust", "predictors", "novelty", "evaluation")
"""Keys of a recipe that are used after the training only."""


def recipe_content(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain values, without keys that do not change its results."""
    unimportant: dict[str, Any] = dict.fromkeys(RUNTIME_KEYS, True) | {"selection": {"keep"}}
    content = recipe.model_dump(mode="json", exclude=unimportant)
    if not recipe.data.prepared:  # as before there was such a key
        del content["data"]["prepared"]
    return content


def flat_content(recipe: Recipe) -> dict[str, Any]:
    """Return the content of a recipe by dotted keys."""
    return flatten(recipe_content(recipe))


def recipe_hash(recipe: Recipe, *, seed: bool = True, over: Sequence[str] = ()) -> str:
    """Return twelve digits that differ for recipes that differ (in more than ``RUNTIME_KEYS``).

    Args:
        recipe: The recipe.
        seed: Whether recipes with other seeds differ.
        over: Dotted keys by which recipes do not differ either, such as ``data.seed``.
    """
    if over:
        flat = flat_content(recipe)
        return _hash({key: flat[key] for key in flat if key not in over and (seed or key != "seed")})
    content = recipe_content(recipe)
    if not seed:
        del content["seed"]
    return _hash(content)


def training_hash(recipe: Recipe) -> str:
    """Return twelve digits that differ for recipes whose trainings do, wherever their data lie."""
    content = recipe_content(recipe)
    content["data"] = {key: value for key, value in content["data"].items() if key not in PLACE_OPTIONS}
    return _hash({key: value for key, value in content.items() if key not in CALIBRATED_KEYS})


def first_stage_content(recipe: Recipe) -> dict[str, Any]:
    """Return what the first stage of a training depends on, as plain values.

    Recipes that differ only in the metric that chooses the epoch, in a second stage or in what follows from
    the scores share this stage, unless it may end early.
    """
    content = recipe_content(recipe)
    if recipe.selection.patience is None:
        del content["selection"]
    without = {*CALIBRATED_KEYS, "second_stage"}
    return {key: content[key] for key in content if key not in without} | {
        "predict_from": recipe.adjust.predict_from  # by this head the epochs are measured
    }


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def differing_keys(recipes: Sequence[Recipe]) -> list[str]:
    """Return the dotted keys whose values are not the same in all recipes, the seed apart."""
    flats = [flat_content(recipe) for recipe in recipes]
    keys = dict.fromkeys(key for flat in flats for key in flat if key != "seed")
    return [key for key in keys if len({json.dumps(flat.get(key)) for flat in flats}) > 1]  # one may lack it
