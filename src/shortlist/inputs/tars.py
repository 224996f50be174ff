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
    """A file of a row: its ending, its first byte in the tar file, its size, and the target of a link."""

    ending: str
    start: int
    size: int
    link: str = ""


def read_tar(path: str) -> Rows:
    """Find the rows of a tar file, and read no image. Files whose names begin with a dot are left out.

    The label of a row is in ``STEM.cls``, or under ``label`` in ``STEM.json``, which may have facts about the
    image too.
    """
    try:
        with open_file(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            members = _rows_of(archive)
            entries = [_read_entries(name, files, file) for name, files in members.items()]
    except (OSError, tarfile.TarError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {reason_of_file(error)}") from error
    images = [TarImage(path, name, *_image_of(files)) for name, files in members.items()]
    about = {name: [first_of(entry, name) for entry in entries] for name in ABOUT}
    about = {name: column for name, column in about.items() if any(column)}
    return Rows(path, images, [entry.get("label") for entry in entries], about=about)


def _rows_of(archive: Iterable[tarfile.TarInfo]) -> dict[str, list[_Member]]:
    """Return the files of each row, by its stem."""
    rows: dict[str, list[_Member]] = {}
    places: dict[str, tuple[int, int]] = {}  # first byte and size of each file, by its name
    for entry in archive:
        folder, _, base = entry.name.rpartition("/")
        stem, _, ending = base.partition(".")
        if not stem or not (entry.isfile() or entry.islnk() or entry.issym()):
            continue
        if entry.isfile():
            places[entry.name] = entry.offset_data, entry.size
        # a hard link has the place of the file that it names; any other link is not followed
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
        return None, f"it has {len(images)} images ({endings}) and must have one"
    endings = ", ".join(member.ending or "nothing" for member in members)
    return None, f"it has no image: after the first dot, the names of its files have {endings}"


def _read_entries(name: str, members: Sequence[_Member], file: Any) -> dict[str, Any]:
    """Return the entries of ``STEM.json``, and as ``label`` the text of ``STEM.cls`` if there is one."""
    by_ending = {member.ending: member for member in reversed(members) if not member.link}
    entries: dict[str, Any] = {}
    for ending in ("json", "cls"):
        if ending in by_ending:
            file.seek(by_ending[ending].start)
            content = file.read(by_ending[ending].size)
            try:
                text = content.decode().strip()
                read = json.loads(text) if ending == "json" else {"label": text or None}
            except ValueError as error:
                if ending == "json" and "cls" in by_ending:
                    continue  # the label is in STEM.cls
                raise ValueError(f"{name}.{ending}: {error}") from error
            entries |= read if isinstance(read, dict) else {}
    return entries


def tar_files(path: str | Path) -> dict[str, list[str]]:
    """Find tar files by split (train, val, test): the path itself, or the tar files of a folder.

    The split is a word in the name of the file (``train-0001.tar``, ``birds_val_3.tar``), or the folder that
    the file is in (``train/0001.tar``). Without splits, all files are under the empty name.

    Raises:
        ValueError: If some files would be left out, or only some names contain a split.
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
            f"{path}: the names of some tar files contain a split ({list(by_split)[1]}), but the name of "
            f"{by_split[''][0]} contains none, or several: write one split into each name, or into none"
        )
    used = {file for files in by_split.values() for file in files}
    if used and (others := sorted({str(other) for other in path.rglob("*.tar")} - used)):
        raise ValueError(
            f"{path} holds {len(others)} tar files beside those that would be taken, such as {others[0]}: "
            "move them elsewhere"
        )
    return by_split


def _split_of(stem: str) -> str:
    """Return the split that is a word of a name; empty if none or several are."""
    splits = {_SPLITS[word] for word in re.split(r"[^a-z]+", stem.lower()) if word in _SPLITS}
    return splits.pop() if len(splits) == 1 else ""
