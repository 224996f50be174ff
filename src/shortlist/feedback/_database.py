"""The database of a store, wherever it is, and how its rows are read.

Readers read some rows at a time, and hold no lock in between: nobody who writes or deletes waits for them.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, NullPool, QueuePool, bindparam, func, select, tuple_
from sqlalchemy.exc import SQLAlchemyError

from shortlist.feedback._tables import Row, contents, digest_of, events, images, state

if TYPE_CHECKING:
    from shortlist.feedback._copies import PhotoCopies

FORMAT = "shortlist feedback 7"
AT_ONCE = 900  # rows that are read at a time; older versions of SQLite take fewer than 1,000 values


class FeedbackError(ValueError):
    """A store that cannot be used; the message names it and says what is wrong."""


class Database:
    """Where a store is.

    Args:
        location: Folder or address, as it is said to people.
        name: The database itself, as errors name it.
    """

    patience: float | None = None
    """Seconds of one turn after which the database is taken to answer no more; ``None`` for one that does."""

    def __init__(self, location: str, name: str) -> None:
        self.location, self.name = location, name

    def manifest(self) -> dict[str, Any]:
        """Read which store it is: its ``format``, its name ``store``, and the ``secret`` that signs receipts.

        Raises:
            FeedbackError: If it is none, or of another version.
        """
        raise NotImplementedError

    def exists(self) -> bool:
        """Whether there is, or was, a store."""
        raise NotImplementedError

    def create(self) -> None:
        """Make the store if it does not exist."""
        raise NotImplementedError

    def copies(self) -> "PhotoCopies":
        """Return the copies of photos."""
        raise NotImplementedError

    def size(self, connection: Connection) -> int:
        """Return the bytes of the tables."""
        raise NotImplementedError

    def _engine(self, **pool: Any) -> Engine:
        """Make what opens connections."""
        raise NotImplementedError

    def _begin(self, connection: Connection, *, alone: bool) -> None:
        """Begin a transaction, in which everything is read as of now, or which alone may write."""
        raise NotImplementedError

    def check_pages(self) -> None:
        """Let the database look at its own files, if it can."""

    def has_old_pages(self, seconds: float) -> bool:
        """Remove what is left of what was deleted; return whether somebody who reads hinders it so long."""
        return False

    def rebuild(self, connection: Connection, indexes: Sequence[str]) -> None:
        """Make indexes anew from which names were deleted, where they would keep them."""

    def reserve(self) -> None:
        """Keep some room of the disk for deletions, if there is any."""

    def release(self, error: Exception) -> bool:
        """Free the reserved room after an error of a full disk; return whether there was such an error."""
        return False

    def alone(self) -> AbstractContextManager[None]:
        """Keep out other processes that open or close the store, where they have to."""
        return nullcontext()

    @cached_property
    def _reads(self) -> Engine:
        return self._engine(poolclass=NullPool)

    @cached_property
    def writes(self) -> Engine:
        """What opens the one connection of who writes."""
        return self._engine(poolclass=QueuePool, pool_size=1, max_overflow=0, pool_pre_ping=True)

    @contextmanager
    def reading(self, *, as_of_now: bool = False) -> Iterator[Connection]:
        """Give a connection to read by: each statement, or all of them ``as_of_now``, see one state."""
        with self.errors(), self._reads.connect() as connection:
            if as_of_now:
                self._begin(connection, alone=False)
            else:
                connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            yield connection

    @contextmanager
    def turn(self) -> Iterator[Connection]:
        """Write alone, after what others wrote: all of the block is recorded, or nothing."""
        with self.writes.connect() as connection:
            self._begin(connection, alone=True)
            yield connection
            connection.commit()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Name the store in errors of its database, without the values that a statement had."""
        try:
            yield
        except (SQLAlchemyError, UnicodeDecodeError) as error:
            words = str(getattr(error, "orig", None) or error).strip().split("\n")[0]
            raise FeedbackError(f"{self.name} cannot be used: {words}") from error

    def damaged(self, number: int) -> FeedbackError:
        """Return the error of a row that is not as it was."""
        return FeedbackError(f"{self.name} is damaged or was changed: row {number} is not as it was")


_UNTIL = events.c.number <= bindparam("rows")
_IN_ORDER = select(events).where(events.c.number > bindparam("number"), _UNTIL)
_IN_ORDER = _IN_ORDER.order_by(events.c.number).limit(AT_ONCE)
# SQLite reads the index from the place on if the place comes first
_AFTER = tuple_(events.c.item, events.c.number) > tuple_(bindparam("item"), bindparam("number"))
_BY_ITEM = select(events).where(_AFTER, _UNTIL).order_by(events.c.item, events.c.number).limit(AT_ONCE)
_CONTENTS = select(events.c.number, events.c.digest, contents.c.content)
_CONTENTS = _CONTENTS.join(contents, contents.c.number == events.c.number)
_CONTENTS = _CONTENTS.where(events.c.number.in_(bindparam("numbers", expanding=True)))
_FIRST = select(images.c.image, func.min(images.c.number).label("number"))
_FIRST = _FIRST.join(events, events.c.number == images.c.number)
_FIRST = _FIRST.where(images.c.image > bindparam("image"), events.c.consent == 1)
_FIRST = _FIRST.group_by(images.c.image).order_by(images.c.image).limit(AT_ONCE).subquery()
# what its owner said of it last
_OWNER, _SAME = events.alias(), images.alias()
_LAST = select(_FIRST.c.image, func.max(events.c.number).label("number"))
_LAST = _LAST.join(_OWNER, _OWNER.c.number == _FIRST.c.number).join(_SAME, _SAME.c.image == _FIRST.c.image)
_OF_OWNER = (events.c.item == _OWNER.c.item) & (events.c.person == _OWNER.c.person) & (events.c.consent == 1)
_LAST = _LAST.join(events, (events.c.number == _SAME.c.number) & _OF_OWNER)
_LAST = _LAST.group_by(_FIRST.c.image).subquery()
_PHOTOS = select(_LAST.c.image, events.c.item, events.c.digest, contents.c.content, events.c.number)
_PHOTOS = _PHOTOS.join(events, events.c.number == _LAST.c.number)
_PHOTOS = _PHOTOS.join(contents, contents.c.number == _LAST.c.number).order_by(_LAST.c.image)


def read_rows(database: Database, *, last: int | None = None) -> Iterator[Row]:
    """Give all rows, or the last ones, in their order, each checked.

    Raises:
        FeedbackError: If a row is damaged or missing, or the database is that of another store.
    """
    store = database.manifest()["store"]
    with database.reading() as connection:
        rows = check_state(connection, database, store)
        number = 0 if last is None else max(0, rows - last)
        while number < rows:
            batch = connection.execute(_IN_ORDER, {"number": number, "rows": rows}).fetchall()
            for place, row in enumerate(map(Row._make, batch), start=number + 1):
                yield _checked(row, place, database)
            if not batch:
                raise database.damaged(number + 1)
            number += len(batch)


def read_rows_by_item(database: Database, *, again: bool = False) -> Iterator[Row]:
    """Give the rows of people's answers by observation, in their order within each.

    Each is checked, unless they are read ``again``.
    """
    store = database.manifest()["store"]
    with database.reading() as connection:
        rows = check_state(connection, database, store)
        place = {"item": "", "number": rows, "rows": rows}  # after what is of no observation
        while batch := connection.execute(_BY_ITEM, place).fetchall():
            for row in map(Row._make, batch):
                yield row if again else _checked(row, row.number, database)
            place |= {"item": batch[-1].item, "number": batch[-1].number}


def read_rows_of_item(database: Database, item: str) -> list[Row]:
    """Return the rows of people's answers about one observation, in their order, each checked."""
    query = select(events).where(events.c.item == item).order_by(events.c.number)
    with database.reading() as connection:
        rows = list(map(Row._make, connection.execute(query).fetchall()))
    return [_checked(row, row.number, database) for row in rows]


def read_contents(database: Database, numbers: list[int]) -> dict[int, dict[str, Any]]:
    """Return the contents of some rows by number; that of a row that was deleted meanwhile is empty."""
    read: dict[int, dict[str, Any]] = {}
    with database.reading() as connection:
        for start in range(0, len(numbers), AT_ONCE):
            batch = connection.execute(_CONTENTS, {"numbers": numbers[start : start + AT_ONCE]}).fetchall()
            for number, digest, content in batch:
                read[number] = _read_content(database, number, digest, content)
    return read


def read_photos(database: Database) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give each photo that may be kept, with its observation and the last content about it.

    The observation is that of the first event that allows to keep the photo, and the content that of the last
    one of the same person about this observation.
    """
    image = ""
    with database.reading() as connection:
        while batch := connection.execute(_PHOTOS, {"image": image}).fetchall():
            for image, item, digest, content, number in batch:
                yield image, item, _read_content(database, number, digest, content)


def has_copy(connection: Connection, image: str) -> bool:
    """Whether somebody gave a copy of an image."""
    query = select(images.c.number).where(images.c.image == image, images.c.bytes > 0).limit(1)
    return connection.execute(query).first() is not None


def _read_content(database: Database, number: int, digest: bytes, content: Any) -> dict[str, Any]:
    if not isinstance(content, str) or digest_of(content) != digest:
        raise database.damaged(number)
    return json.loads(content) if content else {}


def _checked(row: Row, number: int, database: Database) -> Row:
    if row.number != number or not row.is_whole():
        raise database.damaged(number)
    return row


def check_state(connection: Connection, database: Database, store: str) -> int:
    """Return the number of rows, after a look whether all are there."""
    counted = select(func.count()).select_from(events).scalar_subquery()
    last = select(func.max(events.c.number)).scalar_subquery()
    noted = connection.execute(select(state.c.store, state.c.rows, counted, last)).fetchall()
    if len(noted) != 1 or noted[0][0] != store or not isinstance(noted[0][1], int):
        raise FeedbackError(f"{database.name} is damaged or was changed: it is not the one of this store")
    _, rows, number, highest = noted[0]
    if not rows == number == (highest or 0):
        raise FeedbackError(f"{database.name} is damaged: it must have {rows} rows, got {number}")
    return rows


def check_bytes(connection: Connection, database: Database) -> None:
    """Check the number of bytes of all copies, which is kept beside them."""
    total = select(func.coalesce(func.sum(images.c.bytes), 0)).scalar_subquery()
    noted, counted = connection.execute(select(state.c.bytes, total)).one()
    if noted != counted:
        raise FeedbackError(f"{database.name} is damaged: copies must have {noted} bytes, got {counted}")


def now() -> str:
    """Return the time as it is recorded, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
