"""Change an index: append, delete, compact. Each change is one new manifest; one process writes at a time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from shortlist._checks import check_count
from shortlist._store.files import is_temporary, lock_folder, sweep
from shortlist.index.compaction import merged_rows, stale_segments
from shortlist.index.contents import Contents, id_of, open_contents, parse_id
from shortlist.index.manifest import DELETED, NAME, OWN_FILE, Manifest, check_model, write_deleted
from shortlist.index.segment import ImageIndexError, NewRows, SegmentRecord, write_segment
from shortlist.model import Model, model_hash

MAX_PER_CLASS = 2000
SEGMENT_ROWS = 8192
_NOTHING_SEEN = np.zeros(0, dtype=np.uint64)


class IndexWriter:
    """An index that is open to be changed, by :meth:`open`. Readers may use it at the same time.

    Args:
        folder: The folder of the index.
        contents: What it holds now.
    """

    def __init__(self, folder: Path, contents: Contents) -> None:
        self.folder, self.contents = folder, contents

    @staticmethod
    @contextmanager
    def open(folder: str | Path, *, model: Model | None = None) -> Iterator["IndexWriter"]:
        """Open an index for the time of a block, in which no other process can write to it.

        What killed writers left behind is taken away.

        Args:
            folder: Folder of the index.
            model: Model of the index. With it, a new index is made in a folder that is empty or not there;
                an index of another model is refused.

        Raises:
            ImageIndexError: If another process writes to it, or it is no index, damaged, or of another model.
        """
        folder = Path(folder)
        _check_folder(folder, may_make=model is not None)
        folder.mkdir(parents=True, exist_ok=True)
        in_use = ImageIndexError(f"{folder} is in use: another process is writing to it")
        with lock_folder(folder, in_use):
            sweep(folder)
            if model is not None and not (folder / NAME).exists():
                _check_folder(folder, may_make=True)
                Manifest(model_hash(model), len(model.classes)).write(folder)
            writer = IndexWriter(folder, open_contents(folder))
            if model is not None:
                writer.check_model(model)
            writer._remove_unnamed()
            yield writer

    @property
    def manifest(self) -> Manifest:
        """The manifest as it is now."""
        return self.contents.manifest

    def check_model(self, model: Model) -> None:
        """Refuse a model that is not the one of the index."""
        check_model(self.manifest, model, self.folder)

    @property
    def counts(self) -> np.ndarray:
        """Number of images of each class (c,)."""
        return self.contents.counts

    def seen(self) -> np.ndarray:
        """Return the keys of all rows of data that images were chosen from, uint64, ascending."""
        return np.unique(np.concatenate([_NOTHING_SEEN, *(part.seen() for part in self.contents.segments)]))

    def append(self, rows: NewRows, *, seen: np.ndarray = _NOTHING_SEEN) -> list[str]:
        """Add images in one step, and return their ids in the order of the rows.

        An image that is there already is not added again; one that was deleted is there again.

        Args:
            rows: The images.
            seen: Keys of the rows of the data that they were chosen from (s,), uint64.
        """
        self._check(rows)
        named = [(int(c), bytes(d)) for c, d in zip(rows.classes, rows.digests, strict=True)]
        revived = self._entries(named)
        deleted = self.contents.deleted[~revived]
        held = {(int(e["class"]), bytes(e["digest"])) for e in self.contents.deleted[revived & self._kept()]}
        first = {key: number for number, key in reversed(list(enumerate(named)))}
        new = [number for key, number in first.items() if key not in held and not self.contents.find(*key)]
        records = self._write([(rows.take(np.array(sorted(new))), seen)] if new else [])
        if records or revived.any():
            self._commit([*self.manifest.segments, *records], deleted, rows.vectors.shape[1])
        return [id_of(*key) for key in named]

    def delete(self, ids: Iterable[str]) -> int:
        """Delete images in one step, and return how many there were; other ids are no error.

        A search no longer finds them. Their bytes are gone after :meth:`compact`, and a new build from the
        same data does not bring them back.
        """
        keys = {key for key in map(parse_id, ids) if key is not None and self.contents.find(*key)}
        if not keys:
            return 0
        entries = np.array([(*key, False) for key in sorted(keys)], DELETED)
        again = self._entries(list(keys))  # purged ones that came back and are deleted once more
        self._commit(self.manifest.segments, np.concatenate([self.contents.deleted[~again], entries]))
        return len(keys)

    def compact(self, *, max_per_class: int = MAX_PER_CLASS, segment_rows: int = SEGMENT_ROWS) -> bool:
        """Merge small segments, let go of deleted images, and return whether there was anything to do.

        Classes with more than ``max_per_class`` images keep so many spread ones, by farthest points. Readers
        that are open keep what they have until they refresh.
        """
        check_count("max_per_class", max_per_class)
        check_count("segment_rows", segment_rows)
        stale = stale_segments(self.contents, max_per_class=max_per_class, segment_rows=segment_rows)
        if not stale:
            return False
        old = [self.contents.segments[number] for number in stale]
        seen = np.unique(np.concatenate([segment.seen() for segment in old]))
        parts = merged_rows(self.contents, stale, max_per_class=max_per_class, segment_rows=segment_rows)
        with_seen = chain([seen], repeat(_NOTHING_SEEN))  # what was seen goes with the first part
        records = self._write(zip(parts, with_seen, strict=False))
        gone = {segment.record.name for segment in old}
        kept = [record for record in self.manifest.segments if record.name not in gone]
        deleted = self.contents.deleted.copy()
        deleted["purged"] = True
        self._commit([*kept, *records], deleted)
        return True

    def finish(self) -> None:
        """Mark the first build as done: from now on readers can open the index."""
        if not self.manifest.whole:
            self._replace(replace(self.manifest, whole=True))

    def _kept(self) -> np.ndarray:
        return ~self.contents.deleted["purged"]

    def _entries(self, keys: list[tuple[int, bytes]]) -> np.ndarray:
        """Return which entries of the list of deleted images are of these (class, digest)."""
        wanted = {(class_index, digest.rstrip(b"\0")) for class_index, digest in keys}
        is_wanted = [(int(e["class"]), bytes(e["digest"])) in wanted for e in self.contents.deleted]
        return np.array(is_wanted, dtype=bool)

    def _check(self, rows: NewRows) -> None:
        dimension = self.manifest.dimension or rows.vectors.shape[-1]
        if rows.vectors.shape != (len(rows), dimension) or rows.vectors.dtype != np.float16:
            got = f"{rows.vectors.dtype} {rows.vectors.shape}"
            raise ValueError(f"vectors must be float16 of shape ({len(rows)}, {dimension}), got {got}")
        if len(rows) and not 0 <= rows.classes.min() <= rows.classes.max() < self.manifest.num_classes:
            bad = rows.classes[(rows.classes < 0) | (rows.classes >= self.manifest.num_classes)][0]
            raise ValueError(f"classes must be >= 0 and < {self.manifest.num_classes}, got {bad}")
        if not np.isfinite(rows.vectors).all():
            raise ValueError("vectors must be finite numbers, got NaN or infinity")

    def _write(self, parts: Iterable[tuple[NewRows, np.ndarray]]) -> list[SegmentRecord]:
        """Write new segments, which no reader sees before the manifest names them."""
        number, records = self.manifest.next, []
        for rows, seen in parts:
            path = self.folder / f"segment-{number + len(records):06d}"
            records.append(write_segment(path, rows, seen))
        return records

    def _commit(
        self, segments: Iterable[SegmentRecord], deleted: np.ndarray, dimension: int | None = None
    ) -> None:
        segments = tuple(segments)
        before = self.manifest
        new = len({record.name for record in segments} - before.names())
        listed = before.deleted
        if not np.array_equal(deleted, self.contents.deleted):
            listed = write_deleted(self.folder, before.next + new, deleted)
        self._replace(
            replace(
                before,
                next=before.next + new + 1,
                segments=segments,
                deleted=listed,
                dimension=before.dimension or dimension or 0,
            )
        )

    def _replace(self, manifest: Manifest) -> None:
        manifest.write(self.folder)
        ready = {segment.path.name: segment for segment in self.contents.segments}
        self.contents = open_contents(self.folder, ready)
        self._remove_unnamed()

    def _remove_unnamed(self) -> None:
        """Remove files that the manifest does not name: of killed writers, or of before a compaction.

        Readers that have them open can go on reading them.
        """
        names = self.manifest.names()
        for path in self.folder.iterdir():
            if OWN_FILE.fullmatch(path.name) and path.name not in names:
                path.unlink()


def _check_folder(folder: Path, *, may_make: bool) -> None:
    """Refuse a folder with anything but an index, before anything is changed in it."""
    if folder.exists() and not folder.is_dir():
        raise ImageIndexError(f"{folder} is not an index of images: it is a file")
    if not (folder / NAME).exists():
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        others = [name for name in names if name != ".lock" and not is_temporary(name)]
        if others:
            what = f"it has no {NAME}, but {others[0]}"
            raise ImageIndexError(f"{folder} is not an index of images: {what}")
        if not may_make:
            raise ImageIndexError(f"{folder} is not an index of images: there is none yet")
