"""Labeled images of a source: folders of classes, a list, or a table of votes with its photos."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from shortlist._messages import missing
from shortlist._tables import read_columns
from shortlist._text import composed
from shortlist.class_table import ClassTable
from shortlist.curation.deletions import DELETED, StoreCopies, was_deleted
from shortlist.datasets import genera_of
from shortlist.inputs import (
    COLUMNS,
    Row,
    about_columns,
    class_folders,
    class_indices,
    ids_by_folder,
    images_below,
)

LAYOUT = (
    "Expected <source>/<class>/*.jpg, <source>/<genus>/<class>/*.jpg, or a .csv or .parquet list with the "
    "columns path (or item), label and, optionally, genus, valid, observation, organ, author, license, date, "
    "place, source."
)
_ABOUT = [name for names in COLUMNS.values() for name in names]


Photos = dict[str, list[tuple[str, dict[str, Any]]]]
"""The photos of each item, with what is known of them."""


class Labeled(NamedTuple):
    """Labeled images.

    Args:
        rows: The images, labeled by the ids of their classes.
        classes: The classes.
        left_out: Numbers of rows that are left out, by reason.
    """

    rows: list[Row]
    classes: ClassTable
    left_out: Counter[str]


def read_labeled(
    source: str | Path, *, images: str | Path | None = None, copies: StoreCopies | None = None
) -> Labeled:
    """Read labeled images, and count the rows that are left out, by reason.

    Left out are rows that are not valid, those that people rejected (a label with ``!`` at its start), those
    of items without photos, and rows that list an image again. In a table of items and in the list of their
    photos, which are made from people's answers, rows with gaps and photos without a file are left out too.
    A ``class_table.json`` in the folder or beside the list says which class a label is.

    Args:
        source: A folder or a list; see :data:`LAYOUT`.
        images: List with the columns path and item, for a source with items: the photos of each.
        copies: The copies of photos that stores in databases have now.

    Raises:
        ValueError: If a class is in two genera, an image in two classes, or a label not in the class table.
    """
    source, left_out = Path(source), Counter[str]()
    if not source.exists():
        raise missing(source, LAYOUT)
    if source.is_dir() and images is not None:
        raise ValueError(f"images goes with a list of items, got the folder {source}")
    rows: dict[str, Row] = {}
    genera: dict[str, str] = {}
    photos = None if images is None else read_photos(images, left_out, copies or {})
    if source.is_dir():
        labeled = _from_folder(source, genera)
    else:
        labeled = _from_list(source, photos, left_out)
    for row, genus in labeled:
        if (other := genera.setdefault(row.class_label, genus)) != genus:
            raise ValueError(f"{source}: class {row.label!r} is in two genera, {other!r} and {genus!r}")
        first = rows.setdefault(os.path.abspath(row.path), row)
        if first.label != row.label:
            raise ValueError(f"{source}: {row.path} is in two classes, {first.label!r} and {row.label!r}")
        if first is not row:  # twice, it could get into two splits
            left_out["rows that list an image again"] += 1
    if not rows:
        raise ValueError(f"{source} holds no images in class folders. {LAYOUT}")
    return _with_classes(source, list(rows.values()), genera, left_out)


def _with_classes(source: Path, rows: list[Row], genera: dict[str, str], left_out: Counter[str]) -> Labeled:
    """Label rows by the ids of ``class_table.json``; without it, a label is both id and name of a class."""
    folder = source if source.is_dir() else source.parent
    if not (path := folder / "class_table.json").is_file():
        labels = sorted(genera)
        return Labeled(rows, ClassTable(labels, parents=_genus_level(map(genera.get, labels))), left_out)
    table, ids = ClassTable.load(path), ids_by_folder(folder) if source.is_dir() else {}
    labels = [ids.get(row.class_label, row.class_label) for row in rows]
    numbers = class_indices(labels, table, where=source, rows=[row.path for row in rows])
    labeled = [replace(row, label=table.ids[number]) for row, number in zip(rows, numbers, strict=True)]
    if "genus" not in table.parents:
        of_class = {row.label: genera[before.class_label] for row, before in zip(labeled, rows, strict=True)}
        level = _genus_level(of_class.get(id) for id in table.ids)
        level = level or _genus_level(map(genera_of(table.names).get, table.names))
        table = replace(table, parents={**table.parents, **level})
    return Labeled(labeled, table, left_out)


def _genus_level(genera: Iterable[str | None]) -> dict[str, list[str]]:
    """Return the genera of classes as a level of a class table; none if no class has a genus."""
    column = [genus or "" for genus in genera]
    return {"genus": column} if any(column) else {}


def _from_folder(root: Path, genera: dict[str, str]) -> Iterator[tuple[Row, str]]:
    """Give the images of class folders, or of those in folders of genera, with their genera.

    The genus of a class without images is noted, so that the class is known.
    """
    for outer, genus_by_name in genera_of(class_folders(root)).items():
        folders = {root / outer / name: (name, outer) for name in class_folders(root / outer)}
        if folders and (
            flat := [path for path in images_below(root / outer) if Path(path).parent == root / outer]
        ):
            raise ValueError(
                f"{root / outer} holds both folders and {len(flat)} images: it is neither a class nor a "
                f"genus. {LAYOUT}"
            )
        for folder, (label, genus) in (folders or {root / outer: (outer, genus_by_name)}).items():
            images = images_below(folder)
            if not images:
                genera.setdefault(composed(label), composed(genus))
            for image in images:
                row = Row(image, composed(label), observation=os.path.relpath(image, root))
                yield row, composed(genus)


def _from_list(path: Path, photos: Photos | None, left_out: Counter[str]) -> Iterator[tuple[Row, str]]:
    key = "path" if photos is None and not _has_items(path) else "item"
    table = read_columns(path, [key, "label"], optional=["genus", "valid", *_ABOUT], gaps=key == "item")
    columns = {name: column.to_pylist() for name, column in table.items()}
    said = {name: column.to_pylist() for name, column in about_columns(table).items()}
    if empty := sum(genus is None for genus in columns.get("genus", ())):
        raise ValueError(f"{path} has {empty} empty fields in column 'genus'")
    genera = {} if "genus" in columns else genera_of(str(label) for label in columns["label"])
    for row, (name, label) in enumerate(zip(columns[key], columns["label"], strict=True)):
        if name is None or label is None:
            left_out["rows without item or label"] += 1
            continue
        if "valid" in columns and not _is_true(columns["valid"][row], path):
            left_out["items without a valid label"] += 1
            continue
        if str(label).startswith("!"):
            left_out["items that people rejected"] += 1
            continue
        genus = composed(str(columns["genus"][row]) if "genus" in columns else genera[str(label)])
        about = {"observation": name} | _about_row(said, row)
        of_item = (
            [(os.path.join(path.parent, str(name)), {})] if photos is None else photos.get(str(name), [])
        )
        if not of_item:
            left_out["items without a photo"] += 1
        for image, of_photo in of_item:
            texts = {key: str(value) for key, value in (about | of_photo).items()}
            yield Row(image, composed(str(label)), **texts), genus


def _about_row(said: Mapping[str, list[Any]], row: int) -> dict[str, Any]:
    return {name: column[row] for name, column in said.items() if column[row] is not None}


def _has_items(path: Path) -> bool:
    """Whether a list names items and not paths."""
    try:
        read_columns(path, ["path"])
    except ValueError as error:
        if "has no column 'path'" not in str(error):
            raise
        read_columns(path, ["item"])
        return True
    return False


def read_photos(path: str | Path, left_out: Counter[str], copies: StoreCopies) -> Photos:
    """Return the photos of each item, with what is known of them, but for those that stores deleted."""
    path = Path(path)
    table = read_columns(path, ["path", "item"], optional=_ABOUT, gaps=True)
    said = {name: column.to_pylist() for name, column in about_columns(table).items()}
    photos: Photos = {}
    for row, (image, item) in enumerate(
        zip(table["path"].to_pylist(), table["item"].to_pylist(), strict=True)
    ):
        if image is None or item is None:
            left_out["photos without path or item"] += 1
        elif not os.path.isfile(file := os.path.join(path.parent, str(image))):
            left_out["photos that are gone"] += 1  # such as one that was deleted after the export
        elif was_deleted(file, copies):
            left_out[DELETED] += 1
        else:
            photos.setdefault(str(item), []).append((file, _about_row(said, row)))
    return photos


def _is_true(value: Any, path: Path) -> bool:
    """Read a truth value of a table, which may be text."""
    text = str(value).lower()
    if text not in ("true", "false", "1", "0"):
        raise ValueError(f"{path}: column 'valid' must hold true or false, got {value!r}")
    return text in ("true", "1")
