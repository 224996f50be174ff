"""Write files completely or not at all."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["check_place", "replacing", "write_text"]


def check_place(path: str | Path) -> None:
    """Raise an error now, before long work, if no file of this name can be written."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a folder", str(path))
    existing = next(folder for folder in path.absolute().parents if folder.exists())
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "Not a folder", str(existing))
    if not os.access(existing, os.W_OK):
        raise PermissionError(errno.EACCES, "No permission to write", str(existing))


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary file to write to, which replaces ``path`` when the block ends without an error.

    If the block fails, the temporary file is removed and ``path`` is left as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # the suffix stays last: many writers choose their format by it
    temporary = path.with_name(f".{path.stem}.{os.getpid()}-{secrets.token_hex(4)}{path.suffix}")
    try:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # some writers make files that only their owner can read
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
