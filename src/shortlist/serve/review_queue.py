"""The queue of observations to review. It is in memory, and a thread makes it again from time to time."""

import logging
import threading
import time
from collections.abc import Collection

from shortlist.feedback import Waiting, is_store, waiting_observations
from shortlist.serve.desk import FeedbackDesk

_LOG = logging.getLogger("shortlist.serve")
_MOST = 20_000  # observations that are kept in memory, the most informative ones
_REST = 10.0  # pause before the next making, in durations of the last making
_QUICK = 1.0  # seconds: a queue that is made faster is made at once for somebody who finds nothing in it
_PATIENCE = 20.0  # seconds that somebody who finds nothing waits for the new queue


class ReviewQueue:
    """The observations that wait for votes, the most informative first.

    The order is as of the time when the queue was made. Later votes and deletions are looked up when an
    observation is given to somebody.

    Args:
        desk: The store.
    """

    def __init__(self, desk: FeedbackDesk) -> None:
        self._desk, self._lock = desk, threading.Lock()
        self._waiting: list[Waiting] = []
        self._by_item: dict[str, Waiting] = {}
        self.number = 0
        self._made_at, self._seconds, self._is_old = -1e9, 0.0, True
        self._making: threading.Thread | None = None

    def find(self, person: str, left_out: Collection[str]) -> str | None:
        """Return the first observation about which a person has said nothing yet."""
        self._renew()
        for waiting in self._waiting:
            if person not in waiting.people and waiting.item not in left_out:
                return waiting.item
        return None

    def changed(self) -> None:
        """Note that something was recorded since the queue was made."""
        self._is_old = True

    def said(self, person: str, item: str) -> None:
        """Note that a person has said something about an observation."""
        if item in self._by_item:
            self._by_item[item].people.add(person)
        self._is_old = True

    def wait(self) -> bool:
        """Wait until the queue is made anew, if it may have more by then; return whether it was."""
        quick = self._is_old and self._seconds < _QUICK
        making = self._renew(now=quick)
        if making is None:
            return False
        making.join(_PATIENCE)
        return not making.is_alive()

    def _renew(self, *, now: bool = False) -> threading.Thread | None:
        """Begin to make the queue anew, if that is due; return the thread that does it."""
        with self._lock:
            if self._making is not None and self._making.is_alive():
                return self._making
            if not now and time.monotonic() < self._made_at + max(1.0, _REST * self._seconds):
                return None
            self._is_old = False  # what is recorded from now on may be missed
            self._making = threading.Thread(target=self._make, name="review", daemon=True)
            self._making.start()
            return self._making

    def _make(self) -> None:
        start = time.monotonic()
        try:
            if is_store(self._desk.location):
                waiting, self.number = waiting_observations(self._desk.location, most=_MOST)
                self._by_item = {entry.item: entry for entry in waiting}
                self._waiting = waiting
        except (OSError, ValueError) as error:
            _LOG.error("the queue of reviews cannot be made: %s", error)
        self._made_at = time.monotonic()
        self._seconds = self._made_at - start
