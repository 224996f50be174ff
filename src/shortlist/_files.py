"""Files are written whole or not at all, and read if they are files."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["check_place", "check_regular", "read_text", "replacing", "write_text"]


def check_place(path: str | Path) -> None:
    """Fail now, as writing would after long work, if there can be no file of this name."""
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
    """A temporary name beside ``path`` to write to; it takes the place of ``path`` when the block ends well.

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
    """Write a text file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def check_regular(path: str | Path) -> None:
    """Refuse pipes, devices and sockets, which to open may wait for ever."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "Is a folder", str(path))
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is no regular file, but a pipe, a device or a socket")


def read_text(path: str | Path, *, max_bytes: int | None = None) -> str:
    """Read a text file.

    Raises:
        ValueError: If it is no regular file, larger than ``max_bytes``, or no UTF-8; the message names it.
        OSError: If it cannot be opened.
    """
    check_regular(path)
    with Path(path).open("rb") as file:
        content = file.read(-1 if max_bytes is None else max_bytes + 1)
    if max_bytes is not None and len(content) > max_bytes:
        raise ValueError(f"{path} is too large: more than {max_bytes:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text: {error}") from error
