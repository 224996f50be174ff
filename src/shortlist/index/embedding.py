"""Embed images: the vector, the thumbnail and the texts of each, as an index keeps them."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.engine.blocks import IMAGES, loaded_blocks, padded
from shortlist.index.contents import Contents
from shortlist.index.image_index import unit_vectors
from shortlist.index.segment import ImageIndexError, NewRows
from shortlist.index.sources import Source
from shortlist.index.thumbnails import thumbnail
from shortlist.model import Model

__all__ = ["NO_ROWS", "embed_source"]

NO_ROWS = NewRows(np.zeros(0, np.int64), np.zeros(0, "S16"), np.zeros((0, 0), np.float16), [], [])


class _Loaded(NamedTuple):
    row: int
    digest: bytes
    thumbnail: bytes
    about: bytes
    inputs: Tensor


def embed_source(
    model: Model, source: Source, pool: ThreadPoolExecutor, *, known: Contents | None = None
) -> tuple[NewRows, dict[int, str]]:
    """Embed the images of a source: the map of this pass, which reads no other images and writes nothing.

    Images go through the network in blocks of one size, and a block that is not full is filled up: the last
    bits of a product depend on the number of its rows.

    Args:
        model: The model.
        source: The images.
        pool: Threads that read and decode the next images while the network works.
        known: Contents of an index. Images that it holds, or that were deleted, are not embedded.

    Returns:
        The rows for the index, and why others cannot be used, by their number in the source.
    """
    parts: list[NewRows] = []
    failed: dict[int, str] = {}

    def load(row: int) -> _Loaded | str | None:
        try:
            return _load(source, row, known)
        except ValueError as error:
            return str(error)

    for block in loaded_blocks(load, len(source.classes), pool, IMAGES):
        failed |= {row: one for row, one in block.items() if isinstance(one, str)}
        loaded = [one for one in block.values() if isinstance(one, _Loaded)]
        if loaded:
            rows, bad = _vectors(model, source, loaded)
            parts.append(rows)
            failed |= dict.fromkeys(bad, "the features of an image are not numbers")
    return NewRows.joined(parts) if parts else NO_ROWS, failed


def _load(source: Source, row: int, known: Contents | None) -> _Loaded | None:
    content = source.content(row)
    class_index, digest = int(source.classes[row]), hashlib.sha256(content).digest()[:16]
    if known is not None and (
        known.find(class_index, digest) is not None or known.was_deleted(class_index, digest)
    ):
        return None
    image, inputs = source.picture(row, content)
    about = json.dumps(dict(source.about(row)), ensure_ascii=False).encode()
    return _Loaded(row, digest, thumbnail(image), about, inputs)


def _vectors(model: Model, source: Source, loaded: list[_Loaded]) -> tuple[NewRows, list[int]]:
    vectors = padded(lambda inputs: _unit(model, inputs), torch.stack([one.inputs for one in loaded]), IMAGES)
    good = vectors.isfinite().all(1)
    rows = NewRows(
        np.array([int(source.classes[one.row]) for one in loaded], dtype=np.int64),
        np.array([one.digest for one in loaded], dtype="S16"),
        vectors.half().numpy(),
        [one.about for one in loaded],
        [one.thumbnail for one in loaded],
    )
    bad = [one.row for one, is_good in zip(loaded, good.tolist(), strict=True) if not is_good]
    return (rows.take(np.flatnonzero(good.numpy())) if bad else rows), bad


def _unit(model: Model, inputs: Tensor) -> Tensor:
    features = model.features(inputs)
    if features.ndim != 2:
        raise ImageIndexError(f"features must be of shape (n, d), got {tuple(features.shape)}")
    return unit_vectors(features)
