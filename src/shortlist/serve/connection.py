"""Limits for slow or silent clients, which the web server lacks."""

import asyncio
import json
from collections import Counter
from typing import Any

from shortlist.serve.limits import CONNECTIONS, HEAD_BYTES, SHARE, SILENT_SECONDS, network_of

GONE = "shortlist.gone"  # in the scope of a request: a function to be called when the client goes away
_HEAD_END = b"\r\n\r\n"
_ANSWER = "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}"
_TOO_LARGE = f"The address and the headers of a request must have at most {HEAD_BYTES:,} bytes."
_TOO_SLOW = f"The head of a request must be there in {SILENT_SECONDS:g} s."


def connection_class() -> type[asyncio.Protocol]:
    """Return the protocol of uvicorn, the faster one if it is installed, with more bounds."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Base
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol as Base

    return type("Connection", (_Bounds, Base), {"of_clients": Counter()})


class _Bounds(asyncio.Protocol):
    """A connection of one client, before the protocol of uvicorn in the order of classes.

    The head of a request must be there in time and must not be too large. A client that does not take its
    answer is cut off. Work for a client that went away is dropped. One client may have three quarters of all
    connections.
    """

    # of uvicorn's protocol
    transport: Any
    cycle: Any
    loop: Any

    of_clients: Counter[str]  # connections by address, of all that are open
    _head_bytes, _tail = 0, b""  # of the head that is coming
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._client = network_of(peer[0]) if isinstance(peer, tuple) else ""
        self.of_clients[self._client] += 1
        if self.of_clients[self._client] > SHARE * CONNECTIONS:
            self._refuse("503 Service Unavailable", "busy", "This client has too many connections open.")
        else:
            self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        if not self._is_answering():
            start = self._head_bytes - len(self._tail)
            end = (self._tail + data).find(_HEAD_END)
            self._tail = (self._tail + data)[-len(_HEAD_END) + 1 :]
            self._head_bytes += len(data)
            if (self._head_bytes if end < 0 else start + end + len(_HEAD_END)) > HEAD_BYTES:
                self._refuse("431 Request Header Fields Too Large", "too_large", _TOO_LARGE)
                return
        super().data_received(data)
        if self._is_answering():  # a head is there
            self._head_bytes, self._tail = 0, b""
            self._stop_waiting()
        elif self._head_timer is None and not self.transport.is_closing():
            self._wait_for_head()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.of_clients[self._client] -= 1
        if not self.of_clients[self._client]:
            del self.of_clients[self._client]
        if self._is_answering():
            self.cycle.scope.get(GONE, lambda: None)()
        super().connection_lost(exc)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()  # type: ignore[misc]
        # a client that has not read its answer by then is cut off
        self.loop.call_later(SILENT_SECONDS, self.transport.abort)

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(
            SILENT_SECONDS, self._refuse, "408 Request Timeout", "too_slow", _TOO_SLOW
        )

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: str, code: str, message: str) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            body = json.dumps({"error": {"code": code, "message": message}})
            self.transport.write(_ANSWER.format(status, len(body), body).encode())
            self.transport.close()
