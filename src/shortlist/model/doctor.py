"""What is wrong with a saved model, file by file."""

from pathlib import Path

from shortlist._store.doctor import Finding, differing_files, with_leftovers
from shortlist.model.files import read_manifest


def examine_model(folder: str | Path) -> list[Finding]:
    """Check every file of a saved model against its manifest; nothing is returned if all is well."""
    folder, copy = Path(folder), "put it back from a copy, or save the model again"
    try:
        files = read_manifest(folder)
    except ValueError as error:
        return with_leftovers(folder, [Finding("model.json", str(error), copy)])
    faults = differing_files(folder, files)
    return with_leftovers(folder, [Finding(name, fault, copy) for name, fault in sorted(faults.items())])
