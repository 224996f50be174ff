"""Frozen test images, and what a finished model makes of them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._progress import each
from shortlist.class_table import class_finder
from shortlist.curation import read_frozen
from shortlist.inputs import Address, Rows, content_of, is_address, is_benchmark, read_rows
from shortlist.metrics import Results, evaluate, measure_rows, topk_hits
from shortlist.model import Model

_BATCH = 64
KS = (1, 5)


@dataclass(frozen=True)
class FrozenRows:
    """What a model makes of each test image.

    Args:
        values: By name, such as ``top5``, ``sets.NAME.coverage`` or ``sets.NAME.size``, the value of each row
            (n,), float64: 1 or 0 for right or wrong, or the size of its set.
        results: Results over the rows whose class the model knows.
        unknown: Number of rows whose class the model does not know; they count as misses.
    """

    values: dict[str, Tensor]
    results: Results
    unknown: int


def read_frozen_images(path: str | Path) -> Rows:
    """Read test images, each with a label, as :func:`~shortlist.inputs.read.read_rows` does.

    Of several splits, that for tests is taken. The test images of a benchmark that ``shortlist data build``
    made must be as they were then.

    Raises:
        ValueError: If there are none, or one has no label; or, of such a benchmark, if one is missing,
            changed or new.
    """
    rows = read_rows(path, default="test")
    if not len(rows):
        raise ValueError(f"{path} has no test images")
    if None in rows.labels:
        unknown = rows.files[list(rows.labels).index(None)]
        raise ValueError(f"{path} must have a class for each image, got none for {unknown}")
    if os.path.isdir(path) and is_benchmark(path):
        frozen = {os.path.abspath(row.path) for row in read_frozen(path).rows if row.split == "test"}
        for image in rows.addresses():
            if os.path.abspath(image) not in frozen:
                raise ValueError(f"{image} is no frozen test image: metadata.json of {path} does not list it")
    return rows


def look_at(model: Model, images: Rows) -> FrozenRows:
    """Score the test images, and measure scores and sets."""
    target = class_numbers(model, images)
    scores = torch.cat(
        [
            model.scores(model.prepare(_opened(images[start : start + _BATCH]))).cpu().clone()
            for start in each("scoring", range(0, len(images), _BATCH))
        ]
    )
    valid = target >= 0
    if not valid.any():
        raise ValueError("data must have images of classes that the model knows, got none")
    predictors = dict(model.predictors)
    results = evaluate(
        scores[valid], target[valid], predictors, model.classes, ks=KS, num_resamples=0, shown=model.shown
    )
    every, num_classes = target.clamp_min(0), len(model.classes)
    rows = measure_rows(scores, every, predictors, num_classes=num_classes, shown=model.shown)
    top = topk_hits(rows.ranks, list(KS), ties="against")
    hits = {f"top{k}": top[:, i] & valid for i, k in enumerate(KS) if k <= num_classes}
    hits |= {f"sets.{name}.coverage": held & valid for name, held in rows.hits.items()}
    values = hits | {f"sets.{name}.size": sizes for name, sizes in rows.sizes.items()}
    values = {name: column.double() for name, column in values.items()}
    return FrozenRows(values, results, int((~valid).sum()))


def _opened(images: Rows) -> list[Any]:
    """The images as a model takes them: paths of files on this machine, the content of all others."""

    def opened(image: Address) -> Any:
        is_local = isinstance(image, str) and not is_address(image)
        return image if is_local else content_of(image)

    return [opened(image) for image in images.addresses()]


def class_numbers(model: Model, images: Rows) -> Tensor:
    """Return the index of the class of each image; -1 if the model does not know it.

    Raises:
        ValueError: If a label is the name of several classes; the message has the row.
    """
    find, numbers = class_finder(model.classes), []
    for row, label in enumerate(images.labels, start=1):
        try:
            index = find(label)
        except ValueError as error:
            raise ValueError(f"{images.root}, row {row}: {error}") from None
        numbers.append(-1 if index is None else index)
    return torch.tensor(numbers, dtype=torch.int64)
