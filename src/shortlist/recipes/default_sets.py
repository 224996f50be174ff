"""The sets that a recipe makes if it names no predictors: they depend on the number of classes."""

from typing import Any

from shortlist.predictors import predictor_kind
from shortlist.recipes.recipe import Recipe
from shortlist.recipes.score_rules import validation_is_test
from shortlist.recipes.sections import PredictorSection

_LARGEST = 5


def default_size(num_classes: int) -> int:
    """Return the default number of classes in a list: five, or about half of the classes if they are few.

    Example:
        >>> [default_size(classes) for classes in (2, 3, 7, 10, 1000)]
        [1, 1, 3, 5, 5]
    """
    return min(_LARGEST, max(1, num_classes // 2))


def default_predictors(k: int) -> dict[str, dict[str, Any]]:
    """Return the predictors of a recipe that names none: k classes, k on average, a promise.

    Example:
        >>> list(default_predictors(3))
        ['top3', 'average3', 'conformal']
    """
    return {
        f"top{k}": {"name": "topk", "k": k},
        f"average{k}": {"name": "average_k", "k": k},
        "conformal": {"name": "conformal", "coverage": "auto"},
    }


DEFAULT_NAMES = frozenset(name for k in range(1, _LARGEST + 1) for name in default_predictors(k))
"""Every name that a default predictor can have."""


def complete_recipe(recipe: Recipe, num_classes: int) -> Recipe:
    """Return the recipe with the default predictors, if it leaves ``predictors`` out.

    Where the validation rows are the test rows, there are only those that need no calibration.
    """
    if recipe.predictors is not None:
        return recipe
    return recipe.model_copy(update={"predictors": _sections(recipe, default_size(num_classes))})


def without_default_predictors(recipe: Recipe) -> Recipe:
    """Return the recipe without predictors that it may have by default, as its run has them written out."""
    if any(_sections(recipe, k) == recipe.predictors for k in range(1, _LARGEST + 1)):
        return recipe.model_copy(update={"predictors": None})
    return recipe


def _sections(recipe: Recipe, k: int) -> dict[str, PredictorSection]:
    sections = {key: PredictorSection(**content) for key, content in default_predictors(k).items()}
    if not validation_is_test(recipe):
        return sections
    return {key: part for key, part in sections.items() if not predictor_kind(part.name).needs_calibration}
