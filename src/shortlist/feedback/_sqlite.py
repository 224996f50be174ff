"""A store in a folder: SQLite in WAL mode, and files of copies, for all processes of one machine.

What is deleted is overwritten where it is, and indexes of names are made anew: SQLite leaves remains on pages
whose rows it moves, which it does when rows are removed, also with ``secure_delete``.
"""

import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from shortlist._store.files import check_regular, lock_folder, replacing_folder, sweep
from shortlist._store.manifest import read_sealed, write_sealed
from shortlist.feedback._copies import Copies
from shortlist.feedback._database import FORMAT, Database, FeedbackError
from shortlist.feedback._tables import TABLES, state, to_remove

NAME = "events.sqlite"
MANIFEST = "feedback.json"
RESERVE = "reserve"  # a file that takes room on the disk, which a deletion may need
_RESERVE_BYTES = 2 << 20
_OPEN_SECONDS = 60.0  # that others may take to open the store


class FolderDatabase(Database):
    """The database of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), str(folder / NAME))
        self.folder = folder

    def manifest(self) -> dict[str, Any]:
        """Read ``feedback.json``."""
        path = self.folder / MANIFEST
        if not path.exists():
            raise FeedbackError(f"{self.folder} is no store of feedback: {path} is missing")
        try:
            return read_sealed(path, FORMAT, "keep it, and choose another folder for new answers")
        except (OSError, ValueError) as error:
            raise FeedbackError(str(error)) from error

    def exists(self) -> bool:
        """Whether the folder has one of the files of a store."""
        return any((self.folder / name).exists() for name in (MANIFEST, NAME))

    def create(self) -> None:
        """Make a store that only its owner can look into."""
        sweep(self.folder.parent)
        if (self.folder / MANIFEST).exists():
            return
        if self.exists():
            raise FeedbackError(f"{self.folder / MANIFEST} is missing: the store is damaged")
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise FeedbackError(f"{self.folder} exists and is no store of feedback: choose another name")
        content = {"format": FORMAT, "store": secrets.token_hex(8), "secret": secrets.token_hex(32)}
        try:
            with replacing_folder(self.folder) as temporary:
                temporary.chmod(0o700)
                FolderDatabase(temporary)._make_tables(content)
                write_sealed(temporary / MANIFEST, content)
        except FileExistsError:  # another process was faster
            pass

    def _make_tables(self, content: dict[str, Any]) -> None:
        engine = self._engine(mode="rwc", poolclass=NullPool)
        with self.errors(), engine.connect() as connection:
            self._begin(connection, alone=True)
            state.metadata.create_all(connection, tables=[*TABLES, to_remove])
            connection.execute(state.insert().values(**content, rows=0, bytes=0))
            connection.commit()

    def copies(self) -> Copies:
        """Return the files of copies."""
        return Copies(self.folder)

    def size(self, connection: Connection) -> int:
        """Return the bytes of all pages."""
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        return pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one()

    def _engine(self, mode: str = "rw", **pool: Any) -> Engine:
        path = self.folder / NAME

        def connect() -> sqlite3.Connection:
            if mode == "rw":
                check_regular(path)
            uri = f"{path.absolute().as_uri()}?mode={mode}"
            opened = sqlite3.connect(uri, uri=True, timeout=30, isolation_level=None)
            for setting in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                opened.execute(f"PRAGMA {setting}")
            return opened

        return create_engine("sqlite://", creator=connect, **pool)

    def _begin(self, connection: Connection, *, alone: bool) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if alone else "BEGIN")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Name the database in errors, also if it is missing."""
        if self.folder.exists() and not (self.folder / NAME).exists() and self.exists():
            raise FeedbackError(f"{self.name} is missing")
        try:
            with super().errors():
                yield
        except sqlite3.Warning as error:
            raise FeedbackError(f"{self.name} cannot be used: {error}") from error

    def check_pages(self) -> None:
        """Let SQLite look at its own pages and indexes."""
        with self.reading() as connection:
            words = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one()
        if words != "ok":
            raise FeedbackError(f"{self.name} is damaged: {words}")

    def has_old_pages(self, seconds: float) -> bool:
        """Empty the log of the database, which may hold what was deleted; return whether it could not be."""
        with self.writes.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA busy_timeout = {1000 * seconds:.0f}")
            try:
                return bool(connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0])
            except SQLAlchemyError:
                return True
            finally:
                connection.exec_driver_sql("PRAGMA busy_timeout = 30000")

    def rebuild(self, connection: Connection, indexes: Sequence[str]) -> None:
        """Write the indexes to new pages."""
        for index in indexes:
            connection.exec_driver_sql(f"REINDEX {index}")

    def reserve(self) -> None:
        """Fill a file."""
        path = self.folder / RESERVE
        if not path.exists():
            try:
                with path.open("xb") as file:  # which follows no link
                    file.write(bytes(_RESERVE_BYTES))
            except OSError:
                path.unlink(missing_ok=True)

    def release(self, error: Exception) -> bool:
        """Remove the file."""
        if not isinstance(error, OperationalError) or "full" not in str(error.orig):
            return False
        (self.folder / RESERVE).unlink(missing_ok=True)
        return True

    def alone(self) -> AbstractContextManager[None]:
        """Lock the folder."""
        in_use = FeedbackError(f"{self.folder} is in use: another process is opening it")
        return lock_folder(self.folder, in_use, wait=_OPEN_SECONDS)
