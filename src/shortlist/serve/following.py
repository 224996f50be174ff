"""An application that follows a pointer: when another model is released, it answers from then on.

Requests that were begun are finished by the model that began them. If the new model cannot be loaded, the old
one goes on.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from shortlist._messages import one_line
from shortlist.serve.service import Service

_LOG = logging.getLogger("shortlist.serve")


class Served(NamedTuple):
    """A service, and the application around it."""

    service: Service
    app: ASGIApp


class _Entry:
    """What is served, and how many requests it works on."""

    def __init__(self, version: str, served: Served) -> None:
        self.version, self.served, self.under_way = version, served, 0


class Following:
    """An application that passes requests to the application of the current release.

    Args:
        version: Function that returns the version of the current release.
        make: Function that makes its application; called in a thread, while the old one goes on.
        close: Function that is called at the end, such as to close what the releases share.
        every: Seconds between two calls of ``version``.
    """

    def __init__(
        self,
        version: Callable[[], str],
        make: Callable[[], Served],
        *,
        close: Callable[[], None] = lambda: None,
        every: float = 1.0,
    ) -> None:
        self._version, self._make, self._close, self._every = version, make, close, every
        self._current = _Entry(version(), make())

    @property
    def served(self) -> Served:
        """What is served now."""
        return self._current.served

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the start and the end of the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        entry = self._current
        entry.under_way += 1
        try:
            await entry.served.app(scope, receive, send)
        finally:
            entry.under_way -= 1
            if entry is not self._current and not entry.under_way:
                await asyncio.to_thread(entry.served.service.close)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._current.served.service.start()
        watching = asyncio.create_task(self._watch())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        self._current.served.service.close()
        self._close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _watch(self) -> None:
        refused, said = "", ""
        while True:
            await asyncio.sleep(self._every)
            try:
                version = await asyncio.to_thread(self._version)
                if version not in (self._current.version, refused):
                    refused = version
                    await self._change(version)
                said = ""
            except Exception as error:  # the next release may be whole again, whatever is wrong with this one
                if str(error) != said:  # once, and not each second
                    said = str(error)
                    _LOG.error("the release cannot be served, the one before goes on: %s", one_line(error))

    async def _change(self, version: str) -> None:
        served = await asyncio.to_thread(self._make)
        served.service.start()
        before, self._current = self._current, _Entry(version, served)
        _LOG.info("release %s is served", version)
        if not before.under_way:
            await asyncio.to_thread(before.served.service.close)
