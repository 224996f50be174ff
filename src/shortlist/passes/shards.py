"""Shards: pieces of the rows of an input. A worker takes a whole shard and makes one part from it."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from shortlist._row_facts import FACTS, RowFacts
from shortlist.class_table import ClassTable
from shortlist.inputs import (
    UNKNOWN,
    TarImage,
    absolute,
    class_indices,
    content_of,
    full_path,
    is_address,
    read_tar,
    readable,
)


@dataclass(frozen=True)
class ShardRows:
    """The rows of an opened shard.

    Args:
        ids: Id of each row, for people.
        targets: Class index of each row; -100 where it is not known.
        content: Function from the number of a row to the bytes of an image file. It raises a ``ValueError``
            for a row that cannot be read, and may be called from several threads.
        inputs: All prepared inputs (n, ...), if the rows are no images.
        facts: Facts about the rows beside their class.
    """

    ids: Sequence[str]
    targets: Sequence[int]
    content: Callable[[int], bytes]
    inputs: Tensor | None = None
    facts: RowFacts | None = None


class Shard(Protocol):
    """Some rows of an input, as a small value that can be sent to another process."""

    @property
    def name(self) -> str:
        """Name of its part, without a suffix."""
        ...

    def digest(self) -> str:
        """Return a hash of the rows. A part of the shard has the same hash, unless the rows have changed."""
        ...

    def open(self, classes: ClassTable | None = None) -> ShardRows:
        """Return the rows. Labels, if they are not class indices yet, must stand for these classes.

        Raises:
            ValueError: If the shard cannot be read at all; the message says why.
        """
        ...


@dataclass(frozen=True)
class FileShard:
    """Image files on a disk that all workers see.

    Args:
        name: Name of the part.
        root: Folder that the files are in.
        files: Path of each file, relative to the folder.
        targets: Class index of each file; -100 where it is not known.
        facts: What is known about the files beside their class.
    """

    name: str
    root: str
    files: tuple[str, ...]
    targets: tuple[int, ...]
    facts: RowFacts | None = None

    def digest(self) -> str:
        """Return a hash of paths, classes and facts, and of each file's size and time; none is opened."""
        states = [_state_of(full_path(self.root, file)) for file in self.files]
        facts = [] if self.facts is None else [self.facts.plain()]
        return _hash([absolute(self.root), self.files, self.targets, states, *facts])

    def open(self, classes: ClassTable | None = None) -> ShardRows:
        """Return the rows. Their class indices are already known."""
        return ShardRows(
            [readable(file) for file in self.files], self.targets, self._content, facts=self.facts
        )

    def _content(self, row: int) -> bytes:
        return content_of(full_path(self.root, self.files[row]))


@dataclass(frozen=True)
class TarShard:
    """A tar file in the layout of WebDataset: the files of a row follow each other and have one stem.

    A row has an image, and its class in ``STEM.cls`` or as ``label`` in ``STEM.json``, if it is known.

    Args:
        name: Name of the part.
        path: Path or address of the tar file.
        classes: Hash of the classes (:func:`hash_of_classes`). The classes themselves would be sent with each
            shard.
    """

    name: str
    path: str
    classes: str

    def digest(self) -> str:
        """Return a hash of the path, size and time of change of the tar file, and of the classes."""
        return _hash([absolute(self.path), _state_of(self.path), self.classes])

    def open(self, classes: ClassTable | None = None) -> ShardRows:
        """Find the rows; the images are read when they are needed."""
        if classes is None or hash_of_classes(classes) != self.classes:
            number = 0 if classes is None else len(classes)
            raise ValueError(f"classes must be those that {self.name} was made for, got {number} others")
        rows = read_tar(self.path)
        names = [readable(image.name) for image in rows.files if isinstance(image, TarImage)]
        targets = class_indices(rows.labels, classes, where=self.path, rows=names)
        facts = RowFacts.of_columns(rows.texts(FACTS))
        return ShardRows(names, targets, lambda row: content_of(rows.files[row]), facts=facts)


@dataclass(frozen=True)
class EmbeddingShard:
    """Consecutive rows of a file of embeddings.

    Args:
        name: Name of the part.
        path: Path of a ``.safetensors`` file with ``embeddings`` (n, d) and, if they are known, ``targets``.
        start: First row.
        stop: Row after the last.
    """

    name: str
    path: str
    start: int
    stop: int

    def digest(self) -> str:
        """Return a hash of path, size, time of change and header of the file, and of the rows' classes."""
        state = [absolute(self.path), _state_of(self.path), _header_of(self.path)]
        return _hash([*state, self.start, self.stop, self._targets_hash()])

    def _targets_hash(self) -> str | None:
        from safetensors import safe_open

        try:
            with safe_open(self.path, "pt") as file:
                targets = file.get_slice("targets")[self.start : self.stop]
        except Exception:  # no targets, or a damaged file, which open() reports
            return None
        return hashlib.sha256(targets.numpy().tobytes()).hexdigest()

    def open(self, classes: ClassTable | None = None) -> ShardRows:
        """Read the rows, which have class indices."""
        from safetensors import safe_open

        try:
            with safe_open(self.path, "pt") as file:
                inputs = file.get_slice("embeddings")[self.start : self.stop].float()
                has_targets = "targets" in file.keys()
                targets = file.get_slice("targets")[self.start : self.stop].tolist() if has_targets else None
        except Exception as error:  # the format has errors of its own
            raise ValueError(f"{self.path} cannot be read: {error}") from error
        stem = os.path.basename(self.path).removesuffix(".safetensors")
        ids = [f"{stem}:{row}" for row in range(self.start, self.stop)]
        facts = RowFacts.load(self.path)
        facts = None if facts is None else facts.take(torch.arange(self.start, self.stop))
        return ShardRows(ids, targets or [UNKNOWN] * len(ids), _no_image, inputs, facts)


def _no_image(_: int) -> bytes:
    raise ValueError("embeddings have no images")


def _state_of(path: str) -> tuple[int, int] | None:
    """Return size and time of change of a file; ``None`` for an address, and for a missing file."""
    if is_address(path):
        return None
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


def _header_of(path: str) -> str | None:
    """Return a hash of the header of a ``.safetensors`` file; ``None`` if it cannot be read."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            return hashlib.sha256(file.read(min(length, os.path.getsize(path)))).hexdigest()
    except OSError:
        return None


def hash_of_classes(classes: ClassTable) -> str:
    """Return a hash of the ids and names of classes in their order: labels can be ids or names."""
    return _hash([classes.ids, classes.names])


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
