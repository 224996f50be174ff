"""``shortlist score``, and ``calibrate`` and ``evaluate`` from the rows that it wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from shortlist._progress import Progress
from shortlist.cli._console import print_json, print_line, print_next, use_one_thread, working
from shortlist.cli._engine import Address, Device, EngineName, Workers, engine_of, print_counts, run_pass
from shortlist.cli._options import AllowCode, AsJson, ModelPlace, OwnNetwork, argument, option
from shortlist.cli.train import print_calibration

if TYPE_CHECKING:
    from shortlist.passes import PlaceLists, ScoreCounts
    from shortlist.predictors import SetPredictor


def score(
    model: ModelPlace,
    rows: Annotated[
        str,
        argument(
            "What to score: a folder of images, a list (.csv or .parquet with the column path and "
            "perhaps label and split), a .tar file, a folder of .tar files, or embeddings."
        ),
    ],
    out: Annotated[Path, option("Folder to write the parts to.", "--out", "-o")],
    engine: EngineName = "local",
    address: Address = None,
    workers: Workers = None,
    keep: Annotated[int, option("Number of best classes to keep for each row.", min=1)] = 64,
    split: Annotated[
        str | None,
        option("Only this split, of a folder with train, val and test or of a list with the column split."),
    ] = None,
    place: Annotated[
        Path | None,
        option(
            "Keep lists for what occurs at this place too: a CSV (id or name, and a weight), a Darwin Core "
            "table or a species list of GBIF."
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        option(
            "With --place: coverage that the lists promise. The default is that of the model's first "
            "predictor with one, or 0.9."
        ),
    ] = None,
    shard_rows: Annotated[int, option("Number of rows in each part.", min=1)] = 4096,
    device: Device = "cpu",
    network: OwnNetwork = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Score rows with a model. For each row, keep its best classes and what metrics and sets need.

    The rows are written in parts, each a parquet file. If the command is stopped, run it again: it continues
    where it stopped. Rows that cannot be read are kept, with the reason. Use the parts with calibrate
    --scores and evaluate --scores. With --place, the columns place.classes, place.probabilities, place.set,
    place.size and place.hit have the lists there.
    """
    from shortlist.model import SavedModel, model_folder
    from shortlist.passes import ModelSource, find_shards, place_lists, score_shards
    from shortlist.place import Place

    if coverage is not None and place is None:
        raise ValueError("--coverage is for --place: predictors have the coverage of the recipe")

    def run(show: Progress) -> "ScoreCounts":
        saved = SavedModel(model_folder(model))
        shards = find_shards(rows, saved.class_table, shard_rows=shard_rows, split=split)
        at = None if place is None else _lists_at(place, coverage, saved.predictors)
        how: Any = {"keep": keep, "at": at, "workers": workers, "engine": engine_of(engine, address, device)}
        source, progress = ModelSource(str(model), network, device), partial(show, "scoring")
        return score_shards(source, shards, out, progress=progress, **how)

    counts = run_pass(run)
    words = [f"{counts.rows:,} rows", f"{counts.parts:,} parts"]
    words += [f"{counts.errors:,} rows could not be read (see the column error)"] if counts.errors else []
    words += [f"{counts.kept:,} parts were already there"] if counts.kept else []
    about: dict[str, Any] = dict(vars(counts))
    if place is not None:
        lists = {"name": Place.from_file(place).name, **place_lists(out)}
        about["place"] = lists
        level, mean = f"{100 * lists['coverage']:g} %", f"{lists['size']:.2f}"
        words.append(f"lists for {level} at {lists['name']} have {mean} classes on average")
    then = ("evaluate", model, "--scores", out)
    print_counts("scores", out, about, words, as_json, then=then)


def _lists_at(file: Path, coverage: float | None, predictors: "Mapping[str, SetPredictor]") -> "PlaceLists":
    from shortlist.passes import PlaceLists
    from shortlist.place import Place
    from shortlist.runs import usual_coverage

    return PlaceLists(Place.from_file(file), usual_coverage(predictors) if coverage is None else coverage)


def calibrate_on_scores(
    folder: Path, scores: Path, out: Path | None, changes: Sequence[str], network: str | None, as_json: bool
) -> None:
    """Calibrate the predictors of a model on scored rows, and save the model to a new folder."""
    from shortlist.model import Model
    from shortlist.passes import recalibrated

    if out is None:
        raise ValueError("--scores needs --out, the folder of the new model")
    if out.exists():
        raise ValueError(f"--out must not exist yet, got {out}")
    model = Model.load(folder, network=network)
    with working(as_json=as_json):
        made, predictors = recalibrated(model, scores, _changes(changes))
    made.save(out)
    if as_json:
        reports = {name: p.report.to_dict() if p.report else None for name, p in predictors.items()}
        print_json({"model": str(out), "predictors": reports})
        return
    print_calibration(predictors)
    print_line(f"Model: {out}")
    print_next("serve", out)


def _changes(changes: Sequence[str]) -> dict[str, Any]:
    """Read ``predictors.NAME={name: average_k, k: 3}``, or ``predictors.NAME=null``."""
    import yaml

    by_name = {}
    for change in changes:
        key, _, value = change.partition("=")
        name = key.removeprefix("predictors.")
        options = yaml.safe_load(value)
        if (
            name == key
            or not name
            or not (options is None or (isinstance(options, dict) and "name" in options))
        ):
            raise ValueError(
                "--set must be predictors.NAME={name: ..., ...} or predictors.NAME=null with --scores, got "
                f"{change!r}"
            )
        by_name[name] = options
    return by_name


def evaluate_on_scores(folder: Path, scores: Path, network: str | None, as_json: bool) -> None:
    """Print the metrics of scored rows under the predictors of a model."""
    from shortlist.cli._results import print_results
    from shortlist.model import Model
    from shortlist.passes import evaluate_populations, evaluate_scores, model_key, read_scores, rows_key
    from shortlist.runs import usual_coverage

    use_one_thread()
    model = Model.load(folder, network=network)
    calibrated_here = model.about.get("calibration_rows") == rows_key(read_scores(scores))
    with working(as_json=as_json):
        results = evaluate_scores(scores, model.predictors, model.classes, model=model_key(model))
        if calibrated_here:
            results = results.without_measured()
        else:
            lists = evaluate_populations(scores, model, usual_coverage(model.predictors))
            results = replace(results, populations=lists)
    if as_json:
        print(results.to_json())
        return
    used = "These rows calibrated the predictors: they cannot check a promise. Score other rows."
    print_results(results, f"Rows of {scores}", notes=[used] if calibrated_here else ())


def evaluate_place_on_scores(
    folder: Path, scores: Path, file: Path, coverage: float | None, network: str | None, as_json: bool
) -> None:
    """Print how good the lists of scored rows at a place are, beside lists that are cut to it."""
    from shortlist.cli._results import print_place
    from shortlist.model import Model
    from shortlist.passes import evaluate_place, read_scores, rows_key

    use_one_thread()
    model, about = Model.load(folder, network=network), read_scores(scores)
    if model.about.get("calibration_rows") == rows_key(about):
        raise ValueError("rows that calibrated the predictors cannot check a promise: score other rows")
    level = (about.get("place") or {}).get("coverage") if coverage is None else coverage
    at = _lists_at(file, level, model.predictors)
    with working(as_json=as_json):
        numbers = evaluate_place(scores, model, at)
    print_place(at.place, at.place.match(model.classes), at.coverage, numbers, as_json)
