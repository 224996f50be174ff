"""``shortlist train | calibrate | evaluate``."""

import json
import shlex
import signal
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

__all__ = ["calibrate", "evaluate", "train"]

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe, as in loss.k=3; may be repeated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
RunFolder = Annotated[Path, typer.Argument(help="A run folder.", show_default=False)]


def train(
    recipe: Annotated[
        Path | None, typer.Argument(help="A recipe (YAML). Without one: the glyphs, a small network.")
    ] = None,
    override: Overrides = None,
    variant: Annotated[
        str | None,
        typer.Option(
            help="Another method or setting of the recipe's table: a name from variants.yaml beside it."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Run folder; must not exist. By default runs/NAME-LOSS-seedN (the variant for LOSS)."
        ),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run folder instead of starting one.")
    ] = None,
    devices: Annotated[int | None, typer.Option(help="Processes to train with, one per device.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train as a recipe says, calibrate its predictors and measure them on the test rows.

    Everything goes into one run folder. A run that was stopped, even by a kill, goes on with --resume.
    """
    from shortlist.cli._console import metrics_table, print_json, progress_report, warnings_as_lines
    from shortlist.recipes.recipe import load_recipe, make_recipe
    from shortlist.training.fit import is_first_process
    from shortlist.training.fit import resume as resume_run
    from shortlist.training.fit import train as train_run

    changes = list(override or []) + ([f"devices={devices}"] if devices is not None else [])
    if resume is not None and (recipe is not None or variant is not None or changes or out is not None):
        raise ValueError(
            "--resume goes on with the run's own recipe: no recipe, --variant, --set, --devices or --out"
        )
    if recipe is None and variant is not None:
        raise ValueError("--variant is of a recipe: name its file too")
    if resume is not None:
        folder, go = resume, partial(resume_run, resume)
    else:
        default = recipe is None
        chosen = make_recipe(_DEFAULT, changes) if default else load_recipe(recipe, changes, variant=variant)
        folder = out or Path("runs") / f"{chosen.name}-{variant or chosen.loss.name}-seed{chosen.seed}"
        go = partial(train_run, chosen, folder)
    try:
        with progress_report() as report, warnings_as_lines():
            run = go(progress=report)
    except SystemExit as stop:  # how Lightning leaves after a signal; of SIGTERM without a code
        if folder.exists():
            words = f"stopped; to go on: shortlist train --resume {shlex.quote(str(folder))}"
            typer.echo(f"shortlist: {words}", err=True)
        raise SystemExit(stop.code or 128 + signal.SIGTERM) from None
    if not is_first_process():
        return
    results = run.results()
    if as_json:
        scores = run.score_map.words()
        print_json({"run": str(run.path), "scores": scores, "results": json.loads(results.to_json())})
        return
    Console().print(metrics_table(results, f"Test rows of {run.path}"))
    Console().print(run.score_map.words(), soft_wrap=True)
    Console().print(f"Run folder: {run.path}", soft_wrap=True)


_DEFAULT = {
    "name": "glyphs",
    "epochs": 5,
    "selection": {"metric": "macro_top5"},
    "predictors": {
        "top5": {"name": "topk", "k": 5},
        "top5_macro": {"name": "topk", "k": 5, "macro": True},
        "average5": {"name": "average_k", "k": 5},
        "average5_macro": {"name": "average_k", "k": 5, "macro": True},
        "conformal90": {"name": "conformal", "coverage": 0.9},
    },
}


def calibrate(run_folder: RunFolder, override: Overrides = None, as_json: AsJson = False) -> None:
    """Calibrate a run's predictors again on its validation scores, perhaps with other settings.

    For example: --set 'predictors.average3={name: average_k, k: 3}' adds one. Nothing is trained.
    """
    from shortlist.cli._console import print_json, warnings_as_lines
    from shortlist.recipes.recipe import make_recipe
    from shortlist.runs.run import Run
    from shortlist.runs.scoring import calibrate_again

    run = Run.open(run_folder)
    before = run.recipe
    recipe = make_recipe(before.model_dump(), override or [])
    trained = {"adjust", "predictors", "name", "about"}
    if recipe.model_dump(exclude=trained) != before.model_dump(exclude=trained):
        raise ValueError("--set may change adjust and predictors only: the rest needs a new run")
    with warnings_as_lines():
        predictors = calibrate_again(run, recipe)
    reports = {name: p.report.to_dict() if p.report else None for name, p in predictors.items()}
    if as_json:
        print_json({"run": str(run.path), "scores": run.score_map.words(), "predictors": reports})
        return
    console = Console()
    console.print(run.score_map.words(), soft_wrap=True)
    for name, predictor in predictors.items():
        report = predictor.report
        said = "needs no calibration" if report is None else f"{report.rows} rows"
        if report is not None and report.average_size is not None:
            said += f", average size {report.average_size:.3f}"
        if report is not None and report.coverage is not None:
            said += f", coverage {report.coverage:.4f}"
        if report is not None and report.fallback_classes:
            said += f", {len(report.fallback_classes)} classes fell back"
        console.print(f"{name}: {said}", soft_wrap=True)


def evaluate(
    run_folder: RunFolder,
    part: Annotated[str, typer.Option(help="Rows to measure on: test or val.")] = "test",
    as_json: AsJson = False,
) -> None:
    """Measure a run's scores and sets over rows, over classes, and for few-, medium- and many-shot ones."""
    from shortlist.cli._console import metrics_table, use_one_thread, warnings_as_lines
    from shortlist.runs.run import Run
    from shortlist.runs.scoring import evaluate_run

    if part not in ("test", "val"):
        raise ValueError(f"--part must be test or val, got {part!r}")
    run = Run.open(run_folder)
    run.check_calibrated()
    use_one_thread()
    with warnings_as_lines():
        results = evaluate_run(run, part)
    if as_json:
        print(results.to_json())
    else:
        Console().print(metrics_table(results, f"{part} rows of {run_folder}"))
