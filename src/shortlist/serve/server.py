"""Run the server: one process, one thread for HTTP, one for the model, a few that decode."""

import gc
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_network
from socket import socket
from typing import Any

import uvicorn
from PIL import Image

from shortlist.serve.app import make_app
from shortlist.serve.connection import connection_class
from shortlist.serve.following import Following, Served
from shortlist.serve.guard import names_of_server
from shortlist.serve.limits import CONNECTIONS, HEAD_BYTES
from shortlist.serve.service import Service

LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"


@dataclass(frozen=True)
class Follow:
    """Releases to follow: which is current, how to make its service, and what to close at the end."""

    version: Callable[[], str]
    make: Callable[[], Service]
    close: Callable[[], None]


def serve(
    service: Service | Follow,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    origins: Sequence[str] = (),
    hosts: Sequence[str] = (),
    proxies: Sequence[str] = (),
    log_level: str = "info",
    sockets: Sequence[socket] = (),
    started: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGINT or SIGTERM; requests that were begun are finished first.

    Args:
        service: A service, or releases whose current service answers.
        host: Address to listen at. Only this machine can reach the default one.
        port: Port to listen at.
        origins: Origins of other pages that may use the server (CORS).
        hosts: Names by which the server may be called besides its address. At an address of this machine
            alone, others are refused; elsewhere any name will do if none is given.
        proxies: Addresses or networks of proxies that tell the client's address (``X-Forwarded-For``).
            Nobody else is believed.
        log_level: Level of the log, which has one line for each request.
        sockets: Bound sockets to listen at, in place of the address.
        started: Function that is called when the server listens.

    Raises:
        ValueError: If a proxy is no address and no network.
    """
    check_proxies(proxies)
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the bound on pixels is ours
    logging.basicConfig(level=log_level.upper(), format=LOG_FORMAT)
    names = names_of_server(host, hosts)

    def served(current: Service) -> Served:
        return Served(current, make_app(current, origins=origins, hosts=names))

    if isinstance(service, Follow):
        follow = service
        app = Following(follow.version, lambda: served(follow.make()), close=follow.close)
    else:
        app = served(service).app
    config = make_config(app, proxies=proxies, host=host, port=port, log_level=log_level)
    gc.collect()
    gc.freeze()  # objects of the start are never garbage: to scan them took a quarter of the time
    with suppress(KeyboardInterrupt):  # uvicorn raises it again when all is done
        _Server(config, started).run(list(sockets) or None)


class _Server(uvicorn.Server):
    """A server that tells when it listens."""

    def __init__(self, config: uvicorn.Config, tell: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = tell

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Listen, then tell."""
        await super().startup(sockets)
        self._tell()


def check_proxies(proxies: Sequence[str]) -> None:
    """Refuse proxies that are no addresses, such as ``*``: then any client could choose its own address.

    Raises:
        ValueError: With the first one that is no address and no network.
    """
    for proxy in proxies:
        try:
            network = ip_network(proxy)
        except ValueError:
            raise ValueError(
                f"proxies must be addresses or networks such as 172.16.0.0/12, got {proxy!r}"
            ) from None
        if network.prefixlen == 0:
            raise ValueError(f"proxies must not be all addresses, got {proxy!r}: name those of your proxy")


def make_config(app: Any, *, proxies: Sequence[str] = (), **where: Any) -> uvicorn.Config:
    """Return the configuration of the web server: bounds, trusted proxies, and what is not logged."""
    return uvicorn.Config(
        app,
        **where,
        access_log=False,  # it would show keys in addresses
        log_config=None,
        server_header=False,
        proxy_headers=bool(proxies),  # without proxies, a client could choose its address for the rate limit
        forwarded_allow_ips=list(proxies),
        http=connection_class(),
        ws="none",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=30,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )
