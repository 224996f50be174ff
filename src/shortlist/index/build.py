"""Build an index from images, or add some to it: embed them by a model, keep vectors and thumbnails."""

import os
import shutil
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shortlist._checks import check_count
from shortlist.index.embedding import embed_source, new_rows, open_index_pass, read_new_rows
from shortlist.index.manifest import PARTS
from shortlist.index.plan import Plan
from shortlist.index.segment import ImageIndexError, NewRows
from shortlist.index.sources import Source, given_images
from shortlist.index.spread import farthest_points
from shortlist.index.writer import MAX_PER_CLASS, SEGMENT_ROWS, IndexWriter
from shortlist.model import Model
from shortlist.passes import Engine, Part, Pass, Progress, one_thread, run_local

SHARD_ROWS = 256
_KEYS = 10_000


@dataclass(frozen=True)
class BuildCounts:
    """What a build did.

    Args:
        images: Number of images in the index.
        classes: Number of classes with images.
        added: Number of images that were added.
        left_out: Number of images of classes with too many that were not kept.
        unreadable: Number of images that could not be read, or whose features are not numbers.
    """

    images: int
    classes: int
    added: int
    left_out: int
    unreadable: int


def build_index(
    model: Model,
    source: Source,
    folder: str | Path,
    *,
    max_per_class: int = MAX_PER_CLASS,
    segment_rows: int = SEGMENT_ROWS,
    shard_rows: int = SHARD_ROWS,
    workers: int = 1,
    engine: Engine = run_local,
    load: Callable[[], Model] | None = None,
    progress: Progress | None = None,
) -> BuildCounts:
    """Embed images and keep them in an index, which is made, or continued where it was stopped.

    Images that the index has seen before are not read again, so that this also adds what is new. Those that
    were deleted stay away. If more than ``max_per_class`` images of a class are new, so many spread ones are
    kept, by farthest points among at most four times as many, which are drawn evenly at random.

    Workers embed shards of images, and this process takes them over in their order: the index has the same
    bits with any number of workers and any size of the shards.

    Args:
        model: Model whose features are compared.
        source: The images.
        folder: Folder of the index; new, or an index of the same model.
        max_per_class: Largest number of images of a class.
        segment_rows: Number of images of a segment, about: it has whole classes.
        shard_rows: Number of images of a shard, after which what is done cannot be lost.
        workers: Number of workers; 1 is this process alone, if the engine is local.
        engine: What runs the work: :func:`shortlist.passes.local.run_local`, or ``run_on_ray``.
        load: Function that loads the same model in each worker; without it, the model is sent to them.
        progress: Function that is called with the number of images done and in all.
    """
    sizes = {"max_per_class": max_per_class, "segment_rows": segment_rows, "shard_rows": shard_rows}
    for name, value in (*sizes.items(), ("workers", workers)):
        check_count(name, value)
    folder, load = Path(folder).absolute(), load or partial(_same, model)
    with IndexWriter.open(folder, model=model) as writer, one_thread():
        keys, key = _keys(source), writer.manifest.model
        plan = Plan(source, keys, ~np.isin(keys, writer.seen()), **sizes)
        building = _Building(writer, plan, max_per_class, progress)
        opened, parts = partial(open_index_pass, load, folder), str(folder / PARTS)
        work = Pass(opened, "load", parts, ".parquet", {"model": key}, workers, remake=True)
        if total := sum(plan.pieces):
            for part in engine(work, plan.shards(key), workers=min(workers, total)):
                building.take(part)
        if not writer.counts.any():
            raise ImageIndexError(f"{folder} would have no images: none of {len(keys)} could be read")
        writer.finish()
        shutil.rmtree(folder / PARTS, ignore_errors=True)
        return building.counts()


def _same(model: Model) -> Model:
    return model


class _Building:
    """Takes over parts as they are made: those of whole chunks, in their order."""

    def __init__(
        self, writer: IndexWriter, plan: Plan, max_per_class: int, progress: Progress | None
    ) -> None:
        self.writer, self.plan, self.max_per_class, self.progress = writer, plan, max_per_class, progress
        self.missing, self.next, self.warned = list(plan.pieces), 0, False
        self.before, self.left_out, self.unreadable = int(writer.counts.sum()), 0, 0
        self.done = len(plan.keys) - sum(map(len, plan.chosen))  # seen before, or not drawn
        self._progress(0)

    def take(self, part: Part) -> None:
        """Note that a part is made, and append the chunks that are now whole."""
        if part.examples and not self.warned:
            self.warned = True
            reason = part.examples[0][1]
            warnings.warn(f"{reason}. It is left out, as others are that cannot be read", stacklevel=3)
        self.missing[self.plan.chunk_of[part.name]] -= 1
        self._progress(part.rows)
        while self.next < len(self.missing) and not self.missing[self.next]:
            self._append(self.next)
            self.next += 1

    def _progress(self, number: int) -> None:
        self.done += number
        if self.progress is not None:
            self.progress(self.done, len(self.plan.keys))

    def _append(self, chunk: int) -> None:
        rows, chosen = self.plan.rows[chunk], self.plan.chosen[chunk]
        paths = [self.writer.folder / PARTS / f"{name}.parquet" for name in self.plan.names[chunk]]
        parts = [read_new_rows(path) for path in paths]
        failed = [self.plan.shard_rows * i + row for i, (_, bad) in enumerate(parts) for row in bad]
        images = NewRows.joined([self._new(part) for part, _ in parts if len(part)])
        kept = _spread(images, self.max_per_class)
        if len(kept):
            self.writer.append(kept, seen=self.plan.keys[rows[~np.isin(rows, chosen[failed])]])
        self.left_out += len(rows) - len(chosen) + len(images) - len(kept)
        self.unreadable += len(failed)
        for path in set(paths):
            path.unlink()

    def _new(self, rows: NewRows) -> NewRows:
        """The rows that the index does not hold, and that were not deleted from it.

        They may be of a call that was stopped, and others may have changed the index since.
        """
        names = zip(rows.classes.tolist(), map(bytes, rows.digests), strict=True)
        return rows.take(np.flatnonzero([not self.writer.contents.knows(*name) for name in names]))

    def counts(self) -> BuildCounts:
        """Return what was done."""
        counts = self.writer.counts
        images, classes = int(counts.sum()), int((counts > 0).sum())
        return BuildCounts(images, classes, images - self.before, self.left_out, self.unreadable)


def add_images(
    model: Model,
    folder: str | Path,
    images: Sequence[str | Path | bytes],
    classes: Sequence[int],
    *,
    about: Sequence[Mapping[str, Any]] | None = None,
) -> list[str]:
    """Add images to an index in one step, and return their ids; readers see them after ``refresh()``.

    Args:
        model: Model of the index.
        folder: Folder of the index, which must exist.
        images: Paths, or the bytes of image files.
        classes: Class index of each.
        about: What is known about each: author, license, source, date, organ, observation.

    Raises:
        ValueError: If an image cannot be read; then none is added.
    """
    source = given_images(images, classes, about, model)
    with IndexWriter.open(folder) as writer, ThreadPoolExecutor(os.cpu_count()) as pool:
        writer.check_model(model)
        mapped = embed_source(model, source, pool)
        if errors := mapped.errors:
            first = min(errors)
            raise ValueError(
                f"{len(errors)} of {len(source.classes)} images cannot be used, the first is {first}: "
                f"{errors[first]}"
            )
        return writer.append(new_rows(mapped.targets, mapped.columns)) if mapped.kept else []


def _keys(source: Source) -> np.ndarray:
    """Return the key of each row; a pool takes in all that it is given, so it gets some at a time."""
    rows = range(len(source.classes))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = (pool.map(source.key, rows[start : start + _KEYS]) for start in rows[::_KEYS])
        return np.array([key for part in parts for key in part], dtype=np.uint64)


def _spread(rows: NewRows, most: int) -> NewRows:
    kept = []
    for class_index in np.unique(rows.classes):
        class_rows = np.flatnonzero(rows.classes == class_index)
        kept.append(class_rows[farthest_points(torch.from_numpy(rows.vectors[class_rows]), most)])
    return rows.take(np.concatenate(kept)) if kept else rows
