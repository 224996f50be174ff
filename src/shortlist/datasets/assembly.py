"""Make the three splits of a data set from lists of files, for all data sets of image files."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._checks import check_number
from shortlist._messages import examples
from shortlist._row_facts import ALONE, FACTS, RowFacts
from shortlist.class_table import ClassTable
from shortlist.datasets.images import ImageFiles, OnError, PathList, unreadable_files
from shortlist.datasets.partition import proportional_split
from shortlist.datasets.splits import Splits
from shortlist.datasets.transforms import EvalTransform, TrainTransform
from shortlist.inputs import class_indices, read_folder


@dataclass(frozen=True)
class Files:
    """The paths and class indices of one part, and what else is known about its rows."""

    paths: Sequence[str]
    targets: Tensor
    facts: RowFacts | None = None

    def take(self, indices: Tensor) -> "Files":
        """Return the rows with these indices."""
        numbers: list[int] = indices.tolist()
        facts = None if self.facts is None else self.facts.take(indices)
        return Files([self.paths[row] for row in numbers], self.targets[indices], facts)

    @property
    def objects(self) -> Tensor | None:
        """Number of the object of each row (n,), if it is known which rows are photos of one object."""
        return None if self.facts is None else self.facts.objects


def files_of_classes(
    root: Path, splits: Mapping[str, Path], classes: ClassTable, help_text: str
) -> dict[str, Files]:
    """Return the images of class folders by split, class by class; without splits, all are for training.

    Raises:
        ValueError: If a folder is that of no class, or a split has no images in class folders.
    """
    rows = read_folder(root, splits, about=FACTS)
    files = {}
    for split, folder in (splits or {"train": root}).items():
        some = rows.of_split(split) if splits else rows
        of_classes = some.take(row for row, label in enumerate(some.labels) if label is not None)
        if not len(of_classes):
            images = f"{len(some)} images outside the" if len(some) else "no images in"
            raise ValueError(f"{folder} holds {images} class folders. {help_text}")
        targets = torch.tensor(class_indices(of_classes.labels, classes, where=folder, rows=of_classes.files))
        facts = RowFacts.of_columns(of_classes.texts(FACTS))
        files[split] = Files(of_classes.addresses(), targets, facts).take(targets.argsort(stable=True))
    return files


def divide(parts: Mapping[str, Files], *, val_fraction: float, seed: int) -> dict[str, Files]:
    """Make training, validation and test splits; draw those that are missing from the training split.

    All three: as they are. Training and one other: the other is the test split, and of each class
    ``val_fraction`` of the training rows becomes the validation split (0: validation and test are the same).
    Training alone: both parts are drawn from it. Photos of one object stay together.
    """
    check_number("val_fraction", val_fraction, low=0.0, below=0.5)
    generator = torch.Generator().manual_seed(seed)
    how: Any = {"fraction": val_fraction, "objects": parts["train"].objects, "generator": generator}
    train, others = parts["train"], {name: part for name, part in parts.items() if name != "train"}
    if len(others) == 2:
        return dict(parts)
    if others:
        (test,) = others.values()
        if val_fraction == 0:
            return {"train": train, "val": test, "test": test}
        kept, held = proportional_split(train.targets, parts=1, **how)
        return {"train": train.take(kept), "val": train.take(held), "test": test}
    split = proportional_split(train.targets, **how)
    return {name: train.take(rows) for name, rows in zip(("train", "val", "test"), split, strict=True)}


def _readable(name: str, files: Files, on_error: OnError) -> Files:
    bad = unreadable_files(files.paths)
    if not bad:
        return files
    listed = examples([f"{files.paths[i]} ({reason})" for i, reason in bad.items()])
    if on_error == "raise":
        raise ValueError(f"{len(bad)} files of the {name} split cannot be read as images: {listed}")
    warnings.warn(
        f"{len(bad)} files of the {name} split cannot be read and are left out: {listed}", stacklevel=4
    )
    kept = torch.ones(len(files.targets), dtype=torch.bool)
    kept[list(bad)] = False
    return files.take(kept.nonzero().squeeze(1))


def warn_of_missing_classes(class_table: ClassTable, parts: Mapping[str, Tensor], *, where: object) -> None:
    """Warn once for each split that lacks classes, with their number and the first few."""
    for name, targets in parts.items():
        absent = (targets.bincount(minlength=len(class_table)) == 0).nonzero().squeeze(1).tolist()
        if absent and len(targets):
            names = examples([class_table.names[c] for c in absent])
            warnings.warn(
                f"{where}: {len(absent)} of {len(class_table)} classes have no image in the {name} split "
                f"({names})",
                stacklevel=4,
            )


def warn_of_torn_observations(parts: Mapping[str, RowFacts | None], *, where: object) -> None:
    """Warn once for each pair of splits with photos of one object: what is measured on them is too good."""
    columns = {name: facts.observation for name, facts in parts.items() if facts is not None}
    ids = {name: column[column != ALONE].unique() for name, column in columns.items() if column is not None}
    for first, second in combinations(ids, 2):
        both = torch.isin(ids[first], ids[second])
        if bool(both.any()) and not torch.equal(ids[first], ids[second]):  # validation may be test
            warnings.warn(
                f"{where}: {int(both.sum())} observations have photos in the {first} and in the {second} "
                "split: promises and metrics take such rows for new ones. Keep each observation in one split",
                stacklevel=4,
            )


def assemble(
    parts: Mapping[str, Files],
    class_table: ClassTable,
    *,
    where: object,
    image_size: int = 224,
    train_transform: Callable | None = None,
    eval_transform: Callable | None = None,
    on_error: OnError = "skip",
    verify: bool = False,
) -> Splits:
    """Return the three parts as image files, with training counts in the class table.

    The last five arguments are those that every set of image files takes; see
    :func:`shortlist.datasets.folders.image_folder`.
    """
    if verify:
        parts = {name: _readable(name, files, on_error) for name, files in parts.items()}
        if not len(parts["train"].targets):
            raise ValueError(f"{where}: no file of the train split can be read as an image")
    warn_of_missing_classes(class_table, {name: files.targets for name, files in parts.items()}, where=where)
    warn_of_torn_observations({name: files.facts for name, files in parts.items()}, where=where)
    transforms = {
        "train": train_transform or TrainTransform(image_size),
        "val": eval_transform or EvalTransform(image_size),
        "test": eval_transform or EvalTransform(image_size),
    }
    made = {
        name: ImageFiles(
            PathList(files.paths),
            files.targets,
            transform=transforms[name],
            on_error=on_error,
            facts=files.facts,
        )
        for name, files in parts.items()
    }
    counts = parts["train"].targets.bincount(minlength=len(class_table))
    return Splits(made["train"], made["val"], made["test"], class_table.with_counts(counts))
