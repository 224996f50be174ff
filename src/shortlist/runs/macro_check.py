"""Check on the calibration rows whether class priors help the sets that use them."""

import warnings

from torch import Tensor

from shortlist.class_table import ClassTable
from shortlist.metrics import Average, average_rows
from shortlist.predictors import CalibrationWarning, SetPredictor
from shortlist.recipes import Recipe, build_predictor
from shortlist.scores import ScoreMap

_ERRORS = 3.0  # standard errors of the difference that chance is given


def warn_where_priors_hurt(
    recipe: Recipe,
    predictors: dict[str, SetPredictor],
    scores: Tensor,
    target: Tensor,
    class_table: ClassTable,
    score_map: ScoreMap,
) -> None:
    """Warn of sets with priors that cover the average class less often than the same sets without priors.

    They cannot if the scores are log-posteriors. Scores that two fitted numbers do not make into
    log-posteriors are no ground for priors.
    """
    for key, section in recipe.named_predictors.items():
        if not section.macro or section.name not in ("topk", "average_k"):
            continue
        plain_recipe = recipe.model_copy(
            update={"predictors": {key: section.model_copy(update={"macro": False})}}
        )
        plain = build_predictor(plain_recipe, key, class_table, score_map)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CalibrationWarning)
            plain.calibrate(scores, target)
        with_priors, without = (_hits(one, scores, target) for one in (predictors[key], plain))
        loss, error = _macro_mean(without - with_priors, target)
        if loss > _ERRORS * error and loss > 0.01:
            warnings.warn(
                f"predictors.{key}: macro coverage is lower with class priors than without "
                f"({_macro_mean(with_priors, target)[0]:.1%} against {_macro_mean(without, target)[0]:.1%} "
                f"on the {len(target):,} validation rows): the scores are too far from log-posteriors for "
                "priors to help; take macro: false",
                CalibrationWarning,
                stacklevel=2,
            )


def _hits(predictor: SetPredictor, scores: Tensor, target: Tensor) -> Tensor:
    """Return whether each row's set contains its class (n,), as numbers."""
    return predictor(scores).gather(1, target[:, None]).squeeze(1).double()


def _macro_mean(values: Tensor, target: Tensor) -> tuple[float, float]:
    """Return the mean over classes of their means over rows, and its standard error."""
    counts = target.bincount()

    def average(numbers: Tensor, over: Average) -> Tensor:
        return average_rows(numbers, target, num_classes=len(counts), average=over)

    variance = (average(values**2, "none") - average(values, "none") ** 2).clamp_min(0) / counts
    present = variance[counts > 0]
    return float(average(values, "macro")), float(present.sum().sqrt() / len(present))
