"""Calibrate predictors and compute metrics from parts of scored rows, which are read one after the other."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._row_facts import RowFacts, is_fact
from shortlist._store.manifest import read_sealed
from shortlist.class_table import ClassTable
from shortlist.metrics import (
    PopulationNumbers,
    PopulationResults,
    Results,
    evaluate,
    lists_at_place,
    measure_populations,
    photos_of_objects,
    row_numbers,
)
from shortlist.model import Model, keep_rows
from shortlist.passes.at_place import PlaceLists
from shortlist.passes.measuring import Columns
from shortlist.passes.parts import check_part, read_table
from shortlist.passes.score import MANIFEST, SCORES_FORMAT, changed_model, model_key, predictor_key
from shortlist.predictors import (
    KeptCalibration,
    KeptRows,
    NotKeptError,
    SetPredictor,
    kept_rule,
    make,
    predictor_name,
)

_MOST_SCORES = 2**28  # of all rows, from which calibration rows are drawn
_MOST_DRAWS = 200_000_000  # rows drawn for intervals, in all resamples


def read_scores(folder: str | Path) -> dict[str, Any]:
    """Read the manifest of scored rows.

    Raises:
        ValueError: If there is none, since the scoring did not finish, or it is of another format.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise ValueError(
            f"{folder} holds no finished scores, it has no {MANIFEST}: run shortlist score again"
        )
    return read_sealed(path, SCORES_FORMAT)


def rows_key(about: Mapping[str, Any]) -> str:
    """Return a hash of the rows that a manifest of scores is about, whatever their order."""
    digests = sorted(part["data"] for part in about["parts"])
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


@dataclass(frozen=True)
class _Scored:
    """The rows of a part that could be read: their classes, their columns by name, and facts if asked for."""

    target: Tensor
    columns: Columns
    facts: RowFacts | None = None


def _read_parts(
    folder: str | Path,
    about: Mapping[str, Any],
    columns: Sequence[str],
    *,
    optional: Callable[[str], bool] | None = None,
) -> Iterator[_Scored]:
    """Read some columns of all parts, one part after the other, in the order of the rows.

    Args:
        folder: Folder of the parts.
        about: The manifest.
        columns: Names of the columns.
        optional: Which of the columns that not all parts have are read, such as facts about the rows.

    Raises:
        ValueError: If a part is missing or damaged, or is not the one that the manifest tells about.
    """
    from pyarrow import compute

    api: Any = compute
    for listed in about["parts"]:
        path = Path(folder) / listed["file"]
        if not path.exists():
            raise ValueError(f"{path} is missing: run shortlist score again")
        part = check_part(path, {key: about.get(key) for key in ("model", "predictors", "keep", "place")})
        if not part.listed().items() <= listed.items():
            raise ValueError(
                f"{path} was made of other rows than those of {MANIFEST} ({part.rows} rows, not "
                f"{listed['rows']}): run shortlist score again"
            )
        table = read_table(path, ["target", "error", *columns], optional=optional)
        table = table.filter(api.is_null(table["error"]))
        target = _tensor(table["target"].fill_null(-100), about["keep"]).long()
        names = [name for name in table.column_names if name not in ("target", "error")]
        facts = RowFacts.of_plain({name: table[name].to_pylist() for name in names if is_fact(name)})
        numbers = {name: _tensor(table[name], about["keep"]) for name in names if not is_fact(name)}
        yield _Scored(target, numbers, facts)


def _tensor(column: Any, keep: int) -> Tensor:
    """Return a column as a tensor: (n,), or (n, keep) if it has lists."""
    from pyarrow import types

    column = column.combine_chunks()
    has_lists = types.is_list(column.type)
    if has_lists:
        values = column.flatten()
    else:
        values = column.fill_null(0 if str(column.type) != "bool" else False)
    tensor = torch.from_numpy(values.to_numpy(zero_copy_only=False).copy())
    return tensor.view(-1, keep) if has_lists else tensor


def calibrate_from_scores(folder: str | Path, predictors: Mapping[str, SetPredictor]) -> None:
    """Calibrate predictors on scored rows; the thresholds are those of all scores.

    Args:
        folder: Folder that ``shortlist score`` wrote.
        predictors: Predictors by name, which are calibrated in place.

    Raises:
        NotKeptError: If a predictor needs more than is kept; the message says how much is enough.
    """
    about = read_scores(folder)
    rows = about["rows"] - about["errors"]
    calibrations = [KeptCalibration(predictor, rows) for predictor in predictors.values()]
    for part in _read_parts(folder, about, ["probabilities", "true_probability"]):
        for calibration in calibrations:
            calibration.update(_kept(part, about["classes"]))
    for calibration in calibrations:
        calibration.finish()


def recalibrated(
    model: Model, folder: str | Path, changes: Mapping[str, Mapping[str, Any] | None]
) -> tuple[Model, dict[str, SetPredictor]]:
    """Return a model whose predictors are calibrated on scored rows, and these predictors.

    Args:
        model: The model that the rows were scored with.
        folder: Folder that ``shortlist score`` wrote.
        changes: By name of a predictor, its registered name and options as in a recipe, or ``None`` to leave
            one of the model out. All others of the model are calibrated anew.
    """
    manifest = read_scores(folder)
    if manifest["model"] != model_key(model):
        raise ValueError(f"{folder} holds the scores of another model")
    wanted: dict[str, Mapping[str, Any] | None] = {
        name: {"name": predictor_name(type(predictor)), **predictor.options()}
        for name, predictor in model.predictors.items()
        if name not in changes
    }
    made = {}
    for name, options in {**wanted, **changes}.items():
        if options is not None:
            old = model.predictors[name] if name in wanted else None
            if old is not None and old.weights is not None:
                raise NotKeptError(
                    f"{name} has class priors, and so needs the scores of all classes: leave it out "
                    f"(--set predictors.{name}=null)"
                )
            made[name] = make(options["name"], {k: v for k, v in options.items() if k != "name"})
    calibrate_from_scores(folder, made)
    changed: dict[str, Any] = {"predictors": made, "promises": {}}
    changed["about"] = model.about | {"calibration_rows": rows_key(manifest)}
    if _has_whole_rows(manifest):
        scores, target, facts = _whole_rows(folder, manifest)
        changed["calibration_rows"] = keep_rows(scores, target, model.score_map, model.classes, facts)
    return changed_model(model, **changed), made


def _has_whole_rows(about: Mapping[str, Any]) -> bool:
    """Whether all classes of each row are kept, and all rows are few enough to hold."""
    return about["keep"] == about["classes"] and about["rows"] * about["classes"] <= _MOST_SCORES


def _whole_rows(folder: str | Path, about: Mapping[str, Any]) -> tuple[Tensor, Tensor, RowFacts | None]:
    """Return the scores (n, c) of rows of which all classes are kept, their classes, and what is known."""
    parts = [*_read_parts(folder, about, ["classes", "log_probabilities"], optional=is_fact)]
    pairs = [(part.columns["log_probabilities"], part.columns["classes"].long()) for part in parts]
    scores = [torch.empty_like(logs).scatter_(1, classes, logs) for logs, classes in pairs]
    return torch.cat(scores), torch.cat([part.target for part in parts]), _facts(parts)


def _facts(parts: Sequence[_Scored]) -> RowFacts | None:
    return RowFacts.joined((part.facts, len(part.target)) for part in parts)


def evaluate_place(folder: str | Path, model: Model, at: PlaceLists) -> PopulationNumbers:
    """Measure lists at a place that rows were scored with, beside lists that are only cut to it.

    As :func:`~shortlist.metrics.measure_place`: one photo of each object whose class occurs there.

    Args:
        folder: Folder that ``shortlist score --place`` wrote.
        model: The model that the rows were scored with.
        at: The lists.

    Raises:
        ValueError: If the rows were scored by another model or for other lists, if no row has a class, or
            none has a class of the place.
    """
    about = read_scores(folder)
    if about["model"] != model_key(model):
        raise ValueError(f"{folder} holds the scores of another model")
    if about.get("place") != at.key(model):
        raise ValueError(
            f"{folder} has no lists of {at.place.name} with coverage {at.coverage:g} by the calibration rows "
            f"of this model: run shortlist score --place FILE --coverage {at.coverage:g} to another folder"
        )
    names = ["place.hit", "place.size", "place.cut.hit", "place.cut.size"]
    parts = [*_read_parts(folder, about, names, optional=is_fact)]
    target, facts = torch.cat([part.target for part in parts]), _facts(parts)
    weights = at.place.match(model.classes).vector
    objects = None if facts is None else facts.objects
    occurs = (target >= 0) & (weights[target.clamp_min(0)] > 0)
    chosen = photos_of_objects(torch.arange(len(target)) if objects is None else objects, 1, occurs)[:, 0]
    if not (target >= 0).any():
        raise ValueError(
            f"rows of {folder} must have classes to measure lists by, got none: score photos with classes"
        )
    if not len(chosen):
        raise ValueError(f"rows of {folder} must have a class of the place, got none")
    hit, size, cut_hit, cut_size = (
        torch.cat([part.columns[name] for part in parts])[chosen].double() for name in names
    )
    population, labels = at.population(model), target[chosen]
    of_place = lists_at_place(hit, size, labels, weights) if population.is_enough(at.coverage) else None
    common = lists_at_place(cut_hit, cut_size, labels, weights)
    return PopulationNumbers(len(chosen), population.size, of_place, common)


def place_lists(folder: str | Path) -> dict[str, float]:
    """Return the coverage of the lists that rows were scored with at a place, and their mean size."""
    about = read_scores(folder)
    parts = _read_parts(folder, about, ["place.size"])
    sizes = torch.cat([part.columns["place.size"] for part in parts]).double()
    return {"coverage": about["place"]["coverage"], "size": float(sizes.mean())}


def evaluate_populations(folder: str | Path, model: Model, coverage: float) -> PopulationResults | None:
    """Measure lists of scored rows by number of photos and by group, where the rows have such facts.

    Args:
        folder: Folder that ``shortlist score`` wrote.
        model: The model that the rows were scored with.
        coverage: Promised coverage of the lists.

    Returns:
        Numbers as those of a run; ``None`` if nothing is known about the rows, or not all classes were kept.
    """
    about = read_scores(folder)
    if model.calibration_rows is None or not _has_whole_rows(about):
        return None
    scores, target, facts = _whole_rows(folder, about)
    with_class = (target >= 0).nonzero().squeeze(1)
    if facts is None or not len(with_class):
        return None
    rows = scores[with_class], target[with_class]
    return measure_populations(model.calibration_rows, *rows, facts=facts.take(with_class), coverage=coverage)


def _kept(part: _Scored, classes: int) -> KeptRows:
    return KeptRows(part.columns["probabilities"], classes, part.target, part.columns["true_probability"])


def evaluate_scores(
    folder: str | Path,
    predictors: Mapping[str, SetPredictor],
    class_table: ClassTable,
    *,
    model: str | None = None,
    num_resamples: int | None = None,
) -> Results:
    """Compute the metrics of scored rows whose class is known, and of the sets of predictors.

    Sets of a predictor that the rows were scored with are in the parts. Those of another one, as after a new
    calibration, are made of the kept probabilities.

    Args:
        folder: Folder that ``shortlist score`` wrote.
        predictors: Predictors by name.
        class_table: Table of the model's classes.
        model: Hash of the model (:func:`~shortlist.passes.score.model_key`), to refuse scores of another.
        num_resamples: Number of resamples for the intervals; by default 1000, fewer above 200,000 rows and no
            fewer than 100.

    Raises:
        NotKeptError: If a set is larger than what is kept; the message says how much is enough.
    """
    about = read_scores(folder)
    if model is not None and about["model"] != model:
        raise ValueError(f"{folder} holds the scores of another model")
    if about["classes"] != len(class_table):
        raise ValueError(f"class_table must have {about['classes']} classes, got {len(class_table)}")
    scored = {n for n, p in predictors.items() if about["predictors"].get(n) == predictor_key(p)}
    parts = [
        _numbers(part, {n: p for n, p in predictors.items() if n not in scored}, scored, about)
        for part in _read_parts(
            folder, about, _columns(scored, len(scored) < len(predictors)), optional=_SHOWN.__contains__
        )
    ]
    columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if parts else {}
    if not len(columns.get("target", ())):
        raise ValueError(f"{folder} has no rows whose class is known")
    number = len(columns["target"])
    if num_resamples is None:
        num_resamples = min(1000, max(100, _MOST_DRAWS // number))
    rows = row_numbers(columns, list(predictors), ignored=about["rows"] - number)
    return evaluate(rows, None, predictors, class_table, num_resamples=num_resamples)


_SHOWN = ("shown_confidence", "shown_nll", "shown_brier", "shown_right")


def _columns(scored: set[str], kept: bool) -> list[str]:
    """The columns that an evaluation reads: sets of scored predictors, kept probabilities for others."""
    columns = ["classes", "log_probabilities", "true_log_probability", "rank", "brier"]
    columns += [f"{name}.{key}" for name in sorted(scored) for key in ("size", "hit")]
    return columns + (["probabilities", "true_probability"] if kept else [])


def _numbers(
    part: _Scored, others: Mapping[str, SetPredictor], scored: set[str], about: dict
) -> dict[str, Tensor]:
    """The numbers that an evaluation keeps of the rows of a part whose class is known."""
    has_class, columns = part.target >= 0, part.columns
    nll = -columns["true_log_probability"].double()
    numbers = {
        "target": part.target,
        "guess": columns["classes"][:, 0].long(),
        "first": columns["rank"],
        "last": columns["rank"],
        "has_nan": torch.zeros_like(has_class),
        "confidence": columns["log_probabilities"][:, 0].double().exp(),
        "nll": nll,
        "brier": columns["brier"].double(),
        "score_nll": nll,
        "right": (columns["rank"] == 1).double(),
    }
    if "shown_nll" in columns:
        numbers |= {key.removeprefix("shown_"): columns[key].double() for key in _SHOWN}
    for name in scored:
        numbers |= {f"hit {name}": columns[f"{name}.hit"], f"size {name}": columns[f"{name}.size"].long()}
    for name, predictor in others.items():
        rows, rule = _kept(part, about["classes"]), kept_rule(predictor)
        sets, whole = rule.sets(rows)
        if not bool(whole[has_class].all()):
            raise NotKeptError(
                f"{name} has sets of more classes than the {about['keep']} that are kept of each row: score "
                f"with --keep {rule.enough(about['classes'])}"
            )
        numbers[f"hit {name}"] = rule.hits(rows, columns["rank"])
        numbers[f"size {name}"] = sets.sum(1)
    return {name: values[has_class] for name, values in numbers.items()}
