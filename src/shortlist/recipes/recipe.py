"""A recipe: everything that defines a run, in one typed object and one YAML file."""

import difflib
from collections.abc import Mapping, Sequence
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
from shortlist.recipes.loss_sections import LOSS_SECTIONS, OwnLossSection, own_loss_model
from shortlist.recipes.loss_use import NOT_FROM_A_RECIPE, is_own, is_unseen, needs_of
from shortlist.recipes.options import (
    check_options,
    data_options,
    fault_lines,
    predictor_options,
    unknown_words,
)
from shortlist.recipes.score_rules import check_labels, check_score_rules

LOGGERS = ("csv", "tensorboard", "mlflow", "wandb")
_FILE_NAME = r"^[\w.\-]+$"
_MADE_FROM_FILES = frozenset({"parts", "class_table", "where", "progress"})
_NAMED = {"data", "model", "head", "loss", "optimizer", "schedule", "sampler", "second_stage"}


class RecipeError(ValueError):
    """Raised if a recipe cannot be run; the message names each key, the fault and the nearest valid name."""


class Recipe(s.Section):
    """The recipe of a run, from data to metrics; see ``docs/guides/recipes.md``."""

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
    epochs: int = Field(10, ge=0, strict=True)  # 0: the network of model.weights_file as it is
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

    @property
    def trains(self) -> bool:
        """Whether there is a first stage to train."""
        return self.epochs > 0 or self.steps is not None

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
        if not isinstance(name, str) or not (is_own(name) or name in LOSS_SECTIONS):
            raise ValueError(unknown_words("loss", name, LOSS_SECTIONS))
        for need, why in {} if is_unseen(name) else NOT_FROM_A_RECIPE.items():
            if need in needs_of(name):
                raise ValueError(
                    f"loss.name must not be {name}, which is for code and not for recipes: {why}"
                )
        kind: Any = OwnLossSection if is_own(name) else LOSS_SECTIONS[name]
        try:
            section = kind.model_validate({"name": name, **content})
            if is_own(name) and not is_unseen(name):
                kind = own_loss_model(name)
                section.checked()
        except ValidationError as error:
            raise ValueError("\n".join(fault_lines(error, kind, "loss"))) from error
        return section

    @model_validator(mode="after")
    def _check_options(self) -> "Recipe":
        if is_own(self.data.name):
            data_options(self.data)
        elif self.data.name not in DATASETS:
            raise ValueError(unknown_words("data", self.data.name, DATASETS))
        else:
            check_options("data", self.data, DATASETS[self.data.name].build, _MADE_FROM_FILES, assemble)
        if self.model.name in MODELS:
            provided = frozenset({"num_classes", "in_channels"})
            check_options("model", self.model, MODELS[self.model.name], provided)
        elif ":" not in self.model.name:
            raise ValueError(
                unknown_words("model", self.model.name, [*MODELS, "timm:NAME", "torchvision:NAME"])
            )
        for key, predictor in self.named_predictors.items():
            if is_own(predictor.name):
                predictor_options(predictor, key)
                continue
            if predictor.name not in PREDICTORS:
                raise ValueError(unknown_words(f"predictors.{key}", predictor.name, PREDICTORS))
            kind = PREDICTORS[predictor.name]
            given = kind.from_code | {"taxonomy"}
            check_options(f"predictors.{key}", predictor, kind, given, parts=kind.parts)
        return self

    @model_validator(mode="after")
    def _check_weights_and_loggers(self) -> "Recipe":
        if not self.trains and self.model.weights_file is None:
            raise ValueError("epochs must be >= 1 without model.weights_file, got 0")
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
            if name not in LOGGERS and ":" not in name:
                raise ValueError(
                    f"loggers must be {', '.join(LOGGERS)} or package.module:Class, got {name!r}"
                )
        return self

    @model_validator(mode="after")
    def _check_scores(self) -> "Recipe":
        check_labels(self)
        names = [self.loss.name, *(section.name for section in self.named_predictors.values())]
        if any(map(is_unseen, names)):  # checked by check_code, before anything is done
            return self
        try:
            check_score_rules(self)
        except TypeError as error:  # a loss whose options do not go together
            raise ValueError(f"loss: {error}") from error
        return self


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
        raise RecipeError("\n".join(fault_lines(error, Recipe, ""))) from error


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
