"""Read images with their labels in any form: class folders, lists, tar files, files."""

import os
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from shortlist.class_table import ClassTable
from shortlist.inputs.addresses import absolute, is_address
from shortlist.inputs.folders import (
    check_all_in_splits,
    images_below,
    read_folder,
    refuse_images_beside,
    split_folders,
)
from shortlist.inputs.lists import is_table, read_list
from shortlist.inputs.rows import Rows
from shortlist.inputs.tars import read_tar, tar_files


def read_rows(
    path: str | Path,
    *,
    split: str | None = None,
    default: str | None = None,
    classes: ClassTable | None = None,
    about: Collection[str] = (),
) -> Rows:
    """Read rows, always in the same order. An image that would be left out is an error.

    Args:
        path: A folder of images, of class folders, or of folders train, val and test with class folders; a
            list; a tar file or a folder of tar files. Lists, their images and tar files may be at addresses.
        split: Read this split alone.
        default: If ``split`` is ``None`` and the data have splits, read this split alone.
        classes: The classes, if they are known: one of them may be called "train".
        about: Facts to read from a list or a built benchmark, as :func:`read_list` takes them; of tar files
            all facts are read.

    Raises:
        ValueError: If the path is none of these, images would be left out, or the split is missing.
    """
    text = absolute(path)
    if tars := tar_files(text):
        names = chosen_splits(tars, split, text, default=default)
        return _joined(text, {name: [read_tar(file) for file in tars[name]] for name in names})
    if os.path.isdir(text):
        splits = split_folders(text, classes)
        chosen = {name: splits[name] for name in chosen_splits(splits, split, text, default=default)}
        if split is None and default is None:
            check_all_in_splits(text, splits)
        rows = read_folder(text, chosen, about=about)
        _refuse_loose_images(rows, chosen or {"": text})
        return rows
    if not (is_address(text) or os.path.isfile(text)):
        raise ValueError(f"rows must be a folder, a list (.csv, .parquet, text) or a .tar, got {path}")
    rows = read_list(text, about=about)
    names = chosen_splits(dict.fromkeys(rows.splits), split, text, default=default)
    return rows.of_split(names[0]) if len(names) == 1 else rows


def chosen_splits(
    splits: Mapping[str, Any], split: str | None, where: str, *, default: str | None = None
) -> list[str]:
    """Return the names of the splits to read: all, if neither ``split`` nor ``default`` is given.

    The name of data without splits is empty.
    """
    names = sorted(filter(None, splits))
    if split is not None and not names:
        raise ValueError(
            "--split needs a folder with train, val and test, a list with the column split, or tar files "
            f"with such names: {where} has no splits, got {split!r}"
        )
    if split is not None and split not in names:
        raise ValueError(f"--split must be one of {', '.join(names)} of {where}, got {split!r}")
    if split is None and default is not None and names and default not in names:
        raise ValueError(f"{where} has no {default} images, but {' and '.join(names)}")
    chosen = split or (default if names else None)
    return list(splits) if chosen is None else [chosen]


def _joined(where: str, by_split: Mapping[str, Sequence[Rows]]) -> Rows:
    """Join the rows of several tar files."""
    parts = [(split, rows) for split, rows_of_files in by_split.items() for rows in rows_of_files]
    names = {name for _, rows in parts for name in rows.about}
    about = {
        name: list(chain.from_iterable(rows.about.get(name, [None] * len(rows)) for _, rows in parts))
        for name in names
    }
    return Rows(
        where,
        list(chain.from_iterable(rows.files for _, rows in parts)),
        list(chain.from_iterable(rows.labels for _, rows in parts)),
        [split for split, rows in parts for _ in rows.files] if any(by_split) else (),
        about,
    )


def _refuse_loose_images(rows: Rows, folders: Mapping[str, str | Path]) -> None:
    """Refuse images without a label beside class folders; a folder of such images alone is fine."""
    if None not in rows.labels:
        return
    for split, folder in folders.items():
        of_split = [row for row in range(len(rows)) if not rows.splits or rows.splits[row] == split]
        loose = [str(rows.address(row)) for row in of_split if rows.labels[row] is None]
        if len(loose) < len(of_split):
            refuse_images_beside(loose, folder, "class folders")


def image_files(inputs: Sequence[Path], path_column: str = "path") -> list[str]:
    """Return the paths of all images: of files, of images below folders, and in a column of tables."""
    files: list[str] = []
    for path in inputs:
        if path.is_dir():
            images = images_below(path)
            if not images:
                raise ValueError(f"{path} holds no images")
            files += images
        elif is_table(path):
            files += read_list(path, path_column=path_column, label_column="", split_column="").addresses()
        elif path.is_file():
            files.append(str(path))
        else:
            raise FileNotFoundError(f"{path} does not exist")
    return files
