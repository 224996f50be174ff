"""Tar files in the layout of WebDataset: the files of a row have one stem, which ends at the first dot."""

import json
import re
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.datasets.folders import PART_NAMES, named_parts
from shortlist.datasets.images import IMAGE_SUFFIXES
from shortlist.engine.files import open_file, reason_of_file

__all__ = ["TarRow", "tar_files", "tar_rows"]

_IMAGES = {suffix.lstrip(".") for suffix in IMAGE_SUFFIXES}
_PARTS = {name: part for part, names in PART_NAMES.items() for name in names}


class TarRow(NamedTuple):
    """A row of a tar file.

    Args:
        path: Path or address of the tar file.
        name: Name of the row, the stem of its files.
        place: Where its image begins, and how many bytes it has; ``None`` if it has not one image.
        label: Id or index of its class, as it is written there; ``None`` if it is not known.
        problem: Why it has not one image.
    """

    path: str
    name: str
    place: tuple[int, int] | None
    label: str | int | None
    problem: str = ""

    def content(self) -> bytes:
        """Return the bytes of the image; a ``ValueError`` says why they cannot be read."""
        if self.place is None:
            raise ValueError(self.problem)
        try:
            with open_file(self.path) as file:
                file.seek(self.place[0])
                return file.read(self.place[1])
        except Exception as error:  # each file system has errors of its own
            raise ValueError(f"{self.path} cannot be read: {error}") from error


class _Member(NamedTuple):
    """A file of a row: its ending, where it begins, and how many bytes it has; what it is a link to."""

    ending: str
    start: int
    size: int
    link: str = ""


def tar_rows(path: str) -> list[TarRow]:
    """Find the rows of a tar file; no image is read, and files with a dot before their names are left out."""
    try:
        with open_file(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            rows = _rows_of(archive)
            labels = [_label_of(name, members, file) for name, members in rows.items()]
    except (OSError, tarfile.TarError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {reason_of_file(error)}") from error
    found = ((name, *_image_of(members)) for name, members in rows.items())
    return [
        TarRow(path, name, place, label, problem)
        for (name, place, problem), label in zip(found, labels, strict=True)
    ]


def _rows_of(archive: Iterable[tarfile.TarInfo]) -> dict[str, list[_Member]]:
    """The files of each row, by its stem."""
    rows: dict[str, list[_Member]] = {}
    places: dict[str, tuple[int, int]] = {}
    for one in archive:
        folder, _, base = one.name.rpartition("/")
        stem, _, ending = base.partition(".")
        if not stem or not (one.isfile() or one.islnk() or one.issym()):
            continue
        if one.isfile():
            places[one.name] = one.offset_data, one.size
        place = places.get(
            one.linkname if one.islnk() else one.name, (0, 0)
        )  # a hard link is the file itself
        link = "" if one.isfile() or (one.islnk() and one.linkname in places) else one.linkname
        rows.setdefault(f"{folder}/{stem}".lstrip("/"), []).append(_Member(ending.lower(), *place, link))
    return rows


def _image_of(members: Sequence[_Member]) -> tuple[tuple[int, int] | None, str]:
    """Place and length of the only image of a row, or why there is none."""
    images = [one for one in members if one.ending in _IMAGES]
    if len(images) == 1 and images[0].link:
        return None, f"its image is a link to {images[0].link}, which is not followed"
    if len(images) == 1:
        return images[0][1:3], ""
    if images:
        return None, f"it has {len(images)} images ({', '.join(one.ending for one in images)}): which counts?"
    endings = ", ".join(one.ending or "nothing" for one in members)
    return None, f"it has no image: after the first dot, the names of its files have {endings}"


def _label_of(name: str, members: Sequence[_Member], file: Any) -> str | int | None:
    by_ending = {one.ending: one for one in reversed(members) if not one.link}
    for ending in ("cls", "json"):
        if ending in by_ending:
            file.seek(by_ending[ending].start)
            content = file.read(by_ending[ending].size)
            try:
                text = content.decode().strip()
                known = json.loads(text) if ending == "json" else {"label": text or None}
            except ValueError as error:
                raise ValueError(f"{name}.{ending}: {error}") from error
            return known.get("label") if isinstance(known, dict) else None
    return None


def tar_files(path: str | Path) -> dict[str, list[str]]:
    """Find the tar files of a folder, by part of the data (train, val, test); none if there are none.

    A part is told by the name of the files (``train-0001.tar``, ``birds_val_3.tar``), or by the folder that
    they are in (``train/0001.tar``). Where neither tells one, the name of the only part is empty.

    Raises:
        ValueError: If some files would be left out, or some names tell a part and others do not.
    """
    path = Path(path)
    if found := sorted(map(str, path.glob("*.tar"))):
        parts = [_part_of(Path(one).stem) for one in found]
        if len(set(parts)) > 1 and "" in parts:
            other, told = found[parts.index("")], next(one for one in parts if one)
            raise ValueError(
                f"{path}: the names of some tar files tell a part of the data ({told}), that of {other} "
                "tells none, or several: name all of them so, or none"
            )
        by_part = {
            part: [f for f, p in zip(found, parts, strict=True) if p == part] for part in _in_order(parts)
        }
    else:
        folders = {part: sorted(map(str, folder.glob("*.tar"))) for part, folder in named_parts(path).items()}
        by_part = {part: files for part, files in folders.items() if files}
    used = {file for files in by_part.values() for file in files}
    if used and (others := sorted({str(one) for one in path.rglob("*.tar")} - used)):
        raise ValueError(
            f"{path} holds {len(others)} tar files beside those that would be taken, such as {others[0]}: "
            "move them elsewhere"
        )
    return by_part


def _part_of(stem: str) -> str:
    """The part that the words of a name tell; nothing if they tell none or several."""
    found = {_PARTS[word] for word in re.split(r"[^a-z]+", stem.lower()) if word in _PARTS}
    return found.pop() if len(found) == 1 else ""


def _in_order(parts: Sequence[str]) -> list[str]:
    return [part for part in ("", *PART_NAMES) if part in parts]
