"""Measure the lists of a run by number of photos, by group of rows and at a place."""

from collections.abc import Mapping

from torch import Tensor

from shortlist.metrics import PopulationNumbers, PopulationResults, measure_place, measure_populations
from shortlist.predictors import CalibrationRows, SetPredictor
from shortlist.runs.run import Run, RunError
from shortlist.scores import ScoreMap

_USUAL = 0.9  # coverage of lists, if no predictor of the run promises one over all rows


def run_populations(
    run: Run,
    rows: CalibrationRows | None,
    predictors: Mapping[str, SetPredictor],
    head: str,
    score_map: ScoreMap,
) -> PopulationResults | None:
    """Measure lists of the test objects of a run, where its data have observations or groups.

    Args:
        run: The run.
        rows: Calibration rows of its model.
        predictors: Its predictors; the lists have the coverage of the first that promises one over all rows.
        head: The head to predict from.
        score_map: Map from the network's scores to those that are measured.
    """
    if rows is None or run.facts("test") is None:
        return None
    scores, target, facts = run.photos("test", head)
    assert facts is not None
    return measure_populations(
        rows, score_map(scores), target, facts=facts, coverage=usual_coverage(predictors)
    )


def place_numbers(run: Run, weights: Tensor, coverage: float) -> PopulationNumbers:
    """Measure lists of the test objects of a finished run at a place, by the weights of the classes (c,)."""
    rows = run.saved.calibration_rows
    if rows is None:
        raise RunError(f"{run.path} kept no calibration rows: run shortlist calibrate {run.path}")
    scores, target, facts = run.photos("test")
    return measure_place(rows, run.score_map(scores), target, weights, facts=facts, coverage=coverage)


def usual_coverage(predictors: Mapping[str, SetPredictor]) -> float:
    """Return the coverage that a run promises: of its first predictor with one over all rows, else 0.9."""
    promises = [predictor.promise for predictor in predictors.values()]
    levels = [promise.asked for promise in promises if promise.about == "rows" and promise.asked]
    return levels[0] if levels else _USUAL
