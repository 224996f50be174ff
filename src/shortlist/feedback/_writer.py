"""The thread of a process that writes to the log. It commits together all events that came meanwhile.

Several processes may write: each takes its turn by a lock of the database. Files of copies are moved and
removed in such turns too, so that no deletion comes between the record of a copy and its move.
"""

import json
import queue
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, update

from shortlist.feedback._copies import Taken
from shortlist.feedback._database import (
    AT_ONCE,
    Database,
    FeedbackError,
    check_bytes,
    check_state,
    has_copy,
    now,
)
from shortlist.feedback._invited import INVITED, admitted_key, read_serials
from shortlist.feedback._tables import (
    NAME_INDEXES,
    Row,
    contents,
    events,
    images,
    people,
    request_key,
    state,
)
from shortlist.feedback.event import ERASED, ERASURE, Event

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
    taken: Sequence[Taken] = ()
    erase: tuple[str, str] = ("", "")  # person or image, and which
    done: "Future[Any]" = field(default_factory=Future)


class _Turn:
    """What is written together, after what others wrote: rows wait until the turn ends.

    Args:
        connection: Writes alone.
        jobs: Events that may be written.
    """

    def __init__(self, connection: Connection, jobs: Sequence[_Job] = ()) -> None:
        self.connection = connection
        self._state = tuple(connection.execute(select(state.c.rows, state.c.bytes)).one())
        self.rows, self.bytes = self._state
        self.text = 0  # characters of new rows, which have no pages yet
        self._new: dict[Any, list[dict[str, Any]]] = {events: [], contents: [], images: []}
        said = [job.event for job in jobs if job.event is not None]
        before = (events.c.request, events.c.number, events.c.verb)
        before = (*before, events.c.person, events.c.label, events.c.photos)
        query = select(*before).where(events.c.request.in_([request_key(event.request) for event in said]))
        self.requests = {row[0]: tuple(row[1:]) for row in connection.execute(query)} if said else {}
        names = {event.person for event in said if event.person}
        query = select(events.c.person, events.c.key).where(events.c.person.in_(names), events.c.key > "")
        self.keys = dict(connection.execute(query.distinct()).all()) if names else {}
        self.serials = read_serials(connection, names) if names else {}

    def insert(self, row: Row, content: str) -> None:
        """Write a row with its content."""
        self._new[events].append(row._asdict())
        self._new[contents].append({"number": row.number, "content": content})
        self.rows, self.text = row.number, self.text + len(content)

    def insert_images(self, number: int, event: Event, taken: Sequence[Taken]) -> None:
        """Write which images an event is about, with what is kept of them."""
        kept = {copy.image: {"bytes": copy.size, "sha256": copy.sha256} for copy in taken}
        for image in set(event.images):
            record = {"image": image, "number": number, "bytes": 0, "sha256": ""}
            self._new[images].append(record | kept.get(image, {}))
        self.bytes += sum(copy.size for copy in taken)

    def end(self) -> None:
        """Write all rows, and how many there are."""
        for table, rows in self._new.items():
            if rows:
                self.connection.execute(insert(table), rows)
        if self._state != (self.rows, self.bytes):
            self.connection.execute(update(state).values(rows=self.rows, bytes=self.bytes))


class Writer:
    """A thread with a queue.

    Args:
        database: Database of the store.
        store: Name of the store in its database.
        max_bytes: Size of database and copies at which nothing more is taken.
    """

    def __init__(self, database: Database, store: str, *, max_bytes: int) -> None:
        self._database, self._store, self._max_bytes = database, store, max_bytes
        self.copies = database.copies()
        self._pending = True  # whether something may be left of what was deleted
        self._began: float | None = None  # when what is under way began
        self._queue: queue.Queue[_Job | None] = queue.Queue()
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="feedback", daemon=True)
        self._thread.start()
        self._opened.result()

    def append(self, event: Event, taken: Sequence[Taken]) -> "Future[Kept]":
        """Queue an event; the future is done when it is on disk."""
        return self._submit(_Job(event, taken))

    def erase(self, kind: str, name: str) -> "Future[Erased]":
        """Queue the deletion of all that is known of a person or an image."""
        return self._submit(_Job(None, erase=(kind, name)))

    def _submit(self, job: _Job) -> "Future[Any]":
        if not self._thread.is_alive():
            raise FeedbackError(f"{self._database.location} is closed")
        began, patience = self._began, self._database.patience
        if began is not None and patience is not None and time.monotonic() - began > patience:
            raise StuckError(f"{self._database.location} does not answer: try again later")
        job.done.set_running_or_notify_cancel()  # who waits no longer cannot take it back
        self._queue.put(job)
        return job.done

    def close(self) -> None:
        """Write what waits, and end the thread, unless the database does not answer."""
        self._queue.put(None)
        self._thread.join(self._database.patience)

    def _run(self) -> None:
        try:
            self.copies.check_machine()
            with self._database.errors():
                with self._database.writes.connect() as connection:
                    check_state(connection, self._database, self._store)
                    check_bytes(connection, self._database)
                self._database.reserve()
                self.copies.settle(self._database.turn)
                with self._database.turn() as connection:
                    self.copies.open(connection)
        except BaseException as error:
            self._database.writes.dispose()
            self._opened.set_exception(error)
            return
        self._opened.set_result(None)
        open_ = True
        while open_:
            self._began = time.monotonic()
            if self._has_more_to_do():
                self._pending = self._has_remains()
            self._began = None
            jobs, open_ = self._next()
            self._began = time.monotonic()
            said = [job for job in jobs if job.event is not None]
            if said:
                self._append_all(said)
            for job in jobs:
                if job.event is None:
                    self._erase_all(job)
        self._has_remains()
        self._database.writes.dispose()

    def _has_more_to_do(self) -> bool:
        return self._pending or not self.copies.is_settled

    @contextmanager
    def _turn(self, jobs: Sequence[_Job] = ()) -> Iterator[_Turn]:
        with self._database.turn() as connection:
            turn = _Turn(connection, jobs)
            yield turn
            turn.end()

    def _has_remains(self) -> bool:
        """Remove what is left of what was deleted; return whether that cannot be done now."""
        return not self.copies.settle(self._database.turn) or self._database.has_old_pages(_READER_SECONDS)

    def _next(self) -> tuple[list[_Job], bool]:
        """Wait for a job, and take all that wait with it, up to a deletion, which comes after them."""
        jobs: list[_Job] = []
        try:
            job = self._queue.get(timeout=_READER_SECONDS if self._has_more_to_do() else None)
        except queue.Empty:
            return jobs, True
        while job is not None:
            jobs.append(job)
            if job.event is None or len(jobs) == AT_ONCE:
                return jobs, True
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                return jobs, True
        return jobs, False

    def _append_all(self, jobs: list[_Job]) -> None:
        """Record events in one transaction; one that is refused does not stop the others."""
        kept: list[tuple[_Job, Kept]] = []
        try:
            with self._database.errors(), self._turn(jobs) as turn:
                room = self._max_bytes - self._database.size(turn.connection)
                for job in jobs:
                    try:
                        kept.append((job, self._append(job, turn, room)))
                    except FeedbackError as error:
                        self._fail(job, error)
                recorded = [copy for job, record in kept if record.new for copy in job.taken]
                self.copies.record(turn.connection, recorded)
        except Exception as error:
            for job in jobs:
                if not job.done.done():
                    self._fail(job, error)
            return
        if recorded:
            self.copies.settle(self._database.turn, recorded)
        for job, record in kept:
            job.done.set_result(record)

    def _append(self, job: _Job, turn: _Turn, room: int) -> Kept:
        event = job.event
        assert event is not None
        request, said = request_key(event.request), (event.verb, event.person, event.label, event.photos)
        if (before := turn.requests.get(request)) is not None:
            number, verb, *_ = before
            if verb != ERASED and before[1:] != said:
                raise SameRequestError(f"request must be new: {event.request[:80]!r} was another answer")
            self._drop(job)
            return Kept(number, new=False)
        key = admitted_key(turn.serials, event.person, event.key)
        if event.person and key != INVITED and turn.keys.get(event.person, key) != key:
            raise OwnerError(f"person must be a name of this key: {event.person[:80]!r} is of another")
        if turn.text + turn.bytes + sum(copy.size for copy in job.taken) > room:
            words = f"it must have at most {self._max_bytes:,} bytes"
            raise FullError(f"{self._database.location} is full: {words}")
        number = turn.rows + 1
        content = json.dumps(event.content(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        turn.insert(Row.of_event(number, now(), replace(event, key=key), content), content)
        turn.insert_images(number, event, job.taken)
        turn.requests[request] = (number, *said)
        if event.person and key:
            turn.keys[event.person] = key
        return Kept(number, new=True)

    def _fail(self, job: _Job, error: Exception) -> None:
        self._drop(job)
        job.done.set_exception(error)

    def _drop(self, job: _Job) -> None:
        for copy in job.taken:
            self.copies.drop(copy)

    def _erase_all(self, job: _Job) -> None:
        try:
            with self._database.errors():
                erased = self._erase_in_reserve(*job.erase)
        except Exception as error:
            job.done.set_exception(error)
            return
        self._pending = self._has_remains()
        job.done.set_result(erased._replace(pending=self._pending))

    def _erase_in_reserve(self, kind: str, name: str) -> Erased:
        """Delete, on a full disk too: then there is the room of a file that is kept for it."""
        try:
            with self._turn() as turn:
                return self._erase(turn, kind, name)
        except Exception as error:
            if not self._database.release(error):
                raise
            with self._turn() as turn:
                return self._erase(turn, kind, name)
        finally:
            self._database.reserve()

    def _erase(self, turn: _Turn, kind: str, name: str) -> Erased:
        """Empty the rows of a person or an image, remove copies that nobody else gave, and note it."""
        about = events.c.number.in_(select(images.c.number).where(images.c.image == name))
        where = events.c.person == name if kind == "person" else about
        query = select(events.c.number, events.c.request, events.c.time).where(where)
        rows = turn.connection.execute(query).all()
        if kind == "person":
            nobody = {"name": "", "serial": "", "since": "", "revoked": ""}
            turn.connection.execute(update(people).where(people.c.name == name).values(nobody))
        empty = [Row(number, request, time[:10], ERASED).sealed("") for number, request, time in rows]
        given: set[str] = set()
        for start in range(0, len(rows), AT_ONCE):
            given |= _empty(turn, empty[start : start + AT_ONCE])
        gone = sorted(image for image in given if not has_copy(turn.connection, image))
        self.copies.remove(turn.connection, gone)
        record = json.dumps({"kind": kind, "events": len(rows), "copies": len(gone)})
        erasure = Row(turn.rows + 1, secrets.token_bytes(16), now(), ERASURE)
        turn.insert(erasure.sealed(record), record)
        if rows or kind == "person":
            self._database.rebuild(turn.connection, NAME_INDEXES)
        return Erased(len(rows), len(gone))


def _empty(turn: _Turn, rows: Sequence[Row]) -> set[str]:
    """Overwrite rows, their contents, and their images; return the images that had copies."""
    numbers, connection = [row.number for row in rows], turn.connection
    query = select(images.c.image, images.c.bytes).where(images.c.number.in_(numbers), images.c.bytes > 0)
    kept = connection.execute(query).all()
    turn.bytes -= sum(size for _, size in kept)
    connection.execute(
        update(images).where(images.c.number.in_(numbers)).values(image="", bytes=0, sha256="")
    )
    values = [{"at": row.number, **dict(zip(Row._fields[2:], row[2:], strict=True))} for row in rows]
    connection.execute(update(events).where(events.c.number == bindparam("at")), values)
    connection.execute(update(contents).where(contents.c.number.in_(numbers)).values(content=""))
    return {image for image, _ in kept}


class SameRequestError(FeedbackError):
    """A request of the same name said something else before."""


class OwnerError(FeedbackError):
    """A person's name that belongs to another key."""


class FullError(FeedbackError):
    """The store has reached its size."""


class StuckError(FeedbackError):
    """The database does not answer."""
