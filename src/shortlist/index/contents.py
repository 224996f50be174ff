"""What a manifest names, opened: segments and deleted images. Readers and writers share it."""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from shortlist.index.manifest import Manifest, read_deleted, read_manifest
from shortlist.index.segment import ImageIndexError, Segment, SegmentRecord

_ID = re.compile(r"(0|[1-9][0-9]{0,9})-([0-9a-f]{32})")
_NONE = np.zeros(0, dtype=np.int64)


def id_of(class_index: int, digest: bytes) -> str:
    """Return the id of an image: its class, and the start of the SHA-256 of its bytes."""
    return f"{class_index}-{digest.ljust(16, bytes(1)).hex()}"


def parse_id(image_id: str) -> tuple[int, bytes] | None:
    """Return the class and the digest of an id; ``None`` if it is no id."""
    match = _ID.fullmatch(image_id)
    return None if match is None else (int(match[1]), bytes.fromhex(match[2]))


class Piece(NamedTuple):
    """The images of one class in one segment; ``dead`` are the places of the deleted ones among them."""

    segment: Segment
    slot: int
    dead: np.ndarray


class Contents:
    """An opened index, which never changes.

    Args:
        folder: The folder of the index.
        manifest: Its manifest.
        ready: Segments that are open already, by name.
    """

    def __init__(self, folder: Path, manifest: Manifest, ready: Mapping[str, Segment]) -> None:
        self.folder, self.manifest = folder, manifest
        self.segments = [_opened(folder, record, manifest, ready) for record in manifest.segments]
        # all slices of all segments in the order of their classes: one search finds those of a class
        places = [(number, len(segment.classes)) for number, segment in enumerate(self.segments)]
        classes = np.concatenate([_NONE, *(segment.classes for segment in self.segments)])
        numbers = np.concatenate([_NONE, *(np.full(size, number) for number, size in places)])
        slots = np.concatenate([_NONE, *(np.arange(size) for _, size in places)])
        order = np.argsort(classes, kind="stable")
        self._classes, self._numbers, self._slots = classes[order], numbers[order], slots[order]
        self.deleted = read_deleted(folder, manifest.deleted)
        self.dead = self._dead()
        self.counts = self._counts()

    def _dead(self) -> dict[tuple[int, int], np.ndarray]:
        """Return the places of the deleted images, by number of segment and slot."""
        dead: dict[tuple[int, int], list[int]] = {}
        for entry in self.deleted[~self.deleted["purged"]]:
            for number, slot in self._slices(int(entry["class"])):
                place = self.segments[number].find(slot, bytes(entry["digest"]))
                if place is not None:
                    dead.setdefault((number, slot), []).append(place)
        return {key: np.unique(places) for key, places in dead.items()}

    def _counts(self) -> np.ndarray:
        counts = np.zeros(self.manifest.num_classes, dtype=np.int64)
        if len(self._classes) and self._classes[-1] >= len(counts):
            what = f"it has {len(counts)} classes and images of class {self._classes[-1]}"
            raise ImageIndexError(f"{self.folder} is not an index of images: {what}")
        for segment in self.segments:
            counts[segment.classes] += segment.ends - segment.starts
        for (number, slot), places in self.dead.items():
            counts[self.segments[number].classes[slot]] -= len(places)
        return counts

    def _slices(self, class_index: int) -> Iterator[tuple[int, int]]:
        first, last = np.searchsorted(self._classes, [class_index, class_index + 1])
        return zip(self._numbers[first:last].tolist(), self._slots[first:last].tolist(), strict=True)

    def pieces(self, class_index: int) -> Iterator[Piece]:
        """Give the parts of the index with images of a class."""
        for number, slot in self._slices(class_index):
            yield Piece(self.segments[number], slot, self.dead.get((number, slot), _NONE))

    def find(self, class_index: int, digest: bytes) -> tuple[Segment, int, int] | None:
        """Return segment, slot and place of an image that is not deleted; ``None`` if there is none."""
        for segment, slot, dead in self.pieces(class_index):
            place = segment.find(slot, digest)
            if place is not None and place not in dead:
                return segment, slot, place
        return None

    def knows(self, class_index: int, digest: bytes) -> bool:
        """Return whether an image is in the index, or was deleted from it."""
        return self.was_deleted(class_index, digest) or self.find(class_index, digest) is not None

    def was_deleted(self, class_index: int, digest: bytes) -> bool:
        """Return whether an image was deleted, and not appended again since."""
        return (class_index, digest.rstrip(b"\0")) in self.deleted_keys

    @cached_property
    def deleted_keys(self) -> set[tuple[int, bytes]]:
        """Class and digest of each deleted image."""
        return {(int(entry["class"]), bytes(entry["digest"])) for entry in self.deleted}

    @cached_property
    def class_means(self) -> Tensor:
        """Mean of the vectors of each class (c, d), float32; NaN for classes without images."""
        sums = torch.zeros(self.manifest.num_classes, self.manifest.dimension)
        for segment in self.segments:
            sums[torch.from_numpy(segment.classes)] += segment.sums()
        for (number, slot), places in self.dead.items():
            segment = self.segments[number]
            gone = segment.vectors(slot)[torch.from_numpy(places)]
            sums[int(segment.classes[slot])] -= gone.float().sum(0)
        counts = torch.from_numpy(self.counts)
        sums[counts == 0] = torch.nan
        return sums / counts[:, None].clamp_min(1)


def _opened(folder: Path, record: SegmentRecord, manifest: Manifest, ready: Mapping[str, Segment]) -> Segment:
    segment = ready.get(record.name)
    if segment is not None and segment.record == record:
        return segment
    return Segment(folder, record, manifest.dimension)


def open_contents(folder: Path, ready: Mapping[str, Segment] | None = None) -> Contents:
    """Open what the manifest of a folder names.

    A file that is gone because another process wrote a new manifest in the meantime is looked for there.

    Raises:
        ImageIndexError: If the folder is no index, or a file is missing or damaged.
    """
    manifest = read_manifest(folder)
    while True:
        try:
            return Contents(folder, manifest, ready or {})
        except FileNotFoundError as error:
            newer = read_manifest(folder)
            if newer == manifest:
                raise ImageIndexError(f"{error.filename} is missing: the index is not whole") from error
            manifest = newer
