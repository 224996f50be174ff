"""Calibrate predictors and compute metrics from scored rows. Parts are read one after the other."""

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


def read_scores(folder: str | Path, *, model: str | None = None) -> dict[str, Any]:
    """Read the manifest of scored rows.

    Args:
        folder: Folder that ``shortlist score`` wrote.
        model: Hash of a model (:func:`~shortlist.passes.score.model_key`), to refuse scores of another model.

    Raises:
        ValueError: If there is none, since the scoring did not finish, or it is of another format or model.
    """
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise ValueError(
            f"{folder} holds no finished scores, it has no {MANIFEST}: run shortlist score again"
        )
    manifest = read_sealed(path, SCORES_FORMAT)
    if model is not None and manifest["model"] != model:
        raise ValueError(f"{folder} holds the scores of another model")
    return manifest


def rows_key(manifest: Mapping[str, Any]) -> str:
    """Return a hash of the scored rows that a manifest lists, the same for any order of its parts."""
    digests = sorted(part["data"] for part in manifest["parts"])
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


@dataclass(frozen=True)
class _ScoredPart:
    """The rows of a part that could be read: their classes, and the columns and facts that were asked for."""

    target: Tensor
    columns: Columns
    facts: RowFacts | None = None


def _read_parts(
    folder: str | Path,
    manifest: Mapping[str, Any],
    columns: Sequence[str],
    *,
    optional: Callable[[str], bool] | None = None,
) -> Iterator[_ScoredPart]:
    """Read some columns of all parts, one part after the other, in the order of the rows.

    Args:
        folder: Folder of the parts.
        manifest: The manifest.
        columns: Names of the columns.
        optional: Function that accepts names of columns to read where a part has them, such as facts.

    Raises:
        ValueError: If a part is missing or damaged, or is not the part that the manifest lists.
    """
    from pyarrow import compute

    api: Any = compute
    for listed in manifest["parts"]:
        path = Path(folder) / listed["file"]
        if not path.exists():
            raise ValueError(f"{path} is missing: run shortlist score again")
        part = check_part(path, {key: manifest.get(key) for key in ("model", "predictors", "keep", "place")})
        if not part.listed().items() <= listed.items():
            raise ValueError(
                f"{path} was made of other rows than those of {MANIFEST} ({part.rows} rows, not "
                f"{listed['rows']}): run shortlist score again"
            )
        table = read_table(path, ["target", "error", *columns], optional=optional)
        table = table.filter(api.is_null(table["error"]))
        target = _tensor(table["target"].fill_null(-100), manifest["keep"]).long()
        names = [name for name in table.column_names if name not in ("target", "error")]
        facts = RowFacts.of_plain({name: table[name].to_pylist() for name in names if is_fact(name)})
        numbers = {name: _tensor(table[name], manifest["keep"]) for name in names if not is_fact(name)}
        yield _ScoredPart(target, numbers, facts)


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
    """Calibrate predictors on scored rows. The thresholds are the same as from the scores of all classes.

    Args:
        folder: Folder that ``shortlist score`` wrote.
        predictors: Predictors by name, which are calibrated in place.

    Raises:
        NotKeptError: If a predictor needs more classes than are kept; the message says how many are enough.
    """
    manifest = read_scores(folder)
    rows = manifest["rows"] - manifest["errors"]
    calibrations = [KeptCalibration(predictor, rows) for predictor in predictors.values()]
    for part in _read_parts(folder, manifest, ["probabilities", "true_probability"]):
        for calibration in calibrations:
            calibration.update(_kept(part, manifest["classes"]))
    for calibration in calibrations:
        calibration.finish()


def recalibrated(
    model: Model, folder: str | Path, changes: Mapping[str, Mapping[str, Any] | None]
) -> tuple[Model, dict[str, SetPredictor]]:
    """Return a model whose predictors are calibrated on scored rows, and these predictors.

    Args:
        model: The model that the rows were scored with.
        folder: Folder that ``shortlist score`` wrote.
        changes: By name of a predictor, its registered name and options as in a recipe; ``None`` leaves a
            predictor of the model out. All other predictors of the model are calibrated anew.
    """
    manifest = read_scores(folder, model=model_key(model))
    unchanged: dict[str, Mapping[str, Any] | None] = {
        name: {"name": predictor_name(type(predictor)), **predictor.options()}
        for name, predictor in model.predictors.items()
        if name not in changes
    }
    made = {}
    for name, options in {**unchanged, **changes}.items():
        if options is not None:
            old = model.predictors[name] if name in unchanged else None
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


def _has_whole_rows(manifest: Mapping[str, Any]) -> bool:
    """Whether all classes of each row are kept, and the scores of all rows fit in memory."""
    return manifest["keep"] == manifest["classes"] and manifest["rows"] * manifest["classes"] <= _MOST_SCORES


def _whole_rows(folder: str | Path, manifest: Mapping[str, Any]) -> tuple[Tensor, Tensor, RowFacts | None]:
    """Return scores (n, c), classes and facts of rows of which the scores of all classes are kept."""
    parts = [*_read_parts(folder, manifest, ["classes", "log_probabilities"], optional=is_fact)]
    pairs = [(part.columns["log_probabilities"], part.columns["classes"].long()) for part in parts]
    scores = [torch.empty_like(logs).scatter_(1, classes, logs) for logs, classes in pairs]
    return torch.cat(scores), torch.cat([part.target for part in parts]), _facts(parts)


def _facts(parts: Sequence[_ScoredPart]) -> RowFacts | None:
    return RowFacts.joined((part.facts, len(part.target)) for part in parts)


def evaluate_place(folder: str | Path, model: Model, at: PlaceLists) -> PopulationNumbers:
    """Measure the lists for a place that rows were scored with, and lists that are only cut to the place.

    Measured is one photo of each object whose class occurs there, as by
    :func:`~shortlist.metrics.measure_place`.

    Args:
        folder: Folder that ``shortlist score --place`` wrote.
        model: The model that the rows were scored with.
        at: The lists.

    Raises:
        ValueError: If the rows were scored by another model or for other lists, or no row has a class of the
            place.
    """
    manifest = read_scores(folder, model=model_key(model))
    if manifest.get("place") != at.key(model):
        raise ValueError(
            f"{folder} has no lists of {at.place.name} with coverage {at.coverage:g} by the calibration rows "
            f"of this model: run shortlist score --place FILE --coverage {at.coverage:g} to another folder"
        )
    names = ["place.hit", "place.size", "place.cut.hit", "place.cut.size"]
    parts = [*_read_parts(folder, manifest, names, optional=is_fact)]
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
    manifest = read_scores(folder)
    parts = _read_parts(folder, manifest, ["place.size"])
    sizes = torch.cat([part.columns["place.size"] for part in parts]).double()
    return {"coverage": manifest["place"]["coverage"], "size": float(sizes.mean())}


def evaluate_populations(folder: str | Path, model: Model, coverage: float) -> PopulationResults | None:
    """Measure lists of scored rows by number of photos and by group, where the rows have such facts.

    Args:
        folder: Folder that ``shortlist score`` wrote.
        model: The model that the rows were scored with.
        coverage: Promised coverage of the lists.

    Returns:
        The numbers; ``None`` if the rows have no such facts, or not all classes were kept.
    """
    manifest = read_scores(folder)
    if model.calibration_rows is None or not _has_whole_rows(manifest):
        return None
    scores, target, facts = _whole_rows(folder, manifest)
    with_class = (target >= 0).nonzero().squeeze(1)
    if facts is None or not len(with_class):
        return None
    rows = scores[with_class], target[with_class]
    return measure_populations(model.calibration_rows, *rows, facts=facts.take(with_class), coverage=coverage)


def _kept(part: _ScoredPart, classes: int) -> KeptRows:
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

    The parts hold the sets of the predictors that the rows were scored with. The sets of other predictors,
    such as newly calibrated ones, are made from the kept probabilities.

    Args:
        folder: Folder that ``shortlist score`` wrote.
        predictors: Predictors by name.
        class_table: Table of the model's classes.
        model: Hash of the model (:func:`~shortlist.passes.score.model_key`), to refuse scores of another.
        num_resamples: Number of resamples for the intervals; by default 1000, above 200,000 rows fewer, and
            at least 100.

    Raises:
        NotKeptError: If a set has more classes than are kept; the message says how many are enough.
    """
    manifest = read_scores(folder, model=model)
    if manifest["classes"] != len(class_table):
        raise ValueError(f"class_table must have {manifest['classes']} classes, got {len(class_table)}")
    scored = {n for n, p in predictors.items() if manifest["predictors"].get(n) == predictor_key(p)}
    others = {n: p for n, p in predictors.items() if n not in scored}
    names = _columns_to_read(scored, kept=bool(others))
    scored_parts = _read_parts(folder, manifest, names, optional=_SHOWN.__contains__)
    parts = [_numbers(part, others, scored, manifest) for part in scored_parts]
    columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if parts else {}
    if not len(columns.get("target", ())):
        raise ValueError(f"{folder} has no rows whose class is known")
    number = len(columns["target"])
    if num_resamples is None:
        num_resamples = min(1000, max(100, _MOST_DRAWS // number))
    rows = row_numbers(columns, list(predictors), ignored=manifest["rows"] - number)
    return evaluate(rows, None, predictors, class_table, num_resamples=num_resamples)


_SHOWN = ("shown_confidence", "shown_nll", "shown_brier", "shown_right")


def _columns_to_read(scored: set[str], *, kept: bool) -> list[str]:
    """Return the columns that an evaluation reads: sets of scored predictors, perhaps kept probabilities."""
    columns = ["classes", "log_probabilities", "true_log_probability", "rank", "brier"]
    columns += [f"{name}.{key}" for name in sorted(scored) for key in ("size", "hit")]
    return columns + (["probabilities", "true_probability"] if kept else [])


def _numbers(
    part: _ScoredPart, others: Mapping[str, SetPredictor], scored: set[str], manifest: dict
) -> dict[str, Tensor]:
    """Return the numbers for an evaluation, of the rows of a part whose class is known."""
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
        rows, rule = _kept(part, manifest["classes"]), kept_rule(predictor)
        sets, whole = rule.sets(rows)
        if not bool(whole[has_class].all()):
            raise NotKeptError(
                f"{name} has sets of more classes than the {manifest['keep']} that are kept of each row: "
                f"score with --keep {rule.enough(manifest['classes'])}"
            )
        numbers[f"hit {name}"] = rule.hits(rows, columns["rank"])
        numbers[f"size {name}"] = sets.sum(1)
    return {name: values[has_class] for name, values in numbers.items()}
