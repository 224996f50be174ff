"""A store of events: a folder with a database and copies of photos, or a database for several hosts."""

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import distinct, func, select

from shortlist._text import composed
from shortlist.feedback._database import (
    Database,
    FeedbackError,
    check_state,
    read_contents,
    read_photos,
    read_rows,
    read_rows_by_item,
)
from shortlist.feedback._metadata import without_metadata
from shortlist.feedback._postgres import PostgresDatabase
from shortlist.feedback._sqlite import FolderDatabase
from shortlist.feedback._tables import Row, events, images
from shortlist.feedback._writer import Erased, Kept, Writer
from shortlist.feedback.event import ERASED, ERASURE, VERBS, Event, Shown, facts_of, is_sha256
from shortlist.feedback.location import Location

MAX_BYTES = 64 << 30  # of database and copies
_TOGETHER = 1000  # events that are read at a time
_COUNTS = {
    "people": select(func.count(distinct(events.c.person))).where(events.c.person != ""),
    "images": select(func.count(distinct(images.c.image))).where(images.c.image != ""),
    "copies": select(func.count(distinct(images.c.image))).where(images.c.bytes > 0),
}


class FeedbackStore:
    """The events of people, appended to a database by any number of processes.

    A folder has ``feedback.json`` (which store it is), ``events.sqlite`` (SQLite in WAL mode) and ``images/``
    (copies of photos without metadata, named by the SHA-256 of what was sent); the processes of one machine
    write to it. To a store in PostgreSQL those of several machines write. Others can read both at any time.

    Args:
        location: Folder of the store, or its address ``postgresql://USER@HOST/NAME``. The store is made if it
            does not exist.
        max_bytes: Size of database and copies together at which nothing more is taken.

    Raises:
        FeedbackError: If there is something else, or a process of another machine writes to the folder.

    Example:
        >>> import tempfile
        >>> with FeedbackStore(Path(tempfile.mkdtemp()) / "feedback") as store:
        ...     event = Event("confirm", "request-1", person="p1", label="oak", images=("0" * 64,))
        ...     store.add(event), store.add(event)
        (Kept(number=1, new=True, flags=()), Kept(number=1, new=False, flags=()))
    """

    def __init__(self, location: str | Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._database = database_at(location)
        self._database.create()
        manifest = self._database.manifest()
        self.secret = bytes.fromhex(manifest["secret"])
        with self._database.alone():
            self._writer = Writer(self._database, manifest["store"], max_bytes=max_bytes)

    def submit(self, event: Event, copies: Sequence[bytes] = ()) -> "Future[Kept]":
        """Record an event; the future is done when it is on disk.

        Args:
            event: The event.
            copies: Photos to keep, of those in ``event.images``; only with ``event.consent``. Their metadata
                are not kept.

        Raises:
            ValueError: If a copy is not of one of the images or in an unknown format, or there is no consent.
            FeedbackError: From the future, if the same request said something else before
                (``SameRequestError``), the store is full (``FullError``), or the disk fails.
        """
        if copies and not event.consent:
            raise ValueError("copies must be empty without consent")
        kept = {hashlib.sha256(content).hexdigest(): without_metadata(content) for content in copies}
        if not kept.keys() <= set(event.images):
            raise ValueError("copies must be of the event's images: the SHA-256 of one is not among them")
        taken = [self._writer.copies.take(image, copy) for image, copy in kept.items()]
        return self._writer.append(event, taken)

    def add(self, event: Event, copies: Sequence[bytes] = ()) -> Kept:
        """Record an event, and return when it is on disk."""
        return self.submit(event, copies).result()

    def erase_person(self, person: str) -> Erased:
        """Delete all that is known of a person: events, and copies of photos that nobody else gave.

        The deletion itself is recorded, without the name. What was made from the store before, such as data
        sets, has its own links and is not changed.
        """
        if not person:
            raise ValueError("person must be given, got an empty name")
        return self._writer.erase("person", composed(person)).result()

    def erase_image(self, image: str) -> Erased:
        """Delete all that is known of a photo, given by its SHA-256: its copy and the events about it."""
        if not is_sha256(image):
            raise ValueError(f"image must be a SHA-256 in 64 hexadecimal digits, got {image[:80]!r}")
        return self._writer.erase("image", image).result()

    def events(self) -> Iterator[Event]:
        """Give all events that were not deleted, in their order, each checked."""
        return _read_events(self._database)

    def copy_of(self, image: str) -> bytes | None:
        """Return the copy of an image, if there is one."""
        return self._writer.copies.read(image)

    def close(self) -> None:
        """Write what waits, and end the thread that writes."""
        self._writer.close()
        with self._database.alone():
            self._writer.copies.close()

    def __enter__(self) -> "FeedbackStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_address(location: str | Path) -> bool:
    """Whether a store is in PostgreSQL.

    Raises:
        FeedbackError: If an address was taken for a path, which loses one of its slashes.
    """
    if isinstance(location, Path) and location.parts[:1] in (("postgresql:",), ("postgres:",)):
        raise FeedbackError(f"the address of a store must be text, got the path {location}")
    return str(location).startswith(("postgresql://", "postgres://"))


def database_at(location: str | Path) -> Database:
    """Return the database of a store."""
    return PostgresDatabase(str(location)) if is_address(location) else FolderDatabase(Path(location))


def is_store(location: str | Path) -> bool:
    """Whether there is, or was, a store."""
    return database_at(location).exists()


def read_manifest(location: str | Path) -> dict[str, Any]:
    """Read which store it is.

    Raises:
        FeedbackError: If it is none, or of another version.
    """
    return database_at(location).manifest()


def read_events(location: str | Path) -> Iterator[Event]:
    """Give the events of a store that were not deleted, in their order, each checked.

    Raises:
        FeedbackError: If the store is damaged; the message names the file.
    """
    return _read_events(database_at(location))


def _read_events(database: Database) -> Iterator[Event]:
    rows = _answers(read_rows(database))
    while batch := list(islice(rows, _TOGETHER)):
        read = read_contents(database, [row.number for row in batch])
        for row in batch:
            if read[row.number]:  # not deleted meanwhile
                yield _event(row, read[row.number])


def _answers(rows: Iterator[Row]) -> Iterator[Row]:
    return (row for row in rows if row.verb not in (ERASED, ERASURE))


def _event(row: Row, content: dict[str, Any]) -> Event:
    names = ("verb", "person", "key", "label", "model", "status", "time")
    return Event(
        request=row.request.hex(),
        observation=row.item,
        consent=bool(row.consent),
        audit=bool(row.audit),
        flags=tuple(row.flags.split()),
        images=tuple(content["images"]),
        shown=_shown(content),
        choice=content["choice"],
        about=content["about"],
        organs=tuple(content.get("organs", ())),
        location=Location(*content["location"]) if "location" in content else None,
        **{name: getattr(row, name) for name in names},
    )


def _shown(content: dict[str, Any]) -> tuple[Shown, ...]:
    return tuple(Shown(*entry) for entry in content.get("shown", ()))


def last_answers(location: str | Path, number: int | None = None) -> Iterator[Row]:
    """Give people's answers among the last rows of a store, or all, without their lists; each is checked."""
    return _answers(read_rows(database_at(location), last=number))


def answers_by_item(location: str | Path, *, again: bool = False) -> Iterator[Row]:
    """Give people's answers by observation, in their order within each, without their lists.

    Each is checked, unless they are read ``again``.
    """
    return read_rows_by_item(database_at(location), again=again)


def lists_at(
    location: str | Path, numbers: Sequence[int]
) -> dict[int, tuple[tuple[Shown, ...], tuple[str, ...]]]:
    """Return the lists and the photos that some answers are about, by the number of the answer."""
    read = read_contents(database_at(location), list(numbers))
    return {number: (_shown(content), tuple(content.get("images", ()))) for number, content in read.items()}


def photos_of(location: str | Path) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Give each photo that may be kept: its SHA-256, its observation, and what is known of it."""
    read = read_photos(database_at(location))
    return ((image, item, facts_of(content, image)) for image, item, content in read)


def copies_in(location: str | Path) -> frozenset[str]:
    """Return the SHA-256 of each photo of which a store has a copy now."""
    with database_at(location).reading(as_of_now=True) as connection:
        return frozenset(connection.scalars(select(images.c.image).where(images.c.bytes > 0)))


def stats_of(location: str | Path) -> dict[str, Any]:
    """Count what is in a store: events by verb, people, photos, copies, deletions; first and last time."""
    database = database_at(location)
    store = database.manifest()["store"]
    with database.reading(as_of_now=True) as connection:
        rows = check_state(connection, database, store)
        by_verb = select(events.c.verb, func.count()).group_by(events.c.verb)
        verbs = dict(connection.execute(by_verb).all())
        count = {name: connection.execute(query).scalar_one() for name, query in _COUNTS.items()}
        ends = select(events.c.time).where(events.c.number.in_([1, rows])).order_by(events.c.number)
        times = connection.scalars(ends).all()
    deletions, erased = verbs.pop(ERASURE, 0), verbs.pop(ERASED, 0)
    return {
        "events": sum(verbs.values()),
        "verbs": {verb: verbs.get(verb, 0) for verb in VERBS},
        **count,
        "deletions": deletions,
        "erased_events": erased,
        "first": times[0] if times else None,
        "last": times[-1] if times else None,
    }
