"""Data sets of images in folders, one folder per class."""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch

from shortlist._text import composed
from shortlist.class_table import ClassTable
from shortlist.datasets.assembly import Files, assemble, divide, examples, missing
from shortlist.datasets.images import IMAGE_SUFFIXES, OnError
from shortlist.datasets.splits import Splits

__all__ = [
    "PARTS",
    "check_no_unknown_parts",
    "class_folders",
    "files_by_class",
    "folders_by_class",
    "image_folder",
    "images_below",
    "named_parts",
    "require_images",
]

PARTS = ("train", "val", "test")
# names that the folders of the parts have, in lower or upper case
PART_NAMES = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}

LAYOUT = (
    "Expected one folder of images per class, <root>/<class>/*.jpg, or the same in <root>/train, <root>/val "
    "and <root>/test."
)


def class_folders(root: str | Path) -> list[str]:
    """Return the names of the folders in a folder, sorted as text, without hidden ones."""
    with os.scandir(root) as entries:  # a link in a circle is no folder, and no error
        names = [entry.name for entry in entries if not entry.is_file(follow_symlinks=False)]
    return sorted(
        name for name in names if not name.startswith(".") and os.path.isdir(os.path.join(root, name))
    )


def folders_by_class(root: str | Path) -> dict[str, list[str]]:
    """Return the names of the folders of each class in a folder, by the name of the class, sorted.

    Mostly there is one. Folders whose names differ only in the way that Unicode writes an accent are of one
    class: they come from different systems.
    """
    found: dict[str, list[str]] = {}
    for name in class_folders(root):
        found.setdefault(composed(name), []).append(name)
    return dict(sorted(found.items()))


def images_below(folder: str | Path) -> list[str]:
    """Return the paths of all image files in a folder and below it, sorted, without hidden files.

    Pipes, devices and sockets are left out too, and counted in a warning.
    """
    found: list[str] = []
    special: list[str] = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".") and not _is_loop(parent, name)]
        odd = _special_files(parent)
        for name in names:
            if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES and not name.startswith("."):
                (special if name in odd else found).append(os.path.join(parent, name))
    if special:
        warnings.warn(
            f"{folder}: {len(special)} pipes, devices or sockets are left out, such as {min(special)}",
            stacklevel=2,
        )
    return sorted(found)


def _special_files(folder: str) -> set[str]:
    """Names of what is neither file nor folder; a link to nothing is none: it is an image that is missing."""
    with os.scandir(folder) as entries:  # which knows what most are without a look at each
        others = {entry.name: entry.path for entry in entries if not entry.is_file(follow_symlinks=False)}
    known = (os.path.isfile, os.path.isdir)
    return {name for name, path in others.items() if os.path.exists(path) and not any(f(path) for f in known)}


def _is_loop(parent: str, name: str) -> bool:
    """Return whether a folder is a link to one that it is in."""
    path = os.path.join(parent, name)
    if not os.path.islink(path):
        return False
    return os.path.join(os.path.realpath(parent), "").startswith(os.path.join(os.path.realpath(path), ""))


def require_images(parts: Mapping[str, Files], folders: Mapping[str, Path], help_text: str) -> None:
    """Raise a ``ValueError`` if a part has no images, though it has a folder."""
    for part, files in parts.items():
        if not files.paths:
            flat = len(images_below(folders[part]))
            found = f"{flat} images outside the class folders" if flat else "no images in class folders"
            raise ValueError(f"{folders[part]} holds {found}. {help_text}")


def files_by_class(root: str | Path, ids: Iterable[str]) -> Files:
    """Return the images of the class folders in ``root``; a class without a folder has none."""
    paths, targets, folders = [], [], folders_by_class(root)
    for index, name in enumerate(ids):
        own = folders.get(composed(name), [])
        images = [image for folder in own for image in images_below(os.path.join(root, folder))]
        paths += images
        targets += [index] * len(images)
    return Files(paths, torch.tensor(targets, dtype=torch.int64))


def named_parts(root: str | Path) -> dict[str, Path]:
    """Find the parts by the names of the folders in a folder: ``train``, ``Test``, ``validation``, ..."""
    found: dict[str, Path] = {}
    folders = {name.lower(): name for name in reversed(class_folders(root))}
    for part, names in PART_NAMES.items():
        for name in names:
            if name in folders:
                found.setdefault(part, Path(root) / folders[name])
    return found


def check_no_unknown_parts(root: str | Path) -> None:
    """Require class folders, where a few folders that hold the same folders look like splits of the data.

    Raises:
        ValueError: If there are two to five folders, without images of their own, and more folders than that
            are in each of them.
    """
    names = class_folders(root)
    if not 2 <= len(names) <= 5:
        return
    inside = [set(class_folders(os.path.join(root, name))) for name in names]
    shared = sorted(set.intersection(*inside))
    if len(shared) > len(names) and not any(_holds_images(os.path.join(root, name)) for name in names):
        raise ValueError(
            f"{root} holds the folders {examples(names)}, and each of them holds the same {len(shared)} "
            f"folders ({examples(shared)}): these look like splits of the data, not like classes. Name the "
            "splits train, val and test"
        )


def _holds_images(folder: str) -> bool:
    """Return whether there are images in a folder itself, not below it."""
    with os.scandir(folder) as entries:
        return any(os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES for entry in entries)


def image_folder(
    root: str | Path,
    *,
    val_fraction: float = 0.1,
    seed: int = 0,
    image_size: int = 224,
    train_transform: Callable | None = None,
    eval_transform: Callable | None = None,
    on_error: OnError = "skip",
    verify: bool = False,
) -> Splits:
    """Open a folder with one folder of images per class, with or without a division into parts.

    On disk: ``<root>/<class>/**/*.jpg`` (or another image format), or the same below ``<root>/train``,
    ``<root>/val`` and ``<root>/test`` (also ``Train``, ``training``, ``validation`` and the like). Classes
    are the folders of all splits, sorted as text; if there is a ``<root>/class_table.json`` (as
    :func:`shortlist.curation.build.build_benchmark` writes), its names, order and parents are used. Without
    ``test`` (or without ``val``) the other held-out split is the test split and the validation split is drawn
    from the training split, by class; without both, both are drawn.

    Args:
        root: Folder of the data set.
        val_fraction: Share of each class in each split that has to be drawn, rounded up; with 0 and one
            held-out folder, that folder is both the validation and the test split.
        seed: Seed of the draw.
        image_size: Side of the images for the model, used by the default transforms.
        train_transform: Function from a Pillow image of the training split to a tensor; a
            :class:`~shortlist.datasets.transforms.TrainTransform` if left out.
        eval_transform: Function from a Pillow image of the other splits to a tensor; an
            :class:`~shortlist.datasets.transforms.EvalTransform` if left out.
        on_error: What to do with unreadable files; see :mod:`shortlist.datasets.images`.
        verify: Whether to read every file now, and leave unreadable ones out (or raise, by ``on_error``).

    Raises:
        FileNotFoundError: The folder is missing, or has held-out splits only.
        ValueError: It, or a split of it, holds no class folders, or they hold no images.
    """
    root = Path(root)
    if not root.is_dir():
        raise missing(root, LAYOUT)
    found = named_parts(root)
    if found and "train" not in found and set(class_folders(root)) == {p.name for p in found.values()}:
        raise missing(root / "train", f"There is {' and '.join(found)} without it. {LAYOUT}")
    if "train" not in found:
        check_no_unknown_parts(root)
    folders = found if "train" in found else {"train": root}
    ids = sorted({name for folder in folders.values() for name in folders_by_class(folder)})
    table = _table_of(root, ids)
    files = {part: files_by_class(folder, table.ids) for part, folder in folders.items()}
    require_images(files, folders, LAYOUT)
    return assemble(
        divide(files, val_fraction=val_fraction, seed=seed),
        table,
        where=root,
        train_transform=train_transform,
        eval_transform=eval_transform,
        image_size=image_size,
        on_error=on_error,
        verify=verify,
    )


def _table_of(root: Path, ids: list[str]) -> ClassTable:
    """Return the class table that is in the folder, or one of the class folders alone."""
    path = root / "class_table.json"
    if not path.is_file():
        return ClassTable(ids)
    table = ClassTable.load(path)
    if unknown := sorted(set(ids) - set(table.ids)):
        raise ValueError(
            f"{path} does not know {len(unknown)} of the class folders "
            f"({examples(unknown)}): it belongs to another version of the data"
        )
    return table
