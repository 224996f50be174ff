"""The tables of a store, and a row of the log with its checksums.

A row of ``events`` has what votes and drift need; the rest, with the list that was shown, is in ``contents``,
so that a pass over all rows is quick. A row has a checksum of itself and of its content, rows are numbered
from 1 without gaps, and their number is kept in ``state`` in the same transaction: a row that is damaged or
lost is noticed when the log is read.
"""

import hashlib
from typing import NamedTuple

from sqlalchemy import BigInteger, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text

from shortlist.feedback.event import Event

# compared byte by byte, whatever the language of a database is
_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
_METADATA = MetaData()


def _kept(name: str, kind: object, **more: object) -> Column:
    return Column(name, kind, nullable=False, **more)  # type: ignore[arg-type]


events = Table(
    "events",
    _METADATA,
    _kept("number", Integer, primary_key=True, autoincrement=False),
    _kept("request", LargeBinary, unique=True),
    *(_kept(name, _TEXT) for name in ("time", "verb", "person", "key", "label", "item", "photos")),
    _kept("consent", Integer),
    *(_kept(name, _TEXT) for name in ("model", "status")),
    _kept("audit", Integer),
    Column("promised", Double),
    _kept("best", _TEXT),
    Column("top", Double),
    _kept("is_listed", Integer),
    _kept("flags", _TEXT),
    *(_kept(name, LargeBinary) for name in ("digest", "checksum")),
    Index("events_person", "person", "key"),
    Index("events_verb", "verb"),
    Index("events_item", "item", "number"),
)
contents = Table(
    "contents",
    _METADATA,
    _kept("number", Integer, primary_key=True, autoincrement=False),
    _kept("content", _TEXT),
)
images = Table(
    "images",
    _METADATA,
    _kept("image", _TEXT),
    _kept("number", Integer),
    _kept("bytes", Integer),
    _kept("sha256", _TEXT),
    Index("images_image", "image", "number"),
    Index("images_number", "number"),
)
state = Table(
    "state",
    _METADATA,
    *(_kept(name, _TEXT) for name in ("format", "store", "secret")),
    *(_kept(name, BigInteger) for name in ("rows", "bytes")),
)
people = Table(
    "people",
    _METADATA,
    _kept("number", Integer, primary_key=True),
    *(_kept(name, _TEXT) for name in ("name", "serial", "since", "revoked")),
    Index("people_name", "name"),
)
TABLES = [events, contents, images, state, people]
"""The tables of every store."""
to_remove = Table("to_remove", _METADATA, _kept("image", _TEXT, primary_key=True))
"""In a folder: images whose copies are to be removed."""
copies = Table("copies", _METADATA, _kept("image", _TEXT, primary_key=True), _kept("content", LargeBinary))
"""In PostgreSQL: the copies of photos."""
NAME_INDEXES = ("events_person", "events_item", "images_image", "people_name")


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
    flags: str = ""
    digest: bytes = b""
    checksum: bytes = b""

    @classmethod
    def of_event(cls, number: int, time: str, event: Event, content: str) -> "Row":
        """Make the row of an event."""
        values = {name: getattr(event, name) for name in cls._fields[3:-2]}
        values |= {name: int(value) for name, value in values.items() if isinstance(value, bool)}
        values["flags"] = " ".join(event.flags)
        row = cls(number, request_key(event.request), time, **values)
        return row.sealed(content)

    def without_consent(self) -> "Row":
        """Return the row as if no consent had been given."""
        row = self._replace(consent=0)
        return row._replace(checksum=row._checksum())

    def sealed(self, content: str) -> "Row":
        """Return the row with the checksums of itself and of its content."""
        row = self._replace(digest=digest_of(content))
        return row._replace(checksum=row._checksum())

    def is_whole(self) -> bool:
        """Whether the row is as it was written."""
        return self.checksum == self._checksum()

    def _checksum(self) -> bytes:
        return digest_of("\0".join(map(str, self[:-1])))


Said = Event | Row
"""What somebody said, with or without the list that was shown."""


def digest_of(text: str) -> bytes:
    """Return the checksum of a text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def request_key(request: str) -> bytes:
    """Return what is kept of the name of a request."""
    return digest_of(request)
