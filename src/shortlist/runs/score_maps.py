"""Make the score map of a run from what the loss declares, and fit the rest on held-out rows."""

import re
import warnings
from typing import Any

from torch import Tensor

from shortlist.metrics import average_rows
from shortlist.predictors import AverageK, CalibrationWarning
from shortlist.recipes import Recipe, fits_class_shifts, is_fitted
from shortlist.scores import (
    PriorRecord,
    ScoreMap,
    fit_class_shifts,
    fit_normalization,
    fit_tau,
    fit_temperature,
    fit_temperature_and_prior,
    fit_temperature_and_tau,
    normalization_map,
    priors_nearly_equal,
    priors_of_rows,
)

_FEW_ROWS = 30


def normalized_map(
    recipe: Recipe,
    declared: ScoreMap,
    norms: Tensor,
    offsets: Tensor,
    counts: Tensor,
    scores: Tensor,
    target: Tensor,
) -> ScoreMap:
    """Return the map of normalized class weights with the loss's scale; its priors are not known.

    The strength is fitted on the given scores (n, c) and classes (n,) of held-out rows, if it is to be.
    """
    tau = recipe.adjust.weight_normalization
    options: dict[str, Any] = {"offset": recipe.adjust.normalized_offset}
    assert tau is not None
    if recipe.adjust.normalized_by == "prior":
        options["priors"] = PriorRecord.training(counts).priors
    note = ""
    if tau == "fit":
        tau = fit_normalization(scores, target, norms, offsets, **options).tau
        note = f"weights normalized with tau {tau:.4g}, fitted on {len(target):,} validation rows"
    first = normalization_map(norms, offsets, tau=tau, **options)
    return first.then(ScoreMap(declared.num_classes, scale=declared.scale, contains=None)).noted(note)


def complete_map(
    recipe: Recipe, start: ScoreMap, scores: Tensor, target: Tensor, counts: Tensor, *, rows: str
) -> ScoreMap:
    """Return the map that a recipe asks for, fitted on held-out rows where needed.

    Args:
        recipe: Recipe, whose section ``adjust`` says what to do.
        start: Map that the loss declares, or that of normalized weights.
        scores: Scores (n, c) as the network gives them, of rows that it was not trained on.
        target: Classes of these rows (n,).
        counts: Number of training examples of each class (c,).
        rows: Name of these rows, for messages.
    """
    training = PriorRecord.training(counts)
    adjust = recipe.adjust
    rows_priors = priors_of_rows(target, training) if len(target) else training
    note = f"fitted on {len(target):,} {rows}"
    if not rows_priors.same_as(training):
        shares = rows_priors.words() if rows_priors.name != "given" else "class shares of their own"
        note += f", which have {shares}"
    if start.contains is None:
        fitted = _identified(recipe, start, scores, target, training, rows_priors, note)
        if fitted.contains is None or adjust.tau is None:
            return fitted
        return _with_tau(recipe, fitted, scores, target, training, note)
    if "fit" == adjust.temperature == adjust.tau:
        return _fitted_together(start, scores, target, training, note)
    if adjust.temperature == "fit" or adjust.tau == "cross_fit":
        offset = rows_priors.log_priors - start.contains.log_priors
        temperature = fit_temperature(start(scores), target, offset=offset)
        start = start.with_temperature(temperature).noted(f"temperature {temperature:.4g}, {note}")
    elif adjust.temperature is not None:
        start = start.with_temperature(adjust.temperature)
    return start if adjust.tau is None else _with_tau(recipe, start, scores, target, training, note)


def _identified(
    recipe: Recipe,
    start: ScoreMap,
    scores: Tensor,
    target: Tensor,
    training: PriorRecord,
    rows_priors: PriorRecord,
    note: str,
) -> ScoreMap:
    """Fit temperature and prior exponent of scores with unknown priors, unless numbers are given."""
    if not is_fitted(recipe) or not len(target):
        temperature = recipe.adjust.temperature
        return start if not isinstance(temperature, float) else start.with_temperature(temperature)
    if len(target) < _FEW_ROWS:
        warnings.warn(
            f"temperature and prior exponent are fitted on {len(target)} rows: they may be far off",
            CalibrationWarning,
            stacklevel=2,
        )
    try:
        fit_map = _fit_with_shifts if fits_class_shifts(recipe) else _fit_two_numbers
        return fit_map(start, scores, target, training, rows_priors, note)
    except ValueError as error:
        warnings.warn(
            f"the scores stay without a meaning, since no temperature can be fitted: {error}",
            CalibrationWarning,
            stacklevel=2,
        )
        return start


_SMOOTHED = ", none of which is mistaken, with smoothed targets"


def _fit_two_numbers(
    start: ScoreMap,
    scores: Tensor,
    target: Tensor,
    training: PriorRecord,
    rows_priors: PriorRecord,
    note: str,
) -> ScoreMap:
    fit = fit_temperature_and_prior(
        start(scores), target, priors=training.priors, rows_priors=rows_priors.priors
    )
    exponent = _exponent_words(fit.exponent, training)
    words = f"temperature {fit.temperature:.4g} and prior exponent {exponent}, {note}"
    words += _SMOOTHED * fit.smoothed
    return start.identified(training, temperature=fit.temperature, exponent=fit.exponent).noted(words)


def _exponent_words(exponent: float, training: PriorRecord) -> str:
    equal = priors_nearly_equal(training.priors)
    return f"{exponent:.4g}" + " (priors are nearly equal: not fitted)" * equal


def _fit_with_shifts(
    start: ScoreMap,
    scores: Tensor,
    target: Tensor,
    training: PriorRecord,
    rows_priors: PriorRecord,
    note: str,
) -> ScoreMap:
    fit = fit_class_shifts(start(scores), target, priors=training.priors, rows_priors=rows_priors.priors)
    exponent = _exponent_words(fit.exponent, training)
    words = f"temperature {fit.temperature:.4g}, prior exponent {exponent} and a shift for each class"
    words += f" (from {float(fit.shifts.min()):.2g} to {float(fit.shifts.max()):.2g}), {note}"
    words += _SMOOTHED * fit.smoothed
    numbers = {"temperature": fit.temperature, "exponent": fit.exponent, "shifts": fit.shifts}
    return start.identified(training, **numbers).noted(words)


def _fitted_together(
    start: ScoreMap, scores: Tensor, target: Tensor, training: PriorRecord, note: str
) -> ScoreMap:
    """Fit temperature and tau by the likelihood of rows, weighted as if classes were balanced."""
    assert start.contains is not None
    offset = training.log_priors - start.contains.log_priors
    fit = fit_temperature_and_tau(start(scores), target, source_priors=training.priors, offset=offset)
    fitted = start.with_temperature(fit.temperature).under(training.to_power(1 - fit.tau))
    return fitted.noted(f"temperature {fit.temperature:.4g} and tau {fit.tau:.4g}, {note}")


def _with_tau(
    recipe: Recipe, start: ScoreMap, scores: Tensor, target: Tensor, training: PriorRecord, note: str
) -> ScoreMap:
    """Return the map under the training priors to the power 1 - tau."""
    tau = recipe.adjust.tau
    if isinstance(tau, float):
        return start.under(training.to_power(1 - tau))
    fit = fit_tau(start.under(training)(scores), target, source_priors=training.priors)
    so_far = f"{start.note}; " if start.note else ""
    return start.under(training.to_power(1 - fit.tau)).noted(f"{so_far}tau {fit.tau:.4g}, {note}")


def metric_of(name: str, scores: Tensor, target: Tensor) -> float:
    """Compute a metric for choosing epochs (top5, macro_average5, ...) from mapped scores (n, c)."""
    match = re.fullmatch(r"(macro_)?(top|average)([\d.]+)", name)
    if match is None:
        raise ValueError(f"name must be one of the validation rows, such as top5 or average5, got {name!r}")
    if match[2] == "top":
        inside = scores.topk(int(match[3]), dim=1).indices == target[:, None]
        hits = inside.any(1)
    else:
        sets = AverageK(float(match[3])).calibrate(scores)(scores)
        hits = sets.gather(1, target[:, None]).squeeze(1)
    average = "micro" if match[1] is None else "macro"
    return float(average_rows(hits, target, num_classes=scores.shape[1], average=average))
