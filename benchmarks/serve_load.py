"""Clients and servers of ``serve.py``: as many clients as one likes in one process, which take little of it.

A client is a plain socket. It sends finished bytes, and looks at no more of an answer than its status, its
length, and whether the connection ends with it.
"""

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from urllib.request import urlopen

__all__ = ["Load", "Server", "load_of", "request_bytes"]

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_PAUSE = 0.02  # seconds after a 503; a client that heeds Retry-After would wait longer


def request_bytes(path: str, images: list[bytes]) -> bytes:
    """Return a request with a form of images."""
    parts = b"".join(
        b'--b\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n' + image + b"\r\n"
        for image in images
    )
    body = parts + b"--b--\r\n"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@dataclass
class Load:
    """What came of some clients."""

    statuses: Counter = field(default_factory=Counter)
    accepted: list[float] = field(default_factory=list)
    lost: int = 0
    seconds: float = 0.0
    processor: float = 0.0

    def rate(self, images: int = 1) -> float:
        """Return images per second that were answered."""
        return images * self.statuses[200] / self.seconds

    def line(self, images: int = 1) -> str:
        """Return rate, latency and refusals as text."""
        p99 = quantiles(self.accepted, n=100)[98] if len(self.accepted) > 1 else float("nan")
        times = f"p50 {median(self.accepted):6.1f} ms, p99 {p99:6.1f} ms"
        others = {status: number for status, number in self.statuses.items() if status != 200}
        return f"{self.rate(images):7.0f} images/s, {times}, other answers {others or 'none'}"


class Client:
    """A connection that sends the next request as soon as the last one is answered."""

    def __init__(self, port: int, requests: list[bytes], first: int) -> None:
        self.port, self.requests, self.number = port, requests, first
        self.waits_until = 0.0
        self.connect()

    def connect(self) -> None:
        """Open a connection."""
        self.socket = socket.create_connection(("127.0.0.1", self.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left, self.status, self.closes, self.begun = 0, 0, False, False

    def send(self) -> None:
        """Send the next request."""
        self.number += 1
        self.start, self.waits_until = time.perf_counter(), 0.0
        self.socket.sendall(self.requests[self.number % len(self.requests)])

    def receive(self) -> bool:
        """Read on, and return whether an answer is all there; heads of answers come in one piece."""
        piece = self.socket.recv(1 << 18)
        if not piece:
            raise ConnectionError
        if not self.begun:
            end = piece.index(b"\r\n\r\n") + 4
            length = _LENGTH.search(piece, 0, end)
            assert length is not None
            self.begun, self.status, self.left = True, int(piece[9:12]), int(length[1]) + end
            self.closes = piece.find(b"connection: close", 0, end) >= 0
        self.left -= len(piece)
        self.begun = self.left > 0
        return not self.begun


class _Crowd:
    """Clients that ask until some time."""

    def __init__(self, until: float) -> None:
        self.until, self.load, self.ends = until, Load(), False
        self.selector, self.sleeping = selectors.EpollSelector(), []

    def ask(self, one: Client) -> None:
        """Let a client that has a new connection ask."""
        one.send()
        self.selector.register(one.socket, selectors.EVENT_READ, one)

    def turn(self, one: Client) -> None:
        """Read what came for a client; if that was all of an answer, let it ask again."""
        load = self.load
        try:
            if not one.receive():
                return
            now = time.perf_counter()
            load.statuses[one.status] += 1
            if one.status == 200:
                load.accepted.append(1e3 * (now - one.start))
                if not one.closes and now < self.until:
                    one.send()
                    return
            elif one.status == 503 and not self.ends:
                one.waits_until = now + _PAUSE
                self.sleeping.append(one)
        except ConnectionError:
            load.lost += not self.ends or one.begun
        self.selector.unregister(one.socket)
        one.socket.close()

    def wake(self) -> None:
        """Let those ask again that were refused some time ago."""
        now = time.perf_counter()
        for one in [one for one in self.sleeping if one.waits_until < now]:
            self.sleeping.remove(one)
            if now < self.until:
                one.connect()
                self.ask(one)


def load_of(
    port: int,
    requests: list[bytes],
    clients: int,
    seconds: float,
    *,
    after: float | None = None,
    event: Callable[[], object] = lambda: None,
) -> Load:
    """Let clients ask for some seconds; ``event`` happens ``after`` some of them."""
    begun, used = time.perf_counter(), time.process_time()
    crowd = _Crowd(begun + seconds)
    for first in range(clients):
        crowd.ask(Client(port, requests, first))
    while crowd.selector.get_map() or crowd.sleeping:
        if after is not None and not crowd.ends and time.perf_counter() - begun > after:
            crowd.ends = True
            event()
        for key, _ in crowd.selector.select(_PAUSE if after is not None or crowd.sleeping else None):
            crowd.turn(key.data)
        if crowd.sleeping:
            crowd.wake()
    load = crowd.load
    load.seconds, load.processor = time.perf_counter() - begun, time.process_time() - used
    return load


class Server:
    """A server, of one process or several, beside this one."""

    def __init__(self, model: Path, *options: str, processes: int = 1) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "shortlist",
            "serve",
            str(model),
            "--port",
            str(self.port),
            "--quiet",
        ]
        command += ["--processes", str(processes)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen([*command, *options], env=environment, stderr=subprocess.DEVNULL)
        stop = time.monotonic() + 300  # a busy machine takes long to load torch
        while not self._serves(processes):
            if self.process.poll() is not None or time.monotonic() > stop:
                raise RuntimeError("the server did not start")
            time.sleep(0.1)

    def _serves(self, processes: int) -> bool:
        """Whether all processes are there; each tells its counters to the others."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return False
        return processes == 1 or all(f'{{pid="{number}"' in text for number in range(processes))

    def processor(self) -> float:
        """Seconds of the processor that it took, with its children."""
        numbers = [self.process.pid]
        for number in numbers:  # which grows
            numbers += map(int, Path(f"/proc/{number}/task/{number}/children").read_text().split())
        return sum(map(_processor, numbers))

    def batches(self) -> tuple[float, float]:
        """Images that went through the model, and in how many batches."""
        with urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = [re.findall(rf"batch_images_{name}(?:{{.*}})? (.+)", text) for name in ("sum", "count")]
        images, batches = (sum(map(float, values)) for values in found)
        return images, batches

    def end(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def _processor(number: int) -> float:
    fields = Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
