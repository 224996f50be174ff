"""``shortlist train``, ``shortlist calibrate`` and ``shortlist evaluate``."""

import json
import shlex
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shortlist._progress import progress_report
from shortlist.cli._console import (
    print_json,
    print_line,
    print_next,
    use_one_thread,
    warnings_as_lines,
    working,
)
from shortlist.cli._options import AllowCode, AsJson, DataPlace, OwnNetwork, argument, option, published_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shortlist.predictors import SetPredictor
    from shortlist.recipes import Recipe
    from shortlist.runs import Run


Overrides = Annotated[
    list[str] | None,
    option("Change an entry of the recipe, as in loss.k=3. May be repeated.", "--set", metavar="KEY=VALUE"),
]
ModelFolder = Annotated[
    Path, argument("A run folder; with --scores also the folder of a saved model.", metavar="RUN")
]


def train(
    recipe: Annotated[
        Path | None,
        argument(
            "Recipe file (YAML), or papers:NAME for one of 'shortlist papers'. Without one, a small "
            "network is trained on the embedded glyphs.",
            callback=published_file,
        ),
    ] = None,
    override: Overrides = None,
    variant: Annotated[
        str | None,
        option("Name of a variant of the recipe (another method or setting), from variants.yaml beside it."),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "Run folder to make. It must not exist yet. The default is runs/NAME-LOSS-seedN, or "
            "runs/NAME-VARIANT-seedN with --variant."
        ),
    ] = None,
    resume: Annotated[
        Path | None, option("Continue the run in this folder instead of starting a new one.")
    ] = None,
    source: Annotated[
        Path | None,
        option(
            "Begin with what the finished run in this folder has trained, with its recipe: --set may choose "
            "another selection.metric, one that it kept (selection.keep), and a second_stage.",
            "--from",
        ),
    ] = None,
    devices: Annotated[int | None, option("Number of devices to train on, with one process each.")] = None,
    data: DataPlace = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Train a model from a recipe, calibrate its predictors and measure them on the test rows.

    Everything is written to one run folder. If a run was stopped, even by a kill, continue it with --resume.
    Code that a recipe names is refused without --allow-code.
    """
    from shortlist._memory import keep_memory
    from shortlist.recipes import load_recipe, make_recipe, moved
    from shortlist.training import is_first_process, resume as resume_run, train as train_run

    changes = list(override or []) + ([f"devices={devices}"] if devices is not None else [])
    if resume is not None and (recipe is not None or variant is not None or changes or out is not None):
        raise ValueError(
            "--resume goes on with the run's own recipe: no recipe, --variant, --set, --devices or --out"
        )
    if source is not None and (recipe is not None or variant is not None):
        raise ValueError("--from goes on with the recipe of that run: no recipe and no --variant")
    if source is not None and out is None:
        raise ValueError("--from needs --out: the folder of the new run")
    if recipe is None and variant is not None:
        raise ValueError("--variant is of a recipe: name its file too")
    if resume is not None:
        folder, go = resume, partial(resume_run, resume, data=data)
    elif source is not None and out is not None:
        folder, go = out, partial(train_run, _further(source, changes, data), out, first_stage=source)
    else:
        default = recipe is None
        chosen = make_recipe(_DEFAULT, changes) if default else load_recipe(recipe, changes, variant=variant)
        chosen = moved(chosen, data)
        named = variant or chosen.loss.name.replace(":", ".")
        folder = out or Path("runs") / f"{chosen.name}-{named}-seed{chosen.seed}"
        go = partial(train_run, chosen, folder)
    keep_memory()
    try:
        with progress_report() as report, warnings_as_lines():
            run = go(progress=report if is_first_process() else _silent, allow_code=allow_code)
    except SystemExit as stop:  # how Lightning leaves after a signal; of SIGTERM without a code
        if folder.exists():
            words = f"stopped; to go on: shortlist train --resume {shlex.quote(str(folder))}"
            words += " --allow-code" if allow_code else ""
            typer.echo(f"shortlist: {words}", err=True)
        raise SystemExit(stop.code or 128 + signal.SIGTERM) from None
    if is_first_process():
        _print_results(run, as_json=as_json)


def _further(source: Path, changes: list[str], data: Path | None) -> "Recipe":
    """Return the recipe of a run that begins with the first stage of another: it keeps no further epochs."""
    from shortlist.recipes import make_recipe, moved
    from shortlist.runs import Run

    before = moved(Run.open(source).recipe, data)
    return make_recipe(before.model_dump(), ["selection.keep=[]", *changes])


def _silent(*_: object) -> None:
    """Leave it to the first process to tell the progress."""


def _print_results(run: "Run", *, as_json: bool) -> None:
    from shortlist.cli._results import print_results
    from shortlist.runs import kept_epoch_of

    results, words, kept = run.results, run.score_words, kept_epoch_of(run.info)
    if as_json:
        content = {"run": str(run.path), "kept_epoch": None if kept is None else kept.to_dict()}
        print_json(content | {"scores": words, "results": json.loads(results.to_json())})
        return
    groups = run.recipe.evaluation.group_words
    print_results(results, f"Test rows of {run.path}", group_words=groups)
    said = [] if kept is None else [kept.words()]
    for line in [*said, words, *_chosen_coverage(run), f"Run folder: {run.path}"]:
        print_line(line)
    print_next("report", run.path)


def _chosen_coverage(run: "Run") -> list[str]:
    """Say which coverage the calibration rows chose, for each predictor that leaves it to them."""
    from shortlist.predictors import COVERAGES, MOST_CLASSES, Conformal

    *others, last = (f"{100 * level:g}" for level in COVERAGES)
    why = f"the highest of {', '.join(others)} and {last} with at most {MOST_CLASSES} classes on average"
    chosen = [key for key, section in run.recipe.named_predictors.items() if section.chooses_coverage]
    predictors = {key: run.predictors[key] for key in chosen}
    return [
        f"{key}: coverage auto is {100 * predictor.coverage:g} % ({why}, or the lowest)"
        for key, predictor in predictors.items()
        if isinstance(predictor, Conformal)
    ]


_DEFAULT = {
    "name": "glyphs",
    "epochs": 5,
    "selection": {"metric": "macro_top5"},
    "predictors": {
        "top5": {"name": "topk", "k": 5},
        "top5_macro": {"name": "topk", "k": 5, "macro": True},
        "average5": {"name": "average_k", "k": 5},
        "average5_macro": {"name": "average_k", "k": 5, "macro": True},
        "conformal": {"name": "conformal", "coverage": "auto"},
    },
}


def calibrate(
    run_folder: ModelFolder,
    override: Overrides = None,
    scores: Annotated[
        Path | None, option("Calibrate on these rows, which shortlist score wrote, instead of the run's own.")
    ] = None,
    out: Annotated[
        Path | None, option("With --scores: folder of the new model. It must not exist yet.", "--out", "-o")
    ] = None,
    network: OwnNetwork = None,
    data: DataPlace = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Calibrate the predictors of a run again on its validation scores, with other settings if you like.

    For example, --set 'predictors.average3={name: average_k, k: 3}' adds a predictor. Nothing is trained.
    Only adjust.tau: cross_fit and novelty by distance need the network; if it is one of your own, name it
    with --network. With --scores, the predictors of any saved model are calibrated on other rows, and the
    model is written to --out.
    """
    from shortlist.sentences import novelty_words

    if scores is not None:
        from shortlist.cli.score import calibrate_on_scores

        calibrate_on_scores(run_folder, scores, out, override or [], network, as_json)
        return
    if out is not None:
        raise ValueError("--out is for --scores: without it, a run is calibrated in its own folder")
    from shortlist.model import network_by_name
    from shortlist.recipes import CALIBRATED_KEYS, make_recipe, moved
    from shortlist.runs import Run, calibrate_again, load_network

    run = Run.open(run_folder)
    before = moved(run.recipe, data)
    recipe = make_recipe(before.model_dump(), override or [])
    trained = {*CALIBRATED_KEYS, "name", "about"}
    if recipe.model_dump(exclude=trained) != before.model_dump(exclude=trained):
        raise ValueError(
            "--set may change adjust, predictors, novelty and evaluation only: the rest needs a new run"
        )
    loaded = None if network is None else load_network(run, network=network_by_name(run.model_path, network))
    with working(as_json=as_json):
        run = calibrate_again(run, recipe, network=loaded)
    reports = {name: p.report.to_dict() if p.report else None for name, p in run.predictors.items()}
    if as_json:
        print_json({"run": str(run.path), "scores": run.score_words, "predictors": reports})
        return
    print_line(run.score_words)
    print_calibration(run.predictors)
    for line in _chosen_coverage(run):
        print_line(line)
    if (detector := run.saved.novelty) is not None:
        print_line(f"novelty: {novelty_words(detector)}")
    print_line(f"Run folder: {run.path}")
    print_next("evaluate", run.path)


def print_calibration(predictors: "Mapping[str, SetPredictor]") -> None:
    """Print a line about the calibration of each predictor."""
    for name, predictor in predictors.items():
        print_line(f"{name}: {_calibration_words(predictor)}")


def _calibration_words(predictor: "SetPredictor") -> str:
    """Say what a predictor was calibrated on, what came out, and what it promises."""
    from shortlist.sentences import promise_words

    report = predictor.report
    said = "needs no calibration" if report is None else f"{report.rows} rows"
    if report is not None and report.average_size is not None:
        said += f", average size {report.average_size:.3f}"
    if report is not None and report.coverage is not None:
        said += f", coverage {report.coverage:.4f}"
    if report is not None and report.fallback_classes:
        said += f", {len(report.fallback_classes)} classes fell back"
    if predictor.promise.asked is not None:
        said += f". {promise_words(predictor.promise)}"
    return said


def evaluate(
    run_folder: ModelFolder,
    split: Annotated[str, option("Rows to measure on: test or val.")] = "test",
    scores: Annotated[
        Path | None, option("Measure on these rows, which shortlist score wrote, instead of the run's own.")
    ] = None,
    network: OwnNetwork = None,
    place: Annotated[
        Path | None,
        typer.Option(
            help="Measure lists at this place only: a CSV of class ids and perhaps weights, a Darwin Core "
            "table or a species list of GBIF.",
            show_default=False,
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="With --place: coverage that the lists promise. The default is that of the run's first "
            "predictor with one, or 0.9.",
            show_default=False,
        ),
    ] = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Measure the scores and sets of a run: over rows, over classes, and by number of training images.

    Where the data say it, lists are also measured by number of photos and by group of photos (organ). With
    --scores, measure any saved model on rows that shortlist score wrote. With --place, measure lists for what
    occurs there, with thresholds of the place, beside lists that are only cut to it.
    """
    if place is not None:
        if split != "test":
            raise ValueError("--place goes with the test rows of a run or --scores: leave out --split")
        if scores is None:
            _evaluate_place(run_folder, place, coverage, as_json)
            return
        from shortlist.cli.score import evaluate_place_on_scores

        evaluate_place_on_scores(run_folder, scores, place, coverage, network, as_json)
        return
    if coverage is not None:
        raise ValueError("--coverage is for --place: predictors have the coverage of the recipe")
    if scores is not None:
        from shortlist.cli.score import evaluate_on_scores

        evaluate_on_scores(run_folder, scores, network, as_json)
        return
    from shortlist.cli._results import print_results
    from shortlist.runs import Run, RunFolder, evaluate_run, results_file

    if split not in ("test", "val"):
        raise ValueError(f"--split must be test or val, got {split!r}")
    run = Run.open(run_folder)
    run.check_calibrated()
    use_one_thread()
    with RunFolder(run_folder).locked(), working(as_json=as_json):
        results = evaluate_run(Run.open(run_folder), split)
    if as_json:
        print(results.to_json())
    else:
        groups = run.recipe.evaluation.group_words
        print_results(results, f"{split} rows of {run_folder}", group_words=groups)
        print_line(f"Results: {run_folder / results_file(split)}")
        print_next("report", run_folder)


def _evaluate_place(folder: Path, file: Path, coverage: float | None, as_json: bool) -> None:
    """Measure lists at a place, and print them beside lists that are cut to it."""
    from shortlist.cli._results import print_place
    from shortlist.place import Place
    from shortlist.runs import Run, place_numbers, usual_coverage

    run = Run.open(folder)
    run.check_calibrated()
    use_one_thread()
    place = Place.from_file(file)
    match = place.match(run.class_table)
    level = usual_coverage(run.predictors) if coverage is None else coverage
    with working(as_json=as_json):
        numbers = place_numbers(run, match.vector, level)
    print_place(place, match, level, numbers, as_json)
