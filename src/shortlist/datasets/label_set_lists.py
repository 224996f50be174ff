"""Lists of image files that have several labels each."""

import os
from collections.abc import Callable
from pathlib import Path

import torch

from shortlist._messages import examples
from shortlist._tables import read_columns
from shortlist._text import composed
from shortlist.class_table import ClassTable
from shortlist.datasets.images import ImageFiles
from shortlist.datasets.label_sets import LabelPairs
from shortlist.datasets.splits import Splits
from shortlist.datasets.transforms import EvalTransform, TrainTransform

_PARTS = ("train", "val", "test")


def label_set_list(
    path: str | Path,
    *,
    root: str | Path | None = None,
    separator: str = ";",
    image_size: int = 224,
    train_transform: Callable | None = None,
    eval_transform: Callable | None = None,
) -> Splits:
    """Open images with several labels, which a ``.csv`` or ``.parquet`` file lists.

    On disk: a file with the columns ``path``, ``labels`` (such as ``oak;birch``) and ``split`` (``train``,
    ``val`` or ``test``). The classes are those of all rows, in alphabetical order. A file that cannot be read
    is an error that names it: find them beforehand with ``shortlist data check``.

    Args:
        path: Path of the list.
        root: Folder to which the paths are relative; the folder of the list if left out.
        separator: Text between the labels of a row.
        image_size: Side of the images in pixels, for the default transforms.
        train_transform: Function from an RGB Pillow image to a tensor, for training rows.
        eval_transform: The same for the other rows.

    Raises:
        FileNotFoundError: There is no such list.
        ValueError: A column or a field is missing, or a part is none of the three or has no rows.
    """
    path = Path(path)
    table = read_columns(path, ["path", "labels", "split"])
    sets = [_split_labels(str(text), separator, path) for text in table["labels"].to_pylist()]
    parts = [str(part) for part in table["split"].to_pylist()]
    if odd := sorted(set(parts) - set(_PARTS)):
        raise ValueError(f"{path}: column 'split' must hold train, val or test, got {examples(odd)}")
    names = sorted({label for labels in sets for label in labels})
    index = {name: number for number, name in enumerate(names)}
    labels = torch.zeros(len(sets), len(names), dtype=torch.bool)
    for row, row_labels in enumerate(sets):
        labels[row, [index[label] for label in row_labels]] = True
    base = path.parent if root is None else Path(root)
    files = [os.path.join(base, str(file)) for file in table["path"].to_pylist()]
    transforms = {
        "train": train_transform or TrainTransform(image_size),
        "val": eval_transform or EvalTransform(image_size),
    }
    made = {}
    for part in _PARTS:
        rows = [row for row, name in enumerate(parts) if name == part]
        if not rows:
            raise ValueError(f"{path} lists no {part} images: each of {', '.join(_PARTS)} needs some")
        transform = transforms["train" if part == "train" else "val"]
        first = labels[rows].int().argmax(1)
        photos = ImageFiles([files[row] for row in rows], first, transform=transform, on_error="raise")
        made[part] = LabelPairs(photos, labels[rows])
    counts = made["train"].label_sets.labels.sum(0).tolist()
    return Splits(**made, class_table=ClassTable(names, counts=counts))


def _split_labels(text: str, separator: str, path: Path) -> list[str]:
    labels = [composed(label.strip()) for label in text.split(separator)]
    if "" in labels:
        raise ValueError(f"{path}: column 'labels' must hold names between {separator!r}, got {text!r}")
    return labels
