"""Where the data of a recipe lie: stored as absolute paths, so that a run can be used from any folder."""

import os
from pathlib import Path
from typing import Any

from shortlist.datasets import dataset_info
from shortlist.recipes.recipe import Recipe

PLACE_OPTIONS = ("root", "path", "train", "val", "test", "lists", "folders")
"""Options of data sets that are paths."""


def with_absolute_places(recipe: Recipe, *, seen_from: str | Path = ".") -> Recipe:
    """Return the recipe with the paths of its data and weights absolute, as seen from a folder."""
    options = recipe.data.options
    moved = {key: _absolute(options[key], seen_from) for key in PLACE_OPTIONS if options.get(key) is not None}
    changes: dict[str, Any] = {"data": recipe.data.model_copy(update=moved)} if moved else {}
    if recipe.model.weights_file is not None:
        weights = {"weights_file": _absolute(recipe.model.weights_file, seen_from)}
        changes["model"] = recipe.model.model_copy(update=weights)
    return recipe.model_copy(update=changes)


def _absolute(place: Any, seen_from: str | Path = ".") -> Any:
    if isinstance(place, str | Path):
        return os.path.abspath(os.path.join(seen_from, place))
    return [_absolute(entry, seen_from) for entry in place] if isinstance(place, list | tuple) else place


def moved(recipe: Recipe, place: str | Path | None) -> Recipe:
    """Return the recipe with its data at another place; ``None`` leaves them where they are.

    Args:
        recipe: Recipe of a run.
        place: Folder of the data set (``data.root``), or the list of images (``data.path`` of image_list).

    Raises:
        ValueError: If the data set is not read from one place, or there is nothing at the new one.
    """
    if place is None:
        return recipe
    info = dataset_info(recipe.data.name)
    key = "root" if info.on_disk else "path" if info.needs == "path" else None
    if key is None:
        raise ValueError(
            f"--data must be left out: the data set {recipe.data.name} is not read from one place"
        )
    if not Path(place).exists():
        raise ValueError(f"--data must be the place of the data, got {place}, which does not exist")
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={key: _absolute(place)})})
