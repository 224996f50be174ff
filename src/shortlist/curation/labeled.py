"""Labeled images of a source: folders of classes, a list, or a table of votes with its photos."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shortlist._messages import missing
from shortlist._tables import read_columns
from shortlist._text import composed
from shortlist.datasets.plantnet import genus_of
from shortlist.inputs.folders import class_folders, images_below

__all__ = ["ABOUT", "LAYOUT", "LabeledImage", "read_labeled"]

ABOUT = ("organ", "author", "license", "date")
"""What else is known of an image, and travels with it."""
LAYOUT = (
    "Expected <source>/<class>/*.jpg, <source>/<genus>/<class>/*.jpg, or a .csv or .parquet list with the "
    "columns path (or item), label and, optionally, genus, valid, observation, organ, author, license, date."
)


@dataclass(frozen=True)
class LabeledImage:
    """An image with its class.

    Args:
        path: The file.
        label: Name of the class.
        genus: Name of the group of classes that it belongs to; "" if it is not known.
        observation: What the image is a photo of: all photos of one observation are in one part.
        about: What else is known.
    """

    path: str
    label: str
    genus: str
    observation: str
    about: Mapping[str, str] = field(default_factory=dict)


def read_labeled(
    source: str | Path, *, images: str | Path | None = None
) -> tuple[list[LabeledImage], Counter[str]]:
    """Read labeled images, and count the rows that are left out, by reason.

    Left out are rows that are not valid, those that people rejected (a label with ``!`` at its start), those
    of items without photos, and rows that list an image again. In a table of items and in the list of their
    photos, which are made from people's answers, rows with gaps and photos without a file are left out too.

    Args:
        source: A folder or a list; see :data:`LAYOUT`.
        images: List with the columns path and item, for a source with items: the photos of each.

    Raises:
        ValueError: If a class is in two genera, or an image in two classes.
    """
    source, left_out = Path(source), Counter[str]()
    if not source.exists():
        raise missing(source, LAYOUT)
    if source.is_dir():
        if images is not None:
            raise ValueError(f"images goes with a list of items, got the folder {source}")
        rows = _from_folder(source)
    else:
        rows = _from_list(source, images, left_out)
    found: dict[str, LabeledImage] = {}
    genus_of_class: dict[str, str] = {}
    for row in rows:
        if genus_of_class.setdefault(row.label, row.genus) != row.genus:
            raise ValueError(
                f"{source}: class {row.label!r} is in two genera, {genus_of_class[row.label]!r} and "
                f"{row.genus!r}"
            )
        known = found.setdefault(os.path.abspath(row.path), row)
        if known.label != row.label:
            raise ValueError(f"{source}: {row.path} is in two classes, {known.label!r} and {row.label!r}")
        if known is not row:  # twice, it could get into two parts
            left_out["rows that list an image again"] += 1
    if not found:
        raise ValueError(f"{source} holds no images in class folders. {LAYOUT}")
    return list(found.values()), left_out


def _from_folder(root: Path) -> Iterator[LabeledImage]:
    def made(image: str, label: str, genus: str) -> LabeledImage:
        return LabeledImage(image, composed(label), composed(genus), os.path.relpath(image, root))

    for outer in class_folders(root):
        inner = class_folders(root / outer)
        if inner:
            if flat := [image for image in images_below(root / outer) if Path(image).parent == root / outer]:
                raise ValueError(
                    f"{root / outer} holds both folders and {len(flat)} images: it is neither a class nor a "
                    f"genus. {LAYOUT}"
                )
            for name in inner:
                yield from (made(image, name, outer) for image in images_below(root / outer / name))
        else:
            yield from (made(image, outer, genus_of(outer)) for image in images_below(root / outer))


def _from_list(path: Path, images: str | Path | None, left_out: Counter[str]) -> Iterator[LabeledImage]:
    key = "path" if images is None and not _has_items(path) else "item"
    optional, gaps = ["genus", "valid", "observation", *ABOUT], key == "item"
    table = read_columns(path, [key, "label"], optional=optional, gaps=gaps)
    columns = {name: column.to_pylist() for name, column in table.items()}
    _check_genera(path, columns)
    photos = None if images is None else _photos(Path(images), left_out)
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
        genus = str(columns["genus"][row]) if "genus" in columns else genus_of(str(label))
        known = {about: columns[about][row] for about in ("observation", *ABOUT) if about in columns}
        if photos is None:
            yield _labeled(os.path.join(path.parent, str(name)), str(label), genus, str(name), known)
            continue
        if not (of_item := photos.get(str(name), ())):
            left_out["items without a photo"] += 1
        for image, about in of_item:
            yield _labeled(image, str(label), genus, str(name), known | about)


def _labeled(image: str, label: str, genus: str, name: str, known: Mapping[str, Any]) -> LabeledImage:
    about = {key: str(known[key]) for key in ABOUT if known.get(key) is not None}
    observation = known.get("observation")
    observation = name if observation is None else str(observation)
    return LabeledImage(image, composed(label), composed(genus), observation, about)


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


def _photos(path: Path, left_out: Counter[str]) -> dict[str, list[tuple[str, dict[str, str]]]]:
    """Return the photos of each item, with what is known of them."""
    table = read_columns(path, ["path", "item"], optional=["observation", *ABOUT], gaps=True)
    columns = {name: column.to_pylist() for name, column in table.items()}
    photos: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for row, (image, item) in enumerate(zip(columns.pop("path"), columns.pop("item"), strict=True)):
        if image is None or item is None:
            left_out["photos without path or item"] += 1
        elif not os.path.isfile(file := os.path.join(path.parent, str(image))):
            left_out["photos that are gone"] += 1  # such as one that was deleted after the export
        else:
            about = {name: column[row] for name, column in columns.items() if column[row] is not None}
            photos.setdefault(str(item), []).append((file, about))
    return photos


def _check_genera(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    if empty := sum(genus is None for genus in columns.get("genus", ())):
        raise ValueError(f"{path} has {empty} empty fields in column 'genus'")


def _is_true(value: Any, path: Path) -> bool:
    """Read a truth value of a table, which may be text."""
    text = str(value).lower()
    if text not in ("true", "false", "1", "0"):
        raise ValueError(f"{path}: column 'valid' must hold true or false, got {value!r}")
    return text in ("true", "1")
