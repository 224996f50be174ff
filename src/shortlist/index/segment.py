"""A segment: some images of an index in one file that is sorted by class, mapped, and never changed.

The file has these sections, each of which begins at a multiple of 64 bytes: the *head* (class, end and
checksum of each class's rows), the *sums* (of the vectors of each class), the *vectors* (unit length,
float16), the *rows* (digest of the image, where its text and its thumbnail end, and their checksums), what
was *seen* (a key of each row of the data that the images were chosen from), and the texts and thumbnails one
after the other. The head is checked when a segment is opened; everything else when it is used for the first
time, so that only what is used is ever read.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shortlist._messages import one_line
from shortlist._store.files import check_regular, replacing
from shortlist._store.json import parse_json
from shortlist._store.manifest import record_files

_ALIGNMENT = 64
_ROW = np.dtype(
    [
        *(("digest", "S16"), ("about_end", "<i8"), ("thumbnail_end", "<i8")),
        *(("about_check", "<u4"), ("thumbnail_check", "<u4")),
    ]
)


class ImageIndexError(ValueError):
    """Raised if a folder is not an index, is damaged, or cannot be used as asked."""


def check_index_file(path: Path) -> None:
    """Refuse links, pipes and devices; a file that is missing stays a FileNotFoundError."""
    try:
        check_regular(path, links=False)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ImageIndexError(str(error)) from error


@dataclass(frozen=True)
class NewRows:
    """Images that are to be kept, in any order.

    Args:
        classes: Class index of each (n,), int64.
        digests: First 16 bytes of the SHA-256 of each image (n,), ``S16``.
        vectors: Features of unit length (n, d), float16.
        about: JSON object of what is known about each.
        thumbnails: JPEG of each.
    """

    classes: np.ndarray
    digests: np.ndarray
    vectors: np.ndarray
    about: Sequence[bytes]
    thumbnails: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.classes)

    def take(self, rows: np.ndarray) -> "NewRows":
        """Return some of them, in this order."""
        about, thumbnails = ([part[row] for row in rows] for part in (self.about, self.thumbnails))
        return NewRows(self.classes[rows], self.digests[rows], self.vectors[rows], about, thumbnails)

    @staticmethod
    def joined(parts: Sequence["NewRows"]) -> "NewRows":
        """Return several parts as one; of no part, no rows."""
        if not parts:
            return NewRows(np.zeros(0, np.int64), np.zeros(0, "S16"), np.zeros((0, 0), np.float16), [], [])
        return NewRows(
            np.concatenate([part.classes for part in parts]),
            np.concatenate([part.digests for part in parts]),
            np.concatenate([part.vectors for part in parts]),
            [text for part in parts for text in part.about],
            [thumbnail for part in parts for thumbnail in part.thumbnails],
        )


@dataclass(frozen=True)
class SegmentRecord:
    """What the manifest says about a segment: how to read it, and how to know that it is whole."""

    name: str
    rows: int
    classes: int
    seen: int
    about_bytes: int
    thumbnail_bytes: int
    head_check: int
    sums_check: int
    seen_check: int
    size: int
    sha256: str

    @staticmethod
    def from_dict(content: Any) -> "SegmentRecord":
        """Make a record from plain values, which are checked."""
        kinds = {field.name: field.type for field in fields(SegmentRecord)}
        if not isinstance(content, dict) or set(content) != set(kinds):
            raise ValueError(f"a segment must have {', '.join(kinds)}")
        for key, kind in kinds.items():
            value = content[key]
            if type(value) is not kind or (kind is int and value < 0):
                raise ValueError(f"{key} of a segment must be of type {kind}, got {value!r}")
        return SegmentRecord(**content)

    def places(self, dimension: int) -> dict[str, tuple[int, int]]:
        """Return where each section begins and ends; ``end`` is the end of the file."""
        sizes = {
            "head": 24 * self.classes,
            "sums": 4 * self.classes * dimension,
            "vectors": 2 * self.rows * dimension,
            "rows": _ROW.itemsize * self.rows,
            "seen": 8 * self.seen,
            "about": self.about_bytes,
            "thumbnails": self.thumbnail_bytes,
        }
        sections, start = {}, 0
        for name, size in sizes.items():
            sections[name] = (start, start + size)
            start += -(-size // _ALIGNMENT) * _ALIGNMENT
        return sections | {"end": (start, start)}


def write_segment(path: Path, rows: NewRows, seen: np.ndarray) -> SegmentRecord:
    """Write images to a new file, completely or not at all.

    Args:
        path: The file.
        rows: At least one image; no two of a class may have the same digest.
        seen: Keys of the rows of the data that these images were chosen from (s,), uint64.

    Returns:
        The record for the manifest.
    """
    rows = rows.take(np.lexsort((rows.digests, rows.classes)))
    vectors = np.ascontiguousarray(rows.vectors, dtype=np.float16)
    table = np.zeros(len(rows), _ROW)
    table["digest"] = rows.digests
    for name, parts in (("about", rows.about), ("thumbnail", rows.thumbnails)):
        table[f"{name}_end"] = np.cumsum([len(part) for part in parts])
        table[f"{name}_check"] = [zlib.crc32(part) for part in parts]
    classes, starts = np.unique(rows.classes, return_index=True)
    ends = np.append(starts[1:], len(rows))
    slices = list(zip(starts.tolist(), ends.tolist(), strict=True))
    checks = [_slice_check(vectors[start:stop], table[start:stop]) for start, stop in slices]
    sums = np.stack([_sum(vectors[start:stop]) for start, stop in slices])
    head = np.stack([classes, ends, np.array(checks)], axis=1).astype("<i8")
    sections = [head, sums, vectors, table, np.sort(seen).astype("<u8")]
    parts = [*(section.tobytes() for section in sections), b"".join(rows.about), b"".join(rows.thumbnails)]
    with replacing(path) as temporary, temporary.open("wb") as file:
        for part in parts:
            file.write(part)
            file.write(bytes(-len(part) % _ALIGNMENT))
    recorded = record_files(path.parent, [path.name])[path.name]
    return SegmentRecord(
        name=path.name,
        rows=len(rows),
        classes=len(classes),
        seen=len(seen),
        about_bytes=len(parts[-2]),
        thumbnail_bytes=len(parts[-1]),
        head_check=zlib.crc32(parts[0]),
        sums_check=zlib.crc32(parts[1]),
        seen_check=zlib.crc32(parts[4]),
        **recorded,
    )


def _slice_check(vectors: np.ndarray, table: np.ndarray) -> int:
    return zlib.crc32(table.view(np.uint8).data, zlib.crc32(vectors.view(np.uint8).data))


def _sum(vectors: np.ndarray) -> np.ndarray:
    return torch.from_numpy(vectors).float().sum(0).numpy()


class Segment:
    """An open segment.

    Args:
        folder: The folder of the index.
        record: What the manifest says about the segment.
        dimension: Length of the vectors.

    Raises:
        FileNotFoundError: If there is no such file.
        ImageIndexError: If the file is not the one of the record, as far as its size and its head tell.
    """

    def __init__(self, folder: Path, record: SegmentRecord, dimension: int) -> None:
        self.path, self.record, self.dimension = folder / record.name, record, dimension
        self._places = record.places(dimension)
        check_index_file(self.path)
        if not self.path.stat().st_size == record.size == self._places["end"][0]:
            raise self._damaged("its size is another one")
        # a private map, which needs no open file, and which torch may take for writable
        whole = torch.from_file(str(self.path), shared=False, size=record.size, dtype=torch.uint8)
        self._bytes = whole.numpy()
        head = self._checked_section("head", record.head_check)
        self.classes, self.ends, self._checks = head.view("<i8").reshape(-1, 3).copy().T
        self.starts = np.append(0, self.ends[:-1])
        lengths_fit = len(self.ends) and (np.diff(self.ends, prepend=0) > 0).all()
        if not lengths_fit or self.ends[-1] != record.rows or (np.diff(self.classes, prepend=-1) <= 0).any():
            raise self._damaged("its head does not fit its rows")
        self._vectors = torch.from_numpy(self._section("vectors").view("<f2").reshape(-1, dimension))
        self._rows = self._section("rows").view(_ROW)
        self._columns = {name: self._rows[name] for name in _ROW.names or ()}
        self._checked = np.zeros(record.classes, dtype=bool)

    def _section(self, name: str) -> np.ndarray:
        start, stop = self._places[name]
        return self._bytes[start:stop]

    def _checked_section(self, name: str, check: int) -> np.ndarray:
        section = self._section(name)
        if zlib.crc32(section.data) != check:
            raise self._damaged(f"its {name} has another checksum")
        return section

    def _damaged(self, reason: str) -> ImageIndexError:
        return ImageIndexError(
            f"{self.path} is damaged or was changed: {reason}; shortlist doctor {self.path.parent} says more"
        )

    def _check(self, slot: int) -> None:
        """Check the vectors and rows of a class before they are used for the first time."""
        if self._checked[slot]:
            return
        rows = slice(self.starts[slot], self.ends[slot])
        if _slice_check(self._vectors.numpy()[rows], self._rows[rows]) != self._checks[slot]:
            raise self._damaged(f"the images of class {self.classes[slot]} have another checksum")
        self._checked[slot] = True

    def vectors(self, slot: int) -> Tensor:
        """Return the vectors of a class (m, d), float16, which stay in the file: read them, never write."""
        self._check(slot)
        return self._vectors[self.starts[slot] : self.ends[slot]]

    def digests(self, slot: int) -> np.ndarray:
        """Return the digests of the images of a class (m,), ascending."""
        self._check(slot)
        return self._columns["digest"][self.starts[slot] : self.ends[slot]]

    def find(self, slot: int, digest: bytes) -> int | None:
        """Return the place of an image among those of a class; ``None`` if it is not there."""
        digests = self.digests(slot)
        place = int(np.searchsorted(digests, np.bytes_(digest)))
        return place if place < len(digests) and digests[place] == digest.rstrip(b"\0") else None

    def about_bytes(self, slot: int, place: int) -> bytes:
        """Return what is known about an image, as it is in the file."""
        return self._packed("about", slot, place)

    def about(self, slot: int, place: int) -> dict[str, str]:
        """Return what is known about an image."""
        try:
            content = parse_json(self.about_bytes(slot, place))
            return {str(key): str(value) for key, value in content.items()}
        except (ValueError, AttributeError) as error:
            raise self._damaged(f"the text of an image cannot be read: {one_line(error)}") from error

    def thumbnail(self, slot: int, place: int) -> bytes:
        """Return the JPEG of an image."""
        return self._packed("thumbnail", slot, place)

    def _packed(self, name: str, slot: int, place: int) -> bytes:
        self._check(slot)
        row = int(self.starts[slot]) + place
        ends = self._columns[f"{name}_end"]
        start, stop = int(ends[row - 1]) if row else 0, int(ends[row])
        packed = self._section("thumbnails" if name == "thumbnail" else name)[max(0, start) : stop].tobytes()
        if zlib.crc32(packed) != self._columns[f"{name}_check"][row]:
            raise self._damaged(f"the {name} of an image of class {self.classes[slot]} has another checksum")
        return packed

    def sums(self) -> Tensor:
        """Return the sum of the vectors of each class (classes, d), float32."""
        section = self._checked_section("sums", self.record.sums_check)
        return torch.from_numpy(section.view("<f4").reshape(-1, self.dimension))

    def seen(self) -> np.ndarray:
        """Return the keys of the rows that the images were chosen from (s,), uint64, ascending."""
        return self._checked_section("seen", self.record.seen_check).view("<u8")
