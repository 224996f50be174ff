"""The images that are to be embedded: their parts, and the classes that they themselves name."""

import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from shortlist._text import composed
from shortlist.class_table import ClassTable
from shortlist.datasets.embeddings import SUFFIXES, embedding_files
from shortlist.datasets.folders import PARTS, check_no_unknown_parts, folders_by_class, named_parts
from shortlist.datasets.lists import index_labels
from shortlist.engine.files import absolute, is_address
from shortlist.engine.inputs import check_nothing_left_out, find_shards, parts_of
from shortlist.engine.lists import is_list, read_list
from shortlist.engine.shards import Shard
from shortlist.engine.tars import tar_files, tar_rows

__all__ = ["shards_to_embed"]

_TABLE = "class_table.json"


def shards_to_embed(data: str | Path, *, shard_rows: int) -> tuple[dict[str, list[Shard]], ClassTable]:
    """Find images by the part of the data that they are of, and the table of their classes.

    Args:
        data: What :func:`~shortlist.engine.inputs.find_shards` takes, embeddings apart. Its classes are those
            of ``class_table.json`` in the folder, or beside the list or the tar file. Without this file, they
            are the names of the class folders, or the labels, numbered as
            :func:`~shortlist.datasets.lists.image_list` does it.
        shard_rows: Number of rows of a shard; a tar file is one shard.

    Returns:
        The shards of each part, of ``train`` where there are no parts, and the classes.

    Raises:
        ValueError: If there are no images, some would be left out, or a part is none of the three.
    """
    text = absolute(data)
    _check_images(text)
    parts = parts_of(text)
    if odd := sorted(set(parts) - set(PARTS)):
        raise ValueError(f"{text}: the column split must hold train, val or test, got {odd[0]!r}")
    if os.path.isdir(text):
        check_nothing_left_out(text)
    table = _table_of(text)
    shards: dict[str, list[Shard]] = {}
    for part in [one for one in PARTS if one in parts] or [None]:
        found: list[Any] = find_shards(text, table.ids, shard_rows=shard_rows, part=part)
        name = part or "train"
        shards[name] = [replace(one, name=f"{name}-{number:05d}") for number, one in enumerate(found)]
    return shards, table


def _check_images(text: str) -> None:
    is_folder = os.path.isdir(text)
    if text.endswith((*SUFFIXES, ".npy")) or (is_folder and embedding_files(text)):
        raise ValueError(f"DATA must be images, which embed makes embeddings of, got embeddings: {text}")
    if not (is_folder or is_list(text) or text.endswith(".tar")):
        raise ValueError(
            f"DATA must be a folder of images, a list (.csv or .parquet) or tar files, got {text}, which is "
            "none of these"
        )


def _table_of(text: str) -> ClassTable:
    is_folder = os.path.isdir(text)
    path = Path(text if is_folder else os.path.dirname(text)) / _TABLE
    known = ClassTable.load(path) if not is_address(text) and path.is_file() else None
    if is_list(text):
        return _of_labels(read_list(text).labels, known, text)
    tars = tar_files(text) if is_folder else {"": [text]}
    if tars:
        files = chain.from_iterable(tars.values())
        return known or _of_labels((row.label for file in files for row in tar_rows(file)), None, text)
    return _of_folders(Path(text), known)


def _of_labels(labels: Iterable[str | int | None], known: ClassTable | None, where: str) -> ClassTable:
    """The classes of labels; none if no row has one."""
    found = [label for label in labels if label is not None]
    if odd := [label for label in found if isinstance(label, bool) or not isinstance(label, str | int)]:
        raise ValueError(f"{where}: a class must be text or a whole number, got {odd[0]!r}")
    return index_labels(found, known, where)[1] if found else known or ClassTable(())


def _of_folders(root: Path, known: ClassTable | None) -> ClassTable:
    """The classes of the folders of all parts."""
    parts = named_parts(root)
    if not parts:
        check_no_unknown_parts(root)
    ids = sorted({name for folder in (parts or {"": root}).values() for name in folders_by_class(folder)})
    if known is not None and (unknown := sorted(set(ids) - set(map(composed, known.ids)))):
        raise ValueError(f"{root / _TABLE} does not know the class folder {unknown[0]!r}")
    return known or ClassTable(ids)
