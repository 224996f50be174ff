"""The manifest of an index: the segments and the list of deleted images that it is made of.

It is written last and renamed, so that a reader sees an index before a change or after it, never between.
"""

import hashlib
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shortlist._store.files import replacing
from shortlist._store.manifest import read_sealed, record_files, write_sealed
from shortlist.index.segment import ImageIndexError, SegmentRecord, check_index_file
from shortlist.model import Model, model_hash

NAME = "index.json"
PARTS = "parts"
"""Folder inside an index, in which the parts of a build wait until they are taken over."""
OWN_FILE = re.compile(r"(segment|deleted)-\d{6,}")
FORMAT = "shortlist index 1"
_MOST_CLASSES = 10_000_000
_MOST_NUMBERS = 2**31  # of all class means
_MOST_FILES = 10**12
DELETED = np.dtype([("class", "<i8"), ("digest", "S16"), ("purged", "?")])
"""One deleted image; it is purged if no segment holds it any more."""


@dataclass(frozen=True)
class Manifest:
    """What an index is made of.

    Args:
        model: Hash of the model whose features the vectors are.
        num_classes: Number of classes of the model.
        dimension: Length of the vectors; 0 if there are none yet.
        whole: Whether the first build has come to its end.
        next: Number of the next file; no number is used twice, so that a name stands for one content.
        segments: The segments.
        deleted: Name, size and SHA-256 of the list of deleted images; ``None`` if there are none.
    """

    model: str
    num_classes: int
    dimension: int = 0
    whole: bool = False
    next: int = 1
    segments: tuple[SegmentRecord, ...] = ()
    deleted: dict[str, Any] | None = None

    def names(self) -> set[str]:
        """Return the names of the files that belong to the index."""
        listed = set() if self.deleted is None else {self.deleted["name"]}
        return listed | {segment.name for segment in self.segments}

    def write(self, folder: Path) -> None:
        """Write the manifest, in place of the one that is there."""
        write_sealed(folder / NAME, {"format": FORMAT, **asdict(self)})


def read_manifest(folder: str | Path) -> Manifest:
    """Read the manifest of an index.

    Raises:
        ImageIndexError: If there is none, or it is damaged; the message names the file.
    """
    path = Path(folder) / NAME
    if not path.is_file():
        what = f"it has no {NAME}" if Path(folder).is_dir() else "there is no such folder"
        raise ImageIndexError(f"{folder} is not an index of images: {what}")
    try:
        content = read_sealed(path, FORMAT)
    except (ValueError, OSError) as error:
        raise ImageIndexError(str(error)) from error
    try:
        del content["format"]
        content["segments"] = tuple(map(SegmentRecord.from_dict, content["segments"]))
        manifest = Manifest(**content)
        _check(manifest)
    except (KeyError, TypeError, ValueError) as error:
        raise ImageIndexError(f"{path} is not the manifest of an index: {error}") from error
    return manifest


def _check(manifest: Manifest) -> None:
    for key, kind in {"model": str, "num_classes": int, "dimension": int, "whole": bool, "next": int}.items():
        value = getattr(manifest, key)
        if type(value) is not kind or (kind is int and value < 0):
            raise ValueError(f"{key} must be of type {kind.__name__} and not negative, got {value!r}")
    if manifest.num_classes > _MOST_CLASSES:
        raise ValueError(f"num_classes must be <= {_MOST_CLASSES:,}, got {manifest.num_classes}")
    if manifest.num_classes * manifest.dimension > _MOST_NUMBERS:
        sizes = f"{manifest.num_classes} and {manifest.dimension}"
        raise ValueError(f"num_classes times dimension must be <= {_MOST_NUMBERS:,}, got {sizes}")
    if manifest.next > _MOST_FILES:
        raise ValueError(f"next must be <= {_MOST_FILES:,}, got another number")
    if len({segment.name for segment in manifest.segments}) < len(manifest.segments):
        raise ValueError("segments must have a name each, got one twice")
    deleted = manifest.deleted
    if deleted is not None and (set(deleted) != {"name", "size", "sha256"} or deleted["size"] < 0):
        raise ValueError("deleted must have name, size and sha256")
    for name in manifest.names():  # never a path to anywhere else
        if not OWN_FILE.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a file of an index")


def write_deleted(folder: Path, number: int, deleted: np.ndarray) -> dict[str, Any] | None:
    """Write the list of deleted images to a new file, and return its record."""
    if not len(deleted):
        return None
    path = folder / f"deleted-{number:06d}"
    with replacing(path) as temporary:
        temporary.write_bytes(deleted.astype(DELETED).tobytes())
    return {"name": path.name, **record_files(folder, [path.name])[path.name]}


def read_deleted(folder: Path, record: dict[str, Any] | None) -> np.ndarray:
    """Read the list of deleted images.

    Raises:
        FileNotFoundError: If there is no such file.
        ImageIndexError: If it is not the file of the record.
    """
    if record is None:
        return np.zeros(0, DELETED)
    path = folder / record["name"]
    check_index_file(path)
    content = path.read_bytes() if path.stat().st_size == record["size"] else b""
    if hashlib.sha256(content).hexdigest() != record["sha256"] or len(content) % DELETED.itemsize:
        raise ImageIndexError(f"{path} is damaged or was changed: it is not the file in the manifest")
    return np.frombuffer(content, DELETED)


def check_model(manifest: Manifest, model: Model, folder: Path) -> None:
    """Refuse a model that is not the one of an index."""
    if manifest.model != model_hash(model):
        raise ImageIndexError(
            f"{folder} was made with another model: its features cannot be compared with this one's. "
            "Remove it, or make another index with shortlist index --out"
        )
