"""Write the suite that compares every loss that fits a recipe, and losses of one's own."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from shortlist._named_code import allow_code, find_class
from shortlist.recipes import (
    TRAINABLE_LOSSES,
    Recipe,
    RecipeError,
    code_in_recipe,
    find_loss,
    is_own,
    make_recipe,
    signature_of,
)

BASELINE = "cross_entropy"
_SEEDS = [0, 1, 2, 3, 4]
_TUNING_SEEDS = [0, 1]
_PLAIN = (bool, int, float, str, list, type(None))
_NOT_OF_THE_BASE = ("name", "about", "seed", "loss")  # which the suite itself says


@dataclass(frozen=True)
class StarterSuite:
    """A suite as plain values, and by loss why it is not in it."""

    content: dict[str, Any]
    left_out: Mapping[str, str]

    @property
    def names_code(self) -> bool:
        """Whether a method needs code of somebody's own."""
        methods = self.content["methods"].values()
        recipes = [make_recipe(self.content["base"], method["overrides"]) for method in methods]
        return any(code_in_recipe(recipe) for recipe in recipes)

    @property
    def trainings(self) -> int:
        """Number of trainings: each grid point with the seeds to choose by, chosen points with all."""
        grids = [method.get("grid", {}) for method in self.content["methods"].values()]
        points = [math.prod(map(len, grid.values())) for grid in grids]
        more = len(_SEEDS) - len(_TUNING_SEEDS)
        return sum(len(_SEEDS) if number == 1 else number * len(_TUNING_SEEDS) + more for number in points)


def starter_suite(
    recipe: Mapping[str, Any],
    *,
    name: str,
    losses: Sequence[str] | None = None,
    mine: Sequence[str] = (),
    k: int | None = None,
) -> StarterSuite:
    """Return a suite of losses on the data and the network of a recipe.

    Each loss has the grid that its class declares. Grid points are chosen on validation rows, with two seeds;
    each chosen point is trained with five.

    Args:
        recipe: Content of the recipe; its loss is left out.
        name: Name of the suite.
        losses: Names of losses; ``None`` for all that fit the recipe.
        mine: Losses of the caller's own, ``package.module:Class``, which are imported now.
        k: Length of the lists that the losses are for; ``None``: that of ``selection.metric``, else 5.

    Raises:
        ValueError: If a loss that is named does not fit the recipe, or is no class of ``torch.nn.Module``.
    """
    for own_loss in mine:
        if not is_own(own_loss):
            raise ValueError(
                f"--mine must be package.module:Class, such as my_bench:MarginLoss, got {own_loss!r}"
            )
        allow_code(own_loss)
        find_class("--mine", own_loss, nn.Module)
    base = {key: value for key, value in recipe.items() if key not in _NOT_OF_THE_BASE}
    length = _list_length(make_recipe(base)) if k is None else k
    base["evaluation"] = _with_k(base.get("evaluation"), length)
    methods: dict[str, Any] = {}
    left_out = {}
    for loss in dict.fromkeys([*mine, *(losses if losses is not None else TRAINABLE_LOSSES)]):
        try:
            methods[_method_name(loss, methods)] = _method(loss, base, length)
        except RecipeError as error:
            if losses is not None or loss in mine:
                raise
            left_out[loss] = str(error)
    metric = _tuning_metric(make_recipe(base), length)
    baseline = next((key for key in (BASELINE, *methods) if key in methods), None)
    content = {
        "name": name,
        "base": base,
        "tune": {"metric": metric, "seeds": _TUNING_SEEDS},
        "seeds": _SEEDS,
        "baseline": baseline,
        "methods": methods,
        "metrics": list(dict.fromkeys([*_shown_metrics(make_recipe(base), length), metric])),
    }
    return StarterSuite(content, left_out)


def _list_length(recipe: Recipe) -> int:
    number = re.search(r"\d+", recipe.selection.metric)
    return 5 if number is None or int(number[0]) < 2 else int(number[0])


def _with_k(evaluation: Any, k: int) -> dict[str, Any]:
    """Return the section with k among the lengths of lists that are measured."""
    section = dict(evaluation or {})
    return section | {"ks": sorted({*section.get("ks", (1, 3, 5, 10)), k})}


def _tuning_metric(recipe: Recipe, k: int) -> str:
    """Return the metric by which grid points are chosen: what chooses the epoch, as results name it."""
    match = re.fullmatch(r"(macro_)?(top|average)([\d.]+)", recipe.selection.metric)
    mean = "macro" if match is not None and match[1] else "micro"
    if match is None or match[2] == "top":
        return f"top{k}.{mean}"
    sized = [
        key
        for key, section in recipe.named_predictors.items()
        if section.name == "average_k" and section.options["k"] == float(match[3])
    ]
    return f"sets.{sized[0]}.coverage.{mean}" if sized else f"top{k}.{mean}"


def _shown_metrics(recipe: Recipe, k: int) -> list[str]:
    """Return the columns of the table: top-1, top-k, own metrics, and the coverage of the predictors."""
    own_metrics = [f"{name}.micro" for name in recipe.evaluation.own_names]
    sets = [f"sets.{name}.coverage.micro" for name in recipe.predictors or ()]
    return ["top1.micro", f"top{k}.micro", f"top{k}.macro", *own_metrics, *sets]


def _method_name(loss: str, taken: Mapping[str, Any]) -> str:
    """Return the name of a method: the loss's; of somebody's own, that of its class, or the whole name."""
    short = loss.rpartition(":")[2]
    if not is_own(loss):
        return loss
    return loss.replace(":", ".") if short in TRAINABLE_LOSSES or short in taken else short


def _method(loss: str, base: Mapping[str, Any], k: int) -> dict[str, Any]:
    """Return the overrides and the grid of a loss.

    Raises:
        RecipeError: If the loss does not fit the recipe.
    """
    if not is_own(loss) and loss not in TRAINABLE_LOSSES:
        make_recipe({**base, "loss": loss})  # says which there are
    kind = find_loss(loss)
    overrides = [f"loss={loss}"]
    options = signature_of(kind).parameters
    if "k" in options:
        overrides.append(f"loss.k={k}")
    elif loss == "ranked_topk":  # half of the weight on the first place, half on the whole list
        chances = [0.5, *[0.0] * (k - 2), 0.5] if k > 1 else [1.0]
        overrides.append(f"loss.distribution={chances}")
    grid = _grid(loss, getattr(kind, "grid", {}))
    make_recipe(base, overrides)
    for key, values in grid.items():
        for value in values:
            make_recipe(base, [*overrides, f"{key}={value}"])
    return {"overrides": overrides, **({"grid": grid} if grid else {})}


def _grid(loss: str, declared: Any) -> dict[str, list[Any]]:
    """Return the keys and values to search that a loss declares.

    Raises:
        ValueError: If a class of somebody's own declares them in another form, or values that YAML lacks.
    """
    options = declared.items() if isinstance(declared, Mapping) else [(None, declared)]
    for option, values in options:
        is_list = isinstance(values, list | tuple) and len(values) > 0
        if option is None or not is_list or not all(type(value) in _PLAIN for value in values):
            raise ValueError(
                f"the grid of {loss} must hold a list of numbers or words for each option, such as "
                f"{{'margin': [0.5, 1.0]}}, got {declared!r}"
            )
    return {f"loss.{option}": list(values) for option, values in options}
