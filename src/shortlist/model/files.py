"""Files of a finished model: one folder, with each part in its own file.

``model.json`` (format, network, preprocessing, names and promises of the predictors),
``network.safetensors``, ``class_table.json``, ``score_map.json``, ``predictors/NAME.json`` with their states,
``novelty.json`` with its state if there is a detector of strangers, ``calibration_rows.safetensors`` if
calibration rows are kept, ``results.json`` if its maker gave the results of test rows, and
``README.md`` with ``coverage.svg`` for people and for the Hugging Face hub. ``model.json`` is the manifest
too: it is written last, with size and hash of each file, and what is read is checked against it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from shortlist._named_code import UntrustedCodeError
from shortlist._store.files import replacing, replacing_folder, write_text
from shortlist._store.json import read_json
from shortlist._store.manifest import (
    check_file,
    read_run_manifest,
    read_sealed,
    record_files,
    record_text,
    sealed_text,
)
from shortlist.class_table import ClassTable
from shortlist.metrics import Results
from shortlist.model.card import FIGURE, PAGE, card_files
from shortlist.models import NetworkSpec
from shortlist.predictors import (
    CalibrationRows,
    NoveltyDetector,
    Promise,
    SetPredictor,
    save,
    state_path,
)
from shortlist.preprocessing import Preprocessing
from shortlist.scores import ScoreMap

FORMAT = "shortlist model 6"
_WITHOUT_ROWS = "shortlist model 5"  # kept no calibration rows: only a new calibration reads it
_KEYS = {"network", "preprocessing", "head", "classifier", "predictors", "promises", "novelty", "about"}
_TRAINED = ("network.safetensors", "class_table.json")  # which a calibration leaves alone
ROWS = "calibration_rows.safetensors"
RESULTS = "results.json"
_CARD = (PAGE, FIGURE)
_PARTS = (*_TRAINED, "score_map.json", ROWS, RESULTS, *_CARD)


class ModelError(ValueError):
    """Raised if a folder is not a complete model; the message names the file."""


def model_folder(path: str | Path) -> Path:
    """Return the folder with ``model.json``: the given one, or ``model`` inside it, as in a run folder."""
    path = Path(path)
    folder_of_model = next(
        (folder for folder in (path, path / "model") if (folder / "model.json").is_file()), None
    )
    for run in (path, path.parent):
        if (run / "run.json").is_file() and (run == path or path.name == "model"):
            _check_finished(run)
    if folder_of_model is None:
        what = (
            "it has no model.json" if path.is_dir() else "it is a file" if path.exists() else "there is none"
        )
        raise ModelError(f"{path} is not a folder with a saved model: {what}")
    return folder_of_model


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
    except UntrustedCodeError:
        raise
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
    pairs = [predictor_path(folder, name) for name in content["predictors"]]
    for path in [*pairs, folder / "novelty.json"] if content["novelty"] else pairs:
        state = state_path(path)
        names |= {str(found.relative_to(folder)) for found in (path, state) if found is not None}
    files = {**record_files(folder, names - known.keys()), **known}
    return sealed_text({"format": FORMAT, **content, "files": files})


def read_description(
    folder: str | Path, *, to_calibrate: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read ``model.json``, once; to calibrate anew, that of a model without calibration rows too.

    Returns:
        What it says of the model (network, preprocessing, head, classifier, predictors, promises, novelty,
        about), and the manifest: size and hash of each file, by name.
    """
    path = Path(folder) / "model.json"
    with reading(path):
        content = _read_content(path, to_calibrate=to_calibrate)
        manifest = content.pop("files")
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
    return content, manifest


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


def write_class_table(folder: str | Path, class_table: ClassTable) -> None:
    """Write ``class_table.json``."""
    class_table.save(Path(folder) / "class_table.json")


def write_calibration(
    folder: str | Path,
    head: str,
    score_map: ScoreMap,
    predictors: Mapping[str, SetPredictor],
    novelty: NoveltyDetector | None = None,
    calibration_rows: CalibrationRows | None = None,
    description: Mapping[str, Any] | None = None,
    promises: Mapping[str, Promise] | None = None,
    results: Results | None = None,
) -> None:
    """Write the score map and the predictors in place of those that were there, then ``model.json``.

    Args:
        folder: The folder of the model.
        head: The head of the network that the scores are of.
        score_map: From the network's scores to those that the predictors take.
        predictors: All predictors, by name.
        novelty: Detector of strangers; the model has none if ``None``.
        calibration_rows: Calibration rows to keep; none if ``None``.
        description: What else ``model.json`` says; what it says now if ``None``.
        promises: By name of a predictor, its promise with what was measured. Of others it is what the
            predictor tells.
        results: Results of the new predictors on test rows; the model has none if ``None``.
    """
    check_predictor_names(predictors)
    folder, trained_files = Path(folder), {}
    if description is None:
        description, manifest = read_description(folder, to_calibrate=True)
        trained_files = {name: record for name, record in manifest.items() if name in _TRAINED}
    write_text(folder / "score_map.json", json.dumps(score_map.to_dict(), indent=0) + "\n")
    for name, predictor in predictors.items():
        save(predictor, predictor_path(folder, name))
    if novelty is not None:
        save(novelty, folder / "novelty.json")
    _write_rows(folder, calibration_rows)
    (folder / RESULTS).unlink(missing_ok=True)
    if results is not None:
        results.save(folder / RESULTS)
    stated = {name: predictor.promise for name, predictor in predictors.items()}
    all_promises = _plain_promises({**stated, **(promises or {})})
    parts = {
        "head": head,
        "predictors": list(predictors),
        "promises": all_promises,
        "novelty": novelty is not None,
    }
    card = _card_of(folder, {**description, **parts})
    for name in _CARD:
        (folder / name).unlink(missing_ok=True)
    for name, text in card.items():
        write_text(folder / name, text)
    write_description(folder, {**description, **parts}, known=trained_files)
    kept = {folder / name for name in read_manifest(folder)}
    # of predictors and detectors that are gone, or whose writer was killed
    for path in [*(folder / "predictors").glob("*"), *folder.glob("novelty.*")]:
        if path.is_file() and path not in kept:
            path.unlink()


def description_of(
    spec: NetworkSpec | None,
    preprocessing: Preprocessing | None,
    classifier: str | None,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what ``model.json`` says of the parts that calibration leaves as they are."""
    parts = {"network": spec, "preprocessing": preprocessing}
    plain = {name: None if part is None else part.to_dict() for name, part in parts.items()}
    return {**plain, "classifier": classifier, "about": about}


def write_promises(
    folder: str | Path, promises: Mapping[str, Promise], announce: Callable[[dict[str, Any]], None]
) -> None:
    """Write to ``model.json`` and to the card what predictors promise and what was measured, if it changed.

    ``model.json`` knows the card as it is and as it will be, so that a process that is killed between leaves
    a model that is whole; the next call then writes the card.

    Args:
        folder: The folder of the model.
        promises: By name of the predictor, its promise with what was measured.
        announce: Function that is called with size and hash of the new ``model.json`` before it is written.
    """
    folder = Path(folder)
    description, known = read_description(folder)
    all_promises = {**description["promises"], **_plain_promises(promises)}
    news = {**description, "promises": all_promises}
    card = _card_of(folder, news)
    if all_promises != description["promises"]:
        for name, page in card.items():
            new = record_text(page)
            last = known.get(name, new)
            known[name] = last.get("next", last) | {"next": new}
        text = _description_text(folder, news, known)
        announce(record_text(text))
        write_text(folder / "model.json", text)
    for name, page in card.items():
        if not (folder / name).is_file() or (folder / name).read_bytes() != page.encode():
            write_text(folder / name, page)


def _plain_promises(promises: Mapping[str, Promise]) -> dict[str, Any]:
    return {name: promise.to_dict() for name, promise in promises.items()}


def _card_of(folder: Path, description: Mapping[str, Any]) -> dict[str, str]:
    promises = {name: Promise.from_dict(found) for name, found in description["promises"].items()}
    words = ScoreMap.from_dict(read_json(folder / "score_map.json")).words()
    results = None
    if (folder / RESULTS).is_file():
        with reading(folder / RESULTS):
            results = Results.load(folder / RESULTS)
    return card_files(description, promises, ClassTable.load(folder / "class_table.json"), words, results)


def _write_rows(folder: Path, rows: CalibrationRows | None) -> None:
    from safetensors.torch import save_file

    if rows is None:
        (folder / ROWS).unlink(missing_ok=True)
        return
    with replacing(folder / ROWS) as temporary:
        save_file(rows.to_tensors(), temporary)


def _read_content(path: Path, *, to_calibrate: bool = False) -> dict[str, Any]:
    forms = (FORMAT, _WITHOUT_ROWS) if to_calibrate else (FORMAT,)
    content = read_sealed(path, forms, "calibrate its run anew with shortlist calibrate")
    del content["format"]
    if not isinstance(content.get("files"), dict):
        raise ValueError("it has no manifest of the files")
    return content


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read from ``model.json`` the size and hash of each file of a model, by name, whatever else it says."""
    with reading(folder / "model.json"):
        return _read_content(folder / "model.json", to_calibrate=True)["files"]


def predictor_path(folder: Path, name: str) -> Path:
    """Return the path of the file of a predictor."""
    return folder / "predictors" / f"{name}.json"
