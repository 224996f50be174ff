"""Copies of photos that may be kept: files named by the SHA-256 of what the person sent.

Copies have no metadata, so that their own SHA-256 is another one. The database has it beside their size.

A copy is first written to ``incoming``, then its event is recorded, then it is moved to its place. A process
that is killed in between leaves it in ``incoming``: whoever opens the store next moves it if its event was
recorded, and removes it otherwise.
"""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path


class Copies:
    """The copies of a store.

    Args:
        folder: Folder of the store.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._incoming = folder / "images", folder / "incoming"

    def path(self, image: str) -> Path:
        """Return the place of the copy of an image."""
        return self.folder / image[:2] / image

    def take(self, image: str, content: bytes) -> Path:
        """Write the copy of an image to ``incoming``, and return its place there. It is on disk then.

        Its name has the SHA-256 of the image and of the copy.
        """
        self._incoming.mkdir(exist_ok=True)
        path = self._incoming / f"{image}-{hashlib.sha256(content).hexdigest()}-{secrets.token_hex(8)}"
        try:
            with path.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            _sync(self._incoming)
        except OSError:  # such as a full disk
            self.drop(path)
            raise
        return path

    def move(self, taken: Path) -> None:
        """Move a copy from ``incoming`` to its place."""
        place = self.path(taken.name[:64])
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # moved by the recovery
            taken.replace(place)

    def drop(self, taken: Path) -> None:
        """Remove a copy from ``incoming``."""
        taken.unlink(missing_ok=True)

    def remove(self, image: str) -> None:
        """Remove the copy of an image."""
        self.path(image).unlink(missing_ok=True)

    def recover(self, may_be_kept: Callable[[str], bool]) -> None:
        """Finish what a killed process left in ``incoming``."""
        if self._incoming.is_dir():
            for path in sorted(self._incoming.iterdir()):
                if may_be_kept(path.name[:64]):
                    self.move(path)
                else:
                    self.drop(path)

    def __iter__(self) -> Iterator[Path]:
        """Give the files of all copies."""
        if self.folder.is_dir():
            yield from (path for path in sorted(self.folder.rglob("*")) if not path.is_dir())

    def waiting(self) -> list[Path]:
        """Return what is in ``incoming``."""
        return sorted(self._incoming.iterdir()) if self._incoming.is_dir() else []


def _sync(folder: Path) -> None:
    """Force the names of a folder to disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
