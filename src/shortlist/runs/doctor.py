"""What is wrong with a run folder, file by file, and what can be restored from what."""

from collections.abc import Mapping
from pathlib import Path

from shortlist._store.doctor import Finding, differing_files, with_leftovers
from shortlist.model import read_manifest
from shortlist.runs.folder import RunFolder
from shortlist.runs.run import RunError


def examine_run(folder: str | Path) -> list[Finding]:
    """Check every file of a run, with those of its model; nothing is returned if all is well."""
    return with_leftovers(Path(folder), _examine(RunFolder(folder)))


def damaged_files(run: RunFolder) -> list[str]:
    """Return the files of a finished run that are not as its manifests say, with those of its model."""
    return sorted(_lost(run))


def _lost(run: RunFolder) -> dict[str, str]:
    """Return what is wrong with files of a finished run, by name."""
    lost = differing_files(run.path, run.info["files"])
    if "model/model.json" in lost:  # without it, nothing says which files the model has
        return lost
    inside = differing_files(run.model_path, read_manifest(run.model_path))
    return lost | {f"model/{name}": what for name, what in inside.items()}


def _examine(run: RunFolder) -> list[Finding]:
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
    findings = [Finding(name, what, _remedy(run, name, lost)) for name, what in lost.items()]
    for name in set(run.own_files()) - info["files"].keys():
        findings.append(
            Finding(name, "is not in the manifest: it was not written by the run", "move it away")
        )
    return sorted(findings, key=lambda finding: finding.file)


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
    parts = ("score_map.json", "calibration_rows.safetensors", "README.md", "coverage.svg")
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
