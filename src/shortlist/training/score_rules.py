"""Which combinations of loss, adjustment, sets and data go together; the others are refused by name."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from shortlist.predictors import PREDICTORS
from shortlist.priors import class_balanced_weights
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.training.loss_use import declared_maps, make_loss, needed_head

if TYPE_CHECKING:
    from shortlist.training.recipe import Recipe

__all__ = ["check_score_rules", "is_fitted", "scales_weights", "trains_balanced", "validation_is_test"]

_COUNTS = torch.tensor([4, 2, 1])  # of some classes: what a loss declares does not depend on how many


def validation_is_test(recipe: "Recipe") -> bool:
    """Whether the validation rows are the test rows, so that nothing may be fitted or chosen on them."""
    return recipe.data.val_is_test


def trains_balanced(recipe: "Recipe") -> bool:
    """Whether the classifier that is kept was trained on class-balanced batches."""
    return recipe.sampler.name == "class_balanced" or recipe.second_stage is not None


def scales_weights(recipe: "Recipe") -> bool:
    """Whether the classifier that is kept only learned a scale for each class of another one."""
    return recipe.second_stage is not None and recipe.second_stage.name == "weight_scaling"


def is_fitted(recipe: "Recipe", declared: ScoreMap) -> bool:
    """Whether temperature and prior exponent of the scores are fitted, since nobody knows them."""
    if recipe.adjust.tau == "cross_fit":
        return True
    by_hand = recipe.adjust.temperature not in (None, "fit")
    known = declared.contains is not None and recipe.adjust.weight_normalization is None
    return not known and not by_hand and not validation_is_test(recipe)


def check_score_rules(recipe: "Recipe") -> None:
    """Refuse what would go wrong in silence; the message says why and what to write instead."""
    for fault in _faults(recipe):
        raise ValueError(fault)


def _faults(recipe: "Recipe") -> Iterator[str]:
    yield from _head_faults(recipe)
    if validation_is_test(recipe):
        yield from _test_row_faults(recipe)
    declared = _declared(recipe)
    known = declared.contains is not None and recipe.adjust.weight_normalization is None
    yield from _tau_faults(recipe, declared, known)
    if not known and not is_fitted(recipe, declared):
        yield from _unknown_prior_faults(recipe)
    yield from _activation_faults(recipe, fitted=is_fitted(recipe, declared))


def _declared(recipe: "Recipe") -> ScoreMap:
    """The map that the loss declares for the head to predict from, for classes of some counts."""
    options = recipe.loss.model_dump(exclude={"name", "class_balanced"})
    beta = getattr(recipe.loss, "class_balanced", None)
    weight = None if beta is None else class_balanced_weights(_COUNTS, beta=beta)
    loss = make_loss(recipe.loss.name, options, class_counts=_COUNTS, weight=weight)
    free = not scales_weights(recipe)
    maps = declared_maps(loss, _COUNTS, balanced_rows=trains_balanced(recipe), free_scores=free)
    return maps.get(recipe.adjust.predict_from, maps["set"])


def _head_faults(recipe: "Recipe") -> Iterator[str]:
    head = recipe.adjust.predict_from
    if head != "set" and needed_head(recipe.loss.name) != "two_head":
        one = f"the loss {recipe.loss.name}, which has one head"
        yield f"adjust.predict_from must be left out for {one}, got {head!r}"
    if head == "choose" and recipe.selection.figure in ("last", "loss"):
        yield (
            "adjust.predict_from: choose takes the head with the better selection.figure on the validation "
            "rows: selection.figure must be one of these rows, such as average5, "
            f"got {recipe.selection.figure!r}"
        )


def _test_row_faults(recipe: "Recipe") -> Iterator[str]:
    why = "the validation rows are the test rows (data.val_is_test), on which nothing may be fitted or chosen"
    for key in ("temperature", "tau"):
        if getattr(recipe.adjust, key) == "fit":
            yield (
                f"adjust.{key} must not be fit: {why}. Write adjust.tau: cross_fit, which fits temperature "
                f"and tau on held-out folds of the training rows, or a number"
            )
    if recipe.adjust.predict_from == "choose":
        yield f"adjust.predict_from must not be choose: {why}. Write set or proposal"
    if recipe.selection.figure not in ("last", "loss"):
        yield (
            f"selection.figure must not be {recipe.selection.figure}: {why}. Write selection.figure: last, "
            f"or loss for the least training loss"
        )
    for key, section in recipe.predictors.items():
        if PREDICTORS[section.name].needs_calibration:
            yield (
                f"predictors.{key} must not be {section.name}, which is calibrated: {why}. Keep apart some "
                f"training rows for validation, or take topk or pointwise_error"
            )


def _tau_faults(recipe: "Recipe", declared: ScoreMap, known: bool) -> Iterator[str]:
    tau, temperature = recipe.adjust.tau, recipe.adjust.temperature
    if tau == "cross_fit" and temperature not in (None, "fit"):
        yield (
            f"adjust.temperature must be left out with adjust.tau: cross_fit, which fits both, "
            f"got {temperature}"
        )
    if tau == "cross_fit" and scales_weights(recipe):
        yield (
            "adjust.tau must not be cross_fit with second_stage weight_scaling: the classifier that it "
            "scales has seen all training rows, so that no fold of them is held out. Write fit, or a number"
        )
    if not isinstance(tau, float) or not tau or not known:
        return
    assert declared.contains is not None
    wanted = PriorRecord.training(_COUNTS).to_power(1 - tau)
    if declared.contains.same_as(wanted):
        yield (
            f"adjust.tau must not be {tau:g}: the scores of {_trained(recipe)} leave out {tau:g} times the "
            f"log class priors already. Leave adjust.tau out, or write 0 to put the priors back"
        )


def _trained(recipe: "Recipe") -> str:
    trained = f"the loss {recipe.loss.name}"
    return f"{trained} on class-balanced batches" if trains_balanced(recipe) else trained


def _unknown_prior_faults(recipe: "Recipe") -> Iterator[str]:
    normalized = recipe.adjust.weight_normalization is not None
    what = "normalized weights" if normalized else _trained(recipe)
    why = f"nobody knows which class priors the scores of {what} contain"
    remedy = (
        "write adjust.tau: cross_fit, which finds out on held-out folds of the training rows"
        if validation_is_test(recipe)
        else "leave adjust.temperature out, so that it is found out on the validation rows"
    )
    if recipe.adjust.tau is not None:
        yield f"adjust.tau must be left out: {why}, and it is not fitted here; {remedy}"
    for key, section in recipe.predictors.items():
        if section.macro:
            yield f"predictors.{key}.macro must be false: {why}, and it is not fitted here; {remedy}"


def _activation_faults(recipe: "Recipe", *, fitted: bool) -> Iterator[str]:
    for key, section in recipe.predictors.items():
        activation = section.options.get("activation", "softmax")
        if activation == "softmax":
            continue
        raw = activation == "sigmoid" and not fitted
        if not raw or recipe.loss.name not in ("average_k", "assume_negative", "expected_positive", "role"):
            yield (
                f"predictors.{key}.activation must be softmax, which makes probabilities of log-posteriors, "
                f"got {activation!r}; sigmoid is for average_k, assume_negative, expected_positive and role "
                f"with adjust.temperature: 1, which leaves their scores as they are"
            )
