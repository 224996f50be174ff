"""A folder that makes lists without PyTorch: a model as ONNX, its calibration rows, and a small JSON."""

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from shortlist import __version__
from shortlist._store.files import replacing, replacing_folder, write_text
from shortlist._store.manifest import record_files
from shortlist.model.checks import unknown_meaning
from shortlist.model.choice import Choice
from shortlist.model.graph import example_inputs, features_name, onnx_of, shift_of_shown, why_not, write_onnx
from shortlist.model.inputs import Rows
from shortlist.model.populations import Populations
from shortlist.model.resolving import Resolver
from shortlist.model.weights import Weights, keep_small
from shortlist.predictors import CalibrationRows, NoveltyDetector
from shortlist.promise import default_predictor

if TYPE_CHECKING:
    from shortlist.model.model import Model

LISTS_FORMAT = "shortlist lists 1"
_ONNX, _ROWS, _LISTS = "model.onnx", "rows.safetensors", "lists.json"


def export_lists(
    model: "Model",
    folder: str | Path,
    *,
    version: str = "",
    weights: Weights = "float32",
    batch: Rows | None = None,
) -> dict[str, Any]:
    """Write what makes a model's lists without PyTorch to a new folder, which appears when it is complete.

    ``model.onnx`` goes from a picture, or from prepared inputs, to scores and sets. ``rows.safetensors`` are
    the calibration rows, from which sets of any coverage, size and place are made. ``lists.json`` is the
    rest: classes, promises, inputs and outputs, and size and hash of both files. See docs/guides/export.md.

    Args:
        model: The model.
        folder: Folder to write; it must not exist, or be empty.
        version: Version of the model, as its server tells it.
        weights: How the weights are kept in the file; those of the model must be rounded so already, by
            :func:`~shortlist.model.round_weights`, before it is calibrated.
        batch: Inputs (n, ...) that show shape and type, where nothing else tells; see
            :meth:`Model.export_onnx`.

    Returns:
        What ``lists.json`` has.

    Raises:
        FileExistsError: If the folder has files already.
        UnknownPriorError: If the meaning of the scores is not known.
    """
    if model.score_map.now is None:
        raise unknown_meaning(len(model.classes))
    with replacing_folder(folder) as new:
        head = {"format": LISTS_FORMAT, "shortlist": __version__, "version": version}
        content = {**head, "weights": weights, **_written(model, new, weights, batch)}
        content["files"] = record_files(new, [path.name for path in new.iterdir()])
        content = json.loads(json.dumps(content, allow_nan=False))  # as a reader will see it
        write_text(new / _LISTS, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return content


def _written(model: "Model", folder: Path, weights: Weights, batch: Rows | None) -> dict[str, Any]:
    """Write the ONNX file and the calibration rows, and return what is to be said about the model."""
    classifier, width = _features(model, batch)
    scores, features = torch.zeros(2, len(model.classes)), torch.zeros(2, width or 1)
    reasons = {name: why_not(predictor, scores) for name, predictor in model.predictors.items()}
    sets = {name: f"sets_{number}" for number, (name, why) in enumerate(reasons.items()) if why is None}
    novelty, left_out = model.novelty, [f"{name}: {why}" for name, why in reasons.items() if why is not None]
    why_novelty = None if novelty is None else _why_no_flags(novelty, classifier, scores, features)
    if why_novelty is not None:
        left_out.append(f"novelty: {why_novelty}")
    pictures = model.preprocessing is not None
    made = onnx_of(
        model,
        {sets[name]: model.predictors[name] for name in sets},
        batch=batch,
        pictures=pictures,
        classifier=classifier,
        novelty=novelty is not None and why_novelty is None,
    )
    keep_small(made, weights)
    write_onnx(made, folder / _ONNX)
    rows = model.calibration_rows
    if rows is not None:
        _write_rows(rows, folder / _ROWS)
    shown, priors = shift_of_shown(model), model.score_map.now
    assert priors is not None  # by the check
    return {
        "name": str(model.about.get("name") or ""),
        "input": _tensors(made.graph.input)[0],
        "outputs": {each["name"]: each["shape"] for each in _tensors(made.graph.output)},
        "preprocessing": None if model.preprocessing is None else model.preprocessing.to_dict(),
        "classes": {column.name: getattr(model.classes, column.name) for column in fields(model.classes)},
        "priors": priors.priors.tolist(),
        "shown": None if shown is None else shown.tolist(),
        "predictors": _predictors(model, sets, reasons),
        "default": default_predictor(model.promises) if model.predictors else None,
        "novelty": _novelty(novelty, why_novelty),
        "rows": None if rows is None else _rows(rows),
        "left_out": left_out,
        "about": model.about,
    }


def _features(model: "Model", batch: Rows | None) -> tuple[str | None, int | None]:
    """Return the name of the classifier and the length of its features, if they can be exported."""
    name = features_name(model.network, model.classifier)
    if name is None:
        return None, None
    batch = example_inputs(model.spec, model.preprocessing) if batch is None else batch
    try:
        features = model.features(batch)
    except ValueError:  # of a classifier that runs more than once
        return None, None
    return (name, features.shape[1]) if features.ndim == 2 else (None, None)


def _why_no_flags(
    detector: NoveltyDetector, classifier: str | None, scores: torch.Tensor, features: torch.Tensor
) -> str | None:
    if detector.needs != "scores" and classifier is None:
        return "the features that it needs cannot be exported"
    return why_not(detector, scores, features)


def _predictors(model: "Model", sets: dict[str, str], reasons: dict[str, str | None]) -> list[dict[str, Any]]:
    """Return what is said about each predictor."""
    populations = Populations(model.calibration_rows, model.classes)
    resolver = Resolver(model.classes, model.predictors, model.promises, populations, knows_priors=True)
    return [
        {
            "name": name,
            "kind": type(predictor).__name__,
            "output": sets.get(name),
            "why_not": reasons[name],
            "choice": _in_other_words(resolver, name),
            "promise": model.promises[name].to_dict(),
        }
        for name, predictor in model.predictors.items()
    ]


def _in_other_words(resolver: Resolver, name: str) -> dict[str, Any] | None:
    """Return how the calibration rows make a predictor's kind of sets, if they can."""
    try:
        words = resolver.in_other_words(Choice(predictor=name, photos=2))
    except ValueError:  # sets that are for one photo only
        return None
    if words.predictor is not None:
        return None
    return {
        key: getattr(words, key) for key in ("top", "average", "coverage", "macro", "at_least", "at_most")
    }


def _novelty(detector: NoveltyDetector | None, why: str | None) -> dict[str, Any] | None:
    if detector is None:
        return None
    return {"output": "novel" if why is None else None, "why_not": why, "level": detector.level}


def _rows(rows: CalibrationRows) -> dict[str, Any]:
    """Return what is said about the file of the calibration rows."""
    groups = {name: list(names) for name, (_, names) in rows.facts.groups.items()}
    return {"file": _ROWS, "rows": len(rows), "kept_classes": rows.width, "groups": groups}


def _write_rows(rows: CalibrationRows, path: Path) -> None:
    from safetensors.torch import save_file

    with replacing(path) as temporary:
        save_file({name: part.contiguous() for name, part in rows.to_tensors().items()}, temporary)


def _tensors(values: Any) -> list[dict[str, Any]]:
    """Return name, type and shape of inputs or outputs of an ONNX graph; names of lengths that may vary."""
    from onnx import helper

    return [
        {
            "name": value.name,
            "type": helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name,
            "shape": [each.dim_value or each.dim_param for each in value.type.tensor_type.shape.dim],
        }
        for value in values
    ]
