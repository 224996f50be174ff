"""Build all that a training starts with, and check beforehand whether the steps after it are possible."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shortlist._progress import Progress
from shortlist.datasets import Splits, have_same_rows
from shortlist.models import class_norms, head_scores
from shortlist.predictors import Macro, NoveltyDetector, SetPredictor
from shortlist.recipes.build import build_data, build_loss, build_model, build_predictor, prepare_second_stage
from shortlist.recipes.recipe import Recipe
from shortlist.recipes.score_rules import declared_maps, validation_is_test
from shortlist.scores import PriorRecord, ScoreMap


@dataclass(frozen=True)
class Parts:
    """What a training starts with.

    Args:
        data: Data set.
        sample: One of its inputs.
        network: Network.
        loss: Loss.
        head: Head by which epochs are measured.
        score_map: Map of its scores, by which they are measured as the loss reads them: times its own scale.
    """

    data: Splits
    sample: Tensor
    network: nn.Module
    loss: nn.Module
    head: str
    score_map: ScoreMap

    @staticmethod
    def of(recipe: Recipe, data: Splits, sample: Tensor, network: nn.Module) -> "Parts":
        """Add the loss of a recipe to data and network."""
        loss = build_loss(recipe, data)
        head = "set" if recipe.adjust.predict_from == "choose" else recipe.adjust.predict_from
        maps = declared_maps(recipe, data.class_table.class_counts)
        return Parts(data, sample, network, loss, head, maps[head])

    def measured_scores(self, output: Any) -> Tensor:
        """Return the scores by which epochs are measured, from the output of the network."""
        scores = head_scores(output, self.head)
        return self.score_map.to(scores.device)(scores)


def build_parts(recipe: Recipe, *, pretrained: bool = True, progress: Progress | None = None) -> Parts:
    """Build the parts of a recipe that passed :func:`shortlist.recipes.code.check_code`.

    Args:
        recipe: Recipe, whose code is run if it names some.
        pretrained: Whether the network starts from the weights that the recipe names.
        progress: Function that is called with (what, done, of how many) while the data are built.

    Raises:
        ValueError: If a step after the training would fail.
    """
    data = build_data(recipe, progress=progress)
    torch.manual_seed(recipe.seed)
    sample = data.train[0][0]
    network = build_model(recipe, len(data.class_table), sample, pretrained=pretrained, allow_code=True)
    parts = Parts.of(recipe, data, sample, network)
    _check_what_follows(recipe, network, data)
    return parts


def _check_what_follows(recipe: Recipe, model: nn.Module, data: Splits) -> None:
    """Check before the training whether the steps after it are possible."""
    if have_same_rows(data.val, data.test) and not validation_is_test(recipe):
        raise ValueError(
            "the validation rows are the test rows, on which nothing may be fitted or chosen: keep apart "
            "some training rows for validation (data.val_fraction), or write data.val_is_test: true"
        )
    counts = data.class_table.class_counts
    some = ScoreMap(len(counts), contains=PriorRecord.training(counts))  # what is fitted will be like it
    for key, section in recipe.named_predictors.items():
        try:
            _check_importance(build_predictor(recipe, key, data.class_table, some), data)
        except ValueError as error:
            raise ValueError(f"predictors.{key}: {error}") from error
        k = section.options.get("k", 0)
        if k > len(counts):
            raise ValueError(f"predictors.{key}.k must be <= the number of classes ({len(counts)}), got {k}")
    _check_novelty(recipe, data)
    if recipe.second_stage is not None:
        model = copy.deepcopy(model)
        prepare_second_stage(model, recipe)
    norms = class_norms(model, recipe.head.classifier)
    if recipe.adjust.weight_normalization is not None and None in norms.values():
        raise ValueError(
            "adjust.weight_normalization must be left out: a cosine head does not use norms of weights"
        )


def _check_importance(predictor: SetPredictor, data: Splits) -> None:
    """Refuse an importance of the classes that is 0 for all that have calibration rows."""
    rule = getattr(predictor, "rule", None)
    if isinstance(rule, Macro):
        counts = _calibration_targets(data).bincount(minlength=len(data.class_table))
        rule.class_importance((counts > 0) | (rule.classes == "all"))


def _calibration_targets(data: Splits) -> Tensor:
    return (data.val if data.calibration is None else data.calibration).targets


def _check_novelty(recipe: Recipe, data: Splits) -> None:
    """Refuse a detector that could never flag anything, for lack of rows, whatever the strangeness is."""
    if recipe.novelty is None:
        return
    options: dict[str, Any] = recipe.novelty.model_dump() | {"strangeness": "energy"}  # which needs no means
    try:
        NoveltyDetector(**options, num_classes=len(data.class_table)).check_rows(_calibration_targets(data))
    except ValueError as error:
        raise ValueError(f"novelty: {error}") from error
