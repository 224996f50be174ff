"""What is wrong with an index, file by file."""

from pathlib import Path

from shortlist._manifest import fault_of
from shortlist.index.manifest import NAME, OWN_FILE, PARTS, Manifest, read_manifest
from shortlist.index.segment import ImageIndexError
from shortlist.runs.doctor import Finding, examine, with_leftovers

__all__ = ["damaged_files", "examine_any", "examine_index"]


def damaged_files(folder: str | Path, manifest: Manifest) -> dict[str, str]:
    """Return what is wrong with files of an index, by name. All of it is read."""
    records = {segment.name: vars(segment) for segment in manifest.segments}
    if manifest.deleted is not None:
        records[manifest.deleted["name"]] = manifest.deleted
    faults = {name: fault_of(folder, name, record) for name, record in records.items()}
    return {name: fault for name, fault in faults.items() if fault is not None}


def examine_index(folder: str | Path) -> list[Finding]:
    """Check every file of an index against its manifest."""
    folder = Path(folder)
    again = f"remove {folder} and run shortlist index again, or put it back from a copy"
    try:
        manifest = read_manifest(folder)
    except ImageIndexError as error:
        return [Finding(NAME, str(error), again)]
    damaged = damaged_files(folder, manifest)
    found = [Finding(name, what, again) for name, what in sorted(damaged.items())]
    if not manifest.whole:
        what = "the index is not finished: shortlist index was stopped, or is still running"
        found.append(Finding(NAME, what, "run the same shortlist index again"))
    others = {path.name for path in folder.iterdir() if OWN_FILE.fullmatch(path.name)} - manifest.names()
    for name in sorted(others):
        what = "is not in the manifest: a killed process left it, or one is writing"
        found.append(Finding(name, what, "the next shortlist index takes it away"))
    if manifest.whole and (folder / PARTS).exists():
        what = "is of images that were to be added: shortlist index was stopped, or is still running"
        found.append(Finding(PARTS, what, "the next shortlist index takes it over, or away"))
    return with_leftovers(folder, found)


def examine_any(folder: str | Path) -> list[Finding]:
    """Check every file of a run, a saved model or an index; an index inside a run or a model too.

    Raises:
        ValueError: If the folder is none of these.
    """
    folder = Path(folder)
    if (folder / NAME).exists():
        return examine_index(folder)
    if folder.is_dir() and not any((folder / name).is_file() for name in ("run.json", "model.json")):
        what = f"it has no run.json, no model.json and no {NAME}"
        raise ValueError(f"{folder} must be a run folder, a saved model or an index of images: {what}")
    found = examine(folder)
    inside = folder / "index"
    if (inside / NAME).exists():
        own = [Finding(f"index/{one.file}", one.what, one.remedy) for one in examine_index(inside)]
        # what is left over in the index is left over in the run too
        found += [one for one in own if one.file not in {other.file for other in found}]
    return found
