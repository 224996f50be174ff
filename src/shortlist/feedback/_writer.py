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

from sqlalchemy import select, update

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
from shortlist.feedback._invited import INVITED, admitted_key
from shortlist.feedback._tables import NAME_INDEXES, Row, events, images, people, request_key
from shortlist.feedback._turn import Turn, empty, forget_copies, overwrite
from shortlist.feedback.event import DUPLICATE, ERASED, ERASURE, Event

_READER_SECONDS = 1.0  # that a deletion waits for who reads; then it is pending, and tried again as often


class Kept(NamedTuple):
    """An event that is on disk: its number, whether it was not there before, and the flags of its photos."""

    number: int
    new: bool
    flags: tuple[str, ...] = ()


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
    def _turn(self, jobs: Sequence[_Job] = ()) -> Iterator[Turn]:
        with self._database.turn() as connection:
            turn = Turn(connection, [job.event for job in jobs if job.event is not None])
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
                withdrawn = [(job, record) for job, record in kept if _withdraws(job)]
                for job, record in withdrawn:
                    self._withdraw(turn, job, record.number)
        except Exception as error:
            for job in jobs:
                if not job.done.done():
                    self._fail(job, error)
            return
        if recorded or withdrawn:
            self.copies.settle(self._database.turn, recorded)
            self._pending |= bool(withdrawn)
        for job, record in kept:
            job.done.set_result(record)

    def _append(self, job: _Job, turn: Turn, room: int) -> Kept:
        event = job.event
        assert event is not None
        request = request_key(event.request)
        said = (event.verb, event.person, event.label, event.photos, event.item)
        if (before := turn.requests.get(request)) is not None:
            number, verb, *_, consent, flags = before
            if verb != ERASED and (before[1:-2] != said or (event.withdraws and consent)):
                raise SameRequestError(f"request must be new: {event.request[:80]!r} was another answer")
            self._drop(job)
            return Kept(number, False, tuple(flags.split()))
        key = admitted_key(turn.serials, event.person, event.key)
        if event.person and key != INVITED and turn.keys.get(event.person, key) != key:
            raise OwnerError(f"person must be a name of this key: {event.person[:80]!r} is of another")
        if turn.text + turn.bytes + sum(copy.size for copy in job.taken) > room:
            words = f"it must have at most {self._max_bytes:,} bytes"
            raise FullError(f"{self._database.location} is full: {words}")
        number = turn.rows + 1
        content = json.dumps(event.content(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        seen = any(turn.first_items.get(image, event.item) != event.item for image in event.images)
        flags = tuple(dict.fromkeys((*event.flags, *[DUPLICATE] * seen)))
        event = replace(event, key=key, flags=flags)
        turn.insert(Row.of_event(number, now(), event, content), content)
        turn.insert_images(number, event, job.taken)
        turn.requests[request] = (number, *said, event.consent, " ".join(flags))
        if event.person and key:
            turn.keys[event.person] = key
        return Kept(number, True, flags)

    def _withdraw(self, turn: Turn, job: _Job, number: int) -> None:
        """Take consent from what a person said of an observation before, and remove copies given with it."""
        event = job.event
        assert event is not None
        turn.write()
        of_owner = (events.c.item == event.item) & (events.c.person == event.person)
        query = select(events).where(of_owner, events.c.consent == 1, events.c.number < number)
        rows = [Row._make(row).without_consent() for row in turn.connection.execute(query)]
        if rows:
            overwrite(turn.connection, rows)
            self._remove_copies(turn, forget_copies(turn, [row.number for row in rows]))

    def _remove_copies(self, turn: Turn, given: set[str]) -> list[str]:
        """Remove copies of photos, but for those that somebody else gave too; return which are gone."""
        gone = sorted(image for image in given if not has_copy(turn.connection, image))
        self.copies.remove(turn.connection, gone)
        return gone

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

    def _erase(self, turn: Turn, kind: str, name: str) -> Erased:
        """Empty the rows of a person or an image, remove copies that nobody else gave, and note it."""
        about = events.c.number.in_(select(images.c.number).where(images.c.image == name))
        where = events.c.person == name if kind == "person" else about
        query = select(events.c.number, events.c.request, events.c.time).where(where)
        rows = turn.connection.execute(query).all()
        if kind == "person":
            nobody = {"name": "", "serial": "", "since": "", "revoked": ""}
            turn.connection.execute(update(people).where(people.c.name == name).values(nobody))
        erased = [Row(number, request, time[:10], ERASED).sealed("") for number, request, time in rows]
        given: set[str] = set()
        for start in range(0, len(rows), AT_ONCE):
            given |= empty(turn, erased[start : start + AT_ONCE])
        gone = self._remove_copies(turn, given)
        record = json.dumps({"kind": kind, "events": len(rows), "copies": len(gone)})
        erasure = Row(turn.rows + 1, secrets.token_bytes(16), now(), ERASURE)
        turn.insert(erasure.sealed(record), record)
        if rows or kind == "person":
            self._database.rebuild(turn.connection, NAME_INDEXES)
        return Erased(len(rows), len(gone))


def _withdraws(job: _Job) -> bool:
    return job.event is not None and job.event.withdraws


class SameRequestError(FeedbackError):
    """A request of the same name said something else before."""


class OwnerError(FeedbackError):
    """A person's name that belongs to another key."""


class FullError(FeedbackError):
    """The store has reached its size."""


class StuckError(FeedbackError):
    """The database does not answer."""
