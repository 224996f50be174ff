"""The parent of several processes, without any: what it binds, whom it starts anew, how it ends them."""

import os
import signal
import socket
from types import SimpleNamespace

import pytest

from shortlist.serve import processes
from shortlist.serve.processes import _bound, _Child, _Crew, serve_by_processes
from shortlist.serve.shared import Shared, remove_address
from shortlist.serve.source import ServiceSource


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::1]"])
def test_an_address_is_taken_before_the_processes_are_there(host):
    first = _bound(host, 0, 3)
    port = first[0].getsockname()[1]
    assert [one.getsockname()[1] for one in first] == [port] * 3
    for number in (1, 2):  # another server of one process, or of several
        with pytest.raises(OSError, match=f"{port} cannot be listened at"):
            _bound(host, port, number)
    if ":" in host:  # as a server of one process has it
        assert all(one.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) for one in first)
    waiting = socket.create_connection(first[0].getsockname()[:2], timeout=5)  # for a process to come
    waiting.close()
    for one in first:
        one.close()
    for one in _bound(host, port, 2):  # it is free again
        one.close()


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


class Crew(_Crew):
    """A crew whose processes start, and may die before they serve."""

    def __init__(self, tmp_path) -> None:
        super().__init__(ServiceSource("model"), {}, [], Shared(tmp_path))
        self.started = 0

    def _start(self, number: int, *, serves: bool = True, **parts) -> None:
        process = Process()
        process.terminate()
        self.started += 1
        self._children[number] = _Child(process, Pipe(**parts), serves)


def test_a_process_that_never_served_ends_the_server_at_the_start_alone(tmp_path):
    crew = Crew(tmp_path)
    crew._start(0, serves=False)
    with pytest.raises(ValueError, match="ended with code -9 before it could serve"):
        crew._hear(0)


@pytest.mark.parametrize("error", [EOFError, ConnectionResetError, OSError])
def test_one_that_is_killed_while_it_takes_the_place_of_another_is_replaced(tmp_path, monkeypatch, error):
    now = [0.0]
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    crew = Crew(tmp_path)
    crew._start(0, error=error)
    crew._hear(0)
    for _ in range(3):  # a start takes longer than the time within which five deaths are too many
        now[0] += 100
        crew._start(0, serves=False, error=error)
        crew._hear(0)
    now[0] += 100
    crew._start(0, serves=False, error=error)
    with pytest.raises(ValueError, match="died 5 times"):
        crew._hear(0)


def test_deaths_that_are_far_apart_are_not_too_many(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: now[0]))
    crew = Crew(tmp_path)
    crew._start(0)
    for _ in range(20):
        now[0] += 15.1
        crew._hear(0)
    assert crew.started == 21


@pytest.mark.parametrize(
    ("came", "killed"),
    [(b"", False), (bytes([signal.SIGTERM]), False), (bytes([signal.SIGINT]), True)],
)
def test_at_a_second_sigint_processes_are_killed(tmp_path, monkeypatch, came, killed):
    monkeypatch.setattr(processes, "_END_SECONDS", 0.2)
    crew, (told, tell) = Crew(tmp_path), os.pipe()
    good, hung = Process(), Process(ends=False)
    crew._children = {0: _Child(good, Pipe(), True), 1: _Child(hung, Pipe(), True)}
    os.write(tell, came)
    if killed:
        monkeypatch.setattr(processes, "_END_SECONDS", 1e6)  # it is not waited for
    crew.end(told)
    assert hung.was_killed and not good.was_killed


def test_the_socket_of_a_parent_that_is_gone_is_removed(tmp_path):
    folder = tmp_path / "pymp-1"
    folder.mkdir()
    (folder / "listener").touch()
    remove_address(str(folder / "listener"))
    assert not folder.exists() and tmp_path.exists()
    remove_address(str(folder / "listener"))  # by another process
