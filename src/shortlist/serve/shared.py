"""What the processes of one server share: the store of people's answers.

The parent writes the answers: a store has one writer. The others ask it over a socket of this machine that
only processes with the parent's key can use.
"""

import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

from shortlist.feedback import Erased, Event, FeedbackError, FeedbackStore, Kept

_AT_ONCE = 8  # answers of one process that are on their way to the parent; they are committed together


class Shared:
    """What the parent keeps.

    Args:
        folder: Folder of the store, which is opened, or made, when it is first needed.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder, self._store, self._lock = Path(folder), None, threading.Lock()

    def start(self) -> str:
        """Let other processes ask, and return the address for them: a socket in a folder of its own."""

        class Manager(BaseManager):
            """Gives this object, and no other, to those who have the key of this process: its children."""

        Manager.register("shared", callable=lambda: self)
        server = Manager().get_server()
        threading.Thread(target=server.serve_forever, name="shared", daemon=True).start()
        assert isinstance(server.address, str)  # a path, where there are sockets of one machine
        return server.address

    def _opened(self) -> FeedbackStore:
        with self._lock:
            if self._store is None:
                self._store = FeedbackStore(self._folder)
            return self._store

    def secret(self) -> bytes:
        """Return what signs receipts; the store is there from now on."""
        return self._opened().secret

    def add(self, event: Event, copies: Sequence[bytes]) -> Kept:
        """Record an event, and return when it is on disk."""
        return self._opened().add(event, copies)

    def erase_person(self, person: str) -> Erased:
        """Delete all that is known of a person."""
        return self._opened().erase_person(person)

    def erase_image(self, image: str) -> Erased:
        """Delete all that is known of a photo."""
        return self._opened().erase_image(image)

    def close(self) -> None:
        """Write what waits, and close the store; when all other processes have ended."""
        with self._lock:
            if self._store is not None:
                self._store.close()


def folder_of(address: str) -> Path:
    """Return the folder of what processes share: the socket, and files with their counters."""
    return Path(address).parent


def remove_address(address: str) -> None:
    """Remove the socket of a parent that was killed, with its folder; others may do the same."""
    shutil.rmtree(folder_of(address), ignore_errors=True)


class _Manager(BaseManager):
    """Knows what to ask for."""


_Manager.register("shared")


class _Asking:
    """A way to the parent, for any thread."""

    def __init__(self, address: str) -> None:
        manager: Any = _Manager(address)
        with _named_end():
            manager.connect()
            self._shared = manager.shared()

    def __call__(self, name: str, *arguments: Any) -> Any:
        with _named_end():
            return getattr(self._shared, name)(*arguments)


@contextmanager
def _named_end() -> Iterator[None]:
    """Say what it means that the parent does not answer any more."""
    try:
        yield
    except EOFError:
        raise FeedbackError("the process that writes people's answers is gone") from None


class SharedStore:
    """The store of the parent, as one of the other processes uses it; see ``FeedbackStore``.

    Args:
        folder: Folder of the store, which others can read.
        address: Address of the parent.
    """

    def __init__(self, folder: str | Path, address: str) -> None:
        self.folder, self._ask = Path(folder), _Asking(address)
        self.secret: bytes = self._ask("secret")
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="feedback")

    def submit(self, event: Event, copies: Sequence[bytes] = ()) -> "Future[Kept]":
        """Record an event; the future is done when it is on disk."""
        return self._pool.submit(self._ask, "add", event, list(copies))

    def erase_person(self, person: str) -> Erased:
        """Delete all that is known of a person."""
        return self._ask("erase_person", person)

    def erase_image(self, image: str) -> Erased:
        """Delete all that is known of a photo."""
        return self._ask("erase_image", image)

    def close(self) -> None:
        """Wait for what is on its way."""
        self._pool.shutdown()
