"""Run the server: one process, one thread for HTTP, one for the model, a few that decode."""

import gc
import logging
import warnings
from collections.abc import Sequence
from contextlib import suppress

from shortlist.serve.app import make_app
from shortlist.serve.guard import LOOPBACK
from shortlist.serve.service import Service

__all__ = ["serve"]


def serve(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    origins: Sequence[str] = (),
    hosts: Sequence[str] = (),
    log_level: str = "info",
) -> None:
    """Serve until SIGINT or SIGTERM; requests that were begun are finished first.

    Args:
        service: What answers.
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
    app = make_app(service, origins=origins, hosts=allowed if hosts or at_home else None)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,  # it would show keys in addresses
        log_config=None,
        log_level=log_level,
        server_header=False,
        proxy_headers=False,  # anybody could choose an address for the limit of rate
        timeout_keep_alive=15,
        timeout_graceful_shutdown=30,
        h11_max_incomplete_event_size=64 << 10,
    )
    gc.collect()
    gc.freeze()  # what is there now stays: to look through it again and again took a third of the time
    with suppress(KeyboardInterrupt):  # which comes again when all is done
        uvicorn.Server(config).run()
