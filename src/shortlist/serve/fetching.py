"""Fetch photos from addresses that strangers send: of listed hosts alone, never from a private network."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address
from socket import SOCK_STREAM
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import h11

from shortlist.serve.forms import Upload, in_time
from shortlist.serve.limits import Held, Limits
from shortlist.serve.refusals import Refusal

_PORTS = {"http": 80, "https": 443}
_NAT64 = IPv6Network("64:ff9b::/96")  # addresses that hold another one
_PIECE = 1 << 16


class _Place(NamedTuple):
    """Where a photo is."""

    host: str
    port: int
    secure: bool
    authority: str  # host and port as they are written
    target: str  # the rest of the address


class Fetcher:
    """Fetches photos by HTTP.

    A name is resolved once, and the connection is made to the address that was checked. Redirects are not
    followed.

    Args:
        hosts: Names of hosts, at the port of their scheme, or names with a port. A private address can be
            listed only as such (``127.0.0.1``): a name that leads to one is refused.
        limits: Limits of the bytes of a photo and a request, and of the time for all photos of a request.

    Raises:
        ValueError: If one of the hosts is no name.
    """

    def __init__(self, hosts: Collection[str], limits: Limits) -> None:
        self._hosts, self._limits = {_listed(host) for host in hosts}, limits

    async def photos(self, addresses: Sequence[str], held: Held) -> list[Upload]:
        """Return the photos at some addresses, which are their names.

        Raises:
            Refusal: With 400 if a photo may not or cannot be fetched, 413 if it is too large.
        """
        if not self._hosts:
            raise Refusal(400, "no_addresses", "This server fetches no photos: send them by POST.")
        places = [self._place(address) for address in addresses]
        try:
            contents = await in_time(self._contents(places, held), self._limits.body_seconds)
        except TimeoutError:
            raise _failed(f"it took over {self._limits.body_seconds:g} s") from None
        held.begin()
        return [Upload(address, content) for address, content in zip(addresses, contents, strict=True)]

    def _place(self, address: str) -> _Place:
        try:
            parts = urlsplit(address)
            host, port = (parts.hostname or "").lower(), parts.port or _PORTS[parts.scheme]
        except (KeyError, ValueError):
            raise _failed("its address is not of the form http://host/path") from None
        listed = {(host, port), (host, None if port == _PORTS[parts.scheme] else port)} & self._hosts
        if not listed or parts.username is not None:
            raise _failed("this server may not ask its host")
        rest = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        secure = parts.scheme == "https"
        return _Place(host, port, secure, parts.netloc, quote(rest, safe="/?%:@!$&'()*+,;=~[]"))

    async def _contents(self, places: Sequence[_Place], held: Held) -> list[bytes]:
        contents, left = [], self._limits.request_bytes
        for place in places:
            pieces, most = [], min(left, self._limits.image_bytes)
            try:
                async with aclosing(_pieces(place)) as body:
                    async for piece in body:
                        held.take(held.admission.bytes, len(piece))
                        pieces.append(piece)
                        most -= len(piece)
                        if most < 0:
                            raise Refusal(413, "image_too_large", "A photo has more bytes than are allowed.")
            except (OSError, h11.ProtocolError):
                raise _failed("its host did not send it") from None
            contents.append(b"".join(pieces))
            left -= len(contents[-1])
        return contents


async def _pieces(place: _Place) -> AsyncGenerator[bytes, None]:
    """Give the body at a place, piece by piece."""
    reader, writer = await _connected(place)
    try:
        client = h11.Connection(h11.CLIENT)
        headers = [("Host", place.authority), ("Accept", "image/*"), ("Connection", "close")]
        request = h11.Request(method="GET", target=place.target, headers=headers)
        writer.write((client.send(request) or b"") + (client.send(h11.EndOfMessage()) or b""))
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                client.receive_data(await reader.read(_PIECE))
            elif isinstance(event, h11.Response) and event.status_code != 200:
                raise _failed(f"its host answered with the status {event.status_code}")
            elif isinstance(event, h11.Data):
                yield bytes(event.data)
    finally:
        writer.transport.abort()


async def _connected(place: _Place) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the address that was checked: a name that is resolved again may lead elsewhere."""
    resolved = await asyncio.get_running_loop().getaddrinfo(place.host, place.port, type=SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in resolved]
    if place.host not in addresses and not all(map(_is_public, addresses)):
        raise _failed("its host is in a private network")
    secure = {"ssl": _trusted(), "server_hostname": place.host} if place.secure else {}
    return await asyncio.open_connection(addresses[0], place.port, **secure)


@lru_cache(maxsize=1)
def _trusted() -> ssl.SSLContext:
    return ssl.create_default_context()


def _is_public(text: str) -> bool:
    address = ip_address(text)
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped or address.sixtofour or address.teredo or address in _NAT64:
            return False
    return address.is_global and not address.is_multicast


def _listed(host: str) -> tuple[str, int | None]:
    words = f"allow_urls must be names of hosts, perhaps with a port, got {host!r}"
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(words) from None
    if not name or parts.netloc != host or parts.username is not None:
        raise ValueError(words)
    return name, port


def _failed(why: str) -> Refusal:
    return Refusal(400, "not_fetched", f"A photo could not be fetched: {why}.")
