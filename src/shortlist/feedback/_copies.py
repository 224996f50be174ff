"""Copies of photos that may be kept: files named by the SHA-256 of what the person sent.

Copies have no metadata, so that their own SHA-256 is another one. The database has it beside their size.

A copy is first written to ``incoming``, then its event is recorded, then it is moved to its place. Each
process has a folder of its own in ``incoming``, which it locks. Whoever opens the store next takes care of
what a killed process left there: a copy is moved if its event was recorded, and removed otherwise.
"""

import hashlib
import os
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from shortlist._store.files import lock_folder
from shortlist.feedback._database import FeedbackError

_LOCK = ".lock"


class Copies:
    """The copies of a store.

    Args:
        folder: Folder of the store.
    """

    def __init__(self, folder: Path) -> None:
        self._store, self.folder, self._incoming = folder, folder / "images", folder / "incoming"
        self._lock = ExitStack()

    def open(self, is_recorded: Callable[[str], bool]) -> None:
        """Move or remove what killed processes left, and make a folder for copies that this process takes.

        Nobody else may open the store meanwhile.
        """
        self._incoming.mkdir(exist_ok=True)
        for folder in self._folders():
            with suppress(BlockingIOError), lock_folder(folder, BlockingIOError()):
                self._recover(folder, is_recorded)
        self._own = self._incoming / f"{secrets.token_hex(8)}-{socket.gethostname()}"
        self._own.mkdir()
        _sync(self._incoming)
        self._lock.enter_context(lock_folder(self._own, FeedbackError(f"{self._own} is in use")))

    def _recover(self, folder: Path, is_recorded: Callable[[str], bool]) -> None:
        for path in _files_of(folder):
            if is_recorded(path.name[:64]):
                self.move(path)
            else:
                path.unlink()
        shutil.rmtree(folder)

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

    def take(self, image: str, content: bytes) -> Path:
        """Write the copy of an image to ``incoming``, and return its place there. It is on disk then.

        Its name has the SHA-256 of the image and of the copy.
        """
        path = self._own / f"{image}-{hashlib.sha256(content).hexdigest()}-{secrets.token_hex(8)}"
        try:
            with path.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            _sync(self._own)
        except OSError:  # such as a full disk
            path.unlink(missing_ok=True)
            raise
        return path

    def move(self, taken: Path) -> None:
        """Move a copy from ``incoming`` to its place."""
        place = self.path(taken.name[:64])
        place.parent.mkdir(parents=True, exist_ok=True)
        taken.replace(place)

    def remove(self, image: str) -> None:
        """Remove the copy of an image."""
        self.path(image).unlink(missing_ok=True)

    def __iter__(self) -> Iterator[Path]:
        """Give the files of all copies."""
        if self.folder.is_dir():
            yield from (path for path in sorted(self.folder.rglob("*")) if not path.is_dir())

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
