"""Lists of image files that have several labels each."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.data import Dataset

from shortlist._checks import check_label_sets
from shortlist._messages import examples
from shortlist._tables import read_columns
from shortlist._text import composed
from shortlist.class_table import ClassTable
from shortlist.datasets.images import PathList
from shortlist.datasets.label_sets import LabelSetSplits
from shortlist.datasets.transforms import EvalTransform, TrainTransform
from shortlist.preprocessing import read_image

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["LabelSetImages", "label_set_list"]

_PARTS = ("train", "val", "test")


class LabelSetImages(Dataset):
    """A part of a data set whose inputs are image files, decoded when they are fetched, with several labels.

    A file that cannot be read is an error that names it: find them beforehand with ``shortlist data check``.

    Args:
        paths: Path of the file of each row.
        labels: Labels of each row (n, c), each 0 or 1, with at least one 1 in each row; kept as bool.
        transform: Function from an RGB Pillow image to a tensor; a center crop of 224 pixels if left out.
    """

    def __init__(
        self,
        paths: Iterable[str | Path],
        labels: Tensor,
        *,
        transform: Callable[["Image.Image"], Tensor] | None = None,
    ) -> None:
        self.paths = PathList(paths)
        if labels.ndim != 2 or len(labels) != len(self.paths):
            raise ValueError(f"labels must be of shape ({len(self.paths)}, c), got {tuple(labels.shape)}")
        check_label_sets(labels, labels)
        self.labels = labels.bool()
        self.transform = EvalTransform() if transform is None else transform

    def __repr__(self) -> str:
        return f"LabelSetImages({len(self):,} images)"

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.transform(read_image(self.paths[index])), self.labels[index]

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the images with these indices, transformed, and their labels (m, c)."""
        rows = [self.transform(read_image(self.paths[index])) for index in indices.tolist()]
        return torch.stack(rows), self.labels[indices]

    def __getitems__(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return a whole batch, for ``DataLoader``."""
        return self.batch(torch.as_tensor(indices))


def label_set_list(
    path: str | Path,
    *,
    root: str | Path | None = None,
    separator: str = ";",
    image_size: int = 224,
    train_transform: Callable[["Image.Image"], Tensor] | None = None,
    eval_transform: Callable[["Image.Image"], Tensor] | None = None,
) -> LabelSetSplits:
    """Open images with several labels, which a ``.csv`` or ``.parquet`` file lists.

    On disk: a file with the columns ``path``, ``labels`` (such as ``oak;birch``) and ``split`` (``train``,
    ``val`` or ``test``). The classes are those of all rows, in alphabetical order.

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
    for row, found in enumerate(sets):
        labels[row, [index[label] for label in found]] = True
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
        made[part] = LabelSetImages([files[row] for row in rows], labels[rows], transform=transform)
    counts = made["train"].labels.sum(0).tolist()
    return LabelSetSplits(**made, class_table=ClassTable(names, counts=counts))


def _split_labels(text: str, separator: str, path: Path) -> list[str]:
    labels = [composed(label.strip()) for label in text.split(separator)]
    if "" in labels:
        raise ValueError(f"{path}: column 'labels' must hold names between {separator!r}, got {text!r}")
    return labels
