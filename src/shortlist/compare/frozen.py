"""Frozen test images, and what a finished model makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from shortlist._tables import read_columns
from shortlist._text import composed
from shortlist.curation.parts import is_benchmark, read_frozen
from shortlist.datasets.folders import class_folders, images_below
from shortlist.metrics import Results, evaluate
from shortlist.metrics.ranks import topk_hits
from shortlist.metrics.rows import measure_rows
from shortlist.model import Model

__all__ = ["FrozenImages", "FrozenRows", "look_at", "read_frozen_images"]

_BATCH = 64
KS = (1, 5)


@dataclass(frozen=True)
class FrozenImages:
    """Test images: their files, and the class of each by name."""

    paths: list[str]
    classes: list[str]


@dataclass(frozen=True)
class FrozenRows:
    """What a model makes of each test image.

    Args:
        values: By name, such as ``top5``, ``sets.NAME.coverage`` or ``sets.NAME.size``, the value of each row
            (n,), float64: 1 or 0 for right or wrong, or the size of its set.
        results: Results over the rows whose class the model knows.
        unknown: Number of rows whose class the model does not know: those are missed.
    """

    values: dict[str, Tensor]
    results: Results
    unknown: int


def read_frozen_images(path: str | Path) -> FrozenImages:
    """Read test images: ``PATH/test/CLASS/*``, ``PATH/CLASS/*``, or a list with the columns path and label.

    Of a list with a column split, the rows with ``test`` count. The test images of a benchmark that
    ``shortlist data build`` made must be as they were then.

    Raises:
        ValueError: If there are none; or, of such a benchmark, if one is missing, changed or new.
    """
    path = Path(path)
    paths: list[str] = []
    classes: list[str] = []
    if path.is_dir():
        root = path / "test" if (path / "test").is_dir() else path
        for name in class_folders(root):
            found = images_below(root / name)
            paths += found
            classes += [name] * len(found)
    else:
        table = read_columns(path, ["path", "label"], optional=["split"])
        columns = {name: column.to_pylist() for name, column in table.items()}
        for row, (image, label) in enumerate(zip(columns["path"], columns["label"], strict=True)):
            if "split" not in columns or columns["split"][row] == "test":
                paths.append(str(path.parent / str(image)))
                classes.append(str(label))
    if not paths:
        raise ValueError(f"{path} has no test images")
    if path.is_dir() and is_benchmark(path):
        frozen = {str(Path(row.path).absolute()) for row in read_frozen(path).test}
        for image in paths:
            if str(Path(image).absolute()) not in frozen:
                raise ValueError(f"{image} is no frozen test image: metadata.json of {path} does not list it")
    return FrozenImages(paths, classes)


def look_at(model: Model, images: FrozenImages) -> FrozenRows:
    """Score the test images, and measure scores and sets."""
    target = class_numbers(model, images.classes)
    scores = torch.cat(
        [
            model.scores(model.prepare(images.paths[start : start + _BATCH])).cpu().clone()
            for start in range(0, len(images.paths), _BATCH)
        ]
    )
    known = target >= 0
    if not known.any():
        raise ValueError("data must have images of classes that the model knows, got none")
    predictors = dict(model.predictors)
    results = evaluate(
        scores[known], target[known], predictors, model.classes, ks=KS, num_resamples=0, shown=model.shown
    )
    rows = measure_rows(
        scores,
        target.clamp_min(0),
        predictors,
        num_classes=len(model.classes),
        activation="softmax",
        ties="against",
        ignore_index=-100,
        shown=model.shown,
    )
    top = topk_hits(rows.ranks, list(KS), ties="against")
    hits = {f"top{k}": top[:, i] & known for i, k in enumerate(KS) if k <= len(model.classes)}
    hits |= {f"sets.{name}.coverage": held & known for name, held in rows.hits.items()}
    values = hits | {f"sets.{name}.size": sizes for name, sizes in rows.sizes.items()}
    values = {name: column.double() for name, column in values.items()}
    return FrozenRows(values, results, int((~known).sum()))


def class_numbers(model: Model, classes: Sequence[str]) -> Tensor:
    """Return the index of each class, by id or by name; -1 if the model does not know it."""
    index = {name: i for i, name in enumerate(model.classes.names)}
    index |= {name: i for i, name in enumerate(model.classes.ids)}
    return torch.tensor([index.get(composed(name), -1) for name in classes], dtype=torch.int64)
