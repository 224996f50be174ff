"""A store in PostgreSQL: several hosts write, the database fails and comes back, copies are rows."""

import csv
import hashlib
import signal
import subprocess
import sys
import threading

import pytest

from shortlist.feedback import Event, FeedbackError, FeedbackStore, Kept
from shortlist.feedback._tables import request_key
from shortlist.feedback._writer import StuckError
from shortlist.feedback.doctor import examine_store
from shortlist.feedback.store import is_store, read_events, read_manifest, stats_of
from tests.commands import run
from tests.postgres import execute
from tests.serve.parts import png

PHOTO = png(1)
IMAGE = hashlib.sha256(PHOTO).hexdigest()


def answer(request: str, person: str = "p", **more) -> Event:
    return Event("do_not_know", request, person=person, images=(IMAGE,), **more)


@pytest.fixture
def address(postgres):
    return postgres.database()


HOST = """
import sys
from tests.feedback.test_postgres import PHOTO, answer
from shortlist.feedback import FeedbackStore
store = FeedbackStore(sys.argv[1])
for number in range(10_000):
    name = f"{sys.argv[2]} {number}"
    given = number % 5 == 0
    store.add(answer(name, consent=given), [PHOTO] if given else [])
    print(name, flush=True)
"""


@pytest.mark.slow
def test_hosts_that_are_killed_lose_no_acknowledged_answer_and_leave_no_gap(address):
    """Three processes write at once, and are killed in the middle: their locks end with them."""
    command = [sys.executable, "-c", HOST, address]
    hosts = [subprocess.Popen([*command, who], stdout=subprocess.PIPE, text=True) for who in "abc"]
    acknowledged: list[str] = []
    for host in hosts:
        assert host.stdout is not None
        acknowledged += [host.stdout.readline().strip() for _ in range(30)]
        host.send_signal(signal.SIGKILL)
        acknowledged += host.communicate(timeout=60)[0].splitlines()[:-1]  # the last line may be cut
    requests = [event.request for event in read_events(address)]  # checks that no number is missing
    assert {request_key(name).hex() for name in acknowledged} <= set(requests)
    assert len(requests) == len(set(requests)) and examine_store(address) == []
    with FeedbackStore(address) as store:
        assert store.add(answer("after")).number == len(requests) + 1


def test_stores_that_are_made_at_the_same_time_are_one(address):
    stores: list[FeedbackStore] = []
    gate = threading.Barrier(4)

    def open_it() -> None:
        gate.wait()
        stores.append(FeedbackStore(address))

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len({store.secret for store in stores}) == 1 and len(stores) == 4
    assert [store.add(answer(f"{n}")).number for n, store in enumerate(stores)] == [1, 2, 3, 4]
    for store in stores:
        store.close()
    assert stats_of(address)["events"] == 4


def test_a_database_that_fails_refuses_and_takes_answers_when_it_is_back(postgres, address):
    with FeedbackStore(address) as store:
        store.add(answer("1"))
        postgres.stop()
        try:
            with pytest.raises(FeedbackError, match=r"postgresql://.* cannot be used"):
                store.add(answer("2"))
            with pytest.raises(FeedbackError, match="cannot be used"):
                stats_of(address)
            with pytest.raises(FeedbackError, match="cannot be used"):
                is_store(address)
        finally:
            postgres.start()
        assert store.add(answer("2")) == Kept(2, new=True)
        assert store.add(answer("1")) == Kept(1, new=False)
    assert examine_store(address) == []


def test_a_database_that_hangs_takes_nothing_more(postgres, address, monkeypatch):
    with FeedbackStore(address) as store:
        store.add(answer("1"))
        frozen = postgres.freeze()
        try:
            waiting = store.submit(answer("2"))
            monkeypatch.setattr(store._database, "patience", -1.0)
            while store._writer._began is None:
                pass
            with pytest.raises(StuckError, match="does not answer"):
                store.submit(answer("3"))
            assert not waiting.done()
        finally:
            postgres.thaw(frozen)
        monkeypatch.undo()
        assert waiting.result(60) == Kept(2, new=True)
        assert store.add(answer("3")).number == 3


@pytest.mark.errors
def test_what_is_no_store_is_refused_by_name_and_without_its_password(postgres, address):
    with pytest.raises(FeedbackError, match=r"store_\d+.* is no store of feedback"):
        read_manifest(address)
    secret = address.replace("tests@", "tests:a-password@")
    with pytest.raises(FeedbackError) as error:
        read_manifest(secret)
    assert "a-password" not in str(error.value) and "tests:***@" in str(error.value)
    nowhere = "postgresql://u:a-password@127.0.0.1:1/name"
    with pytest.raises(FeedbackError, match="cannot be used") as error:
        FeedbackStore(nowhere)
    assert "a-password" not in str(error.value)
    FeedbackStore(address).close()
    execute(address, "UPDATE state SET format = 'shortlist feedback 4'")
    with pytest.raises(FeedbackError, match="was written by another version: its format is"):
        FeedbackStore(address)


def test_tables_of_others_in_the_database_stay_as_they_are(postgres, address):
    postgres.execute(address, "CREATE TABLE events (mine text); INSERT INTO events VALUES ('kept')")
    with FeedbackStore(address) as store:
        assert store.add(answer("1")).new
    assert postgres.execute(address, "SELECT * FROM public.events") == [("kept",)]


def test_copies_are_examined_and_exported_as_files(address, tmp_path):
    with FeedbackStore(address) as store:
        store.add(answer("1", consent=True), [PHOTO])
        store.add(answer("2", person="q", consent=True), [PHOTO])  # the same photo is one row
    votes, photos = tmp_path / "votes.csv", tmp_path / "photos.csv"
    code, _, error = run("feedback", "export", address, "--out", votes, "--images", photos)
    assert code == 0, error
    [row] = csv.DictReader(photos.read_text().splitlines())
    folder = tmp_path / "photos-files" / f"store-{read_manifest(address)['store']}"
    assert row["image"] == IMAGE and row["path"] == str(folder / IMAGE[:2] / IMAGE)
    assert (folder / IMAGE[:2] / IMAGE).read_bytes() == PHOTO
    assert run("doctor", address)[0] == 0
    execute(address, "UPDATE copies SET content = content || '\\x00'")
    (finding,) = examine_store(address)
    assert finding.file == f"copies/{IMAGE}" and "is damaged" in finding.what
    execute(address, "DELETE FROM copies")
    assert [one.what for one in examine_store(address)] == ["is missing"]
    execute(address, "UPDATE state SET bytes = bytes + 1")
    assert run("doctor", address)[0] == 1


def test_a_person_is_deleted_by_the_command_while_a_server_writes(address):
    with FeedbackStore(address) as store:
        for number in range(5):
            store.add(answer(f"{number}", consent=number == 0), [PHOTO] if number == 0 else [])
        code, out, error = run("feedback", "delete", address, "--person", "p", "--json")
        assert code == 0, error
        assert '"deleted events": 5' in out and store.copy_of(IMAGE) is None
        assert store.add(answer("9")).number == 7  # after the record of the deletion
    assert examine_store(address) == []
