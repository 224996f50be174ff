"""Embed images: the vector, the thumbnail and the texts of each, as an index keeps them."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from shortlist.index.contents import Contents, open_contents
from shortlist.index.image_index import unit_vectors
from shortlist.index.plan import ShardImages
from shortlist.index.segment import ImageIndexError, NewRows
from shortlist.index.sources import Source
from shortlist.index.thumbnails import thumbnail
from shortlist.model import Model, loaded_blocks, model_hash
from shortlist.passes import IMAGES, Map, Mapped, ShardRows, map_rows, read_table

_TEXTS = ("digest", "about", "thumbnail", "vector")


def open_index_pass(load: Callable[[], Model], folder: Path) -> tuple[dict[str, Any], Map]:
    """Load a model: what its parts depend on, and the map of the pass over images of an index.

    Images that the index in the folder holds, or that were deleted from it, are not embedded.
    """
    model, contents = load(), open_contents(folder)

    def function(shard: ShardImages, pool: ThreadPoolExecutor) -> Mapped:
        return embed_source(model, shard.images, pool, contents=contents)

    return {"model": model_hash(model)}, function


def embed_source(
    model: Model, source: Source, pool: ThreadPoolExecutor, *, contents: Contents | None = None
) -> Mapped:
    """Embed the images of a source: for each its digest, texts, thumbnail and vector, as bytes.

    Args:
        model: The model.
        source: The images.
        pool: Threads that read and decode the next images while the network works.
        contents: Contents of an index. Images that it holds, or that were deleted, are left out.
    """
    texts: dict[int, tuple[bytes, bytes, bytes]] = {}

    def load(row: int) -> Tensor | None:
        content = source.content(row)
        name = int(source.classes[row]), hashlib.sha256(content).digest()[:16]
        if contents is not None and contents.knows(*name):
            return None
        image, inputs = source.picture(row, content)
        about = json.dumps(dict(source.about(row)), ensure_ascii=False).encode()
        texts[row] = name[1], about, thumbnail(image)
        return inputs

    number = len(source.classes)
    mapped = map_rows(
        ShardRows([str(row) for row in range(number)], source.classes.tolist(), source.content),
        loaded_blocks(load, number, pool, IMAGES),
        partial(_unit, model),
        _halves,
        size=IMAGES,
        problem="the features of an image are not numbers",
    )
    vectors = mapped.columns["vector"].numpy()
    rows = [(*texts[row], vector.tobytes()) for row, vector in zip(mapped.kept, vectors, strict=True)]
    return replace(mapped, columns={name: [row[i] for row in rows] for i, name in enumerate(_TEXTS)})


def _unit(model: Model, inputs: Tensor) -> Tensor:
    features = model.features(inputs)
    if features.ndim != 2:
        raise ImageIndexError(f"features must be of shape (n, d), got {tuple(features.shape)}")
    return unit_vectors(features)


def _halves(vectors: Tensor, _: Sequence[int]) -> tuple[dict[str, Tensor], Tensor]:
    finite = vectors.isfinite().all(1)
    return {"vector": vectors[finite].half()}, finite


def new_rows(classes: Sequence[int], columns: Mapping[str, Sequence[bytes]]) -> NewRows:
    """Return the rows for an index of columns that :func:`embed_source` made."""
    digests, about, thumbnails, vectors = (columns[name] for name in _TEXTS)
    dimension = len(vectors[0]) // 2 if vectors else 0
    numbers = np.frombuffer(b"".join(vectors), np.float16).reshape(len(vectors), dimension)
    return NewRows(np.array(classes, np.int64), np.array(digests, "S16"), numbers, about, thumbnails)


def read_new_rows(path: Path) -> tuple[NewRows, list[int]]:
    """Read a part: the rows for an index, and the numbers of the images that could not be used."""
    table = read_table(path)
    failed = [row for row, reason in enumerate(table["error"].to_pylist()) if reason is not None]
    table = table.filter(table["digest"].is_valid())
    columns = {name: table[name].to_pylist() for name in _TEXTS}
    return new_rows(table["target"].to_pylist(), columns), failed
