"""Files of a finished model: one folder, with each part in its own file.

``model.json`` (format, network, preprocessing, names and promises of the predictors),
``network.safetensors``, ``class_table.json``, ``score_map.json``, ``predictors/NAME.json`` with their states,
``novelty.json`` with its state if there is a detector of strangers, ``summary.safetensors`` if something is
kept of the calibration rows, and ``MODEL_CARD.md`` for people. ``model.json`` is the manifest too: it is
written last, with size and hash of each file, and what is read is checked against it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from shortlist._files import replacing, replacing_folder, write_text
from shortlist._json import read_json
from shortlist._manifest import (
    check_file,
    read_run_manifest,
    read_sealed,
    record_files,
    record_text,
    sealed_text,
)
from shortlist._messages import one_line
from shortlist.class_table import ClassTable
from shortlist.model.card import card_text
from shortlist.model.misfit import misfit
from shortlist.model.summary import CalibrationSummary
from shortlist.predictors import (
    NoveltyDetector,
    Promise,
    SetPredictor,
    load,
    load_novelty,
    save,
    save_novelty,
)
from shortlist.predictors.saving import state_path
from shortlist.scores import ScoreMap

__all__ = [
    "ModelError",
    "check_predictor_names",
    "model_folder",
    "new_folder",
    "read_class_table",
    "read_description",
    "read_manifest",
    "read_network",
    "read_novelty",
    "read_predictors",
    "read_promises",
    "read_score_map",
    "read_summary",
    "reading",
    "write_calibration",
    "write_class_table",
    "write_description",
    "write_network",
    "write_promises",
]

FORMAT = "shortlist model 4"
_KEYS = {"network", "preprocessing", "head", "classifier", "predictors", "promises", "novelty", "about"}
_TRAINED = ("network.safetensors", "class_table.json")  # which a calibration leaves alone
_SUMMARY = "summary.safetensors"
_CARD = "MODEL_CARD.md"
_PARTS = (*_TRAINED, "score_map.json", _SUMMARY, _CARD)


class ModelError(ValueError):
    """Raised if a folder is not a complete model; the message names the file."""


def model_folder(path: str | Path) -> Path:
    """Return the folder with ``model.json``: the given one, or ``model`` inside it, as in a run folder."""
    path = Path(path)
    found = next((folder for folder in (path, path / "model") if (folder / "model.json").is_file()), None)
    for run in (path, path.parent):
        if (run / "run.json").is_file() and (run == path or path.name == "model"):
            _check_finished(run)
    if found is None:
        what = (
            "it has no model.json" if path.is_dir() else "it is a file" if path.exists() else "there is none"
        )
        raise ModelError(f"{path} is not a folder with a saved model: {what}")
    return found


def _check_finished(run: Path) -> None:
    """Refuse the model of a run that is not finished, since its parts may not belong together."""
    try:
        info = read_run_manifest(run)
    except (ValueError, OSError) as error:
        raise ModelError(str(error)) from error
    state = info["state"]
    if state == "finished":
        with reading(run / "model" / "model.json"):
            check_file(run, "model/model.json", info["files"])
    if state == "calibrating":
        raise ModelError(f"{run} was stopped while it was calibrated: calibrate it again")
    if state != "finished":
        raise ModelError(f"{run} is not finished, it is {state}: go on with shortlist train --resume {run}")


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A temporary folder beside ``path`` to fill; it gets the name ``path`` when the block ends well."""
    there = ModelError(f"{path} exists: a model is saved to a new folder")
    if Path(path).exists():
        raise there
    try:
        with replacing_folder(path) as temporary:
            yield temporary
    except FileExistsError:
        raise there from None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Report any failure in the block as an error of this file."""
    if not path.is_file():
        raise ModelError(f"{path} is missing: the model is not whole")
    try:
        yield
    except Exception as error:  # a damaged file fails in many ways
        reason = " ".join(str(error).split())[:400]
        reason = reason if isinstance(error, ValueError) else f"{type(error).__name__}: {reason}"
        raise ModelError(f"{path} is damaged or was changed: {reason}") from error


def check_predictor_names(names: Iterable[Any]) -> None:
    """Require names that can be file names."""
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[\w.\-]+", name):
            raise ValueError(f"predictors must have names of letters, digits, '.', '-' and '_', got {name!r}")


def write_description(
    folder: str | Path, content: Mapping[str, Any], *, known: Mapping[str, Any] | None = None
) -> None:
    """Write ``model.json``, after all other files.

    Args:
        folder: The folder of the model.
        content: The keys that :func:`read_description` gives.
        known: What the manifest said of files that were not written since: damage is never taken into it.
    """
    write_text(Path(folder) / "model.json", _description_text(Path(folder), content, known or {}))


def _description_text(folder: Path, content: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    names = {name for name in _PARTS if (folder / name).is_file()}
    pairs = [_predictor_path(folder, name) for name in content["predictors"]]
    for path in [*pairs, folder / "novelty.json"] if content["novelty"] else pairs:
        state = state_path(path)
        names |= {str(found.relative_to(folder)) for found in (path, state) if found is not None}
    files = {**record_files(folder, names - known.keys()), **known}
    return sealed_text({"format": FORMAT, **content, "files": files})


def read_description(folder: str | Path) -> dict[str, Any]:
    """Read ``model.json``: network, preprocessing, head, classifier, predictors, promises, novelty, about."""
    path = Path(folder) / "model.json"
    with reading(path):
        content = _read_content(path)
        del content["files"]
        if set(content) != _KEYS:
            raise ValueError(f"it must have {', '.join(sorted(_KEYS))}, got {', '.join(sorted(content))}")
        for key, kind in (("predictors", list), ("promises", dict), ("novelty", bool), ("about", dict)):
            if not isinstance(content[key], kind):
                raise ValueError(f"{key} must be a {kind.__name__}, got {type(content[key]).__name__}")
        check_predictor_names(content["predictors"])
        if set(content["promises"]) != set(content["predictors"]):
            raise ValueError(
                f"promises must be of its predictors ({', '.join(content['predictors'])}), got those of "
                f"{', '.join(content['promises']) or 'none'}"
            )
    return content


def write_network(folder: str | Path, network: nn.Module) -> None:
    """Write the weights to ``network.safetensors``."""
    from safetensors.torch import save_file

    state = {key: value.detach().cpu().contiguous() for key, value in network.state_dict().items()}
    seen: set[int] = set()
    for key, value in state.items():  # the format has no weights under two names
        if value.numel() and value.untyped_storage().data_ptr() in seen:
            state[key] = value.clone()
        seen.add(value.untyped_storage().data_ptr())
    with replacing(Path(folder) / "network.safetensors") as temporary:
        save_file(state, temporary)


def read_network(folder: str | Path, network: nn.Module) -> None:
    """Fill a network with the weights of ``network.safetensors``, all of them and no others."""
    from safetensors.torch import load_file

    path = Path(folder) / "network.safetensors"
    with reading(path):
        weights = load_file(_checked(path))
    try:
        network.load_state_dict(weights)
    except Exception as error:  # a network of one's own may fail in any way
        why = misfit(network, weights) or one_line(error)
        raise ModelError(f"the network does not fit the weights in {path}: {why}") from error


def write_class_table(folder: str | Path, class_table: ClassTable) -> None:
    """Write ``class_table.json``."""
    class_table.save(Path(folder) / "class_table.json")


def read_class_table(folder: str | Path) -> ClassTable:
    """Read ``class_table.json``."""
    path = Path(folder) / "class_table.json"
    with reading(path):
        return ClassTable.load(_checked(path))


def read_score_map(folder: str | Path) -> ScoreMap:
    """Read ``score_map.json``."""
    path = Path(folder) / "score_map.json"
    with reading(path):
        return ScoreMap.from_dict(read_json(_checked(path)))


def write_calibration(
    folder: str | Path,
    head: str,
    score_map: ScoreMap,
    predictors: Mapping[str, SetPredictor],
    novelty: NoveltyDetector | None = None,
    summary: CalibrationSummary | None = None,
    description: Mapping[str, Any] | None = None,
    promises: Mapping[str, Promise] | None = None,
) -> None:
    """Write the score map and the predictors in place of those that were there, then ``model.json``.

    Args:
        folder: The folder of the model.
        head: The head of the network that the scores are of.
        score_map: From the network's scores to those that the predictors take.
        predictors: All predictors, by name.
        novelty: Detector of strangers; the model has none if ``None``.
        summary: What is kept of the calibration rows; nothing if ``None``.
        description: What else ``model.json`` says; what it says now if ``None``.
        promises: By name of a predictor, its promise with what was measured. Of others it is what the
            predictor tells.
    """
    check_predictor_names(predictors)
    folder, known = Path(folder), {}
    if description is None:
        description = read_description(folder)
        known = {name: record for name, record in read_manifest(folder).items() if name in _TRAINED}
    write_text(folder / "score_map.json", json.dumps(score_map.to_dict(), indent=0) + "\n")
    for name, predictor in predictors.items():
        save(predictor, _predictor_path(folder, name))
    if novelty is not None:
        save_novelty(novelty, folder / "novelty.json")
    _write_summary(folder, summary)
    own = {name: predictor.promise for name, predictor in predictors.items()}
    told = _plain_promises({**own, **(promises or {})})
    parts = {"head": head, "predictors": list(predictors), "promises": told, "novelty": novelty is not None}
    write_text(folder / _CARD, _card_of(folder, {**description, **parts}))
    write_description(folder, {**description, **parts}, known=known)
    kept = {folder / name for name in read_manifest(folder)}
    # of predictors and detectors that are gone, or whose writer was killed
    for path in [*(folder / "predictors").glob("*"), *folder.glob("novelty.*")]:
        if path.is_file() and path not in kept:
            path.unlink()


def write_promises(
    folder: str | Path, promises: Mapping[str, Promise], announce: Callable[[dict[str, Any]], None]
) -> None:
    """Write to ``model.json`` and to the card what predictors promise and what came of it, if that is news.

    ``model.json`` knows the card as it is and as it will be, so that a process that is killed between leaves
    a model that is whole; the next call then writes the card.

    Args:
        folder: The folder of the model.
        promises: By name of the predictor, its promise with what was measured.
        announce: Function that is called with size and hash of the new ``model.json`` before it is written.
    """
    folder = Path(folder)
    description = read_description(folder)
    told = {**description["promises"], **_plain_promises(promises)}
    news = {**description, "promises": told}
    card = _card_of(folder, news)
    if told != description["promises"]:
        known, new = read_manifest(folder), record_text(card)
        last = known.get(_CARD, new)
        known[_CARD] = last.get("next", last) | {"next": new}
        text = _description_text(folder, news, known)
        announce(record_text(text))
        write_text(folder / "model.json", text)
    if not (folder / _CARD).is_file() or (folder / _CARD).read_bytes() != card.encode():
        write_text(folder / _CARD, card)


def read_promises(folder: str | Path) -> dict[str, Promise]:
    """Read what each predictor promises, with what was measured."""
    content = read_description(folder)["promises"]
    with reading(Path(folder) / "model.json"):
        return {name: Promise.from_dict(found) for name, found in content.items()}


def _plain_promises(promises: Mapping[str, Promise]) -> dict[str, Any]:
    return {name: promise.to_dict() for name, promise in promises.items()}


def _card_of(folder: Path, description: Mapping[str, Any]) -> str:
    promises = {name: Promise.from_dict(found) for name, found in description["promises"].items()}
    words = ScoreMap.from_dict(read_json(folder / "score_map.json")).words()
    return card_text(description, promises, read_class_table(folder), words)


def _write_summary(folder: Path, summary: CalibrationSummary | None) -> None:
    from safetensors.torch import save_file

    if summary is None:
        (folder / _SUMMARY).unlink(missing_ok=True)
        return
    with replacing(folder / _SUMMARY) as temporary:
        save_file(summary.to_tensors(), temporary)


def read_summary(folder: str | Path) -> CalibrationSummary | None:
    """Read ``summary.safetensors``; ``None`` if the model has none."""
    from safetensors.torch import load_file

    path = Path(folder) / _SUMMARY
    if not path.is_file() and _SUMMARY not in read_manifest(Path(folder)):
        return None
    with reading(path):
        return CalibrationSummary.from_tensors(load_file(_checked(path)))


def read_predictors(folder: str | Path, names: Iterable[str]) -> dict[str, SetPredictor]:
    """Read the predictors of these names, in this order."""
    predictors = {}
    for name in names:
        path = _predictor_path(Path(folder), name)
        with reading(path):
            predictors[name] = load(_checked(path))
    return predictors


def read_novelty(folder: str | Path) -> NoveltyDetector | None:
    """Read the detector of strangers; ``None`` if the model has none."""
    if not read_description(folder)["novelty"]:
        return None
    path = Path(folder) / "novelty.json"
    with reading(path):
        return load_novelty(_checked(path))


def _read_content(path: Path) -> dict[str, Any]:
    content = read_sealed(path)
    found = content.pop("format", None)
    if found != FORMAT:
        raise ValueError(f"its format is {found!r}, not {FORMAT!r}")
    if not isinstance(content.get("files"), dict):
        raise ValueError("it has no manifest of the files")
    return content


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read from ``model.json`` the size and hash of each file of a model, by name."""
    with reading(folder / "model.json"):
        return _read_content(folder / "model.json")["files"]


def _checked(path: Path) -> Path:
    """A file of a model, which must be the one in its manifest; of a model in the making, any."""
    folder = path.parent.parent if path.parent.name == "predictors" else path.parent
    if not (folder / "model.json").is_file():
        return path
    return check_file(folder, str(path.relative_to(folder)), read_manifest(folder))


def _predictor_path(folder: Path, name: str) -> Path:
    return folder / "predictors" / f"{name}.json"
