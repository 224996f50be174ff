"""A store in PostgreSQL, for servers on several hosts: copies of photos are rows too.

The tables are in a schema of their own. Writers take turns by a lock of the row in ``state``, which ends with
their connection. A deletion empties rows as in a folder; what PostgreSQL keeps of old rows goes when it
vacuums, and its own log and backups are its owner's.
"""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, delete, func, inspect, make_url, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import ArgumentError
from sqlalchemy.schema import CreateSchema

from shortlist._store.files import replacing
from shortlist.feedback._copies import PhotoCopies, Taken
from shortlist.feedback._database import FORMAT, Database, FeedbackError
from shortlist.feedback._tables import TABLES, copies, state

_SCHEMA = "shortlist"
_LOCK = 0x5C0871157  # any number that others do not take: who makes the tables is alone
# a host that vanishes in its turn must not stop the others, nor a database that vanishes its hosts
_SETTINGS = {
    "search_path": _SCHEMA,
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "30s",
    "tcp_keepalives_idle": 10,
    "tcp_keepalives_interval": 5,
    "tcp_keepalives_count": 3,
}
_CONNECTION = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    "application_name": "shortlist",
}


class PostgresDatabase(Database):
    """The database of an address, such as ``postgresql://user@host/name``.

    Raises:
        FeedbackError: If it is no address.
    """

    patience = 30.0

    def __init__(self, address: str) -> None:
        try:
            self._url = make_url(address).set(drivername="postgresql+psycopg")
        except ArgumentError:
            raise FeedbackError("the address of the store must be postgresql://USER@HOST/NAME") from None
        name = self._url.set(drivername="postgresql").render_as_string(hide_password=True)
        super().__init__(name, name)

    def manifest(self) -> dict[str, Any]:
        """Read the row of ``state``."""
        with self.reading() as connection:
            if not inspect(connection).has_table(state.name):
                raise FeedbackError(f"{self.name} is no store of feedback: it has no tables of one")
            noted = connection.execute(select(state.c.format, state.c.store, state.c.secret)).fetchall()
        if len(noted) != 1:
            raise FeedbackError(f"{self.name} is damaged: state must have one row, got {len(noted)}")
        if noted[0].format != FORMAT:
            version = f"its format is {noted[0].format!r}, not {FORMAT!r}"
            raise FeedbackError(
                f"{self.name} was written by another version: {version}: take another database"
            )
        return dict(noted[0]._mapping)

    def exists(self) -> bool:
        """Whether the tables are there."""
        with self.reading() as connection:
            return inspect(connection).has_table(state.name)

    def create(self) -> None:
        """Make the tables."""
        if self.exists():
            return
        with self.errors(), self._reads.begin() as connection:
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
            if inspect(connection).has_table(state.name):  # another process was faster
                return
            connection.execute(CreateSchema(_SCHEMA, if_not_exists=True))
            state.metadata.create_all(connection, tables=[*TABLES, copies])
            content = {"format": FORMAT, "store": secrets.token_hex(8), "secret": secrets.token_hex(32)}
            connection.execute(state.insert().values(**content, rows=0, bytes=0))

    def copies(self) -> "CopyRows":
        """Return the rows of copies."""
        return CopyRows(self)

    def size(self, connection: Connection) -> int:
        """Return the bytes of all tables but that of copies, whose bytes are counted."""
        sizes = [func.pg_total_relation_size(f"{_SCHEMA}.{table.name}") for table in TABLES]
        return sum(connection.execute(select(*sizes)).one())

    def _engine(self, **pool: Any) -> Engine:
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        options = _CONNECTION | {"options": settings}
        defaults = {name: value for name, value in options.items() if name not in self._url.query}
        return create_engine(self._url, connect_args=defaults, hide_parameters=True, **pool)

    def _begin(self, connection: Connection, *, alone: bool) -> None:
        if alone:
            connection.execute(select(state.c.rows).with_for_update())
        else:
            connection.execution_options(isolation_level="REPEATABLE READ")


class CopyRows(PhotoCopies):
    """The copies of a store in PostgreSQL: what is taken is in memory until its event is recorded.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(self, image: str, content: bytes) -> Taken:
        """Take the copy of an image."""
        return Taken(image, hashlib.sha256(content).hexdigest(), len(content), content)

    def record(self, connection: Connection, taken: Sequence[Taken]) -> None:
        """Write copies that are not there."""
        rows = [{"image": copy.image, "content": copy.place} for copy in taken]
        if rows:
            connection.execute(insert(copies).on_conflict_do_nothing(), rows)

    def remove(self, connection: Connection, images: Sequence[str]) -> None:
        """Delete rows."""
        for image in images:
            connection.execute(delete(copies).where(copies.c.image == image))

    def read(self, image: str) -> bytes | None:
        """Return the copy of an image, if there is one."""
        with self._database.reading() as connection:
            return connection.execute(select(copies.c.content).where(copies.c.image == image)).scalar()

    def file(self, image: str, folder: Path) -> Path | None:
        """Write the copy of an image to a folder, unless it is there."""
        path = folder / image[:2] / image
        if not path.is_file():
            if (content := self.read(image)) is None:
                return None
            with replacing(path) as temporary:
                temporary.write_bytes(content)
        return path.resolve()

    def each(self) -> Iterator[tuple[str, str, str]]:
        """Give place, image and SHA-256 of each row."""
        with self._database.reading() as connection:
            names = connection.scalars(select(copies.c.image).order_by(copies.c.image)).all()
        for image in names:
            if (content := self.read(image)) is not None:  # not deleted meanwhile
                yield self.name(image), image, hashlib.sha256(content).hexdigest()

    def name(self, image: str) -> str:
        """Return table and key."""
        return f"copies/{image}"
