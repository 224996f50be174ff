"""The store of people's answers, as a server uses it."""

import logging
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from shortlist.feedback import FeedbackError, FeedbackStore, find_drift, is_store, last_answers, read_manifest
from shortlist.serve.refusals import Refusal

_LOG = logging.getLogger("shortlist.serve")
_LAST = 5000  # events that tell about drift


class FeedbackDesk:
    """The store of a server, which is opened, or made, when it is first needed.

    Args:
        folder: Folder of the store.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder, self._store, self._lock = Path(folder), None, threading.Lock()
        self._secret: bytes | None = None

    @property
    def store(self) -> FeedbackStore:
        """The store.

        Raises:
            Refusal: With 507, if it cannot be opened.
        """
        with self._lock:
            if self._store is None:
                try:
                    self._store = FeedbackStore(self.folder)
                except (OSError, ValueError) as error:
                    _LOG.error("the store of feedback cannot be opened: %s", error)
                    raise Refusal(
                        507, "log_failed", "Answers cannot be kept: see the server's log."
                    ) from None
            return self._store

    @property
    def secret(self) -> bytes | None:
        """What signs receipts, or ``None`` if there is no store: a list never fails because of the store.

        A process that cannot write to the store reads there what signs.
        """
        if self._secret is None:
            try:
                self._secret = self.store.secret
            except Refusal:
                with suppress(FeedbackError):
                    self._secret = bytes.fromhex(read_manifest(self.folder)["secret"])
        return self._secret

    def drift(self, model: str) -> dict[str, Any] | None:
        """Say what the last answers tell about a model; nothing if there are none."""
        if not is_store(self.folder):
            return None
        try:
            by_model = {drift.model: drift for drift in find_drift(last_answers(self.folder, _LAST))}
        except (OSError, ValueError) as error:
            _LOG.error("drift cannot be looked for: %s", error)
            return None
        if model not in by_model:
            return None
        drift = by_model[model]
        names = ("lists", "audited", "coverage", "low", "high", "promised", "is_below", "has_shifted")
        return {"words": drift.words(), **{name: getattr(drift, name) for name in names}}

    def close(self) -> None:
        """Write what waits, and close the store."""
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = None
