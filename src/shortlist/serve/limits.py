"""Limits of requests: sizes, numbers, rates. Each has a clear answer when it is reached."""

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shortlist.serve.refusals import Refusal

__all__ = ["MAX_IMAGES", "Admission", "Limits", "RateLimit"]

MAX_IMAGES = 5  # photos of one object


@dataclass(frozen=True)
class Limits:
    """Limits of a server.

    Args:
        image_bytes: Largest image, in bytes.
        request_bytes: Largest body of a request, in bytes.
        held_bytes: Bytes of the bodies of all requests together that are held at a time.
        pixels: Largest number of pixels of an image.
        decode_seconds: Time that the decoding of one image may take.
        decoders: Number of images that are decoded at a time.
        requests: Number of requests that are worked on at a time.
        queue: Number of images that wait for the network at most.
        batch: Number of images that go through the network together at most.
        wait: Seconds that the first image of a batch waits for others at most, while nothing else is done.
        body_seconds: Time that a client may take to send the body.
        batch_images: Number of objects in a request of ``/v1/identify/batch`` at most.
        rate: Requests per minute of one client, by key or address; 0 for any number.
    """

    image_bytes: int = 20 << 20
    request_bytes: int = 50 << 20
    held_bytes: int = 256 << 20
    pixels: int = 50_000_000
    decode_seconds: float = 10.0
    decoders: int = 2
    requests: int = 128
    queue: int = 256
    batch: int = 64
    wait: float = 0.010
    body_seconds: float = 30.0
    batch_images: int = 64
    rate: int = 0

    def __post_init__(self) -> None:
        most = 178_956_970  # of Pillow, which refuses larger images
        if self.pixels > most:
            raise ValueError(f"pixels must be <= {most}, got {self.pixels}")
        for name, value in vars(self).items():
            low = 0 if name in ("rate", "wait") else 1 if isinstance(value, int) else 1e-3
            if value < low:
                raise ValueError(f"{name} must be >= {low:g}, got {value:g}")
        if self.batch_images > self.queue:
            raise ValueError(f"batch_images must be <= queue ({self.queue}), got {self.batch_images}")


class Admission:
    """The requests that are worked on, and the bytes that they hold; used from the event loop alone."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.requests = self.arriving = self.held = 0

    @contextmanager
    def request(self) -> Iterator["Held"]:
        """Let a request in, or refuse it with 503."""
        if self.requests >= self.limits.requests:
            raise busy("too many requests are being worked on")
        self.requests += 1
        self.arriving += 1
        held = Held(self)
        try:
            yield held
        finally:
            self.requests -= 1
            held.release()


class Held:
    """The bytes that one request holds, and whether it is still being read or decoded."""

    def __init__(self, admission: Admission) -> None:
        self._admission, self._bytes, self._arriving = admission, 0, True
        self._awaited: list[asyncio.Future[Any]] | None = []  # none once the client is gone

    def awaits(self, futures: Sequence[asyncio.Future[Any]]) -> None:
        """Note what the client waits for."""
        if self._awaited is not None:
            self._awaited.extend(futures)

    def gone(self) -> None:
        """Give up what the client waited for: what is still in the queue is not worked on."""
        for future in self._awaited or ():
            if not future.done():
                future.set_exception(_gone())
                future.exception()  # of several nobody may look at each
        self._awaited = None

    def check(self) -> None:
        """Refuse to go on if the client is gone."""
        if self._awaited is None:
            raise _gone()

    def arrived(self) -> None:
        """Note that nothing more is to be read or decoded: the request waits for the model, or is done."""
        self._admission.arriving -= self._arriving
        self._arriving = False

    def hold(self, number: int) -> None:
        """Count more bytes, or refuse the request if all together would hold too many."""
        if self._admission.held + number > self._admission.limits.held_bytes:
            raise busy("too many bytes of other requests are being worked on")
        self._admission.held += number
        self._bytes += number

    def release(self) -> None:
        """Let all bytes go."""
        self.arrived()
        self._admission.held -= self._bytes
        self._bytes = 0


def _gone() -> Refusal:
    return Refusal(400, "gone", "The client went away.")


def busy(reason: str) -> Refusal:
    """The refusal of a server that has too much to do."""
    return Refusal(503, "busy", f"The server is busy: {reason}. Try again.", retry_after=1)


class RateLimit:
    """A bucket of tokens for each client, which fills up again within a minute.

    Of very many clients, those not seen for longest are forgotten, which can only be to their favor.
    """

    def __init__(
        self, per_minute: int, *, clients: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.per_minute, self._clients, self._clock = per_minute, clients, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> int | None:
        """Take a token, and return how many are left; ``None`` if there is no limit.

        Raises:
            Refusal: With 429, if there is none.
        """
        if not self.per_minute:
            return None
        now = self._clock()
        tokens, before = self._buckets.pop(client, (float(self.per_minute), now))
        tokens = min(float(self.per_minute), tokens + (now - before) * self.per_minute / 60)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > self._clients:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = max(1, math.ceil((1 - tokens) * 60 / self.per_minute))
            raise Refusal(
                429,
                "rate_limit",
                f"Too many requests: {self.per_minute} per minute are allowed. Try again in {wait} s.",
                retry_after=wait,
            )
        return int(tokens - 1)
