"""Run the server: one process, one thread for HTTP, one for the model, a few that decode."""

import gc
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from shortlist.serve.app import make_app
from shortlist.serve.connection import HEAD_BYTES, connection_class
from shortlist.serve.following import Following, Served
from shortlist.serve.guard import LOOPBACK
from shortlist.serve.service import Service

__all__ = ["Follow", "serve"]

_CONNECTIONS = 8192  # silent ones too; more than the answers of people that are kept at a time


@dataclass(frozen=True)
class Follow:
    """What is served by turns: which is current, how to make its service, and what to close at the end."""

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
    log_level: str = "info",
) -> None:
    """Serve until SIGINT or SIGTERM; requests that were begun are finished first.

    Args:
        service: What answers; or several, of which the current one does.
        host: Address to listen at. Only this machine can reach the default one.
        port: Port to listen at.
        origins: Origins of other pages that may use the server (CORS).
        hosts: Names by which the server may be called besides its address. At an address of this machine
            alone, others are refused; elsewhere any name will do if none is given.
        log_level: Level of the log, which has one line for each request.
    """
    import uvicorn
    from PIL import Image

    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the bound on pixels is ours
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    allowed = {host.strip("[]").lower(), *LOOPBACK, *(name.lower() for name in hosts)}
    at_home = host.strip("[]") in LOOPBACK
    names = allowed if hosts or at_home else None

    def served(one: Service) -> Served:
        return Served(one, make_app(one, origins=origins, hosts=names))

    if isinstance(service, Follow):
        follow = service
        app = Following(follow.version, lambda: served(follow.make()), close=follow.close)
    else:
        app = served(service).app
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,  # it would show keys in addresses
        log_config=None,
        log_level=log_level,
        server_header=False,
        proxy_headers=False,  # anybody could choose an address for the limit of rate
        http=connection_class(),
        ws="none",
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=30,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )
    gc.collect()
    gc.freeze()  # what is there now stays: to look through it again and again took a quarter of the time
    with suppress(KeyboardInterrupt):  # which comes again when all is done
        uvicorn.Server(config).run()
