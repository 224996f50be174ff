"""Calibrate predictors and compute metrics from parts of scored rows, which are read one after the other."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist.class_table import ClassTable
from shortlist.engine.parts import (
    ScoredPart,
    model_key,
    predictor_key,
    read_part,
    read_parts,
    read_scores,
    rows_key,
)
from shortlist.metrics import Results
from shortlist.metrics.evaluation import results_of_rows
from shortlist.metrics.ranks import Ranks
from shortlist.metrics.rows import RowNumbers
from shortlist.model import Model
from shortlist.predictors import PREDICTORS, SetPredictor, make
from shortlist.predictors.kept import (
    KeptCalibration,
    KeptRows,
    NotKeptError,
    enough_to_keep,
    kept_hits,
    kept_sets,
)

__all__ = ["calibrate_from_scores", "evaluate_scores", "recalibrated"]

_MOST_DRAWS = 200_000_000  # rows drawn for intervals, in all resamples


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
    for part in read_parts(folder, ["probabilities", "true_probability"]):
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
    kinds = {kind: name for name, kind in PREDICTORS.items()}
    wanted: dict[str, Mapping[str, Any] | None] = {
        name: {"name": kinds[type(predictor)], **predictor.options()}
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
    parts: dict[str, Any] = {field: getattr(model, field) for field in _SAME}
    parts["about"] = model.about | {"calibration_rows": rows_key(manifest)}
    return Model.from_parts(model.network, model.classes, predictors=made, **parts), made


_SAME = ("preprocessing", "score_map", "novelty", "head", "classifier", "spec", "summary")


def _kept(part: ScoredPart, classes: int) -> KeptRows:
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
        model: Hash of the model (:func:`~shortlist.engine.parts.model_key`), to refuse scores of another.
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
    known = {n for n, one in predictors.items() if about["predictors"].get(n) == predictor_key(one)}
    parts = [
        _numbers(part, {n: p for n, p in predictors.items() if n not in known}, known, about)
        for part in _parts(folder, about, known, len(known) < len(predictors))
    ]
    columns = {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if parts else {}
    if not len(columns.get("target", ())):
        raise ValueError(f"{folder} has no rows whose class is known")
    rows = _rows(columns, list(predictors))
    if num_resamples is None:
        num_resamples = min(1000, max(100, _MOST_DRAWS // len(rows.target)))
    ignored = about["rows"] - len(rows.target)
    return results_of_rows(rows, predictors, class_table, num_resamples=num_resamples, ignored_rows=ignored)


_SHOWN = ("shown_confidence", "shown_nll", "shown_right")


def _parts(folder: str | Path, about: dict, known: set[str], kept: bool) -> Iterator[ScoredPart]:
    wanted = ["classes", "log_probabilities", "true_log_probability", "rank"]
    wanted += [f"{name}.{key}" for name in sorted(known) for key in ("size", "hit")]
    wanted += ["probabilities", "true_probability"] if kept else []
    for part in about["parts"]:
        yield read_part(folder, part, about, wanted, optional=_SHOWN)


def _numbers(
    part: ScoredPart, others: Mapping[str, SetPredictor], known: set[str], about: dict
) -> dict[str, Tensor]:
    """The numbers that an evaluation keeps of the rows of a part whose class is known."""
    has_class, columns = part.target >= 0, part.columns
    nll = -columns["true_log_probability"].double()
    numbers = {
        "target": part.target,
        "guess": columns["classes"][:, 0].long(),
        "rank": columns["rank"],
        "confidence": columns["log_probabilities"][:, 0].double().exp(),
        "nll": nll,
        "score_nll": nll,
        "right": (columns["rank"] == 1).double(),
    }
    if "shown_nll" in columns:
        shown = {key.removeprefix("shown_"): columns[key].double() for key in _SHOWN}
        numbers |= shown
    for name in known:
        numbers |= {f"hit {name}": columns[f"{name}.hit"], f"size {name}": columns[f"{name}.size"].long()}
    for name, predictor in others.items():
        rows = _kept(part, about["classes"])
        sets, whole = kept_sets(predictor, rows)
        if not bool(whole[has_class].all()):
            raise NotKeptError(
                f"{name} has sets of more classes than the {about['keep']} that are kept of each row: score "
                f"with --keep {enough_to_keep(predictor, about['classes'])}"
            )
        numbers[f"hit {name}"] = kept_hits(predictor, rows, columns["rank"])
        numbers[f"size {name}"] = sets.sum(1)
    return {name: values[has_class] for name, values in numbers.items()}


def _rows(columns: Mapping[str, Tensor], names: list[str]) -> RowNumbers:
    return RowNumbers(
        target=columns["target"],
        guess=columns["guess"],
        ranks=Ranks(columns["rank"], columns["rank"], torch.ones_like(columns["target"], dtype=torch.bool)),
        has_nan=torch.zeros_like(columns["target"], dtype=torch.bool),
        confidence=columns["confidence"],
        right=columns["right"],
        nll=columns["nll"],
        score_nll=columns["score_nll"],
        hits={name: columns[f"hit {name}"] for name in names},
        sizes={name: columns[f"size {name}"] for name in names},
        nodes={},
    )
