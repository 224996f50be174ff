"""Leases: one owner at a time, of a process, of several, and of other machines."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from shortlist._store import lease as leases
from shortlist._store.lease import Lease, LeaseLostError, LeaseWatch, holding, read_lease


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    now = [1000.0]
    monkeypatch.setattr(leases.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(leases, "_clock", lambda: now[0])
    return now


def on_machine(monkeypatch, name: str) -> None:
    monkeypatch.setattr(leases, "this_machine", lambda: name)


def test_a_lease_is_held_once_and_let_go(tmp_path):
    path = tmp_path / "a" / "run.lock"
    with holding(path, run="x") as first:
        assert first is not None and read_lease(path)["run"] == "x"
        with holding(path) as second:
            assert second is None
        assert read_lease(path)["token"] == first.token
    assert list(path.parent.iterdir()) == []


def test_a_lease_of_an_ended_process_is_free_at_once(tmp_path):
    path = tmp_path / "run.lock"
    code = """if True:
        import os, sys
        from shortlist._store.lease import holding
        with holding(sys.argv[1]):
            os._exit(9)
    """
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    assert read_lease(path)["process"] != os.getpid()
    assert LeaseWatch().gone(path) is not None
    with holding(path) as lease:
        assert lease is not None


def test_a_later_process_of_the_same_number_is_not_the_owner(tmp_path):
    path = tmp_path / "run.lock"
    Lease(path, {"started": "1"})._take(())  # of this process number, begun at another time
    with holding(path) as lease:
        assert lease is not None


def test_a_lease_of_another_machine_is_free_when_it_was_not_renewed(tmp_path, monkeypatch, clock):
    path = tmp_path / "run.lock"
    on_machine(monkeypatch, "far")
    far = Lease(path, {})
    assert far._take(())
    on_machine(monkeypatch, "near")
    watch = LeaseWatch()
    assert watch.gone(path) is None  # never seen before: it may live
    clock[0] += leases.LEASE - 1
    assert watch.gone(path) is None
    far.renew()
    clock[0] += leases.LEASE - 1
    assert watch.gone(path) is None  # it was renewed in between
    clock[0] += leases.LEASE + 1
    assert watch.gone(path) == (far.token,)
    with holding(path) as lease:
        assert lease is None  # nobody has watched for this one
    with holding(path, watch.gone(path)) as lease:
        assert lease is not None
        with pytest.raises(LeaseLostError):
            far.renew()  # it wakes up
        with pytest.raises(LeaseLostError):
            far.check()
        assert read_lease(path)["token"] == lease.token


def test_clocks_of_machines_are_not_compared(tmp_path, monkeypatch, clock):
    """The owner's clock is a year ahead or behind: the file's time too."""
    path = tmp_path / "run.lock"
    for shift in (-3e7, 3e7):
        on_machine(monkeypatch, "far")
        far = Lease(path, {})
        assert far._take(())
        now = path.stat().st_mtime + shift
        os.utime(path, (now, now))
        on_machine(monkeypatch, "near")
        watch = LeaseWatch()
        assert watch.gone(path) is None
        clock[0] += leases.LEASE / 2
        assert watch.gone(path) is None
        clock[0] += leases.LEASE
        assert watch.gone(path) == (far.token,)
        path.unlink()


def test_an_owner_that_slept_looks_before_it_goes_on(tmp_path, clock, monkeypatch):
    path = tmp_path / "run.lock"
    sleeper = Lease(path, {})
    assert sleeper._take(())
    clock[0] += leases.LEASE * 2
    sleeper.check(share=0.5)  # nobody has taken it
    assert (read_lease(path)["share"], read_lease(path)["beat"]) == (0.5, 1)
    clock[0] += leases.LEASE * 2
    path.unlink()
    other = Lease(path, {})
    assert other._take(())
    with pytest.raises(LeaseLostError):
        sleeper.check()
    sleeper._release()
    assert read_lease(path)["token"] == other.token


def test_of_many_that_take_over_only_the_first_has_it(tmp_path, monkeypatch):
    """Each of 16 threads, as of machines of their own, knows the owner to be gone."""
    for attempt in range(20):
        path = tmp_path / str(attempt) / "run.lock"
        path.parent.mkdir()
        on_machine(monkeypatch, "far")
        gone = Lease(path, {})
        assert gone._take(())
        on_machine(monkeypatch, "near")
        barrier = threading.Barrier(16)

        def take(lease: Lease, token: str = gone.token, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            return lease._take({token})

        with ThreadPoolExecutor(16) as pool:
            contenders = [Lease(path, {}) for _ in range(16)]
            took = list(pool.map(take, contenders))
        owners = [lease.token for lease, has in zip(contenders, took, strict=True) if has]
        assert owners == [read_lease(path)["token"]]
        assert [file.name for file in path.parent.iterdir()] == ["run.lock"]


@pytest.mark.parametrize("then", ["dies", "is silent"])
def test_one_that_ends_while_it_takes_over_blocks_nobody(tmp_path, monkeypatch, clock, then):
    path = tmp_path / "run.lock"
    on_machine(monkeypatch, "far")
    gone = Lease(path, {})
    assert gone._take(())
    on_machine(monkeypatch, "near" if then == "dies" else "further")
    between = Lease(path, {"started": "1"})
    claim = path.with_name(f"run.lock-{gone.token}")
    assert leases.create_text(claim, leases.sealed_text(between._content()))
    on_machine(monkeypatch, "near")
    watch = LeaseWatch()
    watch.gone(path)
    clock[0] += leases.LEASE + 1
    tokens = watch.gone(path)
    if then == "is silent":
        assert tokens is None  # its claim is seen for the first time
        clock[0] += leases.LEASE + 1
        tokens = watch.gone(path)
    with holding(path, tokens) as lease:
        assert lease is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.errors
def test_a_lease_of_another_version_is_refused_by_name(tmp_path):
    path = tmp_path / "run.lock"
    leases.write_sealed(path, {"format": "shortlist lease 0"})
    with pytest.raises(
        ValueError, match=r"run.lock was written by another version: its format is 'shortlist lease 0'"
    ):
        LeaseWatch().gone(path)
