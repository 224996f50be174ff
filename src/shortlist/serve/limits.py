"""Limits of requests: sizes, numbers, rates. A request beyond a limit gets an error that names the limit."""

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
SHARE = 0.75  # largest share of a common resource for one client
CONNECTIONS = 8192  # open connections, including silent ones; more than REPLIES
HEAD_BYTES = 64 << 10  # largest head of a request
SILENT_SECONDS = 15.0  # time for a client to send the head of a request, or to read the rest of a response
REPLIES = 4096  # people's answers that are worked on at a time
FEEDBACK_BYTES = 256 << 10  # largest answer of a person, without photos


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
        requests: Number of requests that are worked on at a time, and of bodies that one client may send at
            a time.
        queue: Number of images that wait for the network at most.
        batch: Number of images that go through the network together at most.
        wait: Seconds that the first image of a batch waits for others at most, while the model is idle.
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
    """A limited resource, such as bytes in memory, that requests take and give back.

    Args:
        reason: Message for a client that asks for more than there is.
        each: Amount that one client may have.
        most: Amount that all clients together may have; any if ``None``.
    """

    def __init__(self, reason: str, *, each: int, most: int | None = None) -> None:
        self.used, self._reason, self._each = 0, reason, each
        self._most = math.inf if most is None else most
        self._of_clients: Counter[str] = Counter()

    @classmethod
    def shared(cls, reason: str, most: int, *, largest: int = 1) -> "Pool":
        """Return a pool of which one client may have three quarters, but at least ``largest``."""
        return cls(reason, each=max(int(SHARE * most), largest), most=most)

    def check(self, client: str, number: int = 1) -> None:
        """Refuse a client with 503 if it cannot have this amount more."""
        if self.used + number > self._most or self._of_clients[client] + number > self._each:
            raise busy(self._reason)

    def take(self, client: str, number: int = 1) -> None:
        """Take an amount, or refuse with 503."""
        self.check(client, number)
        self.used += number
        self._of_clients[client] += number

    def give_back(self, client: str, number: int = 1) -> None:
        """Give an amount back."""
        self.used -= number
        self._of_clients[client] -= number
        if not self._of_clients[client]:
            del self._of_clients[client]


class Admission:
    """The counts of requests and of what they hold. Only the event loop uses it."""

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
        """Let a request in before its body is read, or refuse it with 503.

        The request is counted in ``requests`` once its body is there: see :meth:`Held.begin`.
        """
        self.requests.check(client)  # refuse now, not after the body is read
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
        self._awaited: list[asyncio.Future[Any]] | None = []  # None once the client is gone

    def take(self, pool: Pool, number: int = 1) -> None:
        """Take an amount from a pool until the request ends, or refuse the request with 503."""
        pool.take(self.client, number)
        self._taken[pool] += number

    def begin(self) -> None:
        """Count the request, whose body is there, as worked on, or refuse it with 503."""
        self._give_back(self.admission.bodies)
        self.take(self.admission.requests)

    def _give_back(self, pool: Pool) -> None:
        pool.give_back(self.client, self._taken.pop(pool))

    def awaits(self, futures: Sequence[asyncio.Future[Any]]) -> None:
        """Remember the futures that the client waits for, so that :meth:`gone` can end them."""
        if self._awaited is not None:
            self._awaited.extend(futures)

    def gone(self) -> None:
        """End the futures that the client waited for, so that no work is done for them."""
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
        """Note that the request is read and decoded: it waits for the model, or has ended."""
        self.admission.arriving -= int(self._arriving)  # only once
        self._arriving = False

    def release(self) -> None:
        """Give everything back."""
        self.arrived()
        for pool in list(self._taken):
            self._give_back(pool)


def _gone() -> Refusal:
    return Refusal(400, "gone", "The client went away.")


def busy(reason: str) -> Refusal:
    """Return the refusal of a busy server."""
    return Refusal(503, "busy", f"The server is busy: {reason}. Try again.", retry_after=1)


def network_of(address: str) -> str:
    """Return the client of an address: an IPv4 address, or the /64 network of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(parsed.ipv4_mapped or ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


class RateLimit:
    """A limit of requests per minute for each client: a bucket of tokens that fills up again in a minute.

    If there are more than ``clients``, those seen least recently are forgotten: they get a full bucket.

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
