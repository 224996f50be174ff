"""What is wrong with an index, file by file."""

from pathlib import Path

from shortlist._store.doctor import Finding, differing_files, with_leftovers
from shortlist.index.manifest import NAME, OWN_FILE, PARTS, Manifest, read_manifest
from shortlist.index.segment import ImageIndexError


def damaged_files(folder: str | Path, manifest: Manifest) -> dict[str, str]:
    """Return what is wrong with files of an index, by name. All of it is read."""
    records = {segment.name: vars(segment) for segment in manifest.segments}
    if manifest.deleted is not None:
        records[manifest.deleted["name"]] = manifest.deleted
    return differing_files(folder, records)


def examine_index(folder: str | Path) -> list[Finding]:
    """Check every file of an index against its manifest."""
    folder = Path(folder)
    again = f"remove {folder} and run shortlist index again, or put it back from a copy"
    try:
        manifest = read_manifest(folder)
    except ImageIndexError as error:
        return [Finding(NAME, str(error), again)]
    damaged = damaged_files(folder, manifest)
    findings = [Finding(name, what, again) for name, what in sorted(damaged.items())]
    if not manifest.whole:
        what = "the index is not finished: shortlist index was stopped, or is still running"
        findings.append(Finding(NAME, what, "run the same shortlist index again"))
    others = {path.name for path in folder.iterdir() if OWN_FILE.fullmatch(path.name)} - manifest.names()
    for name in sorted(others):
        what = "is not in the manifest: a killed process left it, or one is writing"
        findings.append(Finding(name, what, "the next shortlist index takes it away"))
    if manifest.whole and (folder / PARTS).exists():
        what = "is of images that were to be added: shortlist index was stopped, or is still running"
        findings.append(Finding(PARTS, what, "the next shortlist index takes it over, or away"))
    return with_leftovers(folder, findings)
