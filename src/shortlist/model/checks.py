"""Check that the parts of a model go together."""

import json
from collections.abc import Mapping
from typing import Any

from torch import nn

from shortlist.model.files import check_predictor_names
from shortlist.models import NetworkSpec, classifier_name, num_outputs
from shortlist.predictors import CalibrationRows, NoveltyDetector, SetPredictor
from shortlist.promise import Promise
from shortlist.scores import ScoreMap, UnknownPriorError


def check_parts(
    num_classes: int,
    score_map: ScoreMap,
    predictors: Mapping[str, SetPredictor],
    novelty: NoveltyDetector | None,
    spec: NetworkSpec | None,
    calibration_rows: Any = None,
) -> None:
    """Require parts that fit each other: of as many classes, calibrated, and of the same kind of scores.

    Calibration rows that are read later are checked then.
    """
    sizes = {"score_map": score_map.num_classes}
    if spec is not None:
        sizes["spec"] = spec.num_classes
    if isinstance(calibration_rows, CalibrationRows):
        sizes["calibration_rows"] = calibration_rows.num_classes
    check_predictor_names(predictors)
    for name, predictor in predictors.items():
        if not predictor.calibrated:
            raise ValueError(f"predictors[{name!r}] must be calibrated, got one that is not")
        sizes[f"predictors[{name!r}]"] = int(predictor.num_classes) or num_classes
    if novelty is not None:
        if not novelty.calibrated:
            raise ValueError("novelty must be calibrated, got a detector that is not")
        sizes["novelty"] = int(novelty.num_classes) or num_classes
    for name, size in sizes.items():
        if size != num_classes:
            raise ValueError(f"{name} must be for the table's {num_classes} classes, got {size}")
    _check_activations(score_map, predictors)


def check_row_classes(rows: CalibrationRows, num_classes: int) -> None:
    """Require calibration rows of as many classes."""
    if rows.num_classes != num_classes:
        got = f"got {rows.num_classes}"
        raise ValueError(f"calibration_rows must be for the table's {num_classes} classes, {got}")


def _check_activations(score_map: ScoreMap, predictors: Mapping[str, SetPredictor]) -> None:
    """Refuse predictors that take probabilities behind a map that gives log-posteriors."""
    if score_map.now is None:
        return
    for name, predictor in predictors.items():
        if predictor.activation == "none":
            raise ValueError(
                f"predictors[{name!r}] must have activation='softmax', since the score map gives "
                "log-posteriors, got 'none', which is for probabilities. Calibrate one with "
                "activation='softmax' on what the score map makes of the network's scores; if the network "
                "gives probabilities, let it give their logarithms"
            )


def check_outputs(network: nn.Module, classifier: str | None, num_classes: int) -> None:
    """Require a classifier that is there, and as many outputs as classes where the network tells them."""
    if classifier is not None:
        classifier_name(network, classifier)
    outputs = num_outputs(network)
    if outputs not in (None, num_classes):
        raise ValueError(f"network must give scores of the table's {num_classes} classes, got {outputs}")


def unknown_meaning(num_classes: int) -> UnknownPriorError:
    """Return the error of a model whose scores have no known meaning, with what to do."""
    return UnknownPriorError(
        "nobody knows what the model's scores mean, so that they give no probabilities. If the network was "
        "trained with cross-entropy, make the model with "
        f"score_map=ScoreMap({num_classes}, contains=PriorRecord.training(class_counts)), where class_counts "
        "are the numbers of training rows of the classes. After another loss, begin with "
        "map_of_loss(loss, class_counts=class_counts), and if the priors are still unknown, fit them by "
        "fit_temperature_and_prior on rows that the network was not trained on. All of these are in "
        "shortlist.scores; docs/tutorials/own_training_loop.md shows both"
    )


def all_promises(
    predictors: Mapping[str, SetPredictor], promises: Mapping[str, Promise]
) -> dict[str, Promise]:
    """Return the promise of each predictor: the given one, or what the predictor itself tells."""
    stated = {name: predictor.promise for name, predictor in predictors.items()}
    if unknown := [name for name in promises if name not in stated]:
        names = ", ".join(stated) or "none"
        raise ValueError(f"promises must be of the predictors ({names}), got {unknown[0]!r}")
    return stated | dict(promises)


def plain_values(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy as JSON gives it back."""
    try:
        return json.loads(json.dumps(dict(about), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"about must have plain values for JSON, got {about!r}") from error
