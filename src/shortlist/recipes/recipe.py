"""A recipe: everything that defines a run, in one typed object and one YAML file."""

import difflib
import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from shortlist._store.files import write_text
from shortlist._store.yaml import parse_yaml, read_mapping
from shortlist.datasets import DATASETS, assemble
from shortlist.models import MODELS
from shortlist.predictors import PREDICTORS
from shortlist.recipes import sections as s
from shortlist.recipes.annealing import check_annealing
from shortlist.recipes.loss_use import NOT_FROM_A_RECIPE, needs_of
from shortlist.recipes.score_rules import check_labels, check_score_rules

_FILE_NAME = r"^[\w.\-]+$"
_NAMED = {"data", "model", "head", "loss", "optimizer", "schedule", "sampler", "second_stage"}


class RecipeError(ValueError):
    """Raised if a recipe cannot be run; the message names each key, the fault and the nearest valid name."""


class Recipe(s.Section):
    """The recipe of a run, from data to metrics; see ``docs/recipes.md``."""

    name: str = Field("run", pattern=_FILE_NAME, description="of the run folder")
    about: str = ""
    labels: Literal["one", "several"] = Field("one", description="of each photo")
    data: s.DataSection = s.DataSection()
    model: s.ModelSection = s.ModelSection()
    head: s.HeadSection = s.HeadSection()
    loss: Any = None
    optimizer: s.OptimizerSection = s.OptimizerSection()
    schedule: s.ScheduleSection = s.ScheduleSection()
    sampler: s.SamplerSection = s.SamplerSection()
    reweighting: s.ReweightingSection | None = None
    anneal: dict[str, s.AnnealSection] = Field(default_factory=dict)
    second_stage: s.SecondStageSection | None = None
    selection: s.SelectionSection = s.SelectionSection()
    adjust: s.AdjustSection = s.AdjustSection()
    calibration: s.CalibrationSection = s.CalibrationSection()
    predictors: dict[Annotated[str, Field(pattern=_FILE_NAME)], s.PredictorSection] | None = Field(
        None, description="left out: those of recipes.default_sets, once the number of classes is known"
    )
    novelty: s.NoveltySection | None = None
    evaluation: s.EvaluationSection = s.EvaluationSection()
    epochs: s.Count = 10
    steps: s.Count | None = None  # instead of epochs; rounded up to whole epochs
    validate_every: s.Count = 1  # epochs; the last one always is
    batch_size: s.Count = 128
    seed: int = Field(0, ge=0, lt=2**31, strict=True)  # the loaders make 64-bit seeds from it
    precision: Literal["32", "16-mixed", "bf16-mixed", "64"] = "32"
    accelerator: str = "auto"
    devices: s.Count = 1  # of each machine
    num_nodes: s.Count = 1  # machines
    workers: int = Field(0, ge=0, strict=True)
    loggers: list[str] = Field(default_factory=lambda: ["csv"])

    @staticmethod
    def read(path: str | Path, overrides: Sequence[str] = (), *, variant: str | None = None) -> "Recipe":
        """Read a recipe from YAML; see :func:`load_recipe`."""
        return load_recipe(path, overrides, variant=variant)

    @staticmethod
    def make(content: Mapping[str, Any], overrides: Sequence[str] = ()) -> "Recipe":
        """Check a recipe given as plain values; see :func:`make_recipe`."""
        return make_recipe(content, overrides)

    @property
    def named_predictors(self) -> dict[str, s.PredictorSection]:
        """The predictors that the recipe names; a run names them all, also those of the default."""
        return self.predictors or {}

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, content: Any) -> Any:
        """Read ``loss: focal`` as ``loss: {name: focal}``."""
        return {
            key: {"name": value} if key in _NAMED and isinstance(value, str) else value
            for key, value in dict(content).items()
        }

    @field_validator("precision", mode="before")
    @classmethod
    def _number_of_bits(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value  # 32 is a number in YAML

    @field_validator("loss", mode="before")
    @classmethod
    def _check_loss(cls, value: Any) -> BaseModel:
        content = {} if value is None else value.model_dump() if isinstance(value, BaseModel) else value
        if not isinstance(content, Mapping):
            raise ValueError(f"must be a name, or a mapping with a name and options, got {value!r}")
        name = content.get("name", "cross_entropy")
        if not isinstance(name, str) or name not in s.LOSS_SECTIONS:
            raise ValueError(_unknown("loss", name, s.LOSS_SECTIONS))
        for need, why in NOT_FROM_A_RECIPE.items():
            if need in needs_of(name):
                raise ValueError(
                    f"loss.name must not be {name}, which is for code and not for recipes: {why}"
                )
        section = s.LOSS_SECTIONS[name]
        try:
            return section.model_validate({"name": name, **content})
        except ValidationError as error:
            raise ValueError("\n".join(_lines(error, section, "loss"))) from error

    @model_validator(mode="after")
    def _check_options(self) -> "Recipe":
        if self.data.name not in DATASETS:
            raise ValueError(_unknown("data", self.data.name, DATASETS))
        made_from_files = frozenset({"parts", "class_table", "where", "progress"})
        _check_options("data", self.data, DATASETS[self.data.name].build, made_from_files, assemble)
        if self.model.name in MODELS:
            provided = frozenset({"num_classes", "in_channels"})
            _check_options("model", self.model, MODELS[self.model.name], provided)
        elif ":" not in self.model.name:
            raise ValueError(_unknown("model", self.model.name, [*MODELS, "timm:NAME", "torchvision:NAME"]))
        for key, predictor in self.named_predictors.items():
            if predictor.name not in PREDICTORS:
                raise ValueError(_unknown(f"predictors.{key}", predictor.name, PREDICTORS))
            kind = PREDICTORS[predictor.name]
            given = kind.from_code | {"taxonomy"}
            _check_options(f"predictors.{key}", predictor, kind, given, parts=kind.parts)
        return self

    @model_validator(mode="after")
    def _check_weights_and_loggers(self) -> "Recipe":
        if self.reweighting is not None:
            weighs = "class_balanced" in type(self.loss).model_fields
            if not weighs or self.loss.class_balanced is not None:
                why = "has class_balanced weights from the start" if weighs else "takes no class weights"
                raise ValueError(f"reweighting must be left out: the loss {self.loss.name} {why}")
        check_annealing(self)
        optimizer, clip = self.optimizer.name, self.optimizer.clip_norm
        if self.loss.name == "role" and (optimizer != "sgd" or clip is not None):
            raise ValueError(
                "optimizer must be sgd without clip_norm for the loss role: its table has sparse gradients, "
                f"got {optimizer} with clip_norm {clip}"
            )
        for name in self.loggers:
            if name not in ("csv", "tensorboard") and ":" not in name:
                raise ValueError(f"loggers must be csv, tensorboard or package.module:Class, got {name!r}")
        return self

    @model_validator(mode="after")
    def _check_scores(self) -> "Recipe":
        check_labels(self)
        try:
            check_score_rules(self)
        except TypeError as error:  # a loss whose options do not go together
            raise ValueError(f"loss: {error}") from error
        return self


@cache  # making a model takes longer than checking a whole recipe
def _options_model(path: str, function: Any, provided: frozenset[str], passed_to: Any) -> type[BaseModel]:
    return s.options_model(path, function, provided=provided, passed_to=passed_to)


def _check_options(
    path: str,
    section: s.NamedSection,
    function: Any,
    provided: frozenset[str],
    passed_to: Any = None,
    parts: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Check a section's options, and give them the types that are asked for (1e-3 is text in YAML).

    ``parts`` are options that may have a name and options of their own, and what these names stand for.
    """
    options, checked = dict(section.options), {}
    for key, registry in (parts or {}).items():
        if isinstance(options.get(key), Mapping):
            checked[key] = _checked_part(f"{path}.{key}", options.pop(key), registry)
    checked |= _checked(path, options, _options_model(path, function, provided, passed_to))
    for option, value in checked.items():
        assert section.__pydantic_extra__ is not None  # it has the options
        section.__pydantic_extra__[option] = value


def _checked(path: str, options: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Return options of the types that a model asks for."""
    try:
        checked = model.model_validate(options)
    except ValidationError as error:
        raise ValueError("; ".join(_lines(error, model, path))) from error
    return {option: getattr(checked, option) for option in options}


def _checked_part(path: str, content: Mapping[str, Any], registry: Mapping[str, Any]) -> dict[str, Any]:
    """Return name and options of a part of a section, such as the score of a conformal predictor."""
    options = dict(content)
    name = str(options.pop("name", None))
    if name not in registry:
        raise ValueError(_unknown(path, name, registry))
    options = _checked(path, options, _options_model(path, registry[name], frozenset(), None))
    try:
        registry[name](**options)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return {"name": name, **options}


def _unknown(path: str, name: str, choices: Any) -> str:
    near = difflib.get_close_matches(str(name), list(choices), n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{path}.name must be one of {', '.join(choices)}, got {name!r}{hint}"


def make_recipe(content: Mapping[str, Any], overrides: Sequence[str] = ()) -> Recipe:
    """Check a recipe given as plain values.

    Args:
        content: Plain values, as read from YAML.
        overrides: Changes such as ``"loss.k=3"``; values are YAML. ``"loss=ldam"`` or ``"loss.name=ldam"``
            chooses another loss (data set, model, ...) and drops the options of the one before.

    Raises:
        RecipeError: With one line for each fault.

    Example:
        >>> make_recipe({"loss": {"name": "noised_topk"}}, ["loss.k=3", "epochs=2"]).loss.k
        3
    """
    changed = dict(content)
    for override in overrides:
        changed = _override(changed, override)
    try:
        return Recipe.model_validate(changed)
    except ValidationError as error:
        raise RecipeError("\n".join(_lines(error, Recipe, ""))) from error


def read_setting(setting: str, *, example: str = "loss.k=3") -> tuple[str, Any]:
    """Split a setting of ``--set`` into key and value; the value is YAML.

    Example:
        >>> read_setting("loss.distribution=[0.5, 0.5]")
        ('loss.distribution', [0.5, 0.5])
    """
    key, equals, text = setting.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise RecipeError(f"--set wants KEY=VALUE, as in {example}, got {setting!r}")
    try:
        return key, parse_yaml(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"--set {key}: {text!r} is not a YAML value") from error
    except ValueError as error:
        raise RecipeError(f"--set {key}, {error}") from error


def _override(content: dict[str, Any], override: str) -> dict[str, Any]:
    key, value = read_setting(override)
    path = key.split(".")
    named = path[-1] in _NAMED and isinstance(value, str)
    if named:
        path, value = [*path, "name"], value
    result = dict(content)
    place = result
    for part in path[:-1]:
        inner = place.get(part)
        if isinstance(inner, str):
            inner = {"name": inner}
        place[part] = dict(inner) if isinstance(inner, Mapping) else {}
        place = place[part]
    if path[-1] == "name" and len(path) > 1 and place.get("name") != value:
        place.clear()  # the options of the old one mean nothing to the new one
    place[path[-1]] = value
    return result


def _lines(error: ValidationError, model: type[BaseModel], prefix: str) -> list[str]:
    """Return one line for each fault, with the whole key and, for an unknown one, the nearest valid name."""
    lines = []
    for fault in error.errors():
        location = [str(part) for part in fault["loc"]]
        key = ".".join([prefix, *location] if prefix else location)
        if fault["type"] == "extra_forbidden":
            keys = _keys(model, location[:-1])
            near = difflib.get_close_matches(location[-1], keys, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            hint = hint or (f"; known are {', '.join(keys)}" if keys else "")
            lines.append(f"{key}: unknown key{hint}")
        elif fault["type"] == "missing":
            lines.append(f"{key}: required")
        elif not location or fault["type"] == "value_error":
            message = fault["msg"].removeprefix("Value error, ")
            lines.append(f"{key}: {message}" if location and not message.startswith(key) else message)
        else:
            lines.append(f"{key}: {fault['msg']}, got {fault['input']!r}")
    return lines


def _keys(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """Return the keys that are valid at a place."""
    for part in path:
        field = model.model_fields.get(part)
        inner = None if field is None else _section_of(field.annotation)
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _section_of(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next((c for c in candidates if inspect.isclass(c) and issubclass(c, BaseModel)), None)


def load_recipe(path: str | Path, overrides: Sequence[str] = (), *, variant: str | None = None) -> Recipe:
    """Read a recipe from YAML; see :func:`make_recipe`.

    Args:
        path: Path of the recipe.
        overrides: Changes such as ``"loss.k=3"``.
        variant: Name of a variant, whose overrides come first; see :func:`load_variant`.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"{path} does not exist: it should be a recipe, a YAML file")
    content = _read_mapping(path)
    first = [] if variant is None else load_variant(path, variant)
    try:
        return make_recipe(content, [*first, *overrides])
    except RecipeError as error:
        raise RecipeError(f"{path}: {error}") from error


def load_variant(path: str | Path, variant: str) -> list[str]:
    """Read the overrides of a variant from ``variants.yaml`` beside a recipe, under the recipe's file name.

    Raises:
        RecipeError: There are no variants of the recipe, or none of this name: the message lists those there
            are.
    """
    file, stem = Path(path).with_name("variants.yaml"), Path(path).stem
    if not file.is_file():
        raise RecipeError(f"--variant needs {file}, which is missing")
    variants = _read_mapping(file).get(stem)
    if not isinstance(variants, Mapping):
        raise RecipeError(f"{file} has no variants of {stem}")
    if variant not in variants:
        near = difflib.get_close_matches(variant, list(variants), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise RecipeError(f"--variant of {stem} must be one of {', '.join(variants)}, got {variant!r}{hint}")
    overrides = variants[variant]
    if not isinstance(overrides, list) or not all(isinstance(text, str) for text in overrides):
        raise RecipeError(f"{file}: {stem}.{variant} must be a list of KEY=VALUE, got {overrides!r}")
    return overrides


def _read_mapping(path: str | Path) -> Mapping[str, Any]:
    try:
        return read_mapping(path)
    except ValueError as error:
        raise RecipeError(str(error)) from error


def save_recipe(recipe: Recipe, path: str | Path) -> None:
    """Write the recipe with every default filled in, so that a run can start from this file alone."""
    write_text(path, yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False, allow_unicode=True))
