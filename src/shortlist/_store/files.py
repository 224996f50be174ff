"""Write files and folders completely or not at all, and read them if they are files.

What is being written has its place in a folder ``.tmp-PID-...`` beside its goal, whose name no reader looks
for. A process that is killed leaves that folder; the next one that writes there takes it away.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TEMPORARY = re.compile(r"\.tmp-(\d+)-[0-9a-f]{8}-(.*)")


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
    """Give a temporary file to write to; it takes the place of ``path`` when the block ends well.

    If the block fails, the temporary file is removed and ``path`` is left as it was. A full disk is an error
    that names ``path``.
    """
    path = Path(path)
    # of the same name: many writers choose their format by it
    with _naming_full_disk(path), _temporary_place(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # some writers make files that only their owner can read
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)


@contextmanager
def _naming_full_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Give a temporary folder to fill; it gets the name ``path`` when the block ends well.

    Raises:
        FileExistsError: If there is anything but an empty folder of that name, before the block or after it.
    """
    path = Path(path)
    if path.is_symlink() or (path.exists() and not (path.is_dir() and not any(path.iterdir()))):
        raise FileExistsError(errno.EEXIST, "Exists", str(path))
    with _temporary_place(path) as temporary:
        temporary.mkdir()
        yield temporary
        try:
            temporary.rename(path)
        except OSError as error:  # another process was faster
            if path.exists():
                raise FileExistsError(errno.EEXIST, "Exists", str(path)) from error
            raise


def remove_folder(path: str | Path) -> None:
    """Remove a folder, which loses its name first: a process that is killed leaves no half of it there."""
    path = Path(path)
    with _temporary_place(path) as temporary:
        path.rename(temporary)


def link_file(source: str | Path, path: str | Path) -> None:
    """Give a file a second name, or make a copy where there are no links; its folder is made.

    Files are only ever replaced whole, so that names of the same file do not change each other.
    """
    Path(path).parent.mkdir(exist_ok=True)
    try:
        os.link(source, path)
    except OSError:
        shutil.copyfile(source, path)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file completely or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def create_text(path: str | Path, text: str) -> bool:
    """Write a new text file completely or not at all; return whether there was none of that name.

    Of several processes, on several machines too, one makes the file.
    """
    path = Path(path)
    with _naming_full_disk(path), _temporary_place(path) as temporary:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            return _create_without_links(path, text)
    return True


def _create_without_links(path: Path, text: str) -> bool:
    """Make a file where there are no links; who looks at once may see it without its content."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def check_regular(path: str | Path, *, links: bool = True) -> None:
    """Refuse pipes, devices and sockets, whose opening may block for ever; links too, unless allowed.

    A link in a folder that came from somebody else could lead to any file of this machine.
    """
    mode = os.stat(path, follow_symlinks=links).st_mode
    if stat.S_ISLNK(mode):
        raise ValueError(f"{path} is a link, which is not followed: put the file itself there")
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


def is_temporary(path: str | Path) -> bool:
    """Whether a path is of something that is being written, or that a killed process left behind."""
    return any(_TEMPORARY.fullmatch(part) for part in Path(path).parts)


def sweep(folder: str | Path) -> None:
    """Take away what killed processes of this machine left in a folder while they wrote to it."""
    with suppress(OSError), os.scandir(folder) as entries:  # a folder may be written to and not listed
        for path in [entry.path for entry in entries if _is_left_behind(entry.name)]:
            shutil.rmtree(path, ignore_errors=True)


def sweep_below(folder: str | Path) -> None:
    """Take away what killed processes of this machine left in a folder and in all folders inside it."""
    for place, inner, _ in os.walk(folder):
        sweep(place)
        inner[:] = [name for name in inner if not is_temporary(name)]


@contextmanager
def lock_folder(
    folder: str | Path, in_use: Exception, *, wait: float = 0.0, shared: bool = False
) -> Iterator[None]:
    """Keep other processes out of a folder by the file ``.lock`` in it; the lock ends with the process.

    Args:
        folder: The folder, which must exist.
        in_use: Error to raise if another process has the lock.
        wait: Seconds to wait for it before.
        shared: Whether others may have the lock too, who share it.

    Raises:
        ValueError: If ``.lock`` is a pipe or a device, which to open may wait for ever, or a link to nothing,
            by which a file would be made elsewhere.
    """
    path = Path(folder) / ".lock"
    if path.exists():
        check_regular(path)
    elif path.is_symlink():
        raise ValueError(f"{path} is a link to a file that does not exist: remove it")
    with path.open("a") as lock:  # not "w": it may be a link to a file of somebody's
        deadline = time.monotonic() + wait
        while not _can_lock(lock.fileno(), shared):
            if time.monotonic() >= deadline:
                raise in_use
            time.sleep(0.1)
        yield


def _can_lock(descriptor: int, shared: bool) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def _temporary_place(path: Path) -> Iterator[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    folder = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(4)}-{socket.gethostname()}")
    folder.mkdir()
    try:
        yield folder / path.name
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_left_behind(name: str) -> bool:
    """Whether nobody is writing there any more, as far as this machine can know."""
    parts = _TEMPORARY.fullmatch(name)
    if parts is None or parts[2] != socket.gethostname():
        return False
    try:
        os.kill(int(parts[1]), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False
