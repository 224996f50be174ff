"""Serve on Ray Serve: replicas of the same application, behind the proxy of the cluster."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from shortlist._checks import check_count
from shortlist.serve.app import make_app
from shortlist.serve.guard import names_of_server
from shortlist.serve.source import ServiceSource


def serve_on_ray(
    source: ServiceSource,
    *,
    replicas: int = 1,
    host: str = "127.0.0.1",
    port: int = 8000,
    origins: Sequence[str] = (),
    hosts: Sequence[str] = (),
    address: str | None = None,
    blocking: bool = True,
) -> None:
    """Serve by a number of replicas, until SIGINT or SIGTERM.

    Args:
        source: What each replica is made of.
        replicas: Number of replicas.
        host: Address to listen at.
        port: Port to listen at.
        origins: Origins of other pages that may use the server (CORS).
        hosts: Names by which the server may be called besides its address.
        address: Address of a running cluster; without it, Ray is started on this machine.
        blocking: Whether to wait for the end; otherwise the caller shuts Ray Serve down.
    """
    check_count("replicas", replicas)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell others what is done here
    # a proxy has 5 seconds to start unless told otherwise, which a busy machine takes to import things
    os.environ.setdefault("RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S", "120")
    import ray
    from ray import serve

    if not ray.is_initialized():
        # "local", because None would join a cluster that others have started on this machine
        here: dict[str, Any] = {"address": "local", "include_dashboard": False}
        options: dict[str, Any] = here if address is None else {"address": address}
        ray.init(log_to_driver=False, **options)
    names = names_of_server(host, hosts)

    def build() -> Any:
        return make_app(source.open(), origins=origins, hosts=names)

    serve.start(http_options={"host": host, "port": port})
    ingress: Any = serve.ingress(build)()
    deployment: Any = serve.deployment(ingress)
    made = deployment.options(
        name="shortlist",
        num_replicas=replicas,
        max_ongoing_requests=source.limits.requests,
        ray_actor_options={"num_cpus": 1},
    )
    if blocking:
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)  # ignored in the background of a script
    with suppress(KeyboardInterrupt):
        serve.run(made.bind(), name="shortlist", blocking=blocking)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
