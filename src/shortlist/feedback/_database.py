"""The database of a store: its tables, its rows with their checksums, and how they are read.

A row has a checksum of itself, rows are numbered from 1 without gaps, and their number is kept beside them in
the same transaction: a row that is damaged or lost is noticed when the log is read.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from shortlist._files import check_regular

__all__ = [
    "NAME",
    "FeedbackError",
    "Row",
    "check_state",
    "connect",
    "create_tables",
    "named_errors",
    "read_rows",
    "request_key",
]

NAME = "events.sqlite"
_TABLES = """
CREATE TABLE events (
    number INTEGER PRIMARY KEY, request BLOB NOT NULL UNIQUE, time TEXT NOT NULL, verb TEXT NOT NULL,
    person TEXT NOT NULL, content TEXT NOT NULL, checksum BLOB NOT NULL
);
CREATE INDEX events_person ON events (person);
CREATE INDEX events_verb ON events (verb);
CREATE TABLE images (
    image TEXT NOT NULL, number INTEGER NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL,
    PRIMARY KEY (image, number)
) WITHOUT ROWID;
CREATE TABLE to_remove (image TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE state (store TEXT NOT NULL, rows INTEGER NOT NULL);
"""


class FeedbackError(ValueError):
    """A store that cannot be used; the message names it and says what is wrong."""


class Row(NamedTuple):
    """A row of the log."""

    number: int
    request: bytes
    time: str
    verb: str
    person: str
    content: str
    checksum: bytes

    @classmethod
    def make(
        cls, number: int, request: bytes, time: str, verb: str, person: str, content: Mapping[str, Any]
    ) -> "Row":
        """Make a row with its checksum."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return cls(
            number, request, time, verb, person, text, _checksum(number, request, time, verb, person, text)
        )

    def is_whole(self) -> bool:
        """Whether the row is as it was written."""
        try:
            return self.checksum == _checksum(*self[:-1])
        except (AttributeError, TypeError):  # a value of another type
            return False


def _checksum(number: int, request: bytes, time: str, verb: str, person: str, content: str) -> bytes:
    found = hashlib.blake2b(b"%d" % number, digest_size=16)
    for part in (request, time.encode(), verb.encode(), person.encode(), content.encode()):
        found.update(b"%d:" % len(part))
        found.update(part)
    return found.digest()


def request_key(request: str) -> bytes:
    """Return what is kept of the name of a request."""
    return hashlib.blake2b(request.encode(), digest_size=16).digest()


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
        opened.execute("INSERT INTO state VALUES (?, 0)", (store,))


def read_rows(folder: Path, store: str, *, last: int | None = None) -> Iterator[Row]:
    """Give all rows, or the last ones, in their order, each checked.

    Raises:
        FeedbackError: If a row is damaged or missing, or the database is that of another store.
    """
    with named_errors(folder), closing(connect(folder)) as opened:
        opened.execute("BEGIN")  # one state of the log, whoever writes meanwhile
        rows = check_state(opened, folder, store)
        number = 0 if last is None else max(0, rows - last)
        query = "SELECT * FROM events WHERE number > ? ORDER BY number"
        for found in opened.execute(query, (number,)):
            row, number = Row(*found), number + 1
            if row.number != number or not row.is_whole():
                raise FeedbackError(
                    f"{folder / NAME} is damaged or was changed: row {number} is not as it was"
                )
            yield row
        if number != rows:
            raise FeedbackError(f"{folder / NAME} is damaged: it must have {rows} rows, got {number}")


def check_state(opened: sqlite3.Connection, folder: Path, store: str) -> int:
    """Return the number of rows that the log should have."""
    state = opened.execute("SELECT store, rows FROM state").fetchall()
    if len(state) != 1 or state[0][0] != store or not isinstance(state[0][1], int):
        raise FeedbackError(f"{folder / NAME} is damaged or was changed: it is not the one of this store")
    return state[0][1]
