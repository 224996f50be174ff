"""Bytes of a stranger that a decoder may read only for some time."""

import io
import time


class TimedBytes(io.BytesIO):
    """Bytes that end with an error when the time is over; decoders come back for more every 64 kB or so."""

    def __init__(self, content: bytes, seconds: float) -> None:
        super().__init__(content)
        self._stop = time.monotonic() + seconds

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes.

        Raises:
            TimeoutError: If the time is over.
        """
        if time.monotonic() > self._stop:
            raise TimeoutError
        return super().read(size)
