"""The code that a recipe names: a network or a logger of somebody's own."""

from typing import Any

from shortlist._named_code import code_error, find_code, is_trusted
from shortlist.models import code_in_network
from shortlist.recipes.recipe import Recipe

_NAMES = ("model.name", "loggers")  # keys where package.module:function may stand


def code_in_recipe(recipe: Recipe) -> list[tuple[str, Any]]:
    """Return key and value of everything in a recipe that can run code of somebody's own."""
    model = code_in_network(recipe.model.name, recipe.model.options)
    model_entries = [(f"model.{key}", value) for key, value in model.items()]
    return model_entries + [("loggers", name) for name in recipe.loggers if ":" in name]


def check_code(recipe: Recipe, *, allow_code: bool) -> None:
    """Refuse a recipe that names code, unless the user asked for it or trusts its package.

    What may be run is looked for now, not after the data were read.

    Args:
        recipe: The recipe, before anything is done as it says.
        allow_code: Whether the user asked for its code.

    Raises:
        ValueError: If the code may not be run, or is not there; the message names the key.
    """
    entries = code_in_recipe(recipe)
    for key, value in entries:
        # a file or an address is in no package, whatever it is called
        trusted = key in _NAMES and is_trusted(value)
        if not (allow_code or trusted):
            raise code_error(key, value)
    for key, value in entries:
        if key in _NAMES and not value.startswith("timm:"):
            find_code(key, value)
