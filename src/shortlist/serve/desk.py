"""The store of people's answers for a server. Short lists never wait for it."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from shortlist.feedback import (
    FeedbackError,
    FeedbackStore,
    find_drift,
    is_address,
    is_store,
    last_answers,
    read_manifest,
)
from shortlist.serve.refusals import Refusal

_LOG = logging.getLogger("shortlist.serve")
_LAST = 5000  # events that tell about drift
_AGAIN_SECONDS = 1.0  # pause before a database that could not be opened is tried again
_DRIFT_SECONDS = 5.0  # that the card of a model waits for the store
Result = TypeVar("Result")


class FeedbackDesk:
    """The store of a server, which is opened, or made, when it is first needed.

    Args:
        location: Folder of the store, or its address ``postgresql://USER@HOST/NAME``. A thread opens a
            database: until it is open, answers are refused and lists have no receipt.
    """

    def __init__(self, location: str | Path) -> None:
        self.location = str(location) if is_address(location) else Path(location)
        self._store, self._lock = None, threading.Lock()
        self._secret: bytes | None = None
        self._opening: Future[FeedbackStore] | None = None
        self._drift: Future[list[Any]] | None = None

    def start(self) -> None:
        """Begin to open a database, so that the first list has a receipt."""
        if is_address(self.location):
            self.secret  # noqa: B018

    @property
    def store(self) -> FeedbackStore:
        """The store.

        Raises:
            Refusal: With 507 if it cannot be opened, with 503 while it is.
        """
        with self._lock:
            if self._store is None:
                try:
                    self._store = self._open() if is_address(self.location) else FeedbackStore(self.location)
                except (OSError, ValueError) as error:
                    _LOG.error("the store of feedback cannot be opened: %s", error)
                    raise Refusal(
                        507, "log_failed", "Answers cannot be kept: see the server's log."
                    ) from None
            return self._store

    def _open(self) -> FeedbackStore:
        """Open a database in a thread, one attempt at a time; refuse calls until it is open."""

        def attempt() -> FeedbackStore:
            try:
                return FeedbackStore(self.location)
            except Exception:
                time.sleep(_AGAIN_SECONDS)
                raise

        if self._opening is None:
            self._opening = aside(attempt)
        if not self._opening.done():
            words = "Answers cannot be kept yet: try again in a moment."
            raise Refusal(503, "log_opening", words, retry_after=1)
        opening, self._opening = self._opening, None
        return opening.result()

    @property
    def secret(self) -> bytes | None:
        """Secret that signs receipts; ``None`` if there is no store, since a list must not fail for its lack.

        A process that cannot write to the store reads the secret from its manifest.
        """
        if self._secret is None:
            try:
                self._secret = self.store.secret
            except Refusal:
                if not is_address(self.location):
                    with suppress(FeedbackError):
                        self._secret = bytes.fromhex(read_manifest(self.location)["secret"])
        return self._secret

    def drift(self, model: str) -> dict[str, Any] | None:
        """Return what the last answers say about a model; ``None`` if there are none, or it is slow."""
        if self._drift is None:
            self._drift = aside(self._find_drift)
        try:
            by_model = {drift.model: drift for drift in self._drift.result(_DRIFT_SECONDS)}
        except TimeoutError:
            return None
        except (OSError, ValueError) as error:
            _LOG.error("drift cannot be looked for: %s", error)
            by_model = {}
        self._drift = None
        if model not in by_model:
            return None
        drift = by_model[model]
        names = ("lists", "audited", "coverage", "low", "high", "promised", "is_below", "has_shifted")
        return {"words": drift.words(), **{name: getattr(drift, name) for name in names}}

    def _find_drift(self) -> list[Any]:
        return find_drift(last_answers(self.location, _LAST)) if is_store(self.location) else []

    def close(self) -> None:
        """Write what waits, and close the store."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None


def aside(action: Callable[[], Result]) -> "Future[Result]":
    """Call a function in a daemon thread, which does not delay the end of the process."""
    future: Future[Result] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
