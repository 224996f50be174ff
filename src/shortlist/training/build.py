"""From a recipe to its parts: data, model, loss, optimiser, schedule."""

import importlib
import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from shortlist.classifiers import replace_classifier
from shortlist.datasets import DATASETS, ChangedSplit, Splits
from shortlist.datasets._assembly import assemble
from shortlist.datasets.noise import redraw_within_groups
from shortlist.datasets.partition import rank_within_class
from shortlist.datasets.transforms import EvalTransform
from shortlist.heads import CosineHead, LinearHead, TwoHead
from shortlist.losses import LabelEstimates
from shortlist.models import MODELS
from shortlist.predictors import SetPredictor, make
from shortlist.priors import class_balanced_weights, class_priors
from shortlist.training.recipe import Recipe
from shortlist.training.sections import TRAINABLE_LOSSES
from shortlist.training.transforms import TRANSFORMS
from shortlist.training.weights import load_weights

__all__ = [
    "build_data",
    "build_eval_transform",
    "build_loss",
    "build_model",
    "build_optimiser",
    "build_predictor",
    "learning_rate_factor",
]


def build_data(recipe: Recipe, *, progress: Callable | None = None) -> Splits:
    """The data set, read or made, with the recipe's changes to its training part."""
    make_data, section = DATASETS[recipe.data.name], recipe.data
    options = dict(section.options)
    wants = inspect.signature(make_data).parameters
    if "progress" in wants:
        options["progress"] = progress
    for key in ("train_transform", "eval_transform"):
        transform = getattr(section, key)
        if transform is None:
            continue
        if not _is_of_files(make_data):
            raise ValueError(
                f"data.{key} must be left out for {section.name}, which is not read from image files"
            )
        options[key] = TRANSFORMS[transform.name](**transform.options)
    data = make_data(**options)
    if section.val_is_test:
        data = replace(data, val=data.test)
    if not section.label_noise and section.max_per_class is None:
        return data
    generator = torch.Generator().manual_seed(recipe.seed)
    rows, targets = torch.arange(len(data.train)), data.train.targets
    if section.max_per_class is not None:
        rows = rows[rank_within_class(targets, generator=generator) < section.max_per_class]
        targets = targets[rows]
    if section.label_noise:
        groups = data.class_table.parent_index(section.noise_level)[0]
        targets = redraw_within_groups(targets, groups, probability=section.label_noise, generator=generator)
    counts = targets.bincount(minlength=len(data.class_table))
    train = ChangedSplit(data.train, rows, targets)
    return replace(data, train=train, class_table=data.class_table.with_counts(counts))


def _is_of_files(make_data: Callable[..., Splits]) -> bool:
    """Whether a data set is made of image files, and takes their options."""
    wants = inspect.signature(make_data).parameters.values()
    return any(p.name == "eval_transform" or p.kind is p.VAR_KEYWORD for p in wants)


def build_eval_transform(recipe: Recipe) -> Callable[[Any], Tensor] | None:
    """What validation and test images go through where they are files, without these; else ``None``."""
    section = recipe.data
    if not _is_of_files(DATASETS[section.name]):
        return None
    if section.eval_transform is not None:
        return TRANSFORMS[section.eval_transform.name](**section.eval_transform.options)
    size = section.options.get("image_size", inspect.signature(assemble).parameters["image_size"].default)
    return EvalTransform(size)


def build_loss(recipe: Recipe, data: Splits) -> nn.Module:
    """The loss, with the class counts, weights and tables that it needs."""
    options = recipe.loss.model_dump(exclude={"name", "class_balanced"})
    make_loss = TRAINABLE_LOSSES[recipe.loss.name]
    wants = inspect.signature(make_loss).parameters
    counts = data.class_table.class_counts
    if "class_counts" in wants:
        options["class_counts"] = counts
    beta = getattr(recipe.loss, "class_balanced", None)
    if beta is not None:
        options["weight"] = class_balanced_weights(counts, beta=beta, zero_counts="floor")
    if "estimates" in wants:
        generator = torch.Generator().manual_seed(recipe.seed)
        targets = data.train.targets
        options["estimates"] = LabelEstimates(targets, num_classes=len(counts), generator=generator)
    return make_loss(**options)


def build_model(recipe: Recipe, num_classes: int, sample: Tensor, *, pretrained: bool = True) -> nn.Module:
    """The network for inputs like the sample, with a head that the loss can use.

    ``pretrained=False`` reads no weights, whatever the recipe says: for a network that gets its own next.
    """
    try:
        model = _make_model(recipe, num_classes, sample, pretrained)
    except (TypeError, RuntimeError, LookupError, AssertionError) as error:  # each library has its own
        made = f"{recipe.model.name} with the options {recipe.model.options or 'none'}"
        raise ValueError(f"model: {made} cannot be made: {error}") from error
    if recipe.model.small_stem:
        _shrink_stem(model, recipe.model.name)
    wanted, settings = _head_name(recipe), recipe.head

    def make_head(length: int) -> nn.Module:
        if wanted == "two_head":
            return TwoHead(length, num_classes, bias=settings.bias)
        if wanted == "cosine":
            scale, learned = settings.scale, settings.learn_scale
            return CosineHead(length, num_classes, scale=scale, learn_scale=learned)
        return LinearHead(length, num_classes, bias=settings.bias)

    model = replace_classifier(model, make_head, name=settings.classifier)
    if pretrained and recipe.model.weights_file is not None:
        load_weights(model, recipe.model.weights_file, classifier=settings.classifier)
    # images one after the other with their channels innermost: convolutions on the CPU are twice as fast
    return model.to(memory_format=torch.channels_last) if sample.ndim == 3 else model  # type: ignore[call-overload]


def _head_name(recipe: Recipe) -> str:
    needs = getattr(TRAINABLE_LOSSES[recipe.loss.name], "needs", frozenset())
    needed = "two_head" if "two_heads" in needs else "cosine" if "cosine_scores" in needs else None
    chosen = recipe.head.name
    if chosen == "auto":
        return needed or "linear"
    if needed is not None and chosen != needed:
        raise ValueError(f"head.name must be {needed} for the loss {recipe.loss.name}, got {chosen!r}")
    if needed is None and chosen == "two_head":
        raise ValueError(f"head.name must not be two_head for the loss {recipe.loss.name}: it takes one")
    return chosen


def _make_model(recipe: Recipe, num_classes: int, sample: Tensor, pretrained: bool) -> nn.Module:
    name, options = recipe.model.name, dict(recipe.model.options)
    if not pretrained:
        options = {key: value for key, value in options.items() if key not in ("pretrained", "weights")}
    if name in MODELS:
        make_model = MODELS[name]
        wants = inspect.signature(make_model).parameters
        if "in_channels" in wants:
            options.setdefault("in_channels", sample.shape[0])
        if "image_size" in wants and sample.ndim == 3:
            options.setdefault("image_size", tuple(sample.shape[1:]))
        return make_model(num_classes, **options)
    library, _, model = name.partition(":")
    if library == "timm":
        return _optional("timm", "vision").create_model(model, num_classes=num_classes, **options)
    if library == "torchvision":
        models = _optional("torchvision.models", "vision")
        if options.pop("pretrained", False):
            options["weights"] = "DEFAULT"
        return _with_linear_classifier(models.get_model(model, **options))  # which is replaced
    found = getattr(_optional(library, None), model, None)
    if not isinstance(found, Callable):
        raise ValueError(f"model.name must be package.module:function, got {name!r}")
    return found(num_classes, **options)


def _with_linear_classifier(model: nn.Module) -> nn.Module:
    """SqueezeNet with its maps averaged before the classifier, which is then a linear layer."""
    classifier = getattr(model, "classifier", None)
    parts = list(classifier) if isinstance(classifier, nn.Sequential) else []
    if len(parts) == 4 and isinstance(last := parts[1], nn.Conv2d):
        linear = nn.Linear(last.in_channels, last.out_channels)
        model.classifier = nn.Sequential(parts[0], nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear)
    return model


def _shrink_stem(model: nn.Module, name: str) -> None:
    """A first convolution of 3 x 3 that takes every pixel, for images of 32 x 32."""
    first = getattr(model, "conv1", None)
    if not isinstance(first, nn.Conv2d):
        raise ValueError(f"model.small_stem must be false for {name}: it has no convolution called conv1")
    model.conv1 = nn.Conv2d(first.in_channels, first.out_channels, 3, padding=1, bias=first.bias is not None)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")


def _optional(module: str, extra: str | None) -> Any:
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:
        hint = f"; pip install 'shortlist[{extra}]'" if extra else ""
        raise ValueError(f"model.name needs {module}, which cannot be imported ({error}){hint}") from error


def build_optimiser(
    recipe: Recipe, model: nn.Module, loss: nn.Module, *, lr: float | None = None
) -> torch.optim.Optimizer:
    """The optimiser over all parameters that learn, with a group of its own for a loss's label estimates."""
    settings = recipe.optimiser
    rate = settings.lr if lr is None else lr
    plain, undecayed = [], []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (undecayed if name.endswith("log_scale") else plain).append(parameter)
    groups: list[dict[str, Any]] = [{"params": plain}]
    if undecayed:
        groups.append({"params": undecayed, "weight_decay": 0.0})
    estimates = getattr(loss, "estimates", None)
    if estimates is not None:
        groups.append(estimates.parameter_group(lr=rate, factor=settings.estimates_factor))
    if settings.name == "sgd":
        nesterov = settings.nesterov and settings.momentum > 0
        return torch.optim.SGD(
            groups, lr=rate, momentum=settings.momentum, nesterov=nesterov, weight_decay=settings.weight_decay
        )
    kind = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    return kind(groups, lr=rate, weight_decay=settings.weight_decay)


def learning_rate_factor(recipe: Recipe, steps_per_epoch: int, total_steps: int) -> Callable[[int], float]:
    """The factor of the learning rate, a function of the step alone: a resumed run agrees."""
    settings = recipe.schedule
    unit = steps_per_epoch if settings.unit == "epoch" else 1
    warm_up = settings.warm_up * unit
    milestones = [milestone * unit for milestone in settings.milestones]

    def factor(step: int) -> float:
        if step < warm_up:
            return (step + 1) / (warm_up + 1)
        if settings.name == "milestones":
            return settings.factor ** sum(step >= milestone for milestone in milestones)
        if settings.name == "cosine":
            done = (step - warm_up) / max(1, total_steps - warm_up)
            return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return 1.0

    return factor


def build_predictor(recipe: Recipe, key: str, data_counts: Tensor) -> SetPredictor:
    """One of the recipe's predictors, not yet calibrated; ``macro`` ones get the training priors."""
    section = recipe.predictors[key]
    options = dict(section.options)
    if section.macro:
        options["priors"] = class_priors(data_counts, zero_counts="floor")
    return make(section.name, options)
