"""Files of a finished model: one folder, with each part in its own file.

``model.json`` (format, network, preprocessing, names of the predictors), ``network.safetensors``,
``class_table.json``, ``score_map.json``, ``predictors/NAME.json`` with their states.
"""

import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from shortlist._files import replacing, write_text
from shortlist.class_table import ClassTable
from shortlist.predictors import SetPredictor, load, save
from shortlist.predictors.saving import state_path
from shortlist.scores import ScoreMap

__all__ = [
    "ModelError",
    "check_predictor_names",
    "model_folder",
    "new_folder",
    "read_class_table",
    "read_description",
    "read_network",
    "read_predictors",
    "read_score_map",
    "reading",
    "write_class_table",
    "write_description",
    "write_network",
    "write_predictors",
    "write_score_map",
]

FORMAT = "shortlist model 1"
_KEYS = {"network", "preprocessing", "head", "classifier", "predictors", "about"}


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
    with reading(run / "run.json"):
        info = json.loads((run / "run.json").read_text(encoding="utf-8"))
        state, kind = info["state"], info["format"]
    if kind == "shortlist run 1":
        raise ModelError(
            f"{run} was written by an earlier version ({kind}), whose runs do not say what their scores "
            "mean: train it again"
        )
    if state == "calibrating":
        raise ModelError(f"{run} was stopped while it was calibrated: calibrate it again")
    if state != "finished":
        raise ModelError(f"{run} is not finished, it is {state}: go on with shortlist train --resume {run}")


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Give a temporary folder to fill, which becomes ``path`` when the block ends without an error."""
    path = Path(path)
    if path.exists() or path.is_symlink():
        raise ModelError(f"{path} exists: a model is saved to a new folder")
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        temporary.rename(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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


def write_description(folder: str | Path, content: Mapping[str, Any]) -> None:
    """Write ``model.json``; ``content`` has the keys that :func:`read_description` returns."""
    text = json.dumps({"format": FORMAT, **content}, ensure_ascii=False, indent=2, allow_nan=False)
    write_text(Path(folder) / "model.json", text + "\n")


def read_description(folder: str | Path) -> dict[str, Any]:
    """Read ``model.json``: network, preprocessing, head, classifier, names of predictors, about."""
    path = Path(folder) / "model.json"
    with reading(path):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise ValueError(f"its format is not {FORMAT!r}")
        if set(content) != _KEYS:
            raise ValueError(f"it must have {', '.join(sorted(_KEYS))}, got {', '.join(sorted(content))}")
        for key, kind in (("predictors", list), ("about", dict)):
            if not isinstance(content[key], kind):
                raise ValueError(f"{key} must be a {kind.__name__}, got {type(content[key]).__name__}")
        check_predictor_names(content["predictors"])
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
        network.load_state_dict(load_file(path))


def write_class_table(folder: str | Path, class_table: ClassTable) -> None:
    """Write ``class_table.json``."""
    class_table.save(Path(folder) / "class_table.json")


def read_class_table(folder: str | Path) -> ClassTable:
    """Read ``class_table.json``."""
    path = Path(folder) / "class_table.json"
    with reading(path):
        return ClassTable.load(path)


def write_score_map(folder: str | Path, score_map: ScoreMap) -> None:
    """Write ``score_map.json``."""
    write_text(Path(folder) / "score_map.json", json.dumps(score_map.to_dict(), indent=0) + "\n")


def read_score_map(folder: str | Path) -> ScoreMap:
    """Read ``score_map.json``."""
    path = Path(folder) / "score_map.json"
    with reading(path):
        return ScoreMap.from_dict(json.loads(path.read_text(encoding="utf-8")))


def write_predictors(folder: str | Path, predictors: Mapping[str, SetPredictor]) -> None:
    """Replace the predictors in ``predictors/``, and their names in ``model.json`` if it exists.

    The names come after the new files and before old ones are removed, so that all that are named are there.
    """
    check_predictor_names(predictors)
    folder = Path(folder)
    for name, predictor in predictors.items():
        save(predictor, _predictor_path(folder, name))
    if (folder / "model.json").is_file():
        write_description(folder, read_description(folder) | {"predictors": list(predictors)})
    kept = {_predictor_path(folder, name) for name in predictors}
    for path in set((folder / "predictors").glob("*.json")) - kept:
        state = state_path(path)
        path.unlink()
        if state is not None:
            state.unlink(missing_ok=True)


def read_predictors(folder: str | Path, names: Iterable[str]) -> dict[str, SetPredictor]:
    """Read the predictors of these names, in this order."""
    predictors = {}
    for name in names:
        path = _predictor_path(Path(folder), name)
        with reading(path):
            predictors[name] = load(path)
    return predictors


def _predictor_path(folder: Path, name: str) -> Path:
    return folder / "predictors" / f"{name}.json"
