"""Open files on this machine, or at addresses of any file system that Arrow or fsspec know."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from shortlist._store.files import check_regular

_MOST_BYTES = 1 << 28  # of one image


def is_address(path: str) -> bool:
    """Whether a path names a file system, as ``s3://bucket/photo.jpg`` does."""
    return "://" in path


def absolute(path: str | Path) -> str:
    """Return a path that other processes, which may work in another folder, understand alike."""
    return str(path) if is_address(str(path)) else os.path.abspath(path)


def full_path(root: str, file: str) -> str:
    """Return the path of a file below a folder or an address; an address is returned as it is."""
    return file if is_address(file) else os.path.join(root, file)


def folder_of(path: str) -> str:
    """Return the folder or the address that a file is in."""
    return path.rpartition("/")[0] if is_address(path) else os.path.dirname(path) or "."


def readable(name: str) -> str:
    """Return a name as text that can be written to files: bytes that are not UTF-8 become escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def open_file(path: str) -> Any:
    """Open a file at a path or an address for reading.

    Raises:
        OSError: If there is no such file, or the file system is not known.
    """
    if not is_address(path):
        check_regular(path)
        return Path(path).open("rb")
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileSystem

    try:
        system, inside = FileSystem.from_uri(path)
    except ArrowInvalid:  # not a file system of Arrow
        import fsspec

        opened: Any = fsspec.open(path, "rb")
        return opened.open()
    return system.open_input_file(inside)


def read_bytes(path: str) -> bytes:
    """Read the bytes of an image file; a ``ValueError`` says why it cannot be read."""
    try:
        if not is_address(path) and os.path.getsize(path) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
        with open_file(path) as file:
            return file.read(_MOST_BYTES)
    except Exception as error:  # each file system has errors of its own
        raise ValueError(reason_of_file(error)) from error


class TarImage(NamedTuple):
    """The image of a row of a tar file.

    Args:
        path: Path or address of the tar file.
        name: Name of the row, the stem of its files.
        place: First byte and size of the image; ``None`` if the row has no image, or several.
        problem: Why there is not one image.
    """

    path: str
    name: str
    place: tuple[int, int] | None
    problem: str = ""

    def content(self) -> bytes:
        """Return the bytes of the image; a ``ValueError`` says why they cannot be read."""
        if self.place is None:
            raise ValueError(self.problem)
        try:
            with open_file(self.path) as file:
                file.seek(self.place[0])
                return file.read(self.place[1])
        except Exception as error:  # each file system has errors of its own
            raise ValueError(f"{self.path} cannot be read: {error}") from error


Address = str | bytes | TarImage
"""Where an image is: a path, an address, a member of a tar file, or the bytes of the image themselves."""


def content_of(address: Address) -> bytes:
    """Return the bytes of an image; a ``ValueError`` says why they cannot be read."""
    if isinstance(address, bytes):
        return address
    return address.content() if isinstance(address, TarImage) else read_bytes(address)


@contextmanager
def local_copy(path: str) -> Iterator[Path]:
    """Give the path of a file; a file at an address is copied first, and error messages name the address.

    Raises:
        ValueError: If the file cannot be read; the message names it.
    """
    if not is_address(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.rpartition("/")[2]
        try:
            with open_file(path) as source, copy.open("wb") as target:
                shutil.copyfileobj(source, target)
        except Exception as error:  # each file system has errors of its own
            raise ValueError(f"{path} cannot be read: {reason_of_file(error)}") from error
        try:
            yield copy
        except ValueError as error:
            raise ValueError(str(error).replace(str(copy), path)) from error


def reason_of_file(error: Exception) -> str:
    """Return in one line why a file cannot be read; some file systems say only the path of a missing file."""
    return "there is no such file" if isinstance(error, FileNotFoundError) else " ".join(str(error).split())
