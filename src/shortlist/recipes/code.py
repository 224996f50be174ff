"""The code that a recipe names: somebody's own network, loss, data set, predictor, metric or logger."""

from collections.abc import Callable
from typing import Any

from shortlist._named_code import allow_code as let_run, allowed_code, code_error, find_code, is_trusted
from shortlist.models import code_in_network
from shortlist.recipes.loss_use import is_own
from shortlist.recipes.recipe import Recipe, make_recipe


def code_in_recipe(recipe: Recipe) -> list[tuple[str, Any]]:
    """Return key and value of everything in a recipe that can run code of somebody's own."""
    model = code_in_network(recipe.model.name, recipe.model.options)
    return [*((f"model.{key}", value) for key, value in model.items()), *_own_parts(recipe)] + [
        ("loggers", name) for name in recipe.loggers if is_own(name)
    ]


def _own_parts(recipe: Recipe) -> list[tuple[str, str]]:
    """Return key and name of the loss, data set, metrics and predictors that are somebody's own."""
    names = {"data.name": recipe.data.name, "loss.name": recipe.loss.name}
    names |= {f"evaluation.{key}": name for key, name in recipe.evaluation.own_names.items()}
    names |= {f"predictors.{key}.name": each.name for key, each in recipe.named_predictors.items()}
    return [(key, name) for key, name in names.items() if is_own(name)]


def _is_name(key: str) -> bool:
    """Whether a key has ``package.module:function``, not an option of a network."""
    return key == "loggers" or key.endswith(".name") or key.startswith("evaluation.")


def own_metrics(recipe: Recipe) -> dict[str, Callable[..., Any]]:
    """Import the metrics that are somebody's own, by the first words of their names.

    Raises:
        ValueError: If this process may not run one, or it is not there.
    """
    names = recipe.evaluation.own_names
    return {key: allowed_code(f"evaluation.{key}", name) for key, name in names.items()}


def check_code(recipe: Recipe, *, allow_code: bool) -> None:
    """Refuse a recipe that names code, unless the user asked for it or trusts its package.

    What may be run is looked for now, not after the data were read.

    Args:
        recipe: The recipe, before anything is done as it says.
        allow_code: Whether the user asked for its code.

    Raises:
        ValueError: If the code may not be run, is not there, or does not take its options; the message names
            the key.
    """
    entries = code_in_recipe(recipe)
    for key, value in entries:
        # a file or an address is in no package, whatever it is called
        trusted = _is_name(key) and is_trusted(value)
        if not (allow_code or trusted):
            raise code_error(key, value)
    for key, value in entries:
        if _is_name(key) and not value.startswith("timm:"):
            find_code(key, value)
    parts = _own_parts(recipe)
    for _, name in parts:
        let_run(name)
    if parts:  # now that the code may run: do its options and facts fit the recipe?
        make_recipe(recipe.model_dump(mode="json"))
