"""Check which combinations of loss, adjustment, sets and data are valid, and refuse the others by name."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shortlist.datasets import DATASETS
from shortlist.losses import ScoreMeaning
from shortlist.predictors import predictor_kind
from shortlist.recipes.loss_sections import loss_options
from shortlist.recipes.loss_use import check_loss_options, is_own, is_unseen, needed_head, score_meaning
from shortlist.recipes.sections import PredictorSection
from shortlist.scores import HEADS, ScoreMap, map_of_meaning

if TYPE_CHECKING:
    from shortlist.recipes.recipe import Recipe


def validation_is_test(recipe: "Recipe") -> bool:
    """Return whether validation and test rows are the same, so that nothing may be chosen on them."""
    return recipe.data.val_is_test


def trains_balanced(recipe: "Recipe") -> bool:
    """Return whether the classifier that is kept was trained on class-balanced batches."""
    return recipe.sampler.name == "class_balanced" or recipe.second_stage is not None


def scales_weights(recipe: "Recipe") -> bool:
    """Return whether the classifier that is kept only learned a scale for each class."""
    return recipe.second_stage is not None and recipe.second_stage.name == "weight_scaling"


def declared_maps(
    recipe: "Recipe", class_counts: Tensor, weight: Tensor | None = None
) -> dict[str, ScoreMap]:
    """Return the score map of each head, as the loss declares it for the classifier that is kept.

    ``weight`` are the class weights (c,) of the loss at the epoch that is kept.
    """
    shares = torch.full((len(class_counts),), 1 / len(class_counts)) if trains_balanced(recipe) else None
    maps = {}
    for head in HEADS if needed_head(recipe.loss.name) == "two_head" else HEADS[:1]:
        meaning = loss_meaning(recipe, head)
        if scales_weights(recipe):  # a scale for each class may not reach what the loss asks for
            meaning = replace(meaning, without_priors=None)
        maps[head] = map_of_meaning(meaning, class_counts, class_shares=shares, weight=weight)
    return maps


def _declares_posteriors(recipe: "Recipe", head: str | None = None) -> bool:
    """Return whether the loss declares which priors the scores contain, and nothing changes them after it."""
    posterior = loss_meaning(recipe, head).without_priors is not None and not scales_weights(recipe)
    return posterior and recipe.adjust.weight_normalization is None


def is_fitted(recipe: "Recipe", head: str | None = None) -> bool:
    """Return whether temperature and prior exponent of a head's scores are not known and must be fitted."""
    if recipe.adjust.tau == "cross_fit":
        return True
    by_hand = recipe.adjust.temperature not in (None, "fit")
    return not _declares_posteriors(recipe, head) and not by_hand and not validation_is_test(recipe)


def fits_class_shifts(recipe: "Recipe") -> bool:
    """Return whether a shift for each class is fitted too, if temperature and prior exponent are."""
    if recipe.adjust.class_shifts is not None:
        return recipe.adjust.class_shifts
    return loss_meaning(recipe, "set").free_levels


def also_used_for(recipe: "Recipe", head: str, *, coverage: bool = False) -> str:
    """Say what else the rows that calibrate predictors of this head served for, as in "chose the epoch".

    Args:
        recipe: The recipe.
        head: The head.
        coverage: Whether the rows chose the coverage.
    """
    if recipe.calibration.rows == "separate":
        return "chose the coverage" if coverage else ""
    adjust, several = recipe.adjust, recipe.epochs > 1 or recipe.steps is not None
    chosen = recipe.selection.metric not in ("loss", "last") and several
    numbers = (adjust.temperature, adjust.tau, adjust.weight_normalization)
    fitted = is_fitted(recipe, head) or "fit" in numbers
    uses = {
        "chose the epoch": chosen,
        "chose the head": adjust.predict_from == "choose",
        "fitted the score map": fitted and adjust.tau != "cross_fit",
        "chose the coverage": coverage,
    }
    named = [words for words, used in uses.items() if used]
    return " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


def check_labels(recipe: "Recipe") -> None:
    """Require data and a loss of as many labels, and nothing that needs one label for each photo."""
    data, loss = recipe.data.name, recipe.loss.name
    several_labels = {}
    if not is_own(data):  # what somebody's own function makes is looked at once it is made
        several_labels[f"data {data}"] = DATASETS[data].several_labels
    if not is_unseen(loss):
        several_labels[f"loss {loss}"] = needed_head(loss) == "label_set"
    for name, several in several_labels.items():
        wanted = "several" if several else "one"
        if wanted != recipe.labels:
            raise ValueError(f"labels must be {wanted} for the {name}, got {recipe.labels}")
    of_one_label = {
        "data.label_noise": recipe.data.label_noise > 0,
        "data.max_per_class": recipe.data.max_per_class is not None,
        "sampler": recipe.sampler.name != "shuffle",
        "second_stage": recipe.second_stage is not None,
        "calibration.rows: separate": recipe.calibration.rows == "separate",
        "adjust.tau: cross_fit": recipe.adjust.tau == "cross_fit",
        "novelty.strangeness: distance": recipe.novelty and recipe.novelty.strangeness == "distance",
    }
    for key, used in of_one_label.items():
        if used and recipe.labels == "several":
            raise ValueError(f"{key} must be left out for labels: several: it is for one label a photo")


def check_score_rules(recipe: "Recipe") -> None:
    """Refuse recipes that would silently go wrong; the message says why and what to write instead."""
    for fault in _faults(recipe):
        raise ValueError(fault)


def _faults(recipe: "Recipe") -> Iterator[str]:
    check_loss_options(recipe.loss.name, loss_options(recipe.loss))
    yield from _head_faults(recipe)
    yield from _twice_faults(recipe)
    if validation_is_test(recipe):
        yield from _test_row_faults(recipe)
    has_posteriors, fitted = _declares_posteriors(recipe), is_fitted(recipe)
    yield from _tau_faults(recipe, has_posteriors)
    if recipe.adjust.class_shifts and not fitted:
        yield _shift_fault(recipe, has_posteriors)
    if not has_posteriors and not fitted:
        yield from _unknown_prior_faults(recipe)
    yield from _predictor_faults(recipe, has_posteriors=has_posteriors, fitted=fitted)


def loss_meaning(recipe: "Recipe", head: str | None = None) -> ScoreMeaning:
    """Return what the loss declares about the scores of a head, by default of the head to predict from."""
    if head is None:
        head = "proposal" if recipe.adjust.predict_from == "proposal" else "set"
    return score_meaning(recipe.loss.name, loss_options(recipe.loss), head)


def _contained_power(recipe: "Recipe", *, reweighted: bool = False) -> float | None:
    """Return the power of the training priors in the scores; ``None`` if they contain other priors.

    ``reweighted``: with the class weights that the training ends with, not those that it starts with.
    """
    meaning = loss_meaning(recipe)
    beta = getattr(recipe.loss, "class_balanced", None)
    if reweighted and recipe.reweighting is not None:
        beta = recipe.reweighting.beta
    if meaning.without_priors is None or (beta and meaning.with_weights):  # beta 0 weighs all classes alike
        return None
    return (0.0 if trains_balanced(recipe) else 1.0) - meaning.without_priors


def _twice_faults(recipe: "Recipe") -> Iterator[str]:
    """Find losses and weights that remove the class priors although class-balanced batches already do."""
    if not trains_balanced(recipe):
        return
    where = "sampler class_balanced" if recipe.second_stage is None else "the second stage"
    weighted = getattr(recipe.loss, "class_balanced", None) is not None or (
        recipe.reweighting is not None and recipe.second_stage is None
    )
    if weighted or loss_meaning(recipe, "set").without_priors:
        what = "class weights" if weighted else f"the loss {recipe.loss.name}"
        yield (
            f"{where} and {what} must not come together: class-balanced batches leave the class priors out "
            f"of the scores already, and {what} would leave them out again. Take one of the two"
        )


def _head_faults(recipe: "Recipe") -> Iterator[str]:
    head = recipe.adjust.predict_from
    if head != "set" and needed_head(recipe.loss.name) != "two_head":
        single_head = f"the loss {recipe.loss.name}, which has one head"
        yield f"adjust.predict_from must be left out for {single_head}, got {head!r}"
    if head == "choose" and recipe.selection.metric in ("last", "loss"):
        yield (
            "adjust.predict_from: choose takes the head with the better selection.metric on the validation "
            "rows: selection.metric must be one of these rows, such as average5, "
            f"got {recipe.selection.metric!r}"
        )


def _test_row_faults(recipe: "Recipe") -> Iterator[str]:
    why = "the validation rows are the test rows (data.val_is_test), on which nothing may be fitted or chosen"
    if recipe.adjust.weight_normalization == "fit":
        yield f"adjust.weight_normalization must not be fit: {why}. Write a number"
    for key in ("temperature", "tau"):
        if getattr(recipe.adjust, key) == "fit":
            yield (
                f"adjust.{key} must not be fit: {why}. Write adjust.tau: cross_fit, which fits temperature "
                f"and tau on held-out folds of the training rows, or a number"
            )
    if recipe.adjust.predict_from == "choose":
        yield f"adjust.predict_from must not be choose: {why}. Write set or proposal"
    if recipe.selection.metric not in ("last", "loss"):
        yield (
            f"selection.metric must not be {recipe.selection.metric}: {why}. Write selection.metric: last, "
            f"or loss for the least training loss"
        )
    if recipe.calibration.rows == "separate":
        yield f"calibration.rows must not be separate: {why}"
    for key, section in recipe.named_predictors.items():
        if predictor_kind(section.name).needs_calibration:
            yield (
                f"predictors.{key} must not be {section.name}, which is calibrated: {why}. Keep apart some "
                f"training rows for validation, or take topk or pointwise_error"
            )
    if recipe.novelty is not None:
        yield f"novelty must be left out: {why}, and it is calibrated"


def _tau_faults(recipe: "Recipe", has_posteriors: bool) -> Iterator[str]:
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
    if tau == "cross_fit" and recipe.adjust.weight_normalization is not None:
        yield (
            "adjust.tau must not be cross_fit with adjust.weight_normalization: the classifiers of the folds "
            "have other norms than the one that is normalized. Write fit, or a number"
        )
    if not isinstance(tau, float) or not tau or not has_posteriors:
        return
    powers = [_contained_power(recipe, reweighted=later) for later in (False, True)]
    if all(power is not None and math.isclose(power, 1 - tau, abs_tol=1e-9) for power in powers):
        yield (
            f"adjust.tau must not be {tau:g}: the scores of {_trained(recipe)} leave out {tau:g} times the "
            f"log class priors already. Leave adjust.tau out, or write 0 to put the priors back"
        )


def _shift_fault(recipe: "Recipe", has_posteriors: bool) -> str:
    if has_posteriors:
        why = f"the scores of {_trained(recipe)} are log-posteriors already, and a shift would change them"
    else:
        why = f"this recipe fits nothing to the scores; {_fitting_remedy(recipe)}"
    return f"adjust.class_shifts must be left out: {why}"


def _fitting_remedy(recipe: "Recipe") -> str:
    """Say what to write so that the scores are fitted."""
    if validation_is_test(recipe):
        return "write adjust.tau: cross_fit, which fits them on held-out folds of the training rows"
    return "leave adjust.temperature out, so that they are fitted on the validation rows"


def _trained(recipe: "Recipe") -> str:
    trained = f"the loss {recipe.loss.name}"
    return f"{trained} on class-balanced batches" if trains_balanced(recipe) else trained


def _unknown_prior_faults(recipe: "Recipe") -> Iterator[str]:
    normalized = recipe.adjust.weight_normalization is not None
    what = "normalized weights" if normalized else _trained(recipe)
    why = f"the class priors in the scores of {what} are unknown"
    remedy = _fitting_remedy(recipe)
    if recipe.adjust.tau is not None:
        yield f"adjust.tau must be left out: {why}, and this recipe does not fit them; {remedy}"
    for key, section in recipe.named_predictors.items():
        if section.macro:
            yield f"predictors.{key}.macro must be false: {why}, and this recipe does not fit them; {remedy}"


def _predictor_faults(recipe: "Recipe", *, has_posteriors: bool, fitted: bool) -> Iterator[str]:
    heads = HEADS if recipe.adjust.predict_from == "choose" else (recipe.adjust.predict_from,)
    sigmoid = all(loss_meaning(recipe, head).sigmoid for head in heads)
    as_training = (has_posteriors and _contained_power(recipe) == 1.0) or fitted
    if recipe.adjust.tau is not None:
        as_training = recipe.adjust.tau == 0.0
    for key, section in recipe.named_predictors.items():
        if section.macro and not predictor_kind(section.name).takes_priors:
            yield f"predictors.{key}.macro must be false: {section.name} takes no class priors"
        if section.levels is not None and not predictor_kind(section.name).takes_taxonomy:
            yield f"predictors.{key}.levels must be left out: {section.name} takes no taxonomy"
        if section.name == "conformal":
            yield from _conformal_faults(key, section)
        if "tau" in section.options and not section.macro:
            yield f"predictors.{key}.tau is a power of the class priors: write macro: true with it"
        if section.name in ("pointwise_error", "average_error") and not as_training:
            yield (
                f"predictors.{key} must not be {section.name}: it trusts the scores to be log-posteriors "
                f"under the training priors, which these are not. Write adjust.tau: 0, or take conformal"
            )
        activation = section.options.get("activation", "softmax")
        if activation != "softmax" and not (activation == "sigmoid" and sigmoid and not fitted):
            yield (
                f"predictors.{key}.activation must be softmax, which makes probabilities of log-posteriors, "
                f"got {activation!r}; sigmoid is for the scores of assume_negative, expected_positive, role "
                f"and the set head of average_k, left as they are by adjust.temperature: 1"
            )


def _conformal_faults(key: str, section: PredictorSection) -> Iterator[str]:
    """Find conformal sets that lack the class priors, or have them and do not use them."""
    score, rule = (_named(section.options.get(part)) for part in ("score", "rule"))
    weighted = score == "prevalence_adjusted" or (score is None and (section.macro or rule == "macro"))
    if weighted and not section.macro:
        why = "the score prevalence_adjusted" if score else "the rule macro without another score"
        yield f"predictors.{key}.macro must be true: {why} divides by the class priors. Or write score: lac"
    if section.macro and not weighted:
        yield (
            f"predictors.{key}.macro must be false for the score {score}, which has no use for class priors. "
            f"For a promise about the average class write rule: macro"
        )


def _named(part: object) -> str | None:
    """Return the name of a score or rule that is given by it, or by a mapping with it."""
    return part.get("name") if isinstance(part, dict) else part if isinstance(part, str) else None
