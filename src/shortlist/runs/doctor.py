"""What is wrong with a folder of ours, file by file, and what can be restored from what."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist._files import is_temporary
from shortlist._manifest import fault_of
from shortlist.model.files import read_manifest
from shortlist.runs.folder import RunFolder
from shortlist.runs.run import RunError

__all__ = ["Finding", "damaged_files", "examine", "with_leftovers"]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a folder.

    Args:
        file: The file, relative to the folder.
        what: What is wrong with it, in words.
        remedy: What to do, in words or as a command.
    """

    file: str
    what: str
    remedy: str


def examine(folder: str | Path) -> list[Finding]:
    """Check every file of a run or of a saved model against its manifest.

    Args:
        folder: A run folder, or a folder with a saved model.

    Returns:
        What is wrong; nothing if all is well.

    Raises:
        ValueError: If it is neither.
    """
    folder = Path(folder)
    if (folder / "run.json").is_file():
        return with_leftovers(folder, _examine_run(RunFolder(folder)))
    if (folder / "model.json").is_file():
        return with_leftovers(folder, _examine_model(folder))
    what = "it has no run.json and no model.json" if folder.is_dir() else "there is no such folder"
    raise ValueError(f"{folder} must be a run folder or a saved model: {what}")


def damaged_files(run: RunFolder) -> list[str]:
    """Return the files of a finished run that are not as its manifests say, with those of its model."""
    return sorted(_lost(run))


def _lost(run: RunFolder) -> dict[str, str]:
    """Return what is wrong with files of a finished run, by name."""
    lost = _differing(run.path, run.info["files"])
    if "model/model.json" in lost:  # nobody knows what the model was made of
        return lost
    inside = _differing(run.model_path, read_manifest(run.model_path))
    return lost | {f"model/{name}": what for name, what in inside.items()}


def _differing(folder: Path, files: Mapping[str, Any]) -> dict[str, str]:
    faults = {name: fault_of(folder, name, record) for name, record in files.items()}
    return {name: fault for name, fault in faults.items() if fault is not None}


def _examine_run(run: RunFolder) -> list[Finding]:
    try:
        info = run.info
    except (RunError, OSError) as error:
        return [Finding("run.json", str(error), "put it back from a copy, or train the run again")]
    if info["state"] == "calibrating":
        what = "the run was stopped while it was calibrated"
        return [Finding("run.json", what, f"shortlist calibrate {run.path}")]
    if info["state"] != "finished":
        what = f"the run is not finished: it is {info['state']}"
        return [Finding("run.json", what, f"shortlist train --resume {run.path}")]
    lost = _lost(run)
    found = [Finding(name, what, _remedy(run, name, lost)) for name, what in lost.items()]
    for name in set(run.own_files()) - info["files"].keys():
        found.append(Finding(name, "is not in the manifest: it was not written by the run", "move it away"))
    return sorted(found, key=lambda finding: finding.file)


def _remedy(run: RunFolder, name: str, lost: Mapping[str, str]) -> str:
    """Return what restores a file, provided that what it is made of is whole."""
    copy = "put it back from a copy, or train the run again"
    if name == "recipe.yaml":
        return copy
    if name.endswith(".ckpt"):
        return f"nothing needs it while all else is whole; {copy}"
    made = {"results.json": "", "results_val.json": " --split val"}
    if name in made and all(other in made for other in lost):
        return f"shortlist evaluate {run.path}{made[name]}"
    parts = ("score_map.json", "summary.safetensors", "MODEL_CARD.md")
    calibration = {*(f"model/{part}" for part in parts), *made}
    folders = ("model/predictors/", "model/novelty.")
    is_calibrated = [other in calibration or other.startswith(folders) for other in lost]
    if all(is_calibrated):
        return f"shortlist calibrate {run.path}"
    if "scores_from" in run.info:
        return "remove the folder, and run its suite again"
    if any(other == "recipe.yaml" or other.endswith(".ckpt") for other in lost):
        return copy
    return f"shortlist train --resume {run.path}, which needs the data"


def _examine_model(folder: Path) -> list[Finding]:
    copy = "put it back from a copy, or save the model again"
    try:
        files = read_manifest(folder)
    except ValueError as error:
        return [Finding("model.json", str(error), copy)]
    return [Finding(name, what, copy) for name, what in sorted(_differing(folder, files).items())]


def with_leftovers(folder: Path, findings: list[Finding]) -> list[Finding]:
    """Add what else does not belong into a folder: links, and what killed processes left behind.

    Whoever works in the folder next takes away what a killed process left.
    """
    findings, named = list(findings), {finding.file for finding in findings}
    for place, folders, files in os.walk(folder):
        for name in sorted(folders + files):
            path = Path(place) / name
            if path.is_symlink() and path != folder / "index":  # an index may be on another disk
                what = "is a link, which is not followed"
            elif name in folders and is_temporary(name):
                what = "is being written, or a killed process left it"
            else:
                continue
            if (file := str(path.relative_to(folder))) not in named:
                findings.append(Finding(file, what, "remove it"))
        folders[:] = [name for name in folders if not is_temporary(name)]
    return findings
