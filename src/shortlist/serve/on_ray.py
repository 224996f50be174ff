"""Serve on Ray Serve: replicas of the same application, behind the proxy of the cluster."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shortlist._checks import check_count
from shortlist.index import ImageIndex
from shortlist.model import Model, network_by_name
from shortlist.serve.app import make_app
from shortlist.serve.guard import LOOPBACK
from shortlist.serve.limits import Limits
from shortlist.serve.service import Service

__all__ = ["ServiceSource", "serve_on_ray"]


@dataclass(frozen=True)
class ServiceSource:
    """What a service is made of, as plain values: each replica opens its own.

    Args:
        model: Folder of a saved model or a run.
        index: Folder of an index of known images, or ``None``.
        keys: File with the keys that are allowed, or ``None``.
        feedback: Folder of the store of people's answers.
        admin_keys: File with the keys by which people's data can be deleted over HTTP, or ``None``.
        audit: Share of the requests with a receipt that are drawn for the audit, in [0, 1].
        limits: Limits of requests, of each replica.
        device: Device of the network.
        network: For a model whose network is the user's own code, the function that makes it.
    """

    model: str
    index: str | None = None
    keys: str | None = None
    feedback: str = "feedback"
    admin_keys: str | None = None
    audit: float = 0.0
    limits: Limits = field(default_factory=Limits)
    device: str = "cpu"
    network: str | None = None

    def open(self) -> Service:
        """Load the model and the index."""
        own = None if self.network is None else network_by_name(self.model, self.network)
        model = Model.load(self.model, network=own, device=self.device)
        known = None if self.index is None else ImageIndex.open(self.index, model=model)
        return Service(
            model,
            source=Path(self.model),
            index=known,
            keys=self.keys,
            feedback=self.feedback,
            admin_keys=self.admin_keys,
            audit=self.audit,
            limits=self.limits,
        )


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
        here: dict[str, Any] = {"include_dashboard": False} if address is None else {}
        ray.init(address=address, log_to_driver=False, **here)
    at_home = host.strip("[]") in LOOPBACK
    allowed = {host.strip("[]").lower(), *LOOPBACK, *(name.lower() for name in hosts)}
    limits_hosts = allowed if hosts or at_home else None

    def build() -> Any:
        return make_app(source.open(), origins=origins, hosts=limits_hosts)

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
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
        ):  # also where SIGINT is ignored, as in a script's background
            signal.signal(number, _interrupt)
    with suppress(KeyboardInterrupt):
        serve.run(made.bind(), name="shortlist", blocking=blocking)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
