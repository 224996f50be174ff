"""Files on this machine, or on any file system that Arrow or fsspec know by an address."""

import os
from pathlib import Path
from typing import Any

from shortlist._files import check_regular

__all__ = ["absolute", "full_path", "is_address", "open_file", "read_bytes", "readable", "reason_of_file"]

_MOST_BYTES = 1 << 28  # of one image


def is_address(path: str) -> bool:
    """Whether a path names a file system, as ``s3://bucket/photo.jpg`` does."""
    return "://" in path


def absolute(path: str | Path) -> str:
    """Return a path that means the same in other processes, which may work in another folder."""
    return str(path) if is_address(str(path)) else os.path.abspath(path)


def full_path(root: str, file: str) -> str:
    """Return the path of a file relative to a folder or an address, or its own address."""
    return file if is_address(file) else os.path.join(root, file)


def readable(name: str) -> str:
    """Return a name as text that can be written: one that is no UTF-8 on the disk cannot."""
    return name.encode("utf-8", "backslashreplace").decode()


def open_file(path: str) -> Any:
    """Open a file to be read from any place.

    Raises:
        OSError: If there is none, or the file system is not known.
    """
    if not is_address(path):
        check_regular(path)
        return Path(path).open("rb")
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileSystem

    try:
        system, inside = FileSystem.from_uri(path)
    except ArrowInvalid:  # none of Arrow's own
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


def reason_of_file(error: Exception) -> str:
    """Return on one line why a file cannot be read; some file systems give the path alone."""
    return "there is no such file" if isinstance(error, FileNotFoundError) else " ".join(str(error).split())
