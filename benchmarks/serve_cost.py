"""What a request costs the server beyond its list, without sockets: the processor's time, or a profile of it.

Connections of the server's own class get finished requests all at once, and write their answers to nowhere.
So batches are full, and neither clients nor the system take a part, also on a busy machine.
"""

import argparse
import asyncio
import cProfile
import gc
import pstats
import time
from typing import Any

import torch
import uvloop
from serve import BATCH, Direct, demo_model, rate_of, some_images
from serve_load import request_bytes
from uvicorn.server import ServerState

from shortlist.serve.app import make_app
from shortlist.serve.limits import Limits
from shortlist.serve.server import make_config
from shortlist.serve.service import Service


class Nowhere:
    """A transport that counts answers."""

    def __init__(self, answered: Any) -> None:
        self._answered = answered

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return addresses of this machine."""
        return {"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)}.get(name, default)

    def is_closing(self) -> bool:
        """Say that it stays open."""
        return False

    def write(self, data: bytes) -> None:
        """Look whether an answer is good, and whether it is all there."""
        assert not data.startswith(b"HTTP/1.1 ") or data.startswith(b"HTTP/1.1 200"), data[:100]
        if data.endswith(b"}"):
            self._answered()

    def ignore(self, *_: Any) -> None:
        """Do nothing."""

    pause_reading = resume_reading = close = set_protocol = ignore


async def measure(clients: int, size: int, seconds: float, profile: bool) -> None:
    """Print what an image costs, for so many requests at a time with so many images each."""
    model, images = demo_model(), some_images(256)
    service, direct = Service(model, limits=Limits(queue=4096)), Direct(model, images)
    service.start()
    config = make_config(make_app(service), log_level="warning")
    config.load()
    left, done = 0, asyncio.Event()

    def answered() -> None:
        nonlocal left
        left -= 1
        if not left:
            done.set()

    path = "/v1/identify" if size == 1 else "/v1/identify/batch"
    requests = [request_bytes(path, images[i : i + size]) for i in range(0, 256, size)]
    connections = []
    for _ in range(clients):
        parts: dict[str, Any] = {"config": config, "server_state": ServerState(), "app_state": {}}
        connections.append(config.http_protocol_class(**parts))  # type: ignore[operator]
        connections[-1].connection_made(Nowhere(answered))

    async def ask_all() -> None:
        nonlocal left
        left = clients
        done.clear()
        for number, one in enumerate(connections):
            one.data_received(requests[number % len(requests)])
        await done.wait()

    for _ in range(5):
        await ask_all()
    gc.collect()
    gc.freeze()
    filled = min(BATCH, clients * size)

    def directly() -> list[float]:
        """The same work in full batches, and in such as the requests fill."""
        small = rate_of(lambda: direct.same_work(filled), 0.5, images=filled)
        return [rate_of(direct.same_work, 0.5).processor, small.processor]

    before, found, number = directly(), cProfile.Profile(time.process_time), 0
    start, used = time.perf_counter(), time.process_time()
    if profile:
        found.enable()
    while time.perf_counter() < start + seconds:
        await ask_all()
        number += clients * size
    found.disable()
    used = 1e6 * (time.process_time() - used) / number
    full, small = ((a + b) / 2 for a, b in zip(before, directly(), strict=True))
    print(f"requests {clients}, images {size}: {used:.0f} us an image, the same work directly ", end="")
    print(f"{full:.0f} us in batches of {BATCH}, {small:.0f} us in batches of {filled}", flush=True)
    if profile:
        pstats.Stats(found).sort_stats("cumulative").print_stats(60)
    service.close()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=3.0, help="time of each measurement")
    options.add_argument("--profile", action="store_true", help="profile 64 requests with one image")
    given = options.parse_args()
    torch.set_num_threads(1)
    cases = [(64, 1)] if given.profile else [(1, 1), (4, 1), (8, 1), (64, 1), (1, 32), (8, 32)]
    for clients, size in cases:
        uvloop.run(measure(clients, size, given.seconds, given.profile))
