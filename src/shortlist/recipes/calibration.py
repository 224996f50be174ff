"""Calibrate the predictors of a recipe, and check whether class priors help the sets that use them."""

import warnings
from dataclasses import replace
from functools import partial

from torch import Tensor

from shortlist._progress import each
from shortlist.class_table import ClassTable
from shortlist.predictors import CalibrationWarning, SetPredictor, calibrate_highest
from shortlist.recipes.build import build_predictor
from shortlist.recipes.recipe import Recipe
from shortlist.recipes.score_rules import also_used_for
from shortlist.scores import ScoreMap

_ERRORS = 3.0  # standard errors of the difference that chance is given


def calibrate_predictors(
    recipe: Recipe, head: str, class_table: ClassTable, score_map: ScoreMap, scores: Tensor, target: Tensor
) -> dict[str, SetPredictor]:
    """Build all predictors of a recipe and calibrate them on mapped scores (n, c) of rows of classes (n,)."""
    predictors = {}
    for key, section in each("calibrating", recipe.named_predictors.items()):
        build = partial(build_predictor, recipe, key, class_table, score_map)
        if section.chooses_coverage:
            predictor = calibrate_highest(lambda level, build=build: build(coverage=level), scores, target)
        else:
            predictor = build().calibrate(scores, target)
        predictor(scores[:1])  # what cannot be used is not kept
        if predictor.report is not None:
            also = also_used_for(recipe, head, coverage=section.chooses_coverage)
            predictor.report = replace(predictor.report, rows_also=also)
        if section.macro and section.name in ("topk", "average_k"):
            without = {"predictors": {key: section.model_copy(update={"macro": False})}}
            plain = build_predictor(recipe.model_copy(update=without), key, class_table, score_map)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CalibrationWarning)
                plain.calibrate(scores, target)
            _warn_where_priors_hurt(key, predictor, plain, scores, target)
        predictors[key] = predictor
    return predictors


def _warn_where_priors_hurt(
    key: str, predictor: SetPredictor, plain: SetPredictor, scores: Tensor, target: Tensor
) -> None:
    """Warn of sets with priors that cover the average class less often than the same sets without priors.

    They cannot if the scores are log-posteriors. Scores that two fitted numbers do not make into
    log-posteriors are no ground for priors.
    """
    with_priors, without = (_hits(each, scores, target) for each in (predictor, plain))
    loss, error = _macro_mean(without - with_priors, target)
    if loss > _ERRORS * error and loss > 0.01:
        warnings.warn(
            f"predictors.{key}: macro coverage is lower with class priors than without "
            f"({_macro_mean(with_priors, target)[0]:.1%} against {_macro_mean(without, target)[0]:.1%} "
            f"on the {len(target):,} validation rows): the scores are too far from log-posteriors for "
            "priors to help; take macro: false",
            CalibrationWarning,
            stacklevel=3,
        )


def _hits(predictor: SetPredictor, scores: Tensor, target: Tensor) -> Tensor:
    """Return whether each row's set contains its class (n,), as numbers."""
    return predictor(scores).gather(1, target[:, None]).squeeze(1).double()


def _macro_mean(values: Tensor, target: Tensor) -> tuple[float, float]:
    """Return the mean over classes of their means over rows, and its standard error."""
    counts = target.bincount()
    present = counts > 0
    means, squares = ((target.bincount(each) / counts)[present] for each in (values, values**2))
    variance = (squares - means**2).clamp_min(0) / counts[present]
    return float(means.mean()), float(variance.sum().sqrt() / len(means))
