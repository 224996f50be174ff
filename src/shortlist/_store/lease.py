"""A lease: the right of one process to make something in a folder that several machines share.

It is a file that exists while the right is held, and is there with all of its content or not at all. A lease
of a process of this machine that has ended is free at once. That of another machine is free when its owner
has not renewed it for ``LEASE`` seconds, by the clock of the one who looks: clocks are never compared.
"""

import os
import secrets
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from shortlist._store.files import create_text
from shortlist._store.manifest import read_sealed, sealed_text, write_sealed

FORMAT = "shortlist lease 1"
LEASE = 120.0
"""Seconds without a renewal after which a lease of another machine is free."""
BEAT = 10.0
"""Seconds between two renewals."""


class LeaseLostError(BaseException):
    """Raised if another process has taken a lease over, since it was not renewed for too long.

    It is no :class:`Exception`: what tidies up after a failure must not touch what belongs to another now.
    """


class Lease:
    """A lease that this process holds; :func:`holding` takes it.

    Args:
        path: Its file.
        about: What others read there of its owner.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.token = path, secrets.token_hex(8)
        self.about = {"format": FORMAT, "token": self.token, **_owner(), **about}
        self._beat, self._start = 0, _clock()
        self._renewed = self._start
        self._guard = threading.Lock()

    def check(self, **about: Any) -> None:
        """Note something for others to read, and require that the lease is still held.

        Raises:
            LeaseLostError: If another process has it.
        """
        self.about |= about
        if _clock() - self._renewed > LEASE / 2:  # the machine slept, or the process was stopped
            self.renew()

    def renew(self) -> None:
        """Tell others that the owner lives.

        Raises:
            LeaseLostError: If another process has taken the lease.
        """
        with self._guard:
            holder = read_lease(self.path)
            if holder is None or holder["token"] != self.token:
                self._renewed = -LEASE  # each later check fails too
                raise LeaseLostError(f"{self.path} was taken over by another process")
            self._beat += 1
            write_sealed(self.path, self._content())
            self._renewed = _clock()

    def _content(self) -> dict[str, Any]:
        return self.about | {"beat": self._beat, "seconds": round(_clock() - self._start, 1)}

    def _take(self, stale: Collection[str]) -> bool:
        """Take the lease if it is free: nobody has it, or an owner who is gone."""
        text = sealed_text(self._content())
        holder = read_lease(self.path)
        if holder is None:
            return create_text(self.path, text)
        if not is_gone(holder, stale):
            return False
        # only one process can make the file that succeeds this owner
        claim = _claim(self.path, holder)
        if (claimant := read_lease(claim)) is not None and is_gone(claimant, stale):
            claim.unlink(missing_ok=True)
        if not create_text(claim, text):
            return False
        now = read_lease(self.path)
        if now is None or now["token"] != holder["token"]:  # another one was faster before
            claim.unlink(missing_ok=True)
            return False
        claim.replace(self.path)
        now = read_lease(self.path)
        return now is not None and now["token"] == self.token

    def _release(self) -> None:
        with self._guard, suppress(OSError, ValueError):
            holder = read_lease(self.path)
            if holder is not None and holder["token"] == self.token:
                self.path.unlink()


@contextmanager
def holding(path: str | Path, stale: Collection[str] = (), **about: Any) -> Iterator[Lease | None]:
    """Hold a lease while the block runs, and renew it; ``None`` if another process has it.

    Args:
        path: Its file; the folder is made.
        stale: Tokens of owners on other machines that are gone, as a :class:`LeaseWatch` has seen.
        about: What others read there.
    """
    lease, end = Lease(Path(path), about), threading.Event()
    if not lease._take(stale):
        yield None
        return

    def beat() -> None:
        while not end.wait(BEAT):
            with suppress(OSError, LeaseLostError):  # the next check says so, or it works the next time
                lease.renew()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        end.set()
        thread.join()
        lease._release()


class LeaseWatch:
    """What a process has seen of leases on other machines, by its own clock."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[str, int], float]] = {}

    def gone(self, path: Path) -> tuple[str, ...] | None:
        """Return tokens of owners that are gone, with which a lease can be taken; ``None`` if it is held."""
        holder = read_lease(path)
        if holder is None:
            return ()
        if not is_gone(holder) and not self._is_silent(path, holder):
            return None
        tokens, claim = [holder["token"]], _claim(path, holder)
        if (claimant := read_lease(claim)) is not None:
            if not is_gone(claimant) and not self._is_silent(claim, claimant):
                return None  # somebody takes it at this moment
            tokens.append(claimant["token"])
        return tuple(tokens)

    def _is_silent(self, path: Path, holder: Mapping[str, Any]) -> bool:
        state, now = (holder["token"], holder["beat"]), time.monotonic()
        before, since = self._seen.setdefault(path, (state, now))
        if before != state:
            self._seen[path] = (state, now)
            return False
        return holder["machine"] != this_machine() and now - since > LEASE


def read_lease(path: str | Path) -> dict[str, Any] | None:
    """Return what the owner of a lease wrote; ``None`` if nobody has it.

    Raises:
        ValueError: If the file is of another version, or not as it was written.
    """
    try:
        return read_sealed(path, FORMAT, "end what runs there, and remove the file")
    except FileNotFoundError:
        return None


def is_gone(holder: Mapping[str, Any], stale: Collection[str] = ()) -> bool:
    """Return whether the owner of a lease is gone: it ended on this machine, or is in ``stale``."""
    if holder["machine"] == this_machine():
        return _start_of(holder["process"]) != holder["started"]
    return holder["token"] in stale


@cache
def this_machine() -> str:
    """Return what tells this machine, since its start, from all others: process numbers are of it."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))  # containers count their own processes
    return " ".join(parts)


def _owner() -> dict[str, Any]:
    here = {"machine": this_machine(), "host": socket.gethostname(), "process": os.getpid()}
    return here | {"started": _start_of(os.getpid())}


def _start_of(process: int) -> str | None:
    """Return what tells a process from a later one of the same number; ``None`` if there is none."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    with suppress(OSError, IndexError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else fields[19]  # what has ended, and was not waited for, is gone
    return "" if not Path("/proc/self/stat").exists() else None


def _claim(path: Path, holder: Mapping[str, Any]) -> Path:
    """Return the file that succeeds one owner of a lease."""
    return path.with_name(f"{path.name}-{holder['token']}")


def _clock() -> float:
    """Return seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
