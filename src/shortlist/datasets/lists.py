"""Data sets of images that lists name, with their classes: text, CSV or Parquet."""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from shortlist._messages import examples, missing
from shortlist._row_facts import RowFacts
from shortlist.class_table import ClassTable
from shortlist.datasets.assembly import Files, assemble, divide
from shortlist.datasets.splits import Splits
from shortlist.inputs import LAYOUT, Rows, check_split_names, class_indices, classes_of_labels, read_list


def _splits(
    rows: Mapping[str, Rows],
    *,
    where: Path,
    class_table: ClassTable | None,
    val_fraction: float,
    seed: int,
    **image_options: Any,
) -> Splits:
    if not len(rows.get("train", ())):
        raise ValueError(f"{where} lists no training images. {LAYOUT}")
    labels = (label for some in rows.values() for label in some.labels)
    table = classes_of_labels(labels, where=where) if class_table is None else class_table
    files = {}
    for split, some in rows.items():
        paths = some.addresses()
        if paths and not os.path.exists(paths[0]):  # a wrong root is wrong in the first row
            where_listed = f"It is the first image of the {split} split in {where}; root is {some.root}."
            raise missing(paths[0], where_listed)
        facts = RowFacts.of_columns(some.texts(some.about))
        files[split] = Files(paths, torch.tensor(class_indices(some.labels, table, where=where)), facts)
    parts = divide(files, val_fraction=val_fraction, seed=seed)
    _warn_of_leaks(parts, where)
    return assemble(parts, table, where=where, **image_options)


def _warn_of_leaks(parts: Mapping[str, Files], where: Path) -> None:
    """Warn once for each held-out split with images that are also listed for training."""
    train = set(parts["train"].paths)
    for name in ("val", "test"):
        if shared := [path for path in parts[name].paths if path in train]:
            warnings.warn(
                f"{where}: {len(shared)} images of the {name} split are in the train split, too "
                f"({examples(shared)})",
                stacklevel=4,
            )


def image_list(
    path: str | Path,
    *,
    root: str | Path | None = None,
    path_column: str = "path",
    label_column: str = "label",
    split_column: str = "split",
    group_columns: Sequence[str] = ("organ",),
    class_table: ClassTable | None = None,
    val_fraction: float = 0.1,
    seed: int = 0,
    **image_options: Any,
) -> Splits:
    """Open the images and classes listed in one file.

    On disk: a ``.csv`` or ``.parquet`` file with a column of paths, one of classes and, if wanted, one that
    says ``train``, ``val`` or ``test``; or a text file with ``path class`` on each line. Without a division
    into parts, or with part of one, the rest is drawn as by :func:`~shortlist.datasets.folders.image_folder`.
    Photos of one object have the same text in the column ``observation`` (or ``observation_id``, ``obs_id``);
    they are drawn together.

    Args:
        path: Path of the list.
        root: Folder to which the paths are relative; the folder of the list if left out.
        path_column: Name of the column of paths.
        label_column: Name of the column of classes. If all are whole numbers >= 0 they are class indices;
            otherwise the classes are numbered in alphabetical order. Numbers far above the number of
            classes are refused, since they are ids.
        split_column: Name of the column of parts; it may be missing.
        group_columns: Names of columns by which promises are made and measured, where the list has them.
        class_table: Classes whose ids are the labels, if their order or names are fixed elsewhere. If no id
            is a whole number, labels may be indices of its classes too.
        val_fraction: Share of each class in each split that has to be drawn.
        seed: Seed of the draw.
        **image_options: ``image_size``, ``train_transform``, ``eval_transform``, ``on_error``, ``verify`` as
            for :func:`~shortlist.datasets.folders.image_folder`.

    Raises:
        FileNotFoundError: The list, or the first image of a part, is missing.
        ValueError: A column or field is missing, or a part is not one of the three.

    Warns:
        UserWarning: An image is listed for training and in a held-out split, too, or the photos of an
            observation are in several splits.
    """
    columns: dict[str, Any] = {"path_column": path_column, "label_column": label_column}
    columns |= {"split_column": split_column, "about": ("observation", *group_columns)}
    rows = read_list(path, root=root, need_labels=True, **columns)
    check_split_names(rows.splits, path, split_column)
    by_split = {split: rows.of_split(split) for split in dict.fromkeys(rows.splits)} or {"train": rows}
    return _splits(
        by_split,
        where=Path(path),
        class_table=class_table,
        val_fraction=val_fraction,
        seed=seed,
        **image_options,
    )


def image_lists(
    train: str | Path,
    val: str | Path | None = None,
    test: str | Path | None = None,
    *,
    root: str | Path | None = None,
    path_column: str = "path",
    label_column: str = "label",
    group_columns: Sequence[str] = ("organ",),
    class_table: ClassTable | None = None,
    val_fraction: float = 0.1,
    seed: int = 0,
    **image_options: Any,
) -> Splits:
    """Open the images and classes listed in one file per part; for the rest see :func:`image_list`."""
    columns: dict[str, Any] = {"path_column": path_column, "label_column": label_column, "split_column": ""}
    columns["about"] = ("observation", *group_columns)
    rows = {
        split: read_list(path, root=root or Path(train).parent, need_labels=True, **columns)
        for split, path in {"train": train, "val": val, "test": test}.items()
        if path is not None
    }
    return _splits(
        rows,
        where=Path(train),
        class_table=class_table,
        val_fraction=val_fraction,
        seed=seed,
        **image_options,
    )
