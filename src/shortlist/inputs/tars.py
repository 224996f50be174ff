"""Tar files in the layout of WebDataset: the files of a row have one stem, which ends at the first dot."""

import json
import os
import re
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.inputs.addresses import TarImage, open_file, reason_of_file
from shortlist.inputs.folders import IMAGE_SUFFIXES, SPLIT_NAMES, named_splits
from shortlist.inputs.rows import ABOUT, Rows, first_of

_IMAGES = {suffix.lstrip(".") for suffix in IMAGE_SUFFIXES}
_SPLITS = {name: split for split, names in SPLIT_NAMES.items() for name in names}


class _Member(NamedTuple):
    """A file of a row: its ending, its first byte in the tar file, its size, and its goal if it is a link."""

    ending: str
    start: int
    size: int
    link: str = ""


def read_tar(path: str) -> Rows:
    """Find the rows of a tar file; no image is read, and files with a dot before their names are left out.

    The label of a row is in ``STEM.cls``, or is ``label`` in ``STEM.json``, which may also say what is known
    about the image.
    """
    try:
        with open_file(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            members = _rows_of(archive)
            said = [_said_of(name, files, file) for name, files in members.items()]
    except (OSError, tarfile.TarError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {reason_of_file(error)}") from error
    images = [TarImage(path, name, *_image_of(files)) for name, files in members.items()]
    about = {name: [first_of(entry, name) for entry in said] for name in ABOUT}
    about = {name: column for name, column in about.items() if any(column)}
    return Rows(path, images, [entry.get("label") for entry in said], about=about)


def _rows_of(archive: Iterable[tarfile.TarInfo]) -> dict[str, list[_Member]]:
    """The files of each row, by its stem."""
    rows: dict[str, list[_Member]] = {}
    places: dict[str, tuple[int, int]] = {}
    for entry in archive:
        folder, _, base = entry.name.rpartition("/")
        stem, _, ending = base.partition(".")
        if not stem or not (entry.isfile() or entry.islnk() or entry.issym()):
            continue
        if entry.isfile():
            places[entry.name] = entry.offset_data, entry.size
        # a hard link is the file itself
        place = places.get(entry.linkname if entry.islnk() else entry.name, (0, 0))
        link = "" if entry.isfile() or (entry.islnk() and entry.linkname in places) else entry.linkname
        rows.setdefault(f"{folder}/{stem}".lstrip("/"), []).append(_Member(ending.lower(), *place, link))
    return rows


def _image_of(members: Sequence[_Member]) -> tuple[tuple[int, int] | None, str]:
    """Return start and size of the only image of a row; or ``None``, and why there is not one image."""
    images = [member for member in members if member.ending in _IMAGES]
    if len(images) == 1 and images[0].link:
        return None, f"its image is a link to {images[0].link}, which is not followed"
    if len(images) == 1:
        return images[0][1:3], ""
    if images:
        endings = ", ".join(image.ending for image in images)
        return None, f"it has {len(images)} images ({endings}): which counts?"
    endings = ", ".join(member.ending or "nothing" for member in members)
    return None, f"it has no image: after the first dot, the names of its files have {endings}"


def _said_of(name: str, members: Sequence[_Member], file: Any) -> dict[str, Any]:
    """What the files of a row say about its image: the label, and in JSON the rest."""
    by_ending = {member.ending: member for member in reversed(members) if not member.link}
    said: dict[str, Any] = {}
    for ending in ("json", "cls"):
        if ending in by_ending:
            file.seek(by_ending[ending].start)
            content = file.read(by_ending[ending].size)
            try:
                text = content.decode().strip()
                entry = json.loads(text) if ending == "json" else {"label": text or None}
            except ValueError as error:
                if ending == "json" and "cls" in by_ending:
                    continue  # the label is known
                raise ValueError(f"{name}.{ending}: {error}") from error
            said |= entry if isinstance(entry, dict) else {}
    return said


def tar_files(path: str | Path) -> dict[str, list[str]]:
    """Find tar files by split (train, val, test): the path itself, or the tar files of a folder.

    A split is told by the name of the files (``train-0001.tar``, ``birds_val_3.tar``), or by the folder that
    they are in (``train/0001.tar``). Where neither tells one, the name of the only split is empty.

    Raises:
        ValueError: If some files would be left out, or some names tell a split and others do not.
    """
    if not os.path.isdir(path):
        return {"": [str(path)]} if str(path).endswith(".tar") else {}
    path = Path(path)
    if files := sorted(map(str, path.glob("*.tar"))):
        by_split: dict[str, list[str]] = {split: [] for split in ("", *SPLIT_NAMES)}
        for file in files:
            by_split[_split_of(Path(file).stem)].append(file)
    else:
        folders = named_splits(path)
        by_split = {split: sorted(map(str, folders[split].glob("*.tar"))) for split in folders}
    by_split = {split: files for split, files in by_split.items() if files}
    if len(by_split) > 1 and "" in by_split:
        raise ValueError(
            f"{path}: the names of some tar files tell a split of the data ({list(by_split)[1]}), that of "
            f"{by_split[''][0]} tells none, or several: name all of them so, or none"
        )
    used = {file for files in by_split.values() for file in files}
    if used and (others := sorted({str(other) for other in path.rglob("*.tar")} - used)):
        raise ValueError(
            f"{path} holds {len(others)} tar files beside those that would be taken, such as {others[0]}: "
            "move them elsewhere"
        )
    return by_split


def _split_of(stem: str) -> str:
    """The split that the words of a name tell; nothing if they tell none or several."""
    splits = {_SPLITS[word] for word in re.split(r"[^a-z]+", stem.lower()) if word in _SPLITS}
    return splits.pop() if len(splits) == 1 else ""
