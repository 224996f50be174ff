"""Build the parts of a recipe: data, model, loss, optimizer and schedule."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from shortlist._progress import Progress
from shortlist.class_table import ClassTable
from shortlist.datasets import (
    ChangedSplit,
    ImageFiles,
    LabelPairs,
    Split,
    Splits,
    alphabetical_blocks,
    dataset_info,
    facts_of,
    first_rows,
    have_same_rows,
    rank_within_class,
    redraw_within_groups,
    unchanged,
)
from shortlist.models import (
    HeadName,
    NetworkSpec,
    ScaledHead,
    build_network,
    classifier_name,
    freeze_features,
    load_weights,
    replace_classifier,
)
from shortlist.predictors import SetPredictor, make, predictor_kind
from shortlist.priors import class_balanced_weights
from shortlist.recipes.loss_sections import loss_options
from shortlist.recipes.loss_use import make_loss, needed_head
from shortlist.recipes.options import data_options, predictor_options
from shortlist.recipes.recipe import Recipe
from shortlist.recipes.transforms import TRANSFORMS
from shortlist.scores import PriorRecord, ScoreMap, UnknownPriorError
from shortlist.taxonomy import Taxonomy


def build_data(recipe: Recipe, *, progress: Progress | None = None) -> Splits:
    """Build the data set, with the recipe's changes to its training split.

    Raises:
        ValueError: If a split has no rows, or there is only one class.
    """
    info, section = dataset_info(recipe.data.name), recipe.data
    options = data_options(section)
    if info.tells_progress:
        options["progress"] = progress
    for key in ("train_transform", "eval_transform"):
        transform = getattr(section, key)
        if transform is None:
            continue
        if not info.reads_files:
            raise ValueError(
                f"data.{key} must be left out for {section.name}, which is not read from image files"
            )
        options[key] = TRANSFORMS[transform.name](**transform.options)
    if section.prepared and not info.reads_files:
        raise ValueError(f"data.prepared must be no for {section.name}, which is not read from image files")
    data = info.build(**options)
    _check_kind(recipe, data)
    if section.prepared:
        for split in (data.train, data.val, data.test, *data.further.values()):
            files, _ = unchanged(split)
            if isinstance(files, ImageFiles):
                files.keep_prepared()
    if section.val_is_test:
        data = replace(data, val=data.test, further={part: data.further["test"] for part in data.further})
    _check_rows(data)
    if recipe.calibration.rows == "separate":
        data = _with_calibration_rows(recipe, data)
    return _with_changed_rows(recipe, data)


def _check_kind(recipe: Recipe, data: Any) -> None:
    """Require splits, with as many labels as the recipe says: somebody's own function may return anything."""
    if not isinstance(data, Splits):
        got = type(data).__name__
        raise ValueError(f"data.name: {recipe.data.name} must return shortlist.datasets.Splits, got {got}")
    wanted = "several" if isinstance(data.test, LabelPairs) else "one"
    if wanted != recipe.labels:
        raise ValueError(f"labels must be {wanted} for the data {recipe.data.name}, got {recipe.labels}")


def _check_rows(data: Splits) -> None:
    """Require rows in every part, and something to tell apart."""
    if len(data.class_table) < 2:
        names = ", ".join(data.class_table.names)
        raise ValueError(f"data must have at least 2 classes, got {len(data.class_table)} ({names})")
    for part, words in (("train", "training"), ("val", "validation"), ("test", "test")):
        if not len(getattr(data, part)):
            raise ValueError(
                f"data must have {words} rows, got none: keep some rows apart (data.val_fraction, or "
                "files of their own); classes of one or two rows have none to spare"
            )


def _with_changed_rows(recipe: Recipe, data: Splits) -> Splits:
    """Return the data with the training rows that the recipe keeps, and their labels with its noise."""
    section = recipe.data
    if not section.label_noise and section.max_per_class is None:
        return data
    generator = torch.Generator().manual_seed(recipe.seed)
    rows, targets = torch.arange(len(data.train)), data.train.targets
    if section.max_per_class is not None:
        rows = rows[rank_within_class(targets, generator=generator) < section.max_per_class]
        targets = targets[rows]
    if section.label_noise:
        groups = (
            data.class_table.parent_index(section.noise_level)[0]
            if section.noise_blocks is None
            else alphabetical_blocks(data.class_table.names, section.noise_blocks)
        )
        targets = redraw_within_groups(targets, groups, probability=section.label_noise, generator=generator)
    counts = targets.bincount(minlength=len(data.class_table))
    train = ChangedSplit(data.train, rows, targets)
    return replace(data, train=train, class_table=data.class_table.with_counts(counts))


def _with_calibration_rows(recipe: Recipe, data: Splits) -> Splits:
    """Keep apart some validation rows that only calibrate.

    They are drawn without looking at their classes: rows drawn evenly from each class would not be like new
    rows. Photos of one object stay together.
    """
    if have_same_rows(data.val, data.test):
        raise ValueError(
            "calibration.rows must not be separate: the validation rows are the test rows, so that there are "
            "no others to calibrate on"
        )
    facts = facts_of(data.val)
    objects = None if facts is None else facts.objects
    of_row = torch.arange(len(data.val)) if objects is None else first_rows(objects)[1]
    rows = int(of_row.max()) + 1
    kept = round(recipe.calibration.fraction * rows)
    if not 0 < kept < rows:
        raise ValueError(
            f"calibration.fraction must leave rows on both sides of {rows} validation rows, got "
            f"{recipe.calibration.fraction:g}"
        )
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(recipe.seed))
    apart = torch.isin(of_row, order[:kept])
    val, calibration = _some_rows(data.val, ~apart), _some_rows(data.val, apart)
    further = dict(data.further)
    if "val" in further:
        photos = further["val"]
        apart = torch.isin(_observations(photos), _observations(calibration))
        further |= {"val": _some_rows(photos, ~apart), "calibration": _some_rows(photos, apart)}
    return replace(data, val=val, calibration=calibration, further=further)


def _some_rows(split: Split, kept: Tensor) -> Split:
    rows = kept.nonzero().squeeze(1)
    return ChangedSplit(split, rows, split.targets[rows])


def _observations(split: Split) -> Tensor:
    """Return the observations of a split with further photos, which has them."""
    facts = facts_of(split)
    assert facts is not None and facts.observation is not None
    return facts.observation


def build_loss(recipe: Recipe, data: Splits) -> nn.Module:
    """Build the loss, with the class counts, weights and tables that it needs."""
    counts = data.class_table.class_counts
    beta = getattr(recipe.loss, "class_balanced", None)
    return make_loss(
        recipe.loss.name,
        loss_options(recipe.loss),
        class_counts=counts,
        weight=None if beta is None else class_balanced_weights(counts, beta=beta, zero_counts="floor"),
        train_targets=data.train.targets,
        class_table=data.class_table,
        seed=recipe.seed,
    )


def build_model(
    recipe: Recipe,
    num_classes: int,
    sample: Tensor,
    *,
    pretrained: bool = True,
    allow_code: bool = False,
) -> nn.Module:
    """Build the network for inputs like the sample, with a head that the loss can use.

    ``pretrained=False`` reads no weights, whatever the recipe says: for a network that gets its own next.
    ``allow_code`` is for recipes that passed :func:`shortlist.recipes.code.check_code`: without it, code that
    the recipe names is refused.
    """
    spec = network_spec(recipe, num_classes, sample.shape)
    model = build_network(spec, pretrained=pretrained, allow_code=allow_code)
    if pretrained and recipe.model.weights_file is not None:
        lacking = load_weights(model, recipe.model.weights_file, classifier=recipe.head.classifier)
        if lacking and not recipe.trains and recipe.second_stage is None:
            file, names = recipe.model.weights_file, ", ".join(lacking)
            raise ValueError(f"epochs must be >= 1: {file} has no fitting {names}, got 0")
    return model


def network_spec(
    recipe: Recipe, num_classes: int, sample_shape: Sequence[int], *, scaled_head: bool = False
) -> NetworkSpec:
    """Return the specification of the recipe's network for inputs of this shape, with a head for the loss.

    ``scaled_head`` is for the network that a second stage of learned weight scaling leaves.
    """
    settings = recipe.head
    return NetworkSpec(
        name=recipe.model.name,
        options=recipe.model.options,
        small_stem=recipe.model.small_stem,
        head=cast(HeadName, _head_name(recipe)),
        bias=settings.bias,
        scale=settings.scale,
        learn_scale=settings.learn_scale,
        classifier=settings.classifier,
        scaled_head=scaled_head,
        num_classes=num_classes,
        input_shape=tuple(sample_shape),
    )


def _head_name(recipe: Recipe) -> str:
    needed, chosen = needed_head(recipe.loss.name), recipe.head.name
    if chosen == "auto":
        return needed or "linear"
    if needed is not None and chosen != needed:
        raise ValueError(f"head.name must be {needed} for the loss {recipe.loss.name}, got {chosen!r}")
    if needed is None and chosen in ("two_head", "label_set"):
        raise ValueError(f"head.name must not be {chosen} for the loss {recipe.loss.name}: it takes one")
    return chosen


def prepare_second_stage(model: nn.Module, recipe: Recipe) -> None:
    """Freeze the features, and reset the classifier or give it one scale per class."""
    stage, name = recipe.second_stage, recipe.head.classifier
    assert stage is not None
    if stage.name == "retrain_classifier":
        freeze_features(model, name=name, reset=True)
        return
    classifier = classifier_name(model, name)
    head: Any = model.get_submodule(classifier)
    replace_classifier(model, ScaledHead(head), name=classifier)
    freeze_features(model, name=classifier)


def build_optimizer(
    recipe: Recipe, model: nn.Module, loss: nn.Module, *, lr: float | None = None
) -> torch.optim.Optimizer:
    """Build the optimizer of all parameters that learn, with a group for a loss's label estimates."""
    settings = recipe.optimizer
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
    """Return the factor of the learning rate; it depends only on the step, so resumed runs agree."""
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


def build_predictor(
    recipe: Recipe, key: str, class_table: ClassTable, score_map: ScoreMap, **chosen: Any
) -> SetPredictor:
    """Build one of the recipe's predictors, not yet calibrated, for the scores of a score map.

    ``macro`` ones get the training priors, and convert from the priors that the scores contain. Those of a
    taxonomy get that of the class table, or of the chosen ``levels``. A rule about a level of the class table
    gets the classes' parents at this level. ``chosen`` are options that the recipe leaves open.
    """
    section = recipe.named_predictors[key]
    options = predictor_options(section) | chosen
    rule = options.get("rule")
    if isinstance(rule, dict) and rule.get("level") is not None:
        options["rule"] = rule | {"groups": class_table.parent_index(rule["level"])[0].tolist()}
    if section.macro:
        training = PriorRecord.training(class_table.class_counts)
        if score_map.now is None:
            raise UnknownPriorError(
                f"predictors.{key}.macro must be false: the class priors that the scores contain are unknown"
            )
        options["priors"] = training.priors.float()
        if not score_map.now.same_as(training):
            options["scores_priors"] = score_map.now.priors.float()
    if predictor_kind(section.name).takes_taxonomy:
        options["taxonomy"] = Taxonomy.from_class_table(class_table, levels=section.levels)
    return make(section.name, options)
