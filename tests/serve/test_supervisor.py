"""The parent of several processes, without any: what it binds, whom it starts anew, how it ends them."""

import multiprocessing
import os
import signal
import socket
from types import SimpleNamespace

import pytest

from shortlist.serve import processes
from shortlist.serve.processes import _Child, _end_with_parent, _listen, _Supervisor, serve_by_processes
from shortlist.serve.source import ServiceSource


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]"])
def test_an_address_is_taken_before_the_processes_are_there(host):
    listening = _listen(host, 0)
    port = listening.getsockname()[1]
    with pytest.raises(OSError, match=f"{port} cannot be listened at"):  # by another server
        _listen(host, port)
    with socket.socket(listening.family) as other:  # nor by one whose processes have a socket each
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind((host.strip("[]"), port))
    if ":" in host:  # as a server of one process has it
        assert listening.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    waiting = socket.create_connection(listening.getsockname()[:2], timeout=5)  # for a process to come
    waiting.close()
    listening.close()
    _listen(host, port).close()  # it is free again


@pytest.mark.parametrize("number", [0, -1, 65, 100_000, True])
def test_a_number_of_processes_that_is_none_is_refused(number):
    with pytest.raises(ValueError, match=f"processes must be .* got {number}"):
        serve_by_processes(ServiceSource("model"), processes=number)


class Process:
    """A process that is not there; it lives until its end of a pipe is closed."""

    exitcode, pid = -9, 1

    def __init__(self, *, ends: bool = True) -> None:
        self.sentinel, self._life = os.pipe()
        self._ends, self.was_killed = ends, False

    def terminate(self) -> None:
        if self._ends:
            os.close(self._life)

    def kill(self) -> None:
        self.was_killed = True
        os.close(self._life)

    def join(self) -> None:
        os.read(self.sentinel, 1)  # hangs while it lives


class Pipe:
    """Of a process that is gone."""

    def __init__(self, error: type[Exception] = EOFError) -> None:
        self._error = error

    def recv(self) -> None:
        raise self._error

    def close(self) -> None:
        pass


class Supervisor(_Supervisor):
    """One whose processes start, and may die before they serve."""

    def __init__(self, tmp_path) -> None:
        super().__init__(ServiceSource("model"), {}, None, tmp_path, 0)
        self.started = 0

    def _start(self, number: int, *, serves: bool = True, **parts) -> None:
        process = Process()
        process.terminate()
        self.started += 1
        self._children[number] = _Child(process, Pipe(**parts), serves)


def test_a_process_that_never_served_ends_the_server_at_the_start_alone(tmp_path):
    supervisor = Supervisor(tmp_path)
    supervisor._start(0, serves=False)
    with pytest.raises(ValueError, match="ended with code -9 before it could serve"):
        supervisor._receive(0)


@pytest.mark.parametrize("error", [EOFError, ConnectionResetError, OSError])
def test_one_that_is_killed_while_it_takes_the_place_of_another_is_replaced(tmp_path, monkeypatch, error):
    now = [0.0]
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    supervisor = Supervisor(tmp_path)
    supervisor._start(0, error=error)
    supervisor._receive(0)
    for _ in range(3):  # a start takes longer than the time within which five deaths are too many
        now[0] += 100
        supervisor._start(0, serves=False, error=error)
        supervisor._receive(0)
    now[0] += 100
    supervisor._start(0, serves=False, error=error)
    with pytest.raises(ValueError, match="died 5 times"):
        supervisor._receive(0)


def test_deaths_that_are_far_apart_are_not_too_many(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    supervisor = Supervisor(tmp_path)
    supervisor._start(0)
    for _ in range(20):
        now[0] += 15.1
        supervisor._receive(0)
    assert supervisor.started == 21


@pytest.mark.parametrize(
    ("came", "killed"),
    [(b"", False), (bytes([signal.SIGTERM]), False), (bytes([signal.SIGINT]), True)],
)
def test_at_a_second_sigint_processes_are_killed(tmp_path, monkeypatch, came, killed):
    monkeypatch.setattr(processes, "_END_SECONDS", 0.2)
    supervisor, (signals, send) = Supervisor(tmp_path), os.pipe()
    good, hung = Process(), Process(ends=False)
    supervisor._children = {0: _Child(good, Pipe(), True), 1: _Child(hung, Pipe(), True)}
    os.write(send, came)
    if killed:
        monkeypatch.setattr(processes, "_END_SECONDS", 1e6)  # it is not waited for
    supervisor.end(signals)
    assert hung.was_killed and not good.was_killed


def test_a_process_whose_parent_is_gone_removes_the_counters_and_ends(tmp_path, monkeypatch):
    counters, ends = tmp_path / "counters", []
    counters.mkdir()
    parents, childs = multiprocessing.Pipe()
    parents.close()
    monkeypatch.setattr(processes, "_END_SECONDS", 0)
    monkeypatch.setattr(os, "kill", lambda *what: ends.append(what))
    monkeypatch.setattr(os, "_exit", lambda code: ends.append(code))
    _end_with_parent(childs, counters)
    assert not counters.exists() and ends == [(os.getpid(), signal.SIGTERM), 1]
    _end_with_parent(childs, counters)  # another process was first
