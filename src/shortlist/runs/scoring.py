"""Score whole splits of the data, and make the score map, predictors and results from the scores."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from shortlist._progress import Progress
from shortlist.datasets import LabelPairs, Split, Splits, evaluation_loader, facts_of
from shortlist.metrics import Results, evaluate, measure_label_sets
from shortlist.model import keep_rows, write_calibration, write_network
from shortlist.models import class_norms, head_outputs, in_channels_last, predicted_sizes
from shortlist.predictors import CalibrationRows, NoveltyDetector, SetPredictor
from shortlist.promise import Promise
from shortlist.recipes import (
    Recipe,
    calibrate_predictors,
    complete_recipe,
    declared_maps,
    loss_meaning,
    own_metrics,
    save_recipe,
    validation_is_test,
)
from shortlist.runs.cross_fit import fold_scores
from shortlist.runs.features import means_and_features
from shortlist.runs.folder import RunFolder
from shortlist.runs.network import best_state, description_of, last_stage
from shortlist.runs.populations import run_populations
from shortlist.runs.run import Run, RunError
from shortlist.runs.score_maps import complete_map, metric_of, normalized_map
from shortlist.scores import ScoreMap

_CHOSE = "chose the options"  # what validation rows also did, if a suite tunes by them


class _Calibration(NamedTuple):
    """The head to predict from, its score map, predictors, detector of strangers, calibration rows."""

    head: str
    score_map: ScoreMap
    predictors: Mapping[str, SetPredictor]
    novelty: NoveltyDetector | None
    rows: CalibrationRows | None


def check_not_diverged(scores: Tensor) -> None:
    """Raise an error if a network's scores are not finite numbers."""
    if bool(scores.isnan().any()):
        raise ValueError(
            "the network's scores are not numbers: the training diverged; try a smaller optimizer.lr"
        )


def check_room_for_scores(run: RunFolder, data: Splits) -> None:
    """Refuse a run whose scores would not fit on the disk, before it is trained.

    Raises:
        RunError: With the space that is needed and the space that is free.
    """
    rows, classes = sum(map(len, scored_parts(data).values())), len(data.class_table)
    needed, free = 4 * rows * classes, shutil.disk_usage(run.path).free
    if needed > free:
        raise RunError(
            f"{run.path} needs {needed / 1e9:.1f} GB for the scores of {rows:,} validation and test rows x "
            f"{classes:,} classes, got {free / 1e9:.1f} GB of free space: choose another --out"
        )


def score_run(
    run: RunFolder, recipe: Recipe, data: Splits, network: nn.Module, *, progress: Progress | None = None
) -> None:
    """Save the scores of the validation and test rows, as the network gives them.

    They go to the disk batch by batch: 4 bytes for each row, class and head, none of which stays in memory.
    """
    norms = class_norms(network, recipe.head.classifier)
    for part, split in scored_parts(data).items():
        tell = None if progress is None else partial(progress, f"scoring {part}")
        read: list[Tensor] = []
        with run.writing_scores(part, len(split), norms) as writer:
            for scores, target, rows in _score_batches(network, recipe, split, tell):
                for output in scores.values():
                    check_not_diverged(output)
                writer.add(scores, target)
                read.append(rows)
        if (facts := facts_of(split)) is not None:
            run.save_facts(part, facts.take(torch.cat(read)))


@torch.inference_mode()
def _score_batches(
    network: nn.Module, recipe: Recipe, split: Split, tell: Callable[[int, int], None] | None
) -> Iterator[tuple[dict[str, Tensor], Tensor, Tensor]]:
    """Give, batch by batch, each head's scores (n, c), classes and numbers of rows that could be read."""
    device = next(network.parameters()).device
    training = network.training
    network.eval()
    size = max(recipe.batch_size, 256)
    loader = evaluation_loader(split, batch_size=size, workers=recipe.workers, shared=False)
    for number, (inputs, target, rows) in enumerate(loader, start=1):
        kept = target != -100
        outputs = head_outputs(network(in_channels_last(inputs.to(device))))
        if isinstance(split, LabelPairs):  # tells which pairs are of one photo
            outputs["photo"] = split.rows[rows, None]
        yield {head: output.float().cpu()[kept] for head, output in outputs.items()}, target[kept], rows[kept]
        if tell is not None:
            tell(number, len(loader))
    network.train(training)


def make_model(
    folder: RunFolder, recipe: Recipe, data: Splits, network: nn.Module, *, test: bool = True
) -> None:
    """Write the finished model of a run and its results: the run is finished then.

    The model has the network, what is calibrated on the validation scores, and the promises as measured on
    the test rows. All of it is computed before anything is written.

    Args:
        folder: Folder of the run, with its scores.
        recipe: Its recipe.
        data: Its data.
        network: Its network of the best epoch.
        test: Whether to measure on the test rows; :func:`evaluate_run` can do it later.
    """
    weight = best_state(folder.read(), last_stage(recipe), "loss.").get("weight")
    folder.save_declared(declared_maps(recipe, data.class_table.class_counts, weight), weight)
    run = folder.read()
    calibration = _calibrate(run, recipe, network)
    results = _measure(run, recipe, "test", calibration) if test else None
    write_network(run.model_path, network)
    description, promises = description_of(run, recipe, data), _promises(results)
    write_calibration(run.model_path, *calibration, description=description, promises=promises)
    if results is not None:
        folder.save_results(results)
    folder.set_state("finished", scores=calibration.score_map.words())


def scored_parts(data: Splits) -> dict[str, Split]:
    """Return the parts of a data set whose scores a run keeps, by name; further photos are parts as well."""
    apart = {} if data.calibration is None else {"calibration": data.calibration}
    further = {f"{part}_further": split for part, split in data.further.items() if len(split)}
    return {"val": data.val, **apart, "test": data.test, **further}


def calibrate_run(run: Run, recipe: Recipe | None = None, *, network: nn.Module | None = None) -> None:
    """Fit the score map of a run, calibrate all its predictors on its validation scores, and save both.

    A recipe with ``novelty`` gets a detector of strangers, too.

    With ``calibration.rows: separate`` the map is fitted on the validation rows that choose, and the
    predictors are calibrated on the others, to which nothing was fitted.

    Nothing is changed on disk if one of them fails. Predictors that the recipe no longer has are removed:
    they were calibrated on scores that may have been mapped otherwise. ``network`` is the run's trained one,
    for ``adjust.tau: cross_fit`` and features of a network that is code of somebody's own, which is never
    run here.
    """
    calibration = _calibrate(run, run.recipe if recipe is None else recipe, network)
    write_calibration(run.model_path, *calibration)


def calibrate_again(run: Run, recipe: Recipe, *, network: nn.Module | None = None) -> Run:
    """Calibrate a finished run by a recipe that replaces its own, evaluate it, and open it again.

    If the process is killed meanwhile, the run stays ``calibrating``: its files are of two calibrations.
    """
    folder = RunFolder(run.path)
    with folder.locked():
        run = folder.read()
        if run.state not in ("finished", "calibrating"):
            raise RunError(f"{run.path} is not finished: go on with shortlist train --resume {run.path}")
        recipe = complete_recipe(recipe, len(run.class_table))
        calibration = _calibrate(run, recipe, network)
        results = _measure(run, recipe, "test", calibration)
        rewriting = ("recipe.yaml", "model/model.json", "results.json", "results_val.json")
        folder.set_state("calibrating", rewriting=rewriting)
        write_calibration(run.model_path, *calibration, promises=_promises(results))
        save_recipe(recipe, run.path / "recipe.yaml")
        (run.path / "results_val.json").unlink(missing_ok=True)  # results of the old predictors
        folder.save_results(results)
        folder.set_state("finished", scores=calibration.score_map.words())
    return folder.read()


def _calibrate(run: Run, recipe: Recipe, network: nn.Module | None) -> _Calibration:
    """Fit and calibrate on the validation scores of a run; nothing is written."""
    wanted = recipe.adjust.predict_from
    if wanted == "choose":
        maps = {head: _map_of_head(run, recipe, head, network) for head in run.declared}
        metrics = {}
        for name, score_map in maps.items():
            scores, target = run.load_scores("val", name)
            metrics[name] = metric_of(recipe.selection.metric, score_map(scores), target)
        head = max(metrics, key=metrics.__getitem__)
        score_map = maps[head]
    else:
        head, score_map = wanted, _map_of_head(run, recipe, wanted, network)
    scores, target = run.load_scores(run.calibration_part, head)
    scores, class_table = score_map(scores), run.class_table
    predictors = calibrate_predictors(recipe, head, class_table, score_map, scores, target)
    novelty = _novelty(run, recipe, scores, target, network)
    return _Calibration(head, score_map, predictors, novelty, _kept_rows(run, head, score_map))


def _kept_rows(run: Run, head: str, score_map: ScoreMap) -> CalibrationRows | None:
    """Return the calibration rows that a model keeps, with further photos of the same objects."""
    scores, target, facts = run.photos(run.calibration_part, head)
    return keep_rows(score_map(scores), target, score_map, run.class_table, facts)


def _novelty(
    run: Run, recipe: Recipe, scores: Tensor, target: Tensor, network: nn.Module | None
) -> NoveltyDetector | None:
    """Return the detector of strangers, calibrated on the mapped scores or the features of the same rows."""
    if recipe.novelty is None:
        return None
    options, num_classes = recipe.novelty.model_dump(), scores.shape[1]
    if recipe.novelty.strangeness != "distance":
        return NoveltyDetector(**options, num_classes=num_classes).calibrate(target, scores=scores)
    means, features, target = means_and_features(run, recipe, run.calibration_part, network=network)
    detector = NoveltyDetector(**options, num_classes=num_classes, means=means)
    return detector.calibrate(target, features=features)


def _map_of_head(run: Run, recipe: Recipe, head: str, network: nn.Module | None) -> ScoreMap:
    declared, counts = run.declared, run.class_table.class_counts
    if head not in declared:
        raise RunError(f"{run.path} has no scores of the head {head}: it has {', '.join(declared)}")
    start = declared[head]
    if recipe.adjust.weight_normalization is not None:
        start = normalized_map(recipe, start, *run.load_norms(head), counts, *run.load_scores("val", head))
    if recipe.adjust.tau == "cross_fit":
        scores, target = fold_scores(run, recipe, head, network=network)
        return complete_map(recipe, start, scores, target, counts, rows="training rows, held out in folds")
    scores, target = run.load_scores("val", head)
    fitted = complete_map(recipe, start, scores, target, counts, rows="validation rows")
    return fitted if start.note in fitted.note else fitted.noted(f"{start.note}; {fitted.note}")


def evaluate_run(run: Run, part: str = "test") -> Results:
    """Compute the metrics of a run on a split of the data; those of the test split go to ``results.json``.

    The coverage on test rows is written to the promises of the finished model too. Validation rows measure
    no promise: they calibrated the predictors, or chose the epoch.
    """
    calibration = _Calibration(run.head, run.score_map, run.predictors, None, run.saved.calibration_rows)
    results, folder = _measure(run, run.recipe, part, calibration), RunFolder(run.path)
    if part == "test":
        folder.save_promises(_promises(results))
    folder.save_results(results, part)  # last: the results on disk say that all else is written
    return results


def _measure(run: Run, recipe: Recipe, part: str, calibration: _Calibration) -> Results:
    """Compute the metrics of a calibration on a split of the data, with the coverage of its promises."""
    predictors = dict(sorted(calibration.predictors.items()))
    if run.info.get("tuned") and recipe.calibration.rows == "shared":
        _note_choice(predictors)
    rows = run.measure(part, predictors, *calibration[:2], metrics=own_metrics(recipe))
    results = evaluate(rows, None, predictors, run.class_table, **recipe.evaluation.options)
    results = with_label_sets(run, recipe, part, results)
    if part != "test" or validation_is_test(recipe):
        return results.without_measured()
    if recipe.labels == "one":
        lists = run_populations(run, calibration.rows, predictors, calibration.head, calibration.score_map)
        results = replace(results, populations=lists)
    return results


def with_label_sets(run: Run, recipe: Recipe, part: str, results: Results) -> Results:
    """Add the metrics of label sets, where photos have several labels."""
    if recipe.labels == "one":
        return results
    scores, target = run.load_scores(part, "set")
    photos, of_photo = run.load_scores(part, "photo")[0][:, 0].unique_consecutive(return_inverse=True)
    labels = torch.zeros(len(photos), scores.shape[1], dtype=torch.bool)
    labels[of_photo, target] = True
    first = torch.searchsorted(of_photo, torch.arange(len(photos)))  # pairs of a photo follow each other
    sizes = predicted_sizes(run.load_scores(part, "size")[0][first, 0], num_classes=scores.shape[1])
    threshold = 0.0 if loss_meaning(recipe).sigmoid else None
    measured = measure_label_sets(scores[first], labels, sizes=sizes, threshold=threshold)
    return replace(results, label_sets=measured)


def _promises(results: Results | None) -> dict[str, Promise]:
    """Return the promises of predictors with their measured coverage, by name."""
    sets = {} if results is None else results.sets
    return {name: measured.promise for name, measured in sets.items() if measured.promise is not None}


def _note_choice(predictors: Mapping[str, SetPredictor]) -> None:
    """Note that the rows of a calibration also chose the options of the method, as a suite does."""
    for predictor in predictors.values():
        if predictor.report is not None and _CHOSE not in predictor.report.rows_also:
            before = predictor.report.rows_also.replace(" and ", ", ")
            also = f"{before} and {_CHOSE}" if before else _CHOSE
            predictor.report = replace(predictor.report, rows_also=also)
