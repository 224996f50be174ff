"""Lists of image files in ``.csv`` or ``.parquet``, on this machine or at an address."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist._tables import read_columns
from shortlist.engine.files import is_address, open_file, reason_of_file

__all__ = ["ListedImages", "folder_of", "is_list", "list_columns", "read_list"]


@dataclass(frozen=True)
class ListedImages:
    """The rows of a list.

    Args:
        root: Folder or address that relative paths are relative to: that of the list.
        files: Path or address of each image, as it is written there.
        labels: Id or index of the class of each; ``None`` where it is not known.
        splits: Part of the data that each is of, such as ``"train"``; ``None`` if the list has no parts.
    """

    root: str
    files: list[str]
    labels: Sequence[str | int | None]
    splits: list[str] | None


def is_list(path: str) -> bool:
    """Whether a path or an address is that of a list, by its ending."""
    return path.lower().endswith((".csv", ".parquet")) and not os.path.isdir(path)


def folder_of(path: str) -> str:
    """Return the folder or the address that a file is in."""
    return path.rpartition("/")[0] if is_address(path) else str(Path(path).parent)


def read_list(path: str) -> ListedImages:
    """Read the columns ``path`` and, if they are there, ``label`` and ``split`` of a list.

    Raises:
        ValueError: If it cannot be read, or lacks a path; the message names it.
    """
    columns = list_columns(path, ["path"], ["label", "split"])
    files = [str(file) for file in columns["path"].to_pylist()]
    labels = columns["label"].to_pylist() if "label" in columns else [None] * len(files)
    splits = [str(one or "") for one in columns["split"].to_pylist()] if "split" in columns else None
    return ListedImages(folder_of(path), files, labels, splits)


def list_columns(path: str, wanted: Sequence[str], optional: Sequence[str]) -> dict[str, Any]:
    """Read columns as :func:`~shortlist._tables.read_columns` does, also of a list at an address."""
    if not is_address(path):
        return read_columns(path, wanted, optional=optional)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.rpartition("/")[2]
        try:
            with open_file(path) as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
        except Exception as error:  # each file system has errors of its own
            raise ValueError(f"{path} cannot be read: {reason_of_file(error)}") from error
        try:
            return read_columns(copy, wanted, optional=optional)
        except ValueError as error:
            raise ValueError(str(error).replace(str(copy), path)) from error
