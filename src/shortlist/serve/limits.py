"""Limits of requests: sizes, numbers, rates. Each has a clear answer when it is reached."""

import asyncio
import ipaddress
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from shortlist.serve.refusals import Refusal

MAX_IMAGES = 5  # photos of one object
SHARE = 0.75  # share of a common resource that one client may take, so that some is left for others
CONNECTIONS = 8192  # open connections, silent ones too; more than answers of people that are kept at a time
HEAD_BYTES = 64 << 10  # bytes of the head of a request
SILENT_SECONDS = 15.0  # for the head of a request, and to take the rest of an answer
REPLIES = 4096  # answers of people that are worked on at a time
FEEDBACK_BYTES = 256 << 10  # of a person's answer, without photos


@dataclass(frozen=True)
class Limits:
    """Limits of a server.

    Args:
        image_bytes: Largest image, in bytes.
        request_bytes: Largest body of a request, in bytes.
        held_bytes: Bytes of the bodies of all requests together that are held at a time.
        pixels: Largest number of pixels of an image.
        request_pixels: Largest number of pixels of all images of a request.
        client_pixels: Largest number of pixels of all requests of one client that are worked on.
        decode_seconds: Time that the decoding of one image may take.
        decoders: Number of images that are decoded at a time.
        requests: Number of requests that are worked on at a time. One client may send as many bodies at once.
        queue: Number of images that wait for the network at most.
        batch: Number of images that go through the network together at most.
        wait: Seconds that the first image of a batch waits for others at most, while nothing else is done.
        body_seconds: Time that a client may take to send the body.
        batch_images: Number of objects in a request of ``/v1/identify/batch`` at most.
        rate: Requests per minute of one client, by key or address; 0 for any number.
        answer_rate: Answers, votes and observations per minute of one invited person on all devices, or of
            one client; 0 for any number.
    """

    image_bytes: int = 20 << 20
    request_bytes: int = 50 << 20
    held_bytes: int = 256 << 20
    pixels: int = 50_000_000
    request_pixels: int = 1_000_000_000
    client_pixels: int = 2_000_000_000
    decode_seconds: float = 10.0
    decoders: int = 2
    requests: int = 128
    queue: int = 256
    batch: int = 64
    wait: float = 0.010
    body_seconds: float = 30.0
    batch_images: int = 64
    rate: int = 0
    answer_rate: int = 300

    def __post_init__(self) -> None:
        most = 178_956_970  # of Pillow, which refuses larger images
        if self.pixels > most:
            raise ValueError(f"pixels must be <= {most}, got {self.pixels}")
        for name, value in vars(self).items():
            low = 0 if name in ("rate", "answer_rate", "wait") else 1 if isinstance(value, int) else 1e-3
            if value < low:
                raise ValueError(f"{name} must be >= {low:g}, got {value:g}")
        pairs = (("batch_images", "queue"), ("pixels", "request_pixels"), ("request_pixels", "client_pixels"))
        for name, bound in pairs:
            value, most = getattr(self, name), getattr(self, bound)
            if value > most:
                raise ValueError(f"{name} must be <= {bound} ({most}), got {value}")


class Pool:
    """A number of things that requests take and give back, of which each client may have a part.

    Args:
        reason: Message for a client that finds too few left.
        each: Number that one client may have.
        most: Number that all clients together may have; any if ``None``.
    """

    def __init__(self, reason: str, *, each: int, most: int | None = None) -> None:
        self.used, self._reason, self._each = 0, reason, each
        self._most = math.inf if most is None else most
        self._of_clients: Counter[str] = Counter()

    @classmethod
    def shared(cls, reason: str, most: int, *, largest: int = 1) -> "Pool":
        """Return a pool of which one client may have three quarters, and always enough for one request."""
        return cls(reason, each=max(int(SHARE * most), largest), most=most)

    def check(self, client: str, number: int = 1) -> None:
        """Refuse with 503 a client that cannot have so many more."""
        if self.used + number > self._most or self._of_clients[client] + number > self._each:
            raise busy(self._reason)

    def take(self, client: str, number: int = 1) -> None:
        """Take so many, or refuse with 503."""
        self.check(client, number)
        self.used += number
        self._of_clients[client] += number

    def give_back(self, client: str, number: int = 1) -> None:
        """Give so many back."""
        self.used -= number
        self._of_clients[client] -= number
        if not self._of_clients[client]:
            del self._of_clients[client]


class Admission:
    """The requests that are worked on, and what they hold; used from the event loop alone."""

    def __init__(self, limits: Limits) -> None:
        self.arriving = 0  # being read or decoded
        self.under_way = 0  # let in, and not yet answered
        self.bodies = Pool("too many bodies of this client are on their way", each=limits.requests)
        self.requests = Pool.shared("too many requests are being worked on", limits.requests)
        self.bytes = Pool.shared(
            "too many bytes of requests are being worked on", limits.held_bytes, largest=limits.request_bytes
        )
        images = max(int(SHARE * limits.queue), limits.batch_images)
        self.images = Pool("too many images of this client are being worked on", each=images)
        self.pixels = Pool("too many pixels of this client are being worked on", each=limits.client_pixels)

    @contextmanager
    def request(self, client: str) -> Iterator["Held"]:
        """Let a request in whose body is still to come, or refuse it with 503.

        It counts as one of the requests that are worked on when its body is there: see :meth:`Held.begin`.
        """
        self.requests.check(client)  # a body is not read to be refused afterwards
        self.arriving += 1
        self.under_way += 1
        held = Held(self, client)
        try:
            held.take(self.bodies)
            yield held
        finally:
            self.under_way -= 1
            held.release()


class Held:
    """What one request of a client holds, and whether it is still being read or decoded."""

    def __init__(self, admission: Admission, client: str) -> None:
        self.client, self.admission = client, admission
        self._taken: Counter[Pool] = Counter()
        self._arriving = True
        self._awaited: list[asyncio.Future[Any]] | None = []  # none once the client is gone

    def take(self, pool: Pool, number: int = 1) -> None:
        """Take so many until the request ends, or refuse it with 503."""
        pool.take(self.client, number)
        self._taken[pool] += number

    def begin(self) -> None:
        """Count the request among those that are worked on, or refuse it with 503: its body is there."""
        self._give_back(self.admission.bodies)
        self.take(self.admission.requests)

    def _give_back(self, pool: Pool) -> None:
        pool.give_back(self.client, self._taken.pop(pool))

    def awaits(self, futures: Sequence[asyncio.Future[Any]]) -> None:
        """Note what the client waits for."""
        if self._awaited is not None:
            self._awaited.extend(futures)

    def gone(self) -> None:
        """Give up what the client waited for: what is still in the queue is not worked on."""
        for future in self._awaited or ():
            if not future.done():
                future.set_exception(_gone())
                future.exception()  # else asyncio logs an exception that nobody retrieved
        self._awaited = None

    def check(self) -> None:
        """Refuse to go on if the client is gone."""
        if self._awaited is None:
            raise _gone()

    def arrived(self) -> None:
        """Note that nothing more is to be read or decoded: the request waits for the model, or is done."""
        self.admission.arriving -= self._arriving
        self._arriving = False

    def release(self) -> None:
        """Give everything back."""
        self.arrived()
        for pool in list(self._taken):
            self._give_back(pool)


def _gone() -> Refusal:
    return Refusal(400, "gone", "The client went away.")


def busy(reason: str) -> Refusal:
    """The refusal of a server that has too much to do."""
    return Refusal(503, "busy", f"The server is busy: {reason}. Try again.", retry_after=1)


def network_of(address: str) -> str:
    """Return whom an address belongs to: of IPv6, one client has a network of 2**64 addresses."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(parsed.ipv4_mapped or ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


class RateLimit:
    """A bucket of tokens for each client, which fills up again within a minute.

    Of very many clients, those not seen for longest are forgotten, which can only be to their favor.

    Args:
        per_minute: Size of a bucket; 0 for no limit.
        what: What is counted, for the message.
        clients: Number of clients that are remembered.
        clock: Gives the time in seconds.
    """

    def __init__(
        self,
        per_minute: int,
        *,
        what: str = "requests",
        clients: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.per_minute, self._what, self._clients, self._clock = per_minute, what, clients, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str) -> int | None:
        """Take a token, and return how many are left; ``None`` if there is no limit.

        Raises:
            Refusal: With 429, if there is none.
        """
        if not self.per_minute:
            return None
        tokens, now = self._level(client)
        allowed = tokens >= 1
        self._buckets.pop(client, None)
        self._buckets[client] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > self._clients:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = max(1, math.ceil((1 - tokens) * 60 / self.per_minute))
            raise Refusal(
                429,
                "rate_limit",
                f"Too many {self._what}: {self.per_minute} per minute are allowed. Try again in {wait} s.",
                retry_after=wait,
            )
        return int(tokens - 1)

    def left(self, client: str) -> int | None:
        """Return how many tokens are left, and take none; ``None`` if there is no limit."""
        return int(self._level(client)[0]) if self.per_minute else None

    def _level(self, client: str) -> tuple[float, float]:
        now = self._clock()
        tokens, before = self._buckets.get(client, (float(self.per_minute), now))
        return min(float(self.per_minute), tokens + (now - before) * self.per_minute / 60), now
