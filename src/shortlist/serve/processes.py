"""Several processes behind one address: a parent that binds it, starts them, and replaces those that die.

uvicorn's own workers keep fewer promises: they go on without their parent, are started anew for ever, share
one socket, and a start that fails is not told in a line.
"""

import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from shortlist._checks import check_count
from shortlist._messages import one_line
from shortlist.releases import is_releases
from shortlist.serve.desk import FeedbackDesk
from shortlist.serve.metrics import forget_process, share_metrics
from shortlist.serve.server import LOG_FORMAT, serve
from shortlist.serve.shared import Shared, SharedStore, folder_of, remove_address
from shortlist.serve.source import ServiceSource

_LOG = logging.getLogger("shortlist.serve")
_MOST = 64  # processes; each takes some of the files that the parent may have open
_DEATHS, _WITHIN = 5, 60.0  # so many deaths in so many seconds end the server
_BACKLOG = 2048  # connections that wait to be taken, as the web server has it
_END_SECONDS = 60.0  # for the requests that were begun; each process has its own, shorter, bound


def serve_by_processes(
    source: ServiceSource,
    *,
    processes: int,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_level: str = "info",
    **where: Any,
) -> None:
    """Serve until SIGINT or SIGTERM; requests that were begun are finished first, unless SIGINT comes again.

    Args:
        source: What each process opens for itself.
        processes: Number of processes, 64 at most.
        host: Address to listen at.
        port: Port to listen at.
        log_level: Level of the log.
        where: More options of :func:`~shortlist.serve.server.serve`, for each process.

    Raises:
        ValueError: If a process cannot start, or processes die again and again.
        OSError: If the address is in use.
    """
    check_count("processes", processes)
    if processes > _MOST:
        raise ValueError(f"processes must be <= {_MOST}, got {processes}")
    logging.basicConfig(level=log_level.upper(), format=LOG_FORMAT)
    where = {**where, "host": host, "port": port, "log_level": log_level}
    sockets = _bound(host, port, processes)
    shared = Shared(source.feedback)
    with _told_to_end() as told:
        crew = _Crew(source, where, sockets, shared)
        try:
            crew.work(told)
        finally:
            for listening in sockets:  # else those who come now would wait for nobody
                listening.close()
            crew.end(told)
            shared.close()


def _bound(host: str, port: int, number: int) -> list[socket.socket]:
    """Bind a socket for each process to one address; the first one listens at once.

    Linux spreads connections over them. The parent holds them too: what a process that dies did not accept
    waits for the next one. Elsewhere all have the same socket. Until one listens, the system would let
    another server have the same address, and give each of the two a part of the connections.
    """
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    first = _bind(family, host, port)  # alone: another server at this address is noticed
    if sys.platform != "linux":
        made = [first, *(first.dup() for _ in range(number - 1))]
    else:
        port = first.getsockname()[1]
        first.close()
        made = [_bind(family, host, port, socket.SO_REUSEPORT) for _ in range(number)]
    made[0].listen(_BACKLOG)
    return made


def _bind(family: int, host: str, port: int, *options: int) -> socket.socket:
    made = socket.socket(family)
    if family == socket.AF_INET6:  # as one process has it: "::" is not all addresses of IPv4 too
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    for option in (socket.SO_REUSEADDR, *options):
        made.setsockopt(socket.SOL_SOCKET, option, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise OSError(f"{host}:{port} cannot be listened at: {error.strerror}") from None
    return made


@contextmanager
def _told_to_end() -> Iterator[int]:
    """Give a file from which the numbers of the signals SIGINT and SIGTERM that came can be read."""
    reader, writer = os.pipe()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {
        number: signal.signal(number, lambda came, _: os.write(writer, bytes([came]))) for number in signals
    }
    try:
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


@dataclass
class _Child:
    process: BaseProcess
    pipe: Connection  # by which it tells that it serves; it ends when the process does
    serves: bool = False


class _Crew:
    """The processes, by their numbers from 0."""

    def __init__(
        self,
        source: ServiceSource,
        where: Mapping[str, Any],
        sockets: Sequence[socket.socket],
        shared: Shared,
    ) -> None:
        self._source, self._where, self._sockets, self._shared = source, where, sockets, shared
        self._address = shared.start()
        self._children: dict[int, _Child] = {}
        self._deaths: deque[float] = deque(maxlen=_DEATHS)
        self._version: str | None = None  # of the model that all serve, unless they follow releases

    def work(self, told: int) -> None:
        """Start the processes, and replace those that die, until told to end."""
        for number in range(len(self._sockets)):
            self._start(number)
        while True:
            pipes = {child.pipe: number for number, child in self._children.items()}
            heard = wait([told, *pipes])
            if told in heard:
                os.read(told, 1)
                return
            for pipe, number in pipes.items():
                if pipe in heard:
                    self._hear(number)

    def _start(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")  # a copy of a process with threads may hang
        own, its = context.Pipe()
        parts = (number, len(self._sockets), self._source, self._where, self._sockets[number], self._address)
        process = context.Process(target=_serve_one, args=(*parts, its), name=f"shortlist {number}")
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent tells
        try:
            process.start()  # which inherits it
        finally:
            signal.signal(signal.SIGINT, before)
        its.close()
        self._children[number] = _Child(process, own)

    def _hear(self, number: int) -> None:
        child = self._children[number]
        try:
            found = child.pipe.recv()
        except (EOFError, OSError):
            self._replace(number, child)
            return
        if "error" in found:
            raise ValueError(found["error"])
        child.serves = True
        for note in found["notes"]:
            warnings.warn(note, stacklevel=1)
        self._version = self._version or found["version"]
        if found["version"] != self._version and not is_releases(self._source.model):
            raise ValueError(
                f"{self._source.model} was changed: one process has {found['version']}, the others "
                f"{self._version}; start the server anew"
            )

    def _replace(self, number: int, child: _Child) -> None:
        """Start a process anew, unless that is of no use."""
        child.process.join()
        child.pipe.close()
        code, now = child.process.exitcode, time.monotonic()
        if not child.serves and not self._deaths:
            raise ValueError(f"a process ended with code {code} before it could serve")
        # one that was killed while it started counts as of the death that it was to mend: a start may take
        # long, and several in a row that never serve are too many, however long they took
        self._deaths.append(now if child.serves else self._deaths[-1])
        if len(self._deaths) == _DEATHS and self._deaths[-1] - self._deaths[0] < _WITHIN:
            raise ValueError(
                f"processes died {_DEATHS} times within {_WITHIN:g} s, the last one with code {code}"
            )
        _LOG.error("process %d ended with code %s: another one is started", child.process.pid, code)
        forget_process(folder_of(self._address), number)
        self._start(number)

    def end(self, told: int) -> None:
        """Have all processes finish what they began, and end; at another SIGINT they are killed."""
        for child in self._children.values():
            child.process.terminate()
        alive = {child.process.sentinel: child.process for child in self._children.values()}
        until, hurry = time.monotonic() + _END_SECONDS, False
        while alive and not hurry and (left := until - time.monotonic()) > 0:
            heard = wait([told, *alive], left)
            hurry = told in heard and signal.SIGINT in os.read(told, 1)
            alive = {sentinel: process for sentinel, process in alive.items() if sentinel not in heard}
        for process in alive.values():
            _LOG.error("process %d %s: it is killed", process.pid, "works" if hurry else "does not end")
            process.kill()
        for child in self._children.values():
            child.process.join()


def _serve_one(
    number: int,
    processes: int,
    source: ServiceSource,
    where: Mapping[str, Any],
    listening: socket.socket,
    address: str,
    pipe: Connection,
) -> None:
    """Serve in a process of its own."""
    share_metrics(folder_of(address), number)
    torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    threading.Thread(target=_end_with_parent, args=(pipe, address), name="parent", daemon=True).start()
    serves = False

    def tell() -> None:
        nonlocal serves
        serves = True
        # uvicorn listens to it by now, and would drop all requests if it came beside the parent's SIGTERM
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        pipe.send({"version": follow.version(), "notes": notes})

    try:
        with warnings.catch_warnings(record=True) as caught:  # for the parent to tell once
            warnings.simplefilter("always")
            desk = FeedbackDesk(source.feedback, open_store=partial(SharedStore, address=address))
            follow = source.follow(desk)
        notes = sorted({one_line(one.message) for one in caught if issubclass(one.category, UserWarning)})
        serve(follow, **where, sockets=[listening], started=tell)
    except Exception as error:
        if serves:
            raise
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        with suppress(OSError):  # the parent is gone, and nobody asks
            pipe.send({"error": f"{kind}{one_line(error)}"})


def _end_with_parent(pipe: Connection, address: str) -> None:
    """End this process as by SIGTERM when its parent is gone: nobody else would."""
    wait([pipe])
    remove_address(address)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_SECONDS)
    os._exit(1)  # what does not end by then never will
