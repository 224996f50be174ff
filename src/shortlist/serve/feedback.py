"""A local log of what people say about lists, one line of JSON each, on disk before it is acknowledged."""

import json
import os
import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from shortlist.serve.refusals import Refusal

__all__ = ["FeedbackLog"]

MAX_BYTES = 64 << 20


class FeedbackLog:
    """A file that lines are appended to, each forced to disk; full at 64 MB.

    Args:
        path: File, which is made when the first line is written.
        max_bytes: Size at which nothing more is taken.
    """

    def __init__(self, path: str | Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path, self._max_bytes, self._lock = Path(path), max_bytes, threading.Lock()

    def append(self, event: Mapping[str, Any]) -> None:
        """Append an event with the time of it.

        Raises:
            Refusal: With 507, if the log is full or cannot be written.
        """
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        line = (json.dumps({"time": now, **event}, ensure_ascii=True, allow_nan=False) + "\n").encode()
        try:
            with self._lock, self.path.open("ab") as file:
                if file.tell() + len(line) > self._max_bytes:
                    raise Refusal(507, "log_full", "The log of answers is full: nothing was kept.")
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            raise Refusal(
                507, "log_failed", "The answer could not be kept: the log cannot be written."
            ) from None
