"""Shards: the rows of an input in pieces that a worker takes whole, and that become one part each."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from torch import Tensor

from shortlist._files import check_regular

__all__ = ["UNKNOWN", "FileShard", "Shard", "ShardRows", "in_pieces"]

UNKNOWN = -100  # class index of a row whose class is not known
_MOST_BYTES = 1 << 28  # of one file

T = TypeVar("T")


@dataclass(frozen=True)
class ShardRows:
    """The rows of an opened shard.

    Args:
        ids: Id of each row, by which people find it again.
        targets: Class index of each row; -100 where it is not known.
        content: Function from the number of a row to the bytes of an image file, or to a prepared tensor. It
            raises a ``ValueError`` for a row that cannot be read, and may be called from several threads.
    """

    ids: Sequence[str]
    targets: Sequence[int]
    content: Callable[[int], bytes | Tensor]


class Shard(Protocol):
    """Some rows of an input, as a small value that can be sent to another process."""

    @property
    def name(self) -> str:
        """Name of the part that is made of it, without a suffix."""
        ...

    def digest(self) -> str:
        """Return a hash of what the shard refers to, by which a part knows whether it was made of it."""
        ...

    def open(self) -> ShardRows:
        """Return the rows; a ``ValueError`` says why a shard cannot be read at all."""
        ...


@dataclass(frozen=True)
class FileShard:
    """Image files on a disk that all workers see.

    Args:
        name: Name of the part.
        root: Folder that the files are in.
        files: Path of each file, relative to the folder.
        targets: Class index of each file; -100 where it is not known.
    """

    name: str
    root: str
    files: tuple[str, ...]
    targets: tuple[int, ...]

    def digest(self) -> str:
        """Return a hash of paths and classes. What is in the files has no part in it: none is opened."""
        return hashlib.sha256(json.dumps([self.files, self.targets]).encode()).hexdigest()

    def open(self) -> ShardRows:
        """Return the rows."""
        return ShardRows(self.files, self.targets, self._content)

    def _content(self, row: int) -> bytes:
        path = os.path.join(self.root, self.files[row])
        try:
            check_regular(path)
            if os.path.getsize(path) > _MOST_BYTES:
                raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
            return Path(path).read_bytes()
        except FileNotFoundError as error:
            raise ValueError("there is no such file") from error
        except OSError as error:
            raise ValueError(str(error)) from error


def in_pieces(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Give items so many at a time."""
    rest = iter(items)
    while piece := list(islice(rest, size)):
        yield piece
