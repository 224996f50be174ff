"""Measure the lists of a run by number of photos, by group of rows and at a place."""

from collections.abc import Mapping

from torch import Tensor

from shortlist.metrics import PopulationNumbers, PopulationResults, measure_place, measure_populations
from shortlist.predictors import CalibrationRows, SetPredictor
from shortlist.runs.run import Run
from shortlist.scores import ScoreMap

_USUAL = 0.9  # coverage of lists, if no predictor of the run promises one over all rows


def run_populations(
    run: Run, predictors: Mapping[str, SetPredictor], head: str, score_map: ScoreMap
) -> PopulationResults | None:
    """Measure lists of the test objects of a run, where its data have observations or groups.

    Args:
        run: The run.
        predictors: Its predictors; the lists have the coverage of the first that promises one over all rows.
        head: The head to predict from.
        score_map: Map from the network's scores to those that are measured.
    """
    if run.facts("test") is None:
        return None
    rows = calibration_rows(run, head, score_map)
    scores, target, facts = run.photos("test", head)
    assert facts is not None
    groups = {column: facts.names_of(column) for column in facts.groups}
    return measure_populations(
        rows,
        score_map(scores),
        target,
        observation=facts.objects,
        groups=groups,
        coverage=usual_coverage(predictors),
    )


def calibration_rows(run: Run, head: str, score_map: ScoreMap) -> CalibrationRows:
    """Return the calibration rows of a run with their observations and groups."""
    scores, target, facts = run.photos(run.calibration_part, head)
    columns = {} if facts is None else {column: facts.names_of(column) for column in facts.groups}
    return CalibrationRows.of_rows(
        score_map(scores),
        target,
        priors=None if score_map.now is None else score_map.now.priors,
        observation=None if facts is None else facts.objects,
        groups=columns,
    )


def place_numbers(run: Run, weights: Tensor, coverage: float) -> PopulationNumbers:
    """Measure lists of the test objects of a finished run at a place, by the weights of the classes (c,)."""
    rows = calibration_rows(run, run.head, run.score_map)
    scores, target, facts = run.photos("test")
    objects = None if facts is None else facts.objects
    mapped = run.score_map(scores)
    return measure_place(rows, mapped, target, weights, observation=objects, coverage=coverage)


def usual_coverage(predictors: Mapping[str, SetPredictor]) -> float:
    """Return the coverage that a run promises: of its first predictor with one over all rows, else 0.9."""
    promises = [predictor.promise for predictor in predictors.values()]
    levels = [promise.asked for promise in promises if promise.about == "rows" and promise.asked]
    return levels[0] if levels else _USUAL
