"""Images in folders, one folder per class, with or without a division into splits."""

import hashlib
import os
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shortlist._messages import examples
from shortlist._text import composed
from shortlist.class_table import ClassTable
from shortlist.inputs.benchmarks import about_of_images, is_benchmark
from shortlist.inputs.rows import Rows

IMAGE_SUFFIXES = frozenset(".bmp .gif .jpeg .jpg .pgm .png .ppm .tif .tiff .webp".split())
"""Endings of files that are taken for images."""
SPLITS = ("train", "val", "test")
_NOT_IN_NAMES = re.compile(r"[/\\\x00-\x1f\x7f]")  # characters that folder names cannot or should not have
_LONGEST_NAME = 200  # bytes of the name of a folder
# names of the folders of each split, in lower or upper case
SPLIT_NAMES = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}


def class_folders(root: str | Path) -> list[str]:
    """Return the names of the folders in a folder, sorted as text, without hidden ones."""
    with os.scandir(root) as entries:  # a link to itself is left out, without an error
        names = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
    return sorted(
        name for name in names if not name.startswith(".") and os.path.isdir(os.path.join(root, name))
    )


def images_below(folder: str | Path) -> list[str]:
    """Return the paths of all image files in a folder and below it, sorted, without hidden files.

    Pipes, devices and sockets are left out too, and counted in a warning.
    """
    images: list[str] = []
    special: list[str] = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".") and not _is_loop(parent, name)]
        odd = _special_files(parent)
        for name in filter(_is_image, names):
            (special if name in odd else images).append(os.path.join(parent, name))
    if special:
        warnings.warn(
            f"{folder}: {len(special)} pipes, devices or sockets are left out, such as {min(special)}",
            stacklevel=2,
        )
    return sorted(images)


def _is_image(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES and not name.startswith(".")


def _special_files(folder: str) -> set[str]:
    """Return the names of pipes, devices and sockets, without links to nothing: those are missing images."""
    with os.scandir(folder) as entries:  # knows the kind of most entries without opening them
        others = {entry.name: entry.path for entry in entries if not entry.is_file(follow_symlinks=False)}
    usual = (os.path.isfile, os.path.isdir)
    return {name for name, path in others.items() if os.path.exists(path) and not any(f(path) for f in usual)}


def _is_loop(parent: str, name: str) -> bool:
    """Return whether a folder is a link to a folder around it."""
    path = os.path.join(parent, name)
    if not os.path.islink(path):
        return False
    return os.path.join(os.path.realpath(parent), "").startswith(os.path.join(os.path.realpath(path), ""))


def _images_in(folder: str | Path) -> list[str]:
    """Return the images in a folder itself, not below it."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if _is_image(entry.name) and not entry.is_dir()]
    return [os.path.join(folder, name) for name in sorted(names)]


def named_splits(root: str | Path) -> dict[str, Path]:
    """Find splits by the names of the folders in a folder: ``train``, ``Test``, ``validation``, ..."""
    folders = {name.lower(): name for name in reversed(class_folders(root))}
    by_split = {split: [name for name in names if name in folders] for split, names in SPLIT_NAMES.items()}
    return {split: Path(root) / folders[names[0]] for split, names in by_split.items() if names}


def split_folders(root: str | Path, classes: ClassTable | None = None) -> dict[str, Path]:
    """Return the folders of the splits; an empty dict if all folders are class folders.

    They are class folders if one of the ``classes`` is called "train". They also are if there is no folder
    for training, but a folder whose name is no split: then "test" or "val" is the name of a class.
    """
    splits = named_splits(root)
    if classes is not None and "train" in classes.ids:
        return {}
    if "train" in splits or set(class_folders(root)) == {folder.name for folder in splits.values()}:
        return splits
    return {}


def check_splits(root: str | Path) -> None:
    """Refuse folders that look like splits with unknown names, where class folders are expected.

    Raises:
        ValueError: If there are two to five folders without images, and all hold the same folders, which are
            more than that.
    """
    names = class_folders(root)
    if not 2 <= len(names) <= 5:
        return
    inside = [set(class_folders(os.path.join(root, name))) for name in names]
    shared = sorted(set.intersection(*inside))
    if len(shared) > len(names) and not any(_images_in(os.path.join(root, name)) for name in names):
        raise ValueError(
            f"{root} holds the folders {examples(names)}, and each of them holds the same {len(shared)} "
            f"folders ({examples(shared)}): these look like splits of the data, not like classes. Name the "
            "splits train, val and test"
        )


def names_of_class_folders(root: str | Path, splits: Mapping[str, Path]) -> list[str]:
    """Return the names of the class folders of all splits, or of a folder without splits, sorted.

    Two names that differ only in how Unicode writes an accent are one name.
    """
    folders = splits.values() or [root]
    return sorted({composed(name) for folder in folders for name in class_folders(folder)})


def folder_names(ids: Sequence[str]) -> list[str]:
    """Return the name of the folder of each class: its id, or a similar name if no folder can have the id.

    The name of a folder has no ``/``, does not begin with a dot, which would hide it, and has at most 255
    bytes. Some disks do not distinguish upper and lower case.

    Example:
        >>> folder_names(["1355868", "a/b", ".c", "Oak", "oak"])
        ['1355868', 'a_b', 'c', 'Oak', 'oak-2']
    """
    plain = [_NOT_IN_NAMES.sub("_", id).lstrip(".") or "class" for id in ids]
    plain = [_shortened(name) for name in plain]
    unchanged = {name.casefold() for name, id in zip(plain, ids, strict=True) if name == id}
    names, taken = [""] * len(ids), set()
    for index in sorted(range(len(ids)), key=lambda index: plain[index] != ids[index]):  # unchanged ids first
        name, number = plain[index], 2
        while name.casefold() in (taken if name == ids[index] else taken | unchanged):
            name, number = f"{plain[index]}-{number}", number + 1
        names[index] = name
        taken.add(name.casefold())
    return names


def _shortened(name: str) -> str:
    """Cut a name that is too long for a folder, and end it with its hash."""
    content = name.encode("utf-8", "surrogateescape")
    if len(content) <= _LONGEST_NAME:
        return name
    return content[:_LONGEST_NAME].decode(errors="ignore") + hashlib.sha256(content).hexdigest()[:16]


def ids_by_folder(root: str | Path) -> dict[str, str]:
    """Return the id of each class by the name of its folder, from ``class_table.json`` if it is there."""
    path = Path(root) / "class_table.json"
    if not path.is_file():
        return {}
    ids = ClassTable.load(path).ids
    return dict(zip(folder_names(ids), ids, strict=True)) | {id: id for id in ids}


def read_folder(
    root: str | Path, splits: Mapping[str, Path] | None = None, *, about: Collection[str] = ()
) -> Rows:
    """Read the images of class folders, class by class; the label is the name of the folder.

    If ``class_table.json`` of the root has an id that no folder can have (:func:`folder_names`), this id is
    the label. An image beside the class folders has no label.

    Args:
        root: The folder.
        splits: Folders of the splits; those of :func:`split_folders` if left out, none if empty.
        about: Facts to read if the folder is a built benchmark: names in ``ABOUT``.
    """
    root = str(Path(root))
    splits = split_folders(root) if splits is None else splits
    files: list[str] = []
    labels: list[str | None] = []
    split_of_rows: list[str] = []
    ids = ids_by_folder(root)
    for split, folder in (splits or {"": root}).items():
        start = len(os.path.join(folder, ""))
        prefix = os.path.join(os.path.relpath(folder, root), "").removeprefix("./")
        for name in [*sorted(class_folders(folder), key=lambda name: (composed(name), name)), None]:
            images = _images_in(folder) if name is None else images_below(os.path.join(folder, name))
            files += [prefix + image[start:] for image in images]
            label = None if name is None else composed(name)
            labels += [label and ids.get(label, label)] * len(images)
            split_of_rows += [split] * len(images)
    rows = Rows(root, files, labels, split_of_rows if splits else ())
    return replace(rows, about=about_of_images(root, files, about)) if about and is_benchmark(root) else rows


def check_all_in_splits(root: str | Path, splits: Mapping[str, Path]) -> None:
    """Refuse images beside the folders of splits, which would be left out."""
    if splits:
        others = set(class_folders(root)) - {folder.name for folder in splits.values()}
        beside = [image for name in sorted(others) for image in images_below(os.path.join(root, name))]
        refuse_images_beside(_images_in(root) + beside, root, f"folders {', '.join(splits)}")


def refuse_images_beside(images: list[str], root: str | Path, what: str) -> None:
    """Raise a ``ValueError`` if there are images beside those that are read."""
    if images:
        raise ValueError(
            f"{root} holds {len(images)} images beside its {what}, such as {images[0]}, which would be left "
            "out: move them elsewhere"
        )
