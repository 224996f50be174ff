"""Several processes write to one store: SQLite's locks keep them apart."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shortlist.feedback import Event, FeedbackError, FeedbackStore, Kept
from shortlist.feedback._copies import Copies
from shortlist.feedback._writer import SameRequestError
from shortlist.feedback.doctor import examine_store
from shortlist.feedback.store import read_events, stats_of
from tests.serve.parts import png

PHOTO = png(1)
IMAGE = hashlib.sha256(PHOTO).hexdigest()


def answer(request: str, person: str = "p", **more) -> Event:
    return Event("do_not_know", request, person=person, images=(IMAGE,), **more)


WRITING = """
import hashlib, sys
from shortlist.feedback import Event, FeedbackStore
from tests.serve.parts import png
who = sys.argv[2]
with FeedbackStore(sys.argv[1]) as store:
    for number in range(60):
        photo = png(number % 7)
        images = (hashlib.sha256(photo).hexdigest(),)
        said = {"images": images, "person": f"{who}-{number % 3}", "consent": number % 4 == 0}
        store.submit(Event("do_not_know", f"{who} {number}", **said), [photo] if number % 4 == 0 else [])
        store.submit(Event("do_not_know", f"all {number}", images=images))  # each process sends it
    erased = store.erase_person(f"{who}-2")
    print(erased.events)
"""


@pytest.mark.slow
def test_processes_write_and_delete_at_the_same_time(location):
    command = [sys.executable, "-c", WRITING, str(location)]
    writers = [subprocess.Popen([*command, who], stdout=subprocess.PIPE, text=True) for who in "abc"]
    assert [writer.communicate(timeout=120)[0].strip() for writer in writers] == ["20"] * 3
    events = list(read_events(location))  # numbers without gaps, each row whole
    requests = {event.request for event in events}
    assert len(events) == len(requests) == 3 * 40 + 60
    assert {event.person for event in events} == {"", *(f"{who}-{n}" for who in "abc" for n in (0, 1))}
    counts = stats_of(location)
    assert (counts["erased_events"], counts["deletions"]) == (60, 3)
    assert examine_store(location) == []
    assert not isinstance(location, Path) or list((location / "incoming").iterdir()) == []


def test_two_stores_of_a_folder_know_each_other_s_answers(location):
    with FeedbackStore(location) as first, FeedbackStore(location) as second:
        assert first.secret == second.secret
        assert [first.add(answer("1")), second.add(answer("1"))] == [Kept(1, new=True), Kept(1, new=False)]
        assert [second.add(answer("2")), first.add(answer("3"))] == [Kept(2, new=True), Kept(3, new=True)]
        with pytest.raises(SameRequestError):
            second.add(answer("3", person="other"))
        assert second.erase_person("p") == (3, 0, False) and list(first.events()) == []


def test_the_bound_on_bytes_counts_the_copies_of_all(location):
    with FeedbackStore(location) as first, FeedbackStore(location, max_bytes=1) as second:
        first.add(answer("1", consent=True), [PHOTO])
        with pytest.raises(FeedbackError, match="is full"):
            second.add(answer("2"))
        first.erase_image(IMAGE)
        first.add(answer("3"))
    assert examine_store(location) == []


@pytest.mark.errors
def test_a_store_that_another_machine_writes_to_is_refused(tmp_path, monkeypatch):
    """SQLite's locks are those of one machine."""
    with FeedbackStore(tmp_path / "store") as store:
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr("socket.gethostname", lambda: "elsewhere")
            elsewhere.setattr(
                "shortlist.feedback._database.Database.turn", None
            )  # the database is not looked at
            with pytest.raises(FeedbackError, match=r"store is in use: a process of .* writes to it"):
                FeedbackStore(tmp_path / "store")
        assert store.add(answer("1")).new
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    FeedbackStore(tmp_path / "store").close()  # nobody has it open


def test_a_deletion_by_one_reaches_a_copy_that_another_could_not_move(tmp_path, monkeypatch):
    folder = tmp_path / "store"
    with FeedbackStore(folder) as first, FeedbackStore(folder) as second:

        def fail(copies, taken):
            raise OSError("no space left")

        with monkeypatch.context() as full:
            full.setattr(Copies, "move", fail)
            first.add(answer("1", consent=True), [PHOTO])
            assert second.erase_person("p").events == 1
        stop = time.monotonic() + 60
        while Copies(folder).waiting():  # tried again within a moment
            assert time.monotonic() < stop
            time.sleep(0.01)
        assert first.copy_of(IMAGE) is None
        assert first.add(answer("2", consent=True), [PHOTO]).new
        assert first.copy_of(IMAGE) == PHOTO
    assert examine_store(folder) == []


KILLED = """
import os, signal, sys
from shortlist.feedback import Event, FeedbackStore
from shortlist.feedback._copies import Copies
from tests.feedback.test_writers import IMAGE, PHOTO, answer
from tests.serve.parts import png
if sys.argv[2] == "recorded":
    Copies.move = lambda copies, taken: os.kill(os.getpid(), signal.SIGKILL)
else:
    Copies.take = lambda copies, *of, take=Copies.take: (take(copies, *of), os.kill(os.getpid(), 9))
FeedbackStore(sys.argv[1]).add(answer("1", consent=True), [PHOTO])
"""


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [True, False])
def test_who_opens_the_store_next_finds_the_copies_of_a_killed_process(tmp_path, recorded):
    """Also while a third process has it open, whose copies stay."""
    folder = tmp_path / "store"
    with FeedbackStore(folder) as store:
        waiting = store._writer.copies.take("0" * 64, PHOTO).place
        command = [sys.executable, "-c", KILLED, str(folder), "recorded" if recorded else "not"]
        assert subprocess.run(command, timeout=120).returncode == -signal.SIGKILL
        assert len(Copies(folder).waiting()) == 2 and store.copy_of(IMAGE) is None
        with FeedbackStore(folder):
            assert Copies(folder).waiting() == [waiting]
            assert (store.copy_of(IMAGE) is not None) == recorded
        os.unlink(waiting)
    assert examine_store(folder) == [] and len(list(read_events(folder))) == recorded


@pytest.mark.errors
def test_links_among_the_folders_of_processes_are_not_followed(tmp_path):
    FeedbackStore(tmp_path / "store").close()
    elsewhere: Path = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (tmp_path / "store" / "incoming" / "0-vm").symlink_to(elsewhere)
    FeedbackStore(tmp_path / "store").close()
    assert [path.name for path in elsewhere.iterdir()] == ["file"]
