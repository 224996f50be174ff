"""A manifest: what files a folder is made of, each with its size and hash, in one JSON file that is sealed.

The manifest of a run is ``run.json``, that of a model ``model.json``. It is written last, so that a folder
with a manifest is whole, and it carries a checksum of itself. What is read later is checked against it.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from shortlist._store.files import check_regular, write_text
from shortlist._store.json import read_json

RUN_FORMAT = "shortlist run 3"
_OLDER_RUNS = ("shortlist run 1", "shortlist run 2")

# hashes of large files that were read before by this process, by all that changes when a file does
_KNOWN: dict[tuple[str, int, int, int, int], str] = {}
_LARGE = 8 << 20


def write_sealed(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write a mapping as JSON with a checksum of itself.

    Raises:
        ValueError: If a value has no place in JSON, such as NaN.
    """
    write_text(path, sealed_text(content))


def sealed_text(content: Mapping[str, Any]) -> str:
    """Return what :func:`write_sealed` writes."""
    content = json.loads(json.dumps(content, allow_nan=False))  # as a reader will see it
    sealed = {**content, "checksum": _checksum(content)}
    return json.dumps(sealed, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def read_sealed(
    path: str | Path, form: str | tuple[str, ...] | None = None, remedy: str = ""
) -> dict[str, Any]:
    """Read what :func:`write_sealed` wrote, without the checksum; of a ``format``, if any is given.

    ``remedy`` says what to do about a file of another format.

    Raises:
        ValueError: If the file is a link, no JSON, no mapping, was changed since it was written, or is of
            another format; the message names it.
    """
    check_regular(path, links=False)
    content = _unsealed(path, read_json(path))
    forms = (form,) if isinstance(form, str) else form
    if forms is not None and content.get("format") not in forms:
        version = f"its format is {content.get('format')!r}, not {forms[0]!r}{remedy and ': '}{remedy}"
        raise ValueError(f"{path} was written by another version: {version}")
    return content


def _unsealed(path: str | Path, content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a mapping of keys to values, got {type(content).__name__}")
    if content.pop("checksum", None) != _checksum(content):
        raise ValueError(f"{path} was changed since it was written: its checksum is of other content")
    return content


def read_run_manifest(folder: str | Path) -> dict[str, Any]:
    """Read ``run.json`` of a run folder: its format, state and files, and what else was noted.

    Raises:
        ValueError: If it is of another version, or not as it was written; the message names it.
    """
    path = Path(folder) / "run.json"
    check_regular(path, links=False)
    content = read_json(path)
    form = content.get("format") if isinstance(content, dict) else RUN_FORMAT
    if form in _OLDER_RUNS:  # which had no checksum
        version = f"an earlier version ({form}), whose runs have no manifest of their files"
        raise ValueError(f"{folder} was written by {version}: train it again")
    if form != RUN_FORMAT:
        version = f"another version: its format is {form!r}, not {RUN_FORMAT!r}"
        raise ValueError(f"{folder} was written by {version}: train it again")
    info = _unsealed(path, content)
    if not isinstance(info.get("state"), str) or not isinstance(info.get("files"), dict):
        raise ValueError(f"{path} does not say how far the run is: it must have state and files")
    return info


def record_files(folder: str | Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return size and SHA-256 of each of these files, by name."""
    records = {}
    for name in sorted(names):
        path = Path(folder) / name
        records[name] = {"size": path.stat().st_size, "sha256": _hash(path)}
    return records


def record_text(text: str) -> dict[str, Any]:
    """Return size and SHA-256 of a file that will hold this text."""
    content = text.encode()
    return {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def check_file(folder: str | Path, name: str, files: Mapping[str, Any]) -> Path:
    """Return the path of a file that is as the manifest says.

    Args:
        folder: The folder that the manifest is of.
        name: The file, relative to the folder.
        files: What :func:`record_files` returned when the manifest was written.

    Raises:
        ValueError: If the file is missing, is not in the manifest, or is not the one that is.
    """
    path = Path(folder) / name
    if name not in files and path.is_file():
        raise ValueError(f"{path} is not a file that was written here: the manifest does not list it")
    if fault := fault_of(folder, name, files.get(name)):
        raise ValueError(f"{path} {fault}")
    return path


def check_size(folder: str | Path, name: str, files: Mapping[str, Any]) -> None:
    """Require a file that has the size of its record, as a quick first look before :func:`check_file`.

    Raises:
        ValueError: If it is missing or has another size.
    """
    path, record = Path(folder) / name, files.get(name)
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    if not isinstance(record, dict) or path.stat().st_size != record.get("size"):
        raise ValueError(f"{path} is damaged or was changed")


def fault_of(folder: str | Path, name: str, record: Any) -> str | None:
    """Say what is wrong with a file of a manifest; ``None`` if it is as its record says.

    The folder may come from somebody else: neither its names nor its links lead to another folder.

    Args:
        folder: The folder that the manifest is of.
        name: The file, relative to the folder.
        record: Size and SHA-256 of the file, as the manifest has them.
    """
    inside = PurePosixPath(name)
    if not inside.parts or ".." in inside.parts or inside.is_absolute():
        return "is no file of this folder"
    path = Path(folder)
    for part in inside.parts:
        path /= part
        if path.is_symlink():
            return "is a link, which is not followed"
    if not path.is_file():
        return "is missing"
    return None if _is_same_file(path, record) else "is damaged or was changed"


def _is_same_file(path: Path, record: Any) -> bool:
    """Whether a file has the size and the hash of its record, or of its ``next`` one.

    A record has a ``next`` while the file is being replaced: a process that is killed leaves either.
    """
    if not isinstance(record, dict):
        return False
    if path.stat().st_size == record.get("size") and _hash(path) == record.get("sha256"):
        return True
    return _is_same_file(path, record.get("next"))


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _hash(path: Path) -> str:
    """Return the SHA-256 of a file; a large one is read once for as long as nobody writes to it."""
    state = os.stat(path)
    if state.st_size < _LARGE:  # quick to read, and clocks of files are too coarse to tell quick changes
        return hashlib.sha256(path.read_bytes()).hexdigest()
    key = (str(path.absolute()), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino)
    if key not in _KNOWN:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
        _KNOWN[key] = digest.hexdigest()
    return _KNOWN[key]
