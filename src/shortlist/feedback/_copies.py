"""Copies of photos that may be kept, named by the SHA-256 of what the person sent.

Copies have no metadata, so that their own SHA-256 is another one. The database has it beside their size.

In PostgreSQL copies are rows, written and deleted with the events that they belong to. In a folder they are
files. A copy is first written to ``incoming``, then its event is recorded, then it is moved to its place.
Each process has a folder of its own in ``incoming``, which it locks. Whoever opens the store next takes care
of what a killed process left there: a copy is moved if its event was recorded, and removed otherwise.
"""

import hashlib
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import SQLAlchemyError

from shortlist._store.files import lock_folder
from shortlist.feedback._database import FeedbackError, has_copy
from shortlist.feedback._tables import to_remove

_LOCK = ".lock"
Turn = Callable[[], AbstractContextManager[Connection]]
"""Gives a connection that writes alone."""


class Taken(NamedTuple):
    """A copy that is taken, whose event is not recorded yet: its image, SHA-256 and size, and where it is."""

    image: str
    sha256: str
    size: int
    place: Path | bytes


class PhotoCopies:
    """The copies of a store. As it is here, they are written and deleted with their events."""

    def take(self, image: str, content: bytes) -> Taken:
        """Take the copy of an image, whose event comes next."""
        raise NotImplementedError

    def record(self, connection: Connection, taken: Sequence[Taken]) -> None:
        """Write copies in the turn of their events."""
        raise NotImplementedError

    def remove(self, connection: Connection, images: Sequence[str]) -> None:
        """Delete copies in the turn of a deletion."""
        raise NotImplementedError

    def read(self, image: str) -> bytes | None:
        """Return the copy of an image, if there is one."""
        raise NotImplementedError

    def file(self, image: str, folder: Path) -> Path | None:
        """Return the file of the copy of an image, which may be written to a folder first."""
        raise NotImplementedError

    def each(self) -> Iterator[tuple[str, str, str]]:
        """Give place, image and SHA-256 of each copy; no SHA-256 of what is no file."""
        raise NotImplementedError

    def name(self, image: str) -> str:
        """Return the place of the copy of an image, in the store."""
        raise NotImplementedError

    def check_machine(self) -> None:
        """Refuse a store that another machine has open, where locks are those of one machine."""

    def open(self, connection: Connection) -> None:
        """Take care of what killed processes left. Nobody else may open the store meanwhile."""

    def close(self) -> None:
        """End what was opened. Nobody else may open the store meanwhile."""

    def drop(self, taken: Taken) -> None:
        """Remove a copy whose event is not recorded."""

    def settle(self, turn: Turn, recorded: Sequence[Taken] = ()) -> bool:
        """Put copies of recorded events in their place, remove others; return whether that is done."""
        return True

    @property
    def is_settled(self) -> bool:
        """Whether all copies of recorded events are in their place."""
        return True

    def waiting(self) -> list[Path]:
        """Return what killed processes left, or one that writes."""
        return []


class Copies(PhotoCopies):
    """The files of copies in a folder.

    Args:
        folder: Folder of the store.
    """

    def __init__(self, folder: Path) -> None:
        self._store, self.folder, self._incoming = folder, folder / "images", folder / "incoming"
        self._lock = ExitStack()
        self._unmoved: list[Taken] = []  # of recorded events, and not in their place

    def open(self, connection: Connection) -> None:
        """Move or remove what killed processes left, and make a folder for copies that this process takes.

        Nobody else may open the store meanwhile.
        """
        self._incoming.mkdir(exist_ok=True)
        for folder in self._folders():
            with suppress(BlockingIOError), lock_folder(folder, BlockingIOError()):
                for path in _files_of(folder):
                    self._move_or_drop(connection, path)
                shutil.rmtree(folder)
        self._own = self._incoming / f"{secrets.token_hex(8)}-{socket.gethostname()}"
        self._own.mkdir()
        _sync(self._incoming)
        self._lock.enter_context(lock_folder(self._own, FeedbackError(f"{self._own} is in use")))

    def _move_or_drop(self, connection: Connection, path: Path) -> None:
        if has_copy(connection, path.name[:64]):
            self.move(path)
        else:
            path.unlink(missing_ok=True)

    def check_machine(self) -> None:
        """Refuse a store that another machine has open: SQLite's locks are those of one machine."""
        for folder in self._folders():
            host = folder.name.partition("-")[2]
            in_use = FeedbackError(f"{self._store} is in use: a process of {host} writes to it")
            if host != socket.gethostname():
                with lock_folder(folder, in_use):
                    pass

    def close(self) -> None:
        """Remove the folder of this process, unless a copy in it could not be moved.

        Nobody else may open the store meanwhile.
        """
        if not _files_of(self._own):
            shutil.rmtree(self._own)
        self._lock.close()

    def path(self, image: str) -> Path:
        """Return the place of the copy of an image."""
        return self.folder / image[:2] / image

    def take(self, image: str, content: bytes) -> Taken:
        """Write the copy of an image to ``incoming``. It is on disk then.

        Its name has the SHA-256 of the image and of the copy.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        path = self._own / f"{image}-{sha256}-{secrets.token_hex(8)}"
        try:
            with path.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            _sync(self._own)
        except OSError:  # such as a full disk
            path.unlink(missing_ok=True)
            raise
        return Taken(image, sha256, len(content), path)

    def drop(self, taken: Taken) -> None:
        """Remove a copy whose event is not recorded."""
        assert isinstance(taken.place, Path)
        taken.place.unlink(missing_ok=True)

    def record(self, connection: Connection, taken: Sequence[Taken]) -> None:
        """Do nothing: files are moved when the events are recorded."""

    def remove(self, connection: Connection, images: Sequence[str]) -> None:
        """Note files to remove when the deletion is recorded."""
        noted = set(connection.scalars(select(to_remove.c.image)))
        if rows := [{"image": image} for image in images if image not in noted]:
            connection.execute(insert(to_remove), rows)

    @property
    def is_settled(self) -> bool:
        """Whether all copies of recorded events are in their place."""
        return not self._unmoved

    def settle(self, turn: Turn, recorded: Sequence[Taken] = ()) -> bool:
        """Move copies of recorded events to their place, remove those that deletions named.

        Return whether all could be done.
        """
        self._unmoved += recorded
        try:
            with turn() as connection:
                for image in connection.scalars(select(to_remove.c.image)).all():
                    if not has_copy(connection, image):  # somebody may have given it again
                        self.path(image).unlink(missing_ok=True)
                    connection.execute(delete(to_remove).where(to_remove.c.image == image))
                while self._unmoved:
                    place = self._unmoved[-1].place
                    assert isinstance(place, Path)
                    self._move_or_drop(connection, place)
                    self._unmoved.pop()
        except (OSError, SQLAlchemyError):  # such as a full disk
            return False
        return True

    def move(self, taken: Path) -> None:
        """Move a copy from ``incoming`` to its place."""
        place = self.path(taken.name[:64])
        place.parent.mkdir(parents=True, exist_ok=True)
        taken.replace(place)

    def read(self, image: str) -> bytes | None:
        """Return the copy of an image, if there is one."""
        path = self.path(image)
        return path.read_bytes() if path.is_file() else None

    def file(self, image: str, folder: Path) -> Path | None:
        """Return the file of the copy of an image, where it is."""
        path = self._resolved / image[:2] / image
        return path if path.is_file() else None

    @cached_property
    def _resolved(self) -> Path:
        return self.folder.resolve()

    def each(self) -> Iterator[tuple[str, str, str]]:
        """Give place, image and SHA-256 of each copy; no SHA-256 of what is no file."""
        paths = sorted(self.folder.rglob("*")) if self.folder.is_dir() else []
        for path in paths:
            if not path.is_dir():
                sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                yield str(path.relative_to(self._store)), path.name, sha256

    def name(self, image: str) -> str:
        """Return the place of the copy of an image, in the store."""
        return str(self.path(image).relative_to(self._store))

    def waiting(self) -> list[Path]:
        """Return what is in ``incoming``."""
        return sorted(path for folder in self._folders() for path in _files_of(folder))

    def _folders(self) -> list[Path]:
        """Return the folders of processes; no links, which could lead to any folder of this machine."""
        if not self._incoming.is_dir():
            return []
        return [path for path in self._incoming.iterdir() if path.is_dir() and not path.is_symlink()]


def _files_of(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != _LOCK]


def _sync(folder: Path) -> None:
    """Force the names of a folder to disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
