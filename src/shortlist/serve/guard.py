"""A middleware for every request: allowed hosts and pages, security headers, counters, one line of log."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shortlist.serve.metrics import Metrics

_LOG = logging.getLogger("shortlist.serve")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(self), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_WRONG_HOST = (421, "wrong_host", "The server is not called by this name.")
_FOREIGN = (403, "foreign_page", "A page of another site must not send this. Allow its origin with --cors.")
_DRAIN_BYTES, _DRAIN_SECONDS = 64 << 20, 2.0


class Guard:
    """A middleware around the whole application.

    Args:
        app: What it surrounds.
        metrics: Counters.
        hosts: Names by which the server may be called, without port; any if ``None``. A page of somebody else
            could otherwise reach a server on this machine through a name of its own.
        origins: Origins of other pages that may use the server; ``*`` for any.
    """

    def __init__(
        self, app: ASGIApp, *, metrics: Metrics, hosts: Collection[str] | None, origins: Collection[str]
    ) -> None:
        self._app, self._metrics, self._hosts = app, metrics, hosts
        self._origins = frozenset(origin.encode() for origin in origins)
        policy = "cross-origin" if origins else "same-origin"
        headers = {**_HEADERS, "Cross-Origin-Resource-Policy": policy}
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._headers)
        start = time.perf_counter()
        try:
            refused = self._refusal(scope)
            if refused is not None:
                status, code, message = refused
                response = JSONResponse({"error": {"code": code, "message": message}}, status_code=status)
                await response(scope, exchange.receive, exchange.send)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        finally:
            seconds = time.perf_counter() - start
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.request(route, exchange.status, seconds)
            # the log has neither the body nor the query of the address, which may hold a key
            _LOG.info("%s %s %d %.1f ms", scope["method"], route, exchange.status, 1e3 * seconds)

    def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        """Return status, code and words if a request must not reach the application."""
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").lower()
        if self._hosts is not None and _without_port(host.decode("latin-1")) not in self._hosts:
            return _WRONG_HOST
        if scope["method"] not in _READING and self._is_foreign(headers, host):
            return _FOREIGN
        return None

    def _is_foreign(self, headers: Mapping[bytes, bytes], host: bytes) -> bool:
        """Whether a page of another origin sends this; programs name no origin, and are let in.

        Browsers say it in ``Sec-Fetch-Site``, which no page can set. Old ones, and all at addresses that are
        neither encrypted nor of this machine, leave it out: then ``Origin`` must be the server's own address.
        """
        origin = headers.get(b"origin")
        if origin in self._origins or b"*" in self._origins:
            return False
        site = headers.get(b"sec-fetch-site")
        if site is not None:
            return site not in (b"same-origin", b"none")
        return origin is not None and origin.partition(b"://")[2].lower() != host


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, headers: list[tuple[bytes, bytes]]
    ) -> None:
        self._receive, self._send, self._headers = receive, send, headers
        sent = {name for name, _ in scope["headers"]}
        self._unread = b"content-length" in sent or b"transfer-encoding" in sent
        self._may_drain = b"expect" not in sent
        self.status = 500

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body"):
            self._unread = False
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._headers]
            if self._unread and self._may_drain:
                await self._drain()
        await self._send(message)

    async def _drain(self) -> None:
        """Read on for a while, and drop it: a client that still sends would miss the response."""
        size = 0
        with suppress(asyncio.TimeoutError):
            stop = time.monotonic() + _DRAIN_SECONDS
            while self._unread and size < _DRAIN_BYTES:
                message = await asyncio.wait_for(self.receive(), stop - time.monotonic())
                size += len(message.get("body", b""))


def names_of_server(host: str, hosts: Collection[str]) -> Collection[str] | None:
    """Return the names by which a server at an address may be called; any if ``None``.

    At an address of this machine alone, or if names are given, others are refused.
    """
    host = host.strip("[]")
    if not hosts and host not in LOOPBACK:
        return None
    return {host.lower(), *LOOPBACK, *(name.lower() for name in hosts)}


def _without_port(host: str) -> str:
    """Return the name in the header Host, without the port."""
    if host.startswith("["):
        return host[1:].split("]")[0]
    return host.rsplit(":", 1)[0]
