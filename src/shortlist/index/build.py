"""Build an index from images, or add some to it: embed them by a model, keep vectors and thumbnails."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist.index.image_index import unit_vectors
from shortlist.index.segment import ImageIndexError, NewRows
from shortlist.index.sources import Source, given_images
from shortlist.index.spread import farthest_points
from shortlist.index.thumbnails import thumbnail
from shortlist.index.writer import MAX_PER_CLASS, SEGMENT_ROWS, IndexWriter
from shortlist.model import Model

__all__ = ["BuildCounts", "add_images", "build_index"]

_KEYS = 10_000
_CANDIDATES = 4  # times as many images as are kept are looked at, of a class with very many

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class BuildCounts:
    """What a build did.

    Args:
        images: Number of images in the index.
        classes: Number of classes with images.
        added: Number of images that were added.
        left_out: Number of images of classes with too many that were not kept.
        unreadable: Number of images that could not be read, or whose features are no numbers.
    """

    images: int
    classes: int
    added: int
    left_out: int
    unreadable: int


class _Loaded(NamedTuple):
    row: int
    digest: bytes
    thumbnail: bytes
    about: bytes
    inputs: Tensor


def build_index(
    model: Model,
    source: Source,
    folder: str | Path,
    *,
    max_per_class: int = MAX_PER_CLASS,
    segment_rows: int = SEGMENT_ROWS,
    batch_size: int = 64,
    progress: Progress | None = None,
) -> BuildCounts:
    """Embed images and keep them in an index, which is made, or continued where it was stopped.

    Images that the index has seen before are not read again, so that this also adds what is new. Those that
    were deleted stay away. If more than ``max_per_class`` images of a class are new, so many spread ones are
    kept, by farthest points among at most four times as many, which are drawn evenly at random.

    Args:
        model: Model whose features are compared.
        source: The images.
        folder: Folder of the index; new, or an index of the same model.
        max_per_class: Largest number of images of a class.
        segment_rows: Number of images of a segment, after which what is done cannot be lost.
        batch_size: Number of images that go through the network at a time.
        progress: Function that is called with the number of images done and in all.
    """
    for name, value in (("max_per_class", max_per_class), ("batch_size", batch_size)):
        check_count(name, value)
    check_count("segment_rows", segment_rows)
    added = left_out = unreadable = done = 0
    with IndexWriter.open(folder, model=model) as writer, ThreadPoolExecutor(os.cpu_count()) as pool:
        keys = _keys(source, pool)
        new = ~np.isin(keys, writer.seen())
        done, total = int((~new).sum()), len(keys)

        def tell(number: int) -> None:
            nonlocal done
            done += number
            if progress is not None:
                progress(done, total)

        tell(0)
        for rows in _chunks(source.classes.numpy(), new, segment_rows):
            chosen = _candidates(source.classes.numpy()[rows], rows, _CANDIDATES * max_per_class)
            tell(len(rows) - len(chosen))
            found, failed = _embed(model, source, chosen, writer, pool, batch_size, tell)
            kept = _spread(found, max_per_class)
            if len(kept):
                read = ~np.isin(rows, failed)
                before = int(writer.counts.sum())
                writer.append(kept, seen=keys[rows[read]])
                added += int(writer.counts.sum()) - before
            left_out += len(rows) - len(chosen) + len(found) - len(kept)
            unreadable += len(failed)
        if not writer.counts.any():
            raise ImageIndexError(f"{folder} would have no images: none of {total} could be read")
        writer.finish()
        counts = writer.counts
    return BuildCounts(int(counts.sum()), int((counts > 0).sum()), added, left_out, unreadable)


def add_images(
    model: Model,
    folder: str | Path,
    images: Sequence[str | Path | bytes],
    classes: Sequence[int],
    *,
    about: Sequence[Mapping[str, Any]] | None = None,
    batch_size: int = 64,
) -> list[str]:
    """Add images to an index in one step, and return their ids; readers see them after ``refresh()``.

    Args:
        model: Model of the index.
        folder: Folder of the index, which must exist.
        images: Paths, or the bytes of image files.
        classes: Class index of each.
        about: What is known about each: author, license, source, date, organ, observation.
        batch_size: Number of images that go through the network at a time.

    Raises:
        ValueError: If an image cannot be read; then none is added.
    """
    check_count("batch_size", batch_size)
    source = given_images(images, classes, about, model)
    with IndexWriter.open(folder) as writer, ThreadPoolExecutor(os.cpu_count()) as pool:
        writer.check_model(model)
        rows = np.arange(len(source.classes))
        found, failed = _embed(model, source, rows, None, pool, batch_size, lambda _: None)
        if len(failed):
            raise ValueError(f"{len(failed)} of {len(rows)} images cannot be read, the first is {failed[0]}")
        return writer.append(found) if len(found) else []


def _keys(source: Source, pool: ThreadPoolExecutor) -> np.ndarray:
    """Return the key of each row; a pool takes in all that it is given, so it gets some at a time."""
    rows = range(len(source.classes))
    parts = (pool.map(source.key, rows[start : start + _KEYS]) for start in rows[::_KEYS])
    return np.array([key for part in parts for key in part], dtype=np.uint64)


def _chunks(classes: np.ndarray, new: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Give the new rows in the order of their classes, whole classes at a time, about so many rows each."""
    rows = np.flatnonzero(new)
    if not len(rows):
        return
    rows = rows[np.argsort(classes[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(classes[rows], prepend=-1))
    begin = 0
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        if start > begin and stop - begin > size:
            yield rows[begin:start]
            begin = start
    yield rows[begin:]


def _candidates(classes: np.ndarray, rows: np.ndarray, most: int) -> np.ndarray:
    """Draw at most so many rows of each class, always the same ones."""
    found = []
    for class_index in np.unique(classes):
        own = rows[classes == class_index]
        if len(own) > most:
            drawn = torch.randperm(len(own), generator=torch.Generator().manual_seed(0))[:most]
            own = own[drawn.sort().values.numpy()]
        found.append(own)
    return np.concatenate(found)


def _spread(rows: NewRows, most: int) -> NewRows:
    kept = []
    for class_index in np.unique(rows.classes):
        own = np.flatnonzero(rows.classes == class_index)
        kept.append(own[farthest_points(torch.from_numpy(rows.vectors[own]), most)])
    return rows.take(np.concatenate(kept)) if kept else rows


def _embed(
    model: Model,
    source: Source,
    rows: np.ndarray,
    writer: IndexWriter | None,
    pool: ThreadPoolExecutor,
    batch_size: int,
    tell: Callable[[int], None],
) -> tuple[NewRows, np.ndarray]:
    """Embed rows of a source; return those that are new, and the numbers of those that cannot be used.

    With a writer, images that it holds, or that were deleted, are not embedded.
    """
    parts, failed, told = [], [], set()

    def load(row: int) -> _Loaded | str | None:
        try:
            content = source.content(row)
            class_index, digest = int(source.classes[row]), hashlib.sha256(content).digest()[:16]
            if writer is not None and (
                writer.holds(class_index, digest) or writer.was_deleted(class_index, digest)
            ):
                return None
            image, inputs = source.picture(row, content)
            about = json.dumps(dict(source.about(row)), ensure_ascii=False).encode()
            return _Loaded(row, digest, thumbnail(image), about, inputs)
        except ValueError as error:
            return str(error)

    for start in range(0, len(rows), batch_size):
        part = rows[start : start + batch_size].tolist()
        loaded = list(pool.map(load, part))
        for row, one in zip(part, loaded, strict=True):
            if isinstance(one, str):
                _warn_once(one, told)
                failed.append(row)
        usable = [one for one in loaded if isinstance(one, _Loaded)]
        if usable:
            rows_of, bad = _vectors(model, source, usable)
            parts.append(rows_of)
            failed += bad
        tell(len(part))
    empty = NewRows(np.zeros(0, np.int64), np.zeros(0, "S16"), np.zeros((0, 0), np.float16), [], [])
    return NewRows.joined(parts) if parts else empty, np.array(failed, dtype=np.int64)


def _vectors(model: Model, source: Source, loaded: list[_Loaded]) -> tuple[NewRows, list[int]]:
    features = model.features(torch.stack([one.inputs for one in loaded]))
    if features.ndim != 2:
        raise ImageIndexError(f"features must be of shape (n, d), got {tuple(features.shape)}")
    vectors = unit_vectors(features)
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


def _warn_once(message: str, told: set[str]) -> None:
    if not told:
        warnings.warn(f"{message}. It is left out, as others are that cannot be read", stacklevel=4)
        told.add(message)
