"""The thread of a process that writes to the log. It commits together all events that came meanwhile.

Several processes may write: each takes its turn by SQLite's lock of the database. Files of copies are moved
and removed in such turns too, so that no deletion comes between the record of a copy and its move.
"""

import json
import queue
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from shortlist.feedback._copies import Copies
from shortlist.feedback._database import (
    NAME_INDEXES,
    FeedbackError,
    Row,
    check_bytes,
    check_state,
    connect,
    named_errors,
    request_key,
)
from shortlist.feedback.event import ERASED, ERASURE, Event

_TOGETHER = 1000  # events of one commit
RESERVE = "reserve"  # a file that takes room on the disk, which a deletion may need
_RESERVE_BYTES = 2 << 20
_READER_SECONDS = 1.0  # that a deletion waits for who reads; then it is pending, and tried again as often


class Kept(NamedTuple):
    """An event that is on disk: its number, and whether it was not there before."""

    number: int
    new: bool


class Erased(NamedTuple):
    """What a deletion took away: a number of events and of copies of photos.

    It is ``pending`` while something is left: old pages of the database that somebody reads, or a file that
    cannot be removed now. It is tried again each second.
    """

    events: int
    copies: int
    pending: bool = False


@dataclass
class _Job:
    """Something to write; either an event with its copies, or a deletion."""

    event: Event | None
    taken: Sequence[Path] = ()
    erase: tuple[str, str] = ("", "")  # person or image, and which
    done: "Future[Any]" = field(default_factory=Future)


class Writer:
    """A thread with a queue.

    Args:
        folder: Folder of the store.
        store: Name of the store in its database.
        max_bytes: Size of database and copies at which nothing more is taken.
    """

    def __init__(self, folder: Path, store: str, *, max_bytes: int) -> None:
        self._folder, self._store, self._max_bytes = folder, store, max_bytes
        self.copies = Copies(folder)
        self._unmoved: list[Path] = []  # copies of recorded events that are not in their place
        self._pending = True  # whether something may be left of what was deleted
        self._queue: queue.Queue[_Job | None] = queue.Queue()
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="feedback", daemon=True)
        self._thread.start()
        self._opened.result()

    def append(self, event: Event, taken: Sequence[Path]) -> "Future[Kept]":
        """Queue an event; the future is done when it is on disk."""
        return self._submit(_Job(event, taken))

    def erase(self, kind: str, name: str) -> "Future[Erased]":
        """Queue the deletion of all that is known of a person or an image."""
        return self._submit(_Job(None, erase=(kind, name)))

    def _submit(self, job: _Job) -> "Future[Any]":
        if not self._thread.is_alive():
            raise FeedbackError(f"{self._folder} is closed")
        self._queue.put(job)
        return job.done

    def close(self) -> None:
        """Write what waits, and end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            self.copies.check_machine()
            with named_errors(self._folder):
                self._base = connect(self._folder)
                check_state(self._base, self._folder, self._store)
                check_bytes(self._base, self._folder)
                self._reserve()
                self._place_copies()
                with self._turn():
                    self.copies.open(self._has_copy)
        except BaseException as error:
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        open_ = True
        while open_:
            if self._pending or self._unmoved:
                self._pending = self._has_remains()
            jobs, open_ = self._next()
            events = [job for job in jobs if job.event is not None]
            if events:
                self._append_all(events)
            for job in jobs:
                if job.event is None:
                    self._erase_all(job)
        self._has_remains()
        self._base.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Write alone, after what others wrote: all of the block is recorded, or nothing."""
        self._base.execute("BEGIN IMMEDIATE")
        try:
            state = self._base.execute("SELECT rows, bytes FROM state").fetchone()
            self._rows, self._bytes = state
            yield
            if state != (self._rows, self._bytes):
                self._base.execute("UPDATE state SET rows = ?, bytes = ?", (self._rows, self._bytes))
            self._base.execute("COMMIT")
        except BaseException:
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")
            raise

    def _has_remains(self) -> bool:
        """Remove what is left of what was deleted; return whether that cannot be done now."""
        return not self._place_copies() or self._has_old_pages()

    def _has_old_pages(self) -> bool:
        """Empty the log of the database, which may hold what was deleted; return whether it could not be."""
        self._base.execute(f"PRAGMA busy_timeout = {1000 * _READER_SECONDS:.0f}")
        try:
            return bool(self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        except sqlite3.Error:
            return True
        finally:
            self._base.execute("PRAGMA busy_timeout = 30000")

    def _next(self) -> tuple[list[_Job], bool]:
        """Wait for a job, and take all that wait with it, up to a deletion, which comes after them."""
        jobs: list[_Job] = []
        try:
            job = self._queue.get(timeout=_READER_SECONDS if self._pending or self._unmoved else None)
        except queue.Empty:
            return jobs, True
        while job is not None:
            jobs.append(job)
            if job.event is None or len(jobs) == _TOGETHER:
                return jobs, True
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return jobs, True
        return jobs, False

    def _place_copies(self) -> bool:
        """Move copies of recorded events to their place, remove those that deletions named.

        Return whether all could be done.
        """
        try:
            with self._turn():
                for (image,) in self._base.execute("SELECT image FROM to_remove").fetchall():
                    if not self._has_copy(image):  # somebody may have given it again
                        self.copies.remove(image)
                    self._base.execute("DELETE FROM to_remove WHERE image = ?", (image,))
                while self._unmoved:
                    if self._has_copy(self._unmoved[-1].name[:64]):
                        self.copies.move(self._unmoved[-1])
                    else:
                        self._unmoved[-1].unlink(missing_ok=True)
                    self._unmoved.pop()
        except (OSError, sqlite3.Error):  # such as a full disk
            return False
        return True

    def _has_copy(self, image: str) -> bool:
        found = self._base.execute("SELECT 1 FROM images WHERE image = ? AND bytes > 0 LIMIT 1", (image,))
        return found.fetchone() is not None

    def _append_all(self, jobs: list[_Job]) -> None:
        """Record events in one transaction; one that is refused does not stop the others."""
        kept: list[tuple[_Job, Kept]] = []
        try:
            with named_errors(self._folder), self._turn():
                for job in jobs:
                    try:
                        kept.append((job, self._append(job)))
                    except FeedbackError as error:
                        _fail(job, error)
        except Exception as error:
            for job in jobs:
                if not job.done.done():
                    _fail(job, error)
            return
        self._unmoved += [path for job, record in kept if record.new for path in job.taken]
        if self._unmoved:
            self._place_copies()
        for job, record in kept:
            job.done.set_result(record)

    def _append(self, job: _Job) -> Kept:
        event = job.event
        assert event is not None
        query = "SELECT number, verb, person, label, photos FROM events WHERE request = ?"
        if (before := self._base.execute(query, (request_key(event.request),)).fetchone()) is not None:
            number, verb, *_ = before
            if verb != ERASED and before[1:] != (event.verb, event.person, event.label, event.photos):
                raise SameRequestError(f"request must be new: {event.request[:80]!r} was another answer")
            _drop_copies(job)
            return Kept(number, new=False)
        self._check_owner(event)
        sizes = {path.name[:64]: path.stat().st_size for path in job.taken}
        if self._size() + sum(sizes.values()) > self._max_bytes:
            raise FullError(f"{self._folder} is full: it must have at most {self._max_bytes:,} bytes")
        number = self._rows + 1
        content = json.dumps(event.content(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self._insert(Row.of_event(number, _now(), event, content), content)
        copies = {path.name[:64]: path.name[65:129] for path in job.taken}
        rows = [(image, number, sizes.get(image, 0), copies.get(image, "")) for image in set(event.images)]
        self._base.executemany("INSERT INTO images VALUES (?, ?, ?, ?)", rows)
        self._bytes += sum(sizes.values())
        return Kept(number, new=True)

    def _check_owner(self, event: Event) -> None:
        """Refuse the name of a person that was first used with another key."""
        if event.person:
            query = "SELECT key FROM events WHERE person = ? AND key > '' LIMIT 1"
            owner = self._base.execute(query, (event.person,)).fetchone()
            if owner not in (None, (event.key,)):
                raise OwnerError(f"person must be a name of this key: {event.person[:80]!r} is of another")

    def _insert(self, row: Row, content: str) -> None:
        self._base.execute(f"INSERT INTO events VALUES ({','.join('?' * len(row))})", row)
        self._base.execute("INSERT INTO contents VALUES (?, ?)", (row.number, content))
        self._rows = row.number

    def _size(self) -> int:
        pages = self._base.execute("PRAGMA page_count").fetchone()[0]
        return pages * self._base.execute("PRAGMA page_size").fetchone()[0] + self._bytes

    def _erase_all(self, job: _Job) -> None:
        try:
            with named_errors(self._folder):
                erased = self._erase_in_reserve(*job.erase)
        except Exception as error:
            job.done.set_exception(error)
            return
        self._pending = self._has_remains()
        job.done.set_result(erased._replace(pending=self._pending))

    def _erase_in_reserve(self, kind: str, name: str) -> Erased:
        """Delete, on a full disk too: then there is the room of a file that is kept for it."""
        try:
            with self._turn():
                return self._erase(kind, name)
        except sqlite3.OperationalError as error:
            if "full" not in str(error):
                raise
            (self._folder / RESERVE).unlink(missing_ok=True)
            with self._turn():
                return self._erase(kind, name)
        finally:
            self._reserve()

    def _reserve(self) -> None:
        """Keep some room of the disk for deletions, if there is any."""
        path = self._folder / RESERVE
        if not path.exists():
            try:
                with path.open("xb") as file:  # which follows no link
                    file.write(bytes(_RESERVE_BYTES))
            except OSError:
                path.unlink(missing_ok=True)

    def _erase(self, kind: str, name: str) -> Erased:
        """Empty the rows of a person or an image, remove copies that nobody else gave, and note it."""
        where = "person = ?" if kind == "person" else "number IN (SELECT number FROM images WHERE image = ?)"
        rows = self._base.execute(
            f"SELECT number, request, time FROM events WHERE {where}", (name,)
        ).fetchall()
        copies: set[str] = set()
        for number, request, time in rows:
            given = "SELECT image, bytes FROM images WHERE number = ?"
            for image, size in self._base.execute(given, (number,)).fetchall():
                self._bytes -= size
                copies |= {image} if size else set()
            self._base.execute(
                "UPDATE images SET image = '', bytes = 0, sha256 = '' WHERE number = ?", (number,)
            )
            empty = Row(number, request, time[:10], ERASED).sealed("")
            columns = ", ".join(f"{name} = ?" for name in Row._fields[2:])
            self._base.execute(f"UPDATE events SET {columns} WHERE number = ?", (*empty[2:], number))
            self._base.execute("UPDATE contents SET content = '' WHERE number = ?", (number,))
        gone = sorted(image for image in copies if not self._has_copy(image))
        self._base.executemany("INSERT OR IGNORE INTO to_remove VALUES (?)", [(image,) for image in gone])
        record = json.dumps({"kind": kind, "events": len(rows), "copies": len(gone)})
        erasure = Row(self._rows + 1, secrets.token_bytes(16), _now(), ERASURE)
        self._insert(erasure.sealed(record), record)
        for index in NAME_INDEXES if rows else ():
            self._base.execute(f"REINDEX {index}")
        return Erased(len(rows), len(gone))


class SameRequestError(FeedbackError):
    """A request of the same name said something else before."""


class OwnerError(FeedbackError):
    """A person's name that belongs to another key."""


class FullError(FeedbackError):
    """The store has reached its size."""


def _fail(job: _Job, error: Exception) -> None:
    _drop_copies(job)
    job.done.set_exception(error)


def _drop_copies(job: _Job) -> None:
    for path in job.taken:
        path.unlink(missing_ok=True)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
