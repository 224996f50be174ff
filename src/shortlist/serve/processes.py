"""Several processes behind one address: a parent that binds it, starts them, and replaces those that die.

The supervisor of uvicorn (``uvicorn.supervisors.Multiprocess``) is as fast: 0.92 of the processor's time per
image at 64 clients (three turns, busy machine). But its workers live on without their parent, are started
again without end, and are killed if they load for longer than 5 s. While they end, new connections wait for
an answer that never comes. To mend this, all of its methods but the loop would have to be replaced.
"""

import logging
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from shortlist._checks import check_count
from shortlist._messages import one_line
from shortlist.releases import is_releases
from shortlist.serve.desk import FeedbackDesk
from shortlist.serve.metrics import forget_process, share_metrics
from shortlist.serve.server import LOG_FORMAT, serve
from shortlist.serve.source import ServiceSource

_LOG = logging.getLogger("shortlist.serve")
_MOST = 64  # processes; the parent keeps some files open for each
_DEATHS, _WITHIN = 5, 60.0  # 5 deaths within 60 seconds end the server
_BACKLOG = 2048  # waiting connections, as many as uvicorn allows
_END_SECONDS = 60.0  # for requests that have begun; each process has a shorter bound of its own


def serve_by_processes(
    source: ServiceSource,
    *,
    processes: int,
    host: str = "127.0.0.1",
    port: int = 8000,
    log_level: str = "info",
    **where: Any,
) -> None:
    """Serve until SIGINT or SIGTERM. Requests that have begun are finished first; a second SIGINT ends them.

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
    listening = _listen(host, port)
    with (
        tempfile.TemporaryDirectory(prefix="shortlist-", ignore_cleanup_errors=True) as counters,
        _signals_to_end() as signals,
    ):
        supervisor = _Supervisor(source, where, listening, Path(counters), processes)
        try:
            supervisor.work(signals)
        finally:
            listening.close()  # otherwise clients that connect now would get no answer
            supervisor.end(signals)


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Clients that come before a process is ready wait.

    All processes take connections from this socket. If a process dies, the others take the connections that
    wait.
    """
    host = host.strip("[]")
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    if listening.family == socket.AF_INET6:  # "::" does not include IPv4, as in a server of one process
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise OSError(f"{host}:{port} cannot be listened at: {error.strerror}") from None
    return listening


@contextmanager
def _signals_to_end() -> Iterator[int]:
    """Give a file descriptor from which the numbers of arriving SIGINT and SIGTERM can be read."""
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
    pipe: Connection  # on which it says that it serves; closed when the process ends
    serves: bool = False


class _Supervisor:
    """The parent of the processes, which have numbers from 0.

    Args:
        source: What each process opens for itself.
        where: Options of ``serve`` for each process.
        listening: Socket from which all take connections.
        counters: Folder of the counters of all.
        processes: Number of processes.
    """

    def __init__(
        self,
        source: ServiceSource,
        where: Mapping[str, Any],
        listening: socket.socket,
        counters: Path,
        processes: int,
    ) -> None:
        self._source, self._where, self._listening = source, where, listening
        self._counters, self._processes = counters, processes
        self._children: dict[int, _Child] = {}
        self._deaths: deque[float] = deque(maxlen=_DEATHS)
        self._version: str | None = None  # of the model that all serve, unless they follow releases

    def work(self, signals: int) -> None:
        """Start the processes, and replace those that die, until a signal comes."""
        for number in range(self._processes):
            self._start(number)
        while True:
            pipes = {child.pipe: number for number, child in self._children.items()}
            ready = wait([signals, *pipes])
            if signals in ready:
                os.read(signals, 1)
                return
            for pipe, number in pipes.items():
                if pipe in ready:
                    self._receive(number)

    def _start(self, number: int) -> None:
        context = multiprocessing.get_context("spawn")  # a copy of a process with threads may hang
        pipe, its_pipe = context.Pipe()
        options = (self._source, self._where, self._listening, self._counters, self._processes)
        process = context.Process(
            target=_serve_one, args=(number, its_pipe, *options), name=f"shortlist {number}"
        )
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent tells
        try:
            process.start()  # which inherits it
        finally:
            signal.signal(signal.SIGINT, before)
        its_pipe.close()
        self._children[number] = _Child(process, pipe)

    def _receive(self, number: int) -> None:
        """Read the message of a process: it serves, or cannot start. A closed pipe means that it died."""
        child = self._children[number]
        try:
            message = child.pipe.recv()
        except (EOFError, OSError):
            self._replace(number, child)
            return
        if "error" in message:
            raise ValueError(message["error"])
        child.serves = True
        _LOG.info("process %d serves", child.process.pid)
        for note in message["notes"]:
            warnings.warn(note, stacklevel=1)
        self._version = self._version or message["version"]
        if message["version"] != self._version and not is_releases(self._source.model):
            raise ValueError(
                f"{self._source.model} was changed: one process has {message['version']}, the others "
                f"{self._version}; start the server anew"
            )

    def _replace(self, number: int, child: _Child) -> None:
        """Start a process again, unless processes die too often."""
        child.process.join()
        child.pipe.close()
        code, now = child.process.exitcode, time.monotonic()
        if not child.serves and not self._deaths:
            raise ValueError(f"a process ended with code {code} before it could serve")
        # a process that died while it started counts at the time of the death before it: several starts in a
        # row that never serve are too many deaths, however long each start took
        self._deaths.append(now if child.serves else self._deaths[-1])
        if len(self._deaths) == _DEATHS and self._deaths[-1] - self._deaths[0] < _WITHIN:
            raise ValueError(
                f"processes died {_DEATHS} times within {_WITHIN:g} s, the last one with code {code}"
            )
        _LOG.error("process %d ended with code %s: another one is started", child.process.pid, code)
        forget_process(self._counters, number)
        self._start(number)

    def end(self, signals: int) -> None:
        """Let all processes finish their requests and end; another SIGINT kills them."""
        for child in self._children.values():
            child.process.terminate()
        alive = {child.process.sentinel: child.process for child in self._children.values()}
        until, hurry = time.monotonic() + _END_SECONDS, False
        while alive and not hurry and (left := until - time.monotonic()) > 0:
            ready = wait([signals, *alive], left)
            hurry = signals in ready and signal.SIGINT in os.read(signals, 1)
            alive = {sentinel: process for sentinel, process in alive.items() if sentinel not in ready}
        for process in alive.values():
            _LOG.error("process %d %s: it is killed", process.pid, "works" if hurry else "does not end")
            process.kill()
        for child in self._children.values():
            child.process.join()


def _serve_one(
    number: int,
    pipe: Connection,
    source: ServiceSource,
    where: Mapping[str, Any],
    listening: socket.socket,
    counters: Path,
    processes: int,
) -> None:
    """Serve in a process of its own."""
    share_metrics(counters, number)
    torch.set_num_threads(max(1, torch.get_num_threads() // processes))
    threading.Thread(target=_end_with_parent, args=(pipe, counters), name="parent", daemon=True).start()
    serves = False

    def say_that_it_serves() -> None:
        nonlocal serves
        serves = True
        # uvicorn handles SIGINT by now: after the parent's SIGTERM it would drop all requests
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        pipe.send({"version": follow.version(), "notes": notes})

    try:
        with warnings.catch_warnings(record=True) as caught:  # for the parent to show once
            warnings.simplefilter("always")
            follow = source.follow(FeedbackDesk(source.feedback))
        notes = sorted({one_line(note.message) for note in caught if issubclass(note.category, UserWarning)})
        serve(follow, **where, sockets=[listening], started=say_that_it_serves)
    except Exception as error:
        if serves:
            raise
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        with suppress(OSError):  # the parent is gone: nobody reads the message
            pipe.send({"error": f"{kind}{one_line(error)}"})


def _end_with_parent(pipe: Connection, counters: Path) -> None:
    """End this process by SIGTERM when its parent is gone."""
    wait([pipe])
    shutil.rmtree(counters, ignore_errors=True)  # others may do the same
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_END_SECONDS)
    os._exit(1)  # a process that has not ended by then hangs
