"""What is wrong with a folder of ours, file by file: what runs, models, indexes and stores share."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shortlist._store.files import is_temporary
from shortlist._store.manifest import fault_of


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


def differing_files(folder: str | Path, files: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with the files of a manifest, by name; all of each file is read."""
    faults = {name: fault_of(folder, name, record) for name, record in files.items()}
    return {name: fault for name, fault in faults.items() if fault is not None}


def inside(place: str, findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings of a folder as those of the folder around it."""
    return [replace(finding, file=f"{place}/{finding.file}") for finding in findings]


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
