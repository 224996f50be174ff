"""The database of a store: its tables, its rows with their checksums, and how they are read.

A row of ``events`` has what votes and drift need; the rest, with the list that was shown, is in ``contents``,
so that a pass over all rows is quick. A row has a checksum of itself and of its content, rows are numbered
from 1 without gaps, and their number is kept beside them in the same transaction: a row that is damaged or
lost is noticed when the log is read.

What is deleted is overwritten where it is, and indexes of names are made anew: SQLite leaves remains on pages
whose rows it moves, which it does when rows are removed, also with ``secure_delete``.

Readers read some rows at a time, and hold no lock in between: nobody who writes or deletes waits for them.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from shortlist._store.files import check_regular
from shortlist.feedback.event import Event

NAME = "events.sqlite"
_TABLES = """
CREATE TABLE events (
    number INTEGER PRIMARY KEY, request BLOB NOT NULL UNIQUE, time TEXT NOT NULL, verb TEXT NOT NULL,
    person TEXT NOT NULL, key TEXT NOT NULL, label TEXT NOT NULL, item TEXT NOT NULL, photos TEXT NOT NULL,
    consent INTEGER NOT NULL, model TEXT NOT NULL, status TEXT NOT NULL, audit INTEGER NOT NULL,
    promised REAL, best TEXT NOT NULL, top REAL, is_listed INTEGER NOT NULL, digest BLOB NOT NULL,
    checksum BLOB NOT NULL
);
CREATE INDEX events_person ON events (person, key);
CREATE INDEX events_verb ON events (verb);
CREATE INDEX events_item ON events (item, number);
CREATE TABLE contents (number INTEGER PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE images (
    image TEXT NOT NULL, number INTEGER NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL
);
CREATE INDEX images_image ON images (image, number);
CREATE INDEX images_number ON images (number);
CREATE TABLE to_remove (image TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE state (store TEXT NOT NULL, rows INTEGER NOT NULL, bytes INTEGER NOT NULL);
"""
NAME_INDEXES = ("events_person", "events_item", "images_image")
_AT_ONCE = 900  # rows that are read at a time; older versions of SQLite take fewer than 1,000 values


class FeedbackError(ValueError):
    """A store that cannot be used; the message names it and says what is wrong."""


class Row(NamedTuple):
    """A row of the log: what an event says, as far as votes and drift need it."""

    number: int
    request: bytes
    time: str
    verb: str
    person: str = ""
    key: str = ""
    label: str = ""
    item: str = ""
    photos: str = ""
    consent: int = 0
    model: str = ""
    status: str = ""
    audit: int = 0
    promised: float | None = None
    best: str = ""
    top: float | None = None
    is_listed: int = 0
    digest: bytes = b""
    checksum: bytes = b""

    @classmethod
    def of_event(cls, number: int, time: str, event: Event, content: str) -> "Row":
        """Make the row of an event."""
        values = {name: getattr(event, name) for name in cls._fields[3:-2]}
        values |= {name: int(value) for name, value in values.items() if isinstance(value, bool)}
        row = cls(number, request_key(event.request), time, **values)
        return row.sealed(content)

    def sealed(self, content: str) -> "Row":
        """Return the row with the checksums of itself and of its content."""
        row = self._replace(digest=_digest(content))
        return row._replace(checksum=row._checksum())

    def is_whole(self) -> bool:
        """Whether the row is as it was written."""
        return self.checksum == self._checksum()

    def _checksum(self) -> bytes:
        return _digest("\0".join(map(str, self[:-1])))


Said = Event | Row
"""What somebody said, with or without the list that was shown."""


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def request_key(request: str) -> bytes:
    """Return what is kept of the name of a request."""
    return _digest(request)


@contextmanager
def named_errors(folder: Path) -> Iterator[None]:
    """Name the store in errors of its database."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError) as error:
        raise FeedbackError(f"{folder / NAME} cannot be used: {error}") from error


def connect(folder: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open the database of a store, for one thread.

    Raises:
        FeedbackError: If there is none.
    """
    path = folder / NAME
    if not create:
        if not path.exists():
            raise FeedbackError(f"{path} is missing")
        check_regular(path)
    uri = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
    with named_errors(folder):
        opened = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None)
        opened.execute("PRAGMA journal_mode = WAL")
        opened.execute("PRAGMA synchronous = FULL")
        opened.execute("PRAGMA secure_delete = ON")
    return opened


def create_tables(folder: Path, store: str) -> None:
    """Make the database of a new store."""
    with named_errors(folder), closing(connect(folder, create=True)) as opened:
        opened.executescript(_TABLES)
        opened.execute("INSERT INTO state VALUES (?, 0, 0)", (store,))


def read_rows(folder: Path, store: str, *, last: int | None = None) -> Iterator[Row]:
    """Give all rows, or the last ones, in their order, each checked.

    Raises:
        FeedbackError: If a row is damaged or missing, or the database is that of another store.
    """
    with named_errors(folder), closing(connect(folder)) as opened:
        rows = check_state(opened, folder, store)
        number = 0 if last is None else max(0, rows - last)
        query = "SELECT * FROM events WHERE number > ? AND number <= ? ORDER BY number LIMIT ?"
        while number < rows:
            some = opened.execute(query, (number, rows, _AT_ONCE)).fetchall()
            for place, row in enumerate(map(Row._make, some), start=number + 1):
                yield _checked(row, place, folder)
            if not some:
                raise _damaged(folder, number + 1)
            number += len(some)


def read_rows_by_item(folder: Path, store: str, *, again: bool = False) -> Iterator[Row]:
    """Give the rows of people's answers by observation, in their order within each.

    Each is checked, unless they are read ``again``.
    """
    with named_errors(folder), closing(connect(folder)) as opened:
        rows = check_state(opened, folder, store)
        query = (
            "SELECT * FROM events WHERE (item, number) > (?, ?) AND item > '' AND number <= ? "
            "ORDER BY item, number LIMIT ?"
        )
        place: tuple[str, int] = ("", 0)
        while some := opened.execute(query, (*place, rows, _AT_ONCE)).fetchall():
            for row in map(Row._make, some):
                yield row if again else _checked(row, row.number, folder)
                place = row.item, row.number


def read_contents(folder: Path, numbers: list[int]) -> dict[int, dict[str, Any]]:
    """Return the contents of some rows by number; that of a row that was deleted meanwhile is empty."""
    with named_errors(folder), closing(connect(folder)) as opened:
        contents: dict[int, dict[str, Any]] = {}
        query = "SELECT number, digest, content FROM events JOIN contents USING (number) WHERE number IN ({})"
        for start in range(0, len(numbers), _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            places = ",".join("?" * len(some))
            for number, digest, content in opened.execute(query.format(places), some).fetchall():
                contents[number] = _read_content(folder, number, digest, content)
    return contents


def read_photos(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give each photo that may be kept, with observation and content of the first event that allows it."""
    query = (
        "SELECT image, item, digest, content, min(number) FROM images CROSS JOIN events USING (number) "
        "CROSS JOIN contents USING (number) WHERE image > ? AND consent GROUP BY image ORDER BY image LIMIT ?"
    )
    with named_errors(folder), closing(connect(folder)) as opened:
        image = ""
        while some := opened.execute(query, (image, _AT_ONCE)).fetchall():
            for image, item, digest, content, number in some:
                yield image, item, _read_content(folder, number, digest, content)


def _read_content(folder: Path, number: int, digest: bytes, content: Any) -> dict[str, Any]:
    if not isinstance(content, str) or _digest(content) != digest:
        raise _damaged(folder, number)
    return json.loads(content) if content else {}


def _checked(row: Row, number: int, folder: Path) -> Row:
    if row.number != number or not row.is_whole():
        raise _damaged(folder, number)
    return row


def _damaged(folder: Path, number: int) -> FeedbackError:
    return FeedbackError(f"{folder / NAME} is damaged or was changed: row {number} is not as it was")


def check_state(opened: sqlite3.Connection, folder: Path, store: str) -> int:
    """Return the number of rows, after a look whether all are there."""
    query = "SELECT store, rows, (SELECT count(*) FROM events), (SELECT max(number) FROM events) FROM state"
    state = opened.execute(query).fetchall()
    if len(state) != 1 or state[0][0] != store or not isinstance(state[0][1], int):
        raise FeedbackError(f"{folder / NAME} is damaged or was changed: it is not the one of this store")
    _, rows, counted, last = state[0]
    if not rows == counted == (last or 0):
        raise FeedbackError(f"{folder / NAME} is damaged: it must have {rows} rows, got {counted}")
    return rows


def check_bytes(opened: sqlite3.Connection, folder: Path) -> None:
    """Check the number of bytes of all copies, which is kept beside them."""
    query = "SELECT bytes, (SELECT coalesce(sum(bytes), 0) FROM images) FROM state"
    kept, counted = opened.execute(query).fetchone()
    if kept != counted:
        raise FeedbackError(f"{folder / NAME} is damaged: copies must have {kept} bytes, got {counted}")
