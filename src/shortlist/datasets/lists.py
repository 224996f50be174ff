"""Lists of image files with their classes: text, CSV or Parquet."""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist._tables import read_columns
from shortlist._text import composed
from shortlist.class_table import ClassTable
from shortlist.datasets.assembly import Files, assemble, divide, examples, missing
from shortlist.datasets.class_labels import finder_of_classes
from shortlist.datasets.splits import Splits

__all__ = [
    "image_list",
    "image_lists",
    "index_labels",
    "read_text_list",
]

MOST_INDICES = 100_000  # whole numbers beyond, most of them unused, are ids and no class indices

LAYOUT = (
    "Expected a text file with a path and a class on each line, or a .csv or .parquet file with the columns "
    "path, label and, if it holds several splits, split (train, val or test)."
)


def read_text_list(path: str | Path) -> tuple[list[str], list[str]]:
    """Read paths and classes of a text file with ``path class`` on each line; only a path may have spaces."""
    paths, labels = [], []
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no list: it is no text in UTF-8 ({error})") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        words = line.rsplit(maxsplit=1)
        if len(words) != 2:
            raise ValueError(f"{path}, line {number}: expected a path and a class, got {line.strip()!r}")
        paths.append(words[0].strip())
        labels.append(words[1])
    return paths, labels


def _read(path: Path, columns: tuple[str, str, str]) -> tuple[list[str], list, list[str] | None]:
    """Read the paths, labels and, if there are any, parts of a list file."""
    if not path.is_file():
        raise missing(path, LAYOUT)
    if path.suffix.lower() not in (".csv", ".parquet"):
        paths, labels = read_text_list(path)
        return paths, labels, None
    path_column, label_column, split_column = columns
    table = read_columns(path, [path_column, label_column], optional=[split_column])
    parts = table[split_column].to_pylist() if split_column in table else None
    return [str(p) for p in table[path_column].to_pylist()], table[label_column].to_pylist(), parts


def index_labels(labels: Sequence, known: ClassTable | None, where: object) -> tuple[Tensor, ClassTable]:
    """Return class indices and class table; whole numbers >= 0 are indices, other labels are sorted."""
    texts = np.asarray([composed(str(label)) for label in labels])
    if known is not None:
        find = finder_of_classes(known.ids)
        found = {text: find(text) for text in set(texts.tolist())}
        if unknown := sorted(text for text, index in found.items() if index is None):
            raise ValueError(f"{where} has classes that class_table lacks: {examples(unknown)}")
        return torch.tensor([found[text] for text in texts.tolist()], dtype=torch.int64), known
    if np.char.isdecimal(texts).all():
        indices = [int(text) for text in texts.tolist()]
        highest, distinct = max(indices), len(set(indices))
        if highest >= max(MOST_INDICES, 10 * distinct):
            raise ValueError(
                f"{where}: whole numbers are class indices, but {distinct} different ones go up to "
                f"{highest}. If they are ids, give a class_table with these ids or write them with a letter"
            )
        return torch.tensor(indices, dtype=torch.int64), ClassTable([str(c) for c in range(highest + 1)])
    names, numbers = np.unique(texts, return_inverse=True)
    return torch.from_numpy(numbers.astype(np.int64)), ClassTable(names.tolist())


def _splits(
    rows: Mapping[str, tuple[list[str], list]],
    *,
    where: Path,
    root: str | Path | None,
    class_table: ClassTable | None,
    val_fraction: float,
    seed: int,
    **image_options: Any,
) -> Splits:
    labels = [label for _, part in rows.values() for label in part]
    if not rows.get("train", ([], []))[0]:
        raise ValueError(f"{where} lists no training images. {LAYOUT}")
    targets, table = index_labels(labels, class_table, where)
    base = str(root) if root is not None else str(where.parent)
    files, start = {}, 0
    for part, (paths, _) in rows.items():
        full = [os.path.join(base, path) for path in paths]
        if full and not os.path.exists(full[0]):  # a wrong root is wrong in the first row
            raise missing(full[0], f"It is the first image of the {part} split in {where}; root is {base}.")
        files[part] = Files(full, targets[start : start + len(full)])
        start += len(full)
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
    class_table: ClassTable | None = None,
    val_fraction: float = 0.1,
    seed: int = 0,
    **image_options: Any,
) -> Splits:
    """Open the images and classes listed in one file.

    On disk: a ``.csv`` or ``.parquet`` file with a column of paths, one of classes and, if wanted, one that
    says ``train``, ``val`` or ``test``; or a text file with ``path class`` on each line. Without a division
    into parts, or with part of one, the rest is drawn as by :func:`~shortlist.datasets.folders.image_folder`.

    Args:
        path: Path of the list.
        root: Folder to which the paths are relative; the folder of the list if left out.
        path_column: Name of the column of paths.
        label_column: Name of the column of classes. If all are whole numbers >= 0 they are class indices;
            otherwise the classes are numbered in alphabetical order. Numbers far above the number of
            classes are refused, since they are ids.
        split_column: Name of the column of parts; it may be missing.
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
        UserWarning: An image is listed for training and in a held-out split, too.
    """
    path = Path(path)
    paths, labels, parts = _read(path, (path_column, label_column, split_column))
    rows: dict[str, tuple[list[str], list]] = {}
    for image, label, part in zip(paths, labels, parts or ["train"] * len(paths), strict=True):
        rows.setdefault(part, ([], []))[0].append(image)
        rows[part][1].append(label)
    if odd := [str(part) for part in rows if part not in ("train", "val", "test")]:
        raise ValueError(
            f"{path}: column {split_column!r} must hold train, val or test, got {examples(sorted(odd))}"
        )
    return _splits(
        rows,
        where=path,
        root=root,
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
    class_table: ClassTable | None = None,
    val_fraction: float = 0.1,
    seed: int = 0,
    **image_options: Any,
) -> Splits:
    """Open the images and classes listed in one file per part; for the rest see :func:`image_list`."""
    rows = {}
    for part, path in {"train": train, "val": val, "test": test}.items():
        if path is not None:
            paths, labels, _ = _read(Path(path), (path_column, label_column, ""))
            rows[part] = (paths, labels)
    return _splits(
        rows,
        where=Path(train),
        root=root,
        class_table=class_table,
        val_fraction=val_fraction,
        seed=seed,
        **image_options,
    )
