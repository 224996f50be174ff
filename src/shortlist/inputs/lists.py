"""Lists of images with their labels: text, CSV or Parquet, on this machine or at an address."""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from shortlist._messages import missing
from shortlist._tables import read_columns
from shortlist.inputs.addresses import folder_of, is_address, local_copy
from shortlist.inputs.folders import SPLITS
from shortlist.inputs.rows import ABOUT, COLUMNS, Rows, first_of

LAYOUT = (
    "Expected a text file with a path and a class on each line, or a .csv or .parquet file with the columns "
    "path, label and, if it holds several splits, split (train, val or test)."
)


def is_table(path: str | Path) -> bool:
    """Whether a path or an address is that of a table, by its ending."""
    return str(path).lower().endswith((".csv", ".parquet")) and not os.path.isdir(path)


def read_list(
    path: str | Path,
    *,
    root: str | Path | None = None,
    path_column: str = "path",
    label_column: str = "label",
    split_column: str = "split",
    need_labels: bool = False,
    about: Collection[str] = (),
) -> Rows:
    """Read a list of images: a table, or text with ``path class`` on each line.

    Args:
        path: Path or address of the list.
        root: Folder that the paths are relative to; that of the list if left out.
        path_column: Name of the column of paths.
        label_column: Name of the column of labels.
        split_column: Name of the column of splits, which may be missing.
        need_labels: Whether each row must have a label; without it, the column may be missing too.
        about: Facts to read: names in :data:`~shortlist.inputs.rows.ABOUT`, or of other columns.

    Raises:
        FileNotFoundError: If there is no such list.
        ValueError: If it cannot be read, or lacks a path or a label; the message names the row.
    """
    root = folder_of(str(path)) if root is None else str(root)
    if not is_address(str(path)) and not os.path.isfile(path):
        raise missing(path, LAYOUT)
    if not is_table(path):
        return Rows(root, *_read_text(path))
    wanted = [path_column, label_column] if need_labels else [path_column]
    others = [] if need_labels else [label_column]
    others += [split_column, *(column for name in about for column in COLUMNS.get(name, (name,)))]
    with local_copy(str(path)) as copy:
        table = read_columns(copy, wanted, optional=[name for name in others if name not in wanted])
    files = [str(file) for file in table[path_column].to_pylist()]
    labels = table[label_column].to_pylist() if label_column in table else [None] * len(files)
    splits = [str(split or "") for split in table[split_column].to_pylist()] if split_column in table else ()
    return Rows(root, files, labels, splits, about_columns(table, about))


def about_columns(table: dict[str, Any], about: Collection[str] = ABOUT) -> dict[str, Any]:
    """Return the columns of a table that have facts about images, by the names of the facts."""
    columns = {name: first_of(table, name) for name in about}
    return {name: column for name, column in columns.items() if column is not None}


def check_split_names(splits: Sequence[str], where: object, column: str = "split") -> None:
    """Require that each row is of a split, which may be train, val or test."""
    for row, split in enumerate(splits, start=1):
        if split not in SPLITS:
            raise ValueError(
                f"{where}, row {row}: column {column!r} must hold train, val or test, got {split!r}"
            )


def _read_text(path: str | Path) -> tuple[list[str], list[str]]:
    """Read paths and labels of a text file with ``path class`` on each line. A class has no spaces."""
    files, labels = [], []
    with local_copy(str(path)) as copy:
        try:
            lines = copy.read_text(encoding="utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} must be a text file in UTF-8 ({error})") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        words = line.rsplit(maxsplit=1)
        if len(words) != 2:
            raise ValueError(f"{path}, line {number}: expected a path and a class, got {line.strip()!r}")
        files.append(words[0].strip())
        labels.append(words[1])
    return files, labels
