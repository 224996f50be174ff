"""Deletions: nothing of a person is left on any page, whoever reads meanwhile, however full the disk."""

import errno
import hashlib
import json
import random
import shlex
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from shortlist.feedback import Event, FeedbackError, FeedbackStore, _writer as writer
from shortlist.feedback._copies import Copies
from shortlist.feedback.doctor import examine_store
from shortlist.feedback.store import answers_by_item, last_answers, photos_of, read_events
from tests.commands import run
from tests.postgres import everything_in
from tests.serve.parts import png


def answer(number: int, person: str, **more) -> Event:
    image = hashlib.sha256(f"{person} {number}".encode()).hexdigest()
    values = {"images": (image,), "observation": f"garden of {person} {number}"} | more
    return Event(
        "do_not_know", f"request {number} of {len(person)} {person.strip()!a}", person=person, **values
    )


def remains(folder: Path, name: bytes) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in files if name in path.read_bytes()]


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_left_on_pages_whose_rows_were_moved(seed, tmp_path):
    """SQLite leaves remains in the free part of pages that it balances, also with secure_delete."""
    draw = random.Random(seed)
    with FeedbackStore(tmp_path / "store") as store:
        for number in range(draw.choice((50, 400))):
            person = f"person-{draw.randrange(5)}-secret"
            note = "x" * draw.choice((0, 10, 500, 1900)) + person
            store.add(answer(number, person, about={"note": note}))
        for who in (2, 0, 4):
            name = f"person-{who}-secret".encode()
            store.erase_person(name.decode())
            assert remains(tmp_path / "store", name) == []
        assert {event.person for event in store.events()} == {"person-1-secret", "person-3-secret"}
    assert examine_store(tmp_path / "store") == []


@pytest.mark.parametrize("read", [read_events, last_answers, answers_by_item, photos_of])
def test_who_reads_stops_no_deletion_and_no_answer(read, location):
    """An export that is under way holds no lock: the deletion is done when it says so."""
    with FeedbackStore(location) as store:
        for number in range(2000):
            store.submit(answer(number, f"person-{number % 2}", consent=True))
        store.add(answer(2000, "person-0", consent=True))
        reading = iter(read(location))
        assert next(reading)
        erased = store.erase_person("person-1")
        assert (erased.events, erased.pending) == (1000, False)
        assert b"garden of person-1" not in everything_in(location)
        assert store.add(answer(3000, "person-2")).new
        rest = list(reading)  # goes on, perhaps with what it had read already
        assert 1000 <= len(rest) <= 2000


def test_a_deletion_is_pending_while_others_hold_old_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_READER_SECONDS", 0.05)
    with FeedbackStore(tmp_path / "store") as store:
        store.add(answer(0, "leaves"))
        with closing(sqlite3.connect(tmp_path / "store" / "events.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT * FROM events").fetchall()
            assert store.erase_person("leaves") == (1, 0, True)
            assert "events.sqlite-wal" in remains(tmp_path / "store", b"leaves")
            assert store.add(answer(1, "stays")).new  # nobody waits for who reads
            other.execute("COMMIT")
        for number in range(2, 200):  # whenever it is tried again, which is within a moment
            store.add(answer(number, "stays"))
            if not remains(tmp_path / "store", b"leaves"):
                break
        assert remains(tmp_path / "store", b"leaves") == []


FULL = """
from pathlib import Path
from shortlist.feedback import Event, FeedbackStore
place = Path({place!r})
with FeedbackStore(place / "store") as store:
    for number in range(200):
        said = {{"person": f"p{{number % 2}}", "images": ("0" * 64,), "about": {{"note": "x" * 1500}}}}
        store.add(Event("do_not_know", f"r{{number}}", **said))
    store.erase_person("p0")  # which leaves the log of the database empty
    try:
        with open(place / "fill", "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError:
        pass
    print(store.erase_person("p1"))
"""


def test_a_person_can_be_deleted_though_the_disk_is_full(tmp_path):
    run = f"mount -t tmpfs -o size=8m tmpfs {tmp_path} && exec {sys.executable} -c " + shlex.quote(
        FULL.format(place=str(tmp_path))
    )
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"]).returncode:
        pytest.skip("no file system of a given size can be made here")
    done = subprocess.run(["unshare", "-rm", "sh", "-c", run], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "Erased(events=100, copies=0, pending=False)", done.stderr


def test_the_room_for_deletions_is_not_made_through_a_link(tmp_path):
    FeedbackStore(tmp_path / "store").close()
    (tmp_path / "store" / "reserve").unlink()
    (tmp_path / "store" / "reserve").symlink_to(tmp_path / "elsewhere")
    FeedbackStore(tmp_path / "store").close()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.errors
def test_a_copy_that_finds_no_room_leaves_no_file(tmp_path, monkeypatch):
    photo = png(1)
    said = Event("do_not_know", "r", images=(hashlib.sha256(photo).hexdigest(),), consent=True)
    with FeedbackStore(tmp_path / "store") as store:

        def full(number: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as disk:
            disk.setattr("os.fsync", full)
            with pytest.raises(OSError, match="No space left"):
                store.add(said, [photo])
        assert Copies(tmp_path / "store").waiting() == []
        assert store.add(said, [photo]).new


@pytest.mark.errors
def test_names_that_files_of_votes_cannot_carry_are_refused(tmp_path):
    for name in (" ", "\t", "NaN", "nan", "NULL", "new-0-0\0z", "a\nb", "\x85", "n/a"):
        for field in ("person", "observation"):
            with pytest.raises(ValueError, match=f"{field} must be a name without control characters"):
                answer(0, "p", **{field: name}) if field != "person" else answer(0, name, observation="o")
    with (
        FeedbackStore(tmp_path / "store") as store,
        pytest.raises(ValueError, match="image must be a SHA-256"),
    ):
        store.erase_image("")
    with pytest.raises(FeedbackError, match="is no store"):
        list(last_answers(tmp_path / "nothing"))


def sources_of(folder: Path) -> set[str]:
    """The SHA-256 of the photos of a benchmark, by the names of the copies that they were linked from."""
    images = json.loads((folder / "metadata.json").read_text())["images"]
    return {Path(entry["source"]).name for entry in images.values()}


@pytest.mark.parametrize("link", ["hard", "symbolic"])
@pytest.mark.parametrize("again", [False, True], ids=["old export", "new export"])
def test_photos_that_were_deleted_are_in_no_later_benchmark(location, tmp_path, link, again):
    """Also where the photos were exported from a database, and the files of the export are still there."""
    photos = {f"p{number % 4}-{number}": png(number) for number in range(40)}
    digests = {name: hashlib.sha256(photo).hexdigest() for name, photo in photos.items()}

    def say(store: FeedbackStore, name: str) -> None:
        said = {"person": name[:2], "label": "oak" if name[1] in "01" else "ash", "consent": True}
        store.add(Event("confirm", name, images=(digests[name],), **said), [photos[name]])

    def export() -> None:
        assert run("feedback", "export", location, "--out", votes, "--images", listed)[0] == 0

    votes, listed, labels = (tmp_path / name for name in ("votes.csv", "photos.csv", "labels.csv"))
    names, old = list(photos), tmp_path / "old"
    with FeedbackStore(location) as store:
        for name in names[:32]:
            say(store, name)
        export()
        assert run("data", "votes", votes, "--theta", 0.5, "--min-voters", 1, "--out", labels)[0] == 0
        build = ("data", "build", labels, old, "--images", listed, "--split", "hash", "--held-out", 0.2)
        code, _, error = run(*build, "--store", location, "--link", link, "--apply")
        assert code == 0, error
        assert sources_of(old) == {digests[name] for name in names[:32]}
        for name in names[32:]:
            say(store, name)
        export()
        store.erase_person("p1")
        store.erase_image(digests["p0-36"])
        if again:
            export()
    grow = ("data", "grow", old, tmp_path / "new", "--votes", votes, "--images", listed)
    grow += ("--theta", 0.5, "--min-voters", 1)
    if not isinstance(location, Path):
        code, _, error = run(*grow, "--link", link)  # a deletion cannot be overlooked
        assert code == 2 and "give the address by --store" in error
    else:  # nor by moving the store
        location.rename(tmp_path / "elsewhere")
        code, _, error = run(*grow, "--link", link)
        assert code == 2 and f"must be at {location}" in error and not (tmp_path / "new").exists()
        (tmp_path / "elsewhere").rename(location)
    code, _, error = run(*grow, "--store", location, "--link", link)
    assert code == 0, error
    kept = {digests[name] for name in names if not name.startswith("p1") and name != "p0-36"}
    assert sources_of(tmp_path / "new") == kept
    if again:  # the files are gone too
        assert {path.name for path in tmp_path.rglob("*") if path.name in digests.values()} == kept
