"""The store of events: on disk when acknowledged, each once, deleted without a trace of the person."""

import hashlib
import json
import math
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from shortlist._tables import read_columns
from shortlist.curation.votes import MACHINE, aggregate_votes, read_votes, save_consensus
from shortlist.feedback import Event, FeedbackError, FeedbackStore, Kept, Shown
from shortlist.feedback._copies import Copies
from shortlist.feedback._writer import FullError, SameRequestError
from shortlist.feedback.doctor import examine_store
from shortlist.feedback.event import ABOUT, observation_of
from shortlist.feedback.export import write_photos, write_votes
from shortlist.feedback.location import Location
from shortlist.feedback.review import review_queue
from shortlist.feedback.store import answers_by_item, read_events, read_manifest, stats_of
from shortlist.feedback.votes import Vote, collect_votes
from tests.postgres import everything_in, execute
from tests.serve.parts import png

PHOTOS = [png(number, (8, 8)) for number in range(5)]
IMAGES = [hashlib.sha256(photo).hexdigest() for photo in PHOTOS]


def event(number: int = 0, verb: str = "confirm", label: str | None = None, **more) -> Event:
    label = ("oak" if verb in ("confirm", "other_class") else "") if label is None else label
    values = {"person": "p1", "images": (IMAGES[0],)} | more
    return Event(verb, f"request {number}", label=label, **values)


@pytest.fixture
def store(location):
    with FeedbackStore(location) as opened:
        yield opened


def test_what_is_recorded_is_read_back(location):
    said = event(
        person="Zoë ☘",
        label='Quercus pétraea, "x"\n',
        consent=True,
        shown=(Shown("oak", 0.75, True), Shown("ash", 0.25, False)),
        choice={"coverage": 0.9},
        model="abc",
        status="ok",
        audit=True,
        about={"author": "Ana", "note": "näh"},
        organs=("leaf",),
        location=Location(43.65, 3.85, 6873.0),
    )
    with FeedbackStore(location) as store:
        assert store.add(said, [PHOTOS[0]]) == Kept(1, new=True)
        assert store.copy_of(IMAGES[0]) == PHOTOS[0]
    (read,) = read_events(location)
    assert (
        read.content() == said.content() and read.location == said.location and read.time.endswith("+00:00")
    )
    assert (read.person, read.label, read.audit) == (said.person, said.label, True)
    if isinstance(location, Path):
        assert {path.name for path in location.iterdir()} == {
            *("feedback.json", "events.sqlite", "images", "incoming", "reserve", ".lock"),
        }
    assert examine_store(location) == []


def test_a_request_is_recorded_once_and_refused_with_another_content(store):
    assert [store.add(event(1)).new for _ in range(3)] == [True, False, False]
    with pytest.raises(SameRequestError, match="must be new"):
        store.add(event(1, label="ash"))
    assert len(list(store.events())) == 1


def test_many_writers_get_numbers_without_gaps_in_few_commits(store):
    commits, write = [], store._writer._append_all
    store._writer._append_all = lambda jobs: (commits.append(len(jobs)), write(jobs))
    gate = threading.Event()

    def send(number: int) -> Kept:
        gate.wait()
        return store.add(event(number % 400))  # each twice

    with ThreadPoolExecutor(64) as senders:
        futures = [senders.submit(send, number) for number in range(800)]
        gate.set()
        kept = [future.result() for future in futures]
    assert sorted(one.number for one in kept if one.new) == list(range(1, 401))
    assert sum(not one.new for one in kept) == 400 and sum(commits) == 800 and max(commits) > 1
    assert len(list(store.events())) == 400


def test_one_event_that_is_refused_does_not_stop_the_others(store):
    store.add(event(1))
    futures = [store.submit(event(number, label="ash")) for number in (1, 2, 3)]
    with pytest.raises(SameRequestError):
        futures[0].result()
    assert [future.result().number for future in futures[1:]] == [2, 3]


def test_a_deleted_person_leaves_no_trace_but_the_record_of_the_deletion(location):
    with FeedbackStore(location) as store:
        for number in range(300):
            store.add(event(number, person=f"person-{number % 3}-secret", label=f"label-{number % 3}"))
        store.add(event(300, person="person-1-secret", images=(IMAGES[1],), consent=True), [PHOTOS[1]])
        store.add(event(301, person="person-1-secret", images=(IMAGES[2],), consent=True), [PHOTOS[2]])
        store.add(event(302, person="person-2-secret", images=(IMAGES[2],), consent=True), [PHOTOS[2]])
        assert b"person-1-secret" in everything_in(location)
        # the other photo was given by another person too
        assert store.erase_person("person-1-secret") == (102, 1, False)
        assert b"person-1-secret" not in everything_in(location) and IMAGES[1].encode() not in everything_in(
            location
        )
        assert store.copy_of(IMAGES[1]) is None and store.copy_of(IMAGES[2]) is not None
        assert store.erase_person("person-1-secret") == (0, 0, False)
        assert store.add(event(300, person="person-1-secret", images=(IMAGES[1],))) == Kept(301, new=False)
        assert {one.person for one in store.events()} == {"person-0-secret", "person-2-secret"}
    stats = stats_of(location)
    assert (stats["events"], stats["erased_events"], stats["deletions"]) == (201, 102, 2)
    assert examine_store(location) == []


def test_a_deleted_image_takes_its_copy_and_the_answers_about_it(location):
    with FeedbackStore(location) as store:
        store.add(event(0, consent=True), [PHOTOS[0]])
        store.add(event(1, person="p2"))
        store.add(event(2, images=(IMAGES[1],)))
        assert store.erase_image(IMAGES[0]) == (2, 1, False)
        assert [one.images for one in store.events()] == [(IMAGES[1],)]
        assert IMAGES[0].encode() not in everything_in(location)
    assert examine_store(location) == []


def test_a_deletion_leaves_the_copy_of_an_answer_that_is_on_its_way(location, monkeypatch):
    with FeedbackStore(location) as store:
        store.add(event(0, person="leaves", images=(IMAGES[1],), consent=True), [PHOTOS[1]])
        kind = type(store._writer.copies)
        take = kind.take

        def take_and_wait_for_a_deletion(copies, image, content):
            taken = take(copies, image, content)
            assert store.erase_person("leaves") == (1, 1, False)
            return taken

        monkeypatch.setattr(kind, "take", take_and_wait_for_a_deletion)
        assert store.add(event(1, images=(IMAGES[0],), consent=True), [PHOTOS[0]]).new
        assert store.copy_of(IMAGES[0]) == PHOTOS[0] and store.copy_of(IMAGES[1]) is None
    assert examine_store(location) == []


def test_a_deletion_finds_a_copy_that_could_not_be_moved_to_its_place(tmp_path, monkeypatch):
    folder = tmp_path / "store"
    with FeedbackStore(folder) as store:

        def fail(copies, taken):
            raise OSError("no space left")

        monkeypatch.setattr(Copies, "move", fail)
        store.add(event(0, person="leaves", consent=True), [PHOTOS[0]])
        assert PHOTOS[0] in everything_in(folder)
        assert store.erase_person("leaves") == (1, 1, False)
        assert PHOTOS[0] not in everything_in(folder)


@pytest.mark.errors
@pytest.mark.parametrize(
    "name", ["request", "person", "label", "observation", "model", "status", "key", *ABOUT, "organ"]
)
def test_no_text_of_an_event_has_nul(name):
    """PostgreSQL cannot keep it."""
    more = {"about": {name: "a\0b"}} if name in ABOUT else {name: "a\0b"}
    with pytest.raises(ValueError, match=f"^{name} must .* (no NUL|control characters)"):
        replace(event(), **({"organs": ("a\0b",)} if name == "organ" else more))


@pytest.mark.errors
@pytest.mark.parametrize(
    "more",
    [{"shown": (Shown("a\0b", 0.5, True),)}, {"choice": {"predictor": "a\0b"}}, {"choice": {"a\0": 1}}],
)
def test_no_text_of_a_list_has_nul(more):
    with pytest.raises(ValueError, match=f"^{next(iter(more))} must have no NUL"):
        event(**more)


@pytest.mark.errors
def test_bad_events_and_stores_are_refused_by_name(tmp_path, store):
    for wrong, words in [
        ({"verb": "like"}, "verb must be"),
        ({"label": ""}, "label must be given"),
        ({"verb": "do_not_know", "label": "oak"}, "label must be given"),
        ({"images": ()}, "at least one photo"),
        ({"images": ("../x",)}, "SHA-256"),
        ({"person": "x" * 501}, "person must be text of 0 to 500 characters, got 501"),
        ({"person": "\ud800"}, "lone surrogate"),
        ({"about": {"place": "here"}}, "about must have keys"),
    ]:
        with pytest.raises(ValueError, match=words):
            event(**wrong)
    with pytest.raises(ValueError, match="without consent"):
        store.add(event(), [PHOTOS[0]])
    with pytest.raises(ValueError, match="SHA-256 of one is not among them"):
        store.add(event(consent=True), [PHOTOS[1]])
    with pytest.raises(ValueError, match="must be a photo in JPEG, PNG or WebP format"):
        store.add(event(consent=True, images=(hashlib.sha256(b"text").hexdigest(),)), [b"text"])
    with pytest.raises(ValueError, match="person must be given"):
        store.erase_person("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(FeedbackError, match="is no store of feedback"):
        FeedbackStore(tmp_path / "other")
    with pytest.raises(FeedbackError, match="is no store"):
        list(read_events(tmp_path / "nothing"))


@pytest.mark.errors
def test_a_full_store_refuses_and_goes_on_reading(location):
    most = 100_000 if isinstance(location, Path) else 300_000  # empty tables of PostgreSQL have pages
    with FeedbackStore(location, max_bytes=most) as store:
        store.add(event(0))
        with pytest.raises(FullError, match="is full"):
            for number in range(1000):
                store.add(event(number + 1, about={"note": random.Random(number).randbytes(1000).hex()}))
        assert 1 < len(list(store.events())) < 100


@pytest.mark.errors
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET person = 'p9' WHERE number = 2",
        "UPDATE events SET number = 7 WHERE number = 3",
        "DELETE FROM events WHERE number = 3",
        "DELETE FROM events WHERE number = 1",
        "UPDATE state SET store = 'other'",
        "UPDATE contents SET content = x'00' WHERE number = 2",
        "UPDATE contents SET content = replace(content, 'images', 'image') WHERE number = 2",
        "UPDATE events SET item = 'o9' WHERE number = 2",
    ],
)
def test_rows_that_were_changed_or_lost_are_noticed(location, change):
    with FeedbackStore(location) as store:
        for number in range(3):
            store.add(event(number))
    in_folder = isinstance(location, Path)
    execute(location, change if in_folder else change.replace("x'00'", "'{}'"))
    words = r"events.sqlite is damaged" if in_folder else r"postgresql://.* is damaged"
    if "state" not in change or in_folder:
        with pytest.raises(FeedbackError, match=words):
            list(read_events(location))
        if "contents" not in change:
            with pytest.raises(FeedbackError, match=words):
                list(answers_by_item(location))
        (finding,) = examine_store(location)
        assert finding.file == ("events.sqlite" if in_folder else "events")


def test_an_observation_is_named_by_its_photos_in_any_order():
    assert observation_of((IMAGES[0],)) == IMAGES[0] == observation_of((IMAGES[0], IMAGES[0]))
    assert observation_of((IMAGES[0], IMAGES[1])) == observation_of((IMAGES[1], IMAGES[0]))


def test_votes_are_the_last_answers_of_each_person(tmp_path, location):
    shown = (Shown("ash", 0.6, True), Shown("oak", 0.4, True))
    said = [
        event(0, consent=True, organs=("leaf",), about={"license": "CC0", "note": "x"}, shown=shown),
        event(9, verb="observe", label="", shown=shown),  # no vote, and takes none back
        event(1, person="p2", label="ash", verb="other_class"),
        event(2, person="p2", label="oak"),  # changed her mind
        event(3, person="p3"),
        event(4, person="p3", verb="do_not_know"),
        event(5, person="p4", verb="not_this_kind"),
        event(6, person=""),
        event(8, person="p5", verb="none_of_these"),
        event(7, images=(IMAGES[1],), status="novel", shown=shown, consent=True),
    ]
    with FeedbackStore(location) as store:
        for one in said:
            store.add(one, [PHOTOS[IMAGES.index(one.images[0])]] if one.consent else [])
    events = list(read_events(location))
    found = collect_votes(events)
    assert [(one.user, one.label, one.author) for one in found.votes] == [
        *(("p1", "oak", "p1"), ("p2", "oak", "p1"), ("p4", "!not_this_kind", "p1")),
        ("p5", "!none_of_these", "p1"),
    ]
    assert {one.item for one in found.votes} == {IMAGES[0]}
    assert dict(found.left_out) == {
        "of nobody known": 1,
        "answered again later": 2,
        "no vote: do_not_know": 1,
        "no vote: observe": 1,
        "flagged, until somebody else has looked": 1,
    }
    assert [(one.image, one.organ, one.license) for one in found.photos] == [
        *((IMAGES[0], "leaf", "CC0"), (IMAGES[1], "", "")),  # also of what waits
    ]
    more = collect_votes(events, with_flagged=True, with_machine=True)
    assert len(more.votes) == 5 + 2 and len(more.photos) == 2
    assert [(one.item, one.label) for one in more.votes if one.user == MACHINE] == [
        *((IMAGES[0], "ash"), (IMAGES[1], "ash")),
    ]
    write_photos(tmp_path / "photos.csv", found.photos, location)
    lines = (tmp_path / "photos.csv").read_text().splitlines()
    exported = tmp_path / "photos-files" / f"store-{read_manifest(location)['store']}"
    folder = location / "images" if isinstance(location, Path) else exported
    place = folder / IMAGES[0][:2] / IMAGES[0]
    assert place.read_bytes() == PHOTOS[0]
    names = ("path", "item", "image", "organ", "author", "license", "date")
    names += ("latitude", "longitude", "uncertainty")
    assert lines[0] == ",".join(f'"{name}"' for name in names) and str(place) in lines[1]


def stored(location, said: list[Event]) -> Path | str:
    with FeedbackStore(location) as store:
        for answer in said:
            store.add(answer)
    return location


def test_none_of_these_of_four_people_counts_against_one_careless_label(location):
    """From the answers to the label: four looked and saw none of the list, one took its first class."""
    shown = (Shown("oak", 0.9, True), Shown("ash", 0.1, True))
    said = [event(i, person=f"p{i}", observation="easy") for i in range(5)]
    said += [event(10, person="p0", observation="hard", shown=shown)]
    said += [event(10 + i, person=f"p{i}", verb="none_of_these", observation="hard") for i in range(1, 5)]
    votes = collect_votes(said).votes
    columns = [[getattr(vote, name) for vote in votes] for name in ("item", "user", "label", "author")]
    found = aggregate_votes(*columns, theta=0.5)
    assert found.items.tolist() == ["easy", "hard"] and found.valid.tolist() == [True, False]
    assert found.votes.tolist() == [5, 5]
    (waiting,) = review_queue(stored(location, said), theta=0.5)
    assert (waiting.item, waiting.label, waiting.votes, waiting.undecided) == ("hard", "oak", 1, 4)
    # two newcomers' weight for the oak and its list, of which 0.1 is an ash, and four for something else
    assert dict(waiting.candidates) == pytest.approx({"?": 4 / 6, "oak": 1.9 / 6, "ash": 0.1 / 6})


def test_votes_are_written_in_the_forms_of_other_tools(tmp_path):
    votes = [
        Vote("i1", "u2", "oak", "", "t"),
        Vote("i1", "u1", "ash, élm", "u2", "t", 1),
        Vote("i0", "u2", "oak", "", "t"),
    ]
    write_votes(tmp_path / "votes.csv", votes)
    assert (tmp_path / "votes.csv").read_text().splitlines()[:3] == [
        *('"item","user","label","author","time","invited"', '"i1","u2","oak","","t",0'),
        '"i1","u1","ash, élm","u2","t",1',
    ]
    write_votes(tmp_path / "kit.csv", votes, form="crowd-kit")
    assert (tmp_path / "kit.csv").read_text().splitlines()[0] == '"task","worker","label"'
    write_votes(tmp_path / "answers.json", votes, form="peerannot")
    assert json.loads((tmp_path / "answers.json").read_text()) == {"0": {"1": 1}, "1": {"1": 1, "0": 0}}
    names = json.loads((tmp_path / "answers.names.json").read_text())
    assert names == {"tasks": ["i0", "i1"], "workers": ["u1", "u2"], "labels": ["ash, élm", "oak"]}
    write_votes(tmp_path / "none.parquet", [])
    with pytest.raises(ValueError, match=r"must end in .json"):
        write_votes(tmp_path / "answers.csv", votes, form="peerannot")


def test_what_cannot_be_decided_is_reviewed_most_informative_first(location, tmp_path):
    votes = [("split", "a", "oak"), ("split", "b", "ash"), ("lone", "a", "oak")]
    votes += [("sure", user, "elm") for user in "abcdef"]
    said = [
        event(number, person=user, observation=item, label=label)
        for number, (item, user, label) in enumerate(votes)
    ]
    shown = (Shown("oak", 0.5, True), Shown("elm", 0.5, True))
    said.append(event(9, "do_not_know", observation="unsure", shown=shown))
    queue = review_queue(stored(location, said), rule="majority", theta=2.0)
    assert [one.item for one in queue] == ["unsure", "split", "lone"]  # "sure" is decided
    # one newcomer's weight for something else, one for the list: 1/2, 1/4, 1/4
    assert queue[0].information == pytest.approx(1.5 * math.log(2)) and queue[0].undecided == 1
    assert queue[0].candidates == (("?", 0.5), ("elm", 0.25), ("oak", 0.25)) and queue[0].label == "elm"
    assert queue[1].information == pytest.approx(math.log(2)) and queue[2].information == 0
    short = review_queue(location, rule="majority", theta=2.0, first=1)
    assert short == [queue[0], *(one._replace(candidates=()) for one in queue[1:])]
    stored(tmp_path / "other", [event(verb="do_not_know")])
    (unsure,) = review_queue(tmp_path / "other")  # without a single vote
    assert (unsure.votes, unsure.undecided, unsure.photos) == (0, 1, ())
    waits = [event(0, "observe", shown=shown)]
    waits.append(event(1, "observe", shown=shown, status="novel", images=(IMAGES[1],)))
    queue = review_queue(stored(tmp_path / "third", waits))  # what is like nothing known waits, too
    assert [(one.item, one.photos, one.votes) for one in queue] == [(i, (i,), 0) for i in sorted(IMAGES[:2])]
    assert [one.information for one in queue] == pytest.approx([math.log(2)] * 2)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_names_that_people_chose_run_in_no_spreadsheet_and_never_merge(tmp_path, suffix):
    """A quote is put before a formula, and before what looks quoted; reading takes it away."""
    names = ["=1+1", "'=1+1", "''=1+1", "@u1", "'@u1", "'t Hooft", "-2", "'-2", "'"]
    votes = [Vote(name, name, "-x", name, "t") for name in names]
    path = tmp_path / f"votes{suffix}"
    write_votes(path, votes)
    if suffix == ".csv":
        lines = path.read_text().splitlines()[1:]
        assert lines[0] == '"\'=1+1","\'=1+1","\'-x","\'=1+1","t",0' and len(set(lines)) == len(names)
        assert not any(cell[1:2] in tuple("=+@") for line in lines for cell in line.split(","))
    read = read_columns(path, ["item", "user", "label", "author"])
    assert read["item"].to_pylist() == read["user"].to_pylist() == read["author"].to_pylist() == names
    found = aggregate_votes(**read_votes(path))
    assert found.items.tolist() == found.users.tolist() == sorted(names)
    save_consensus(tmp_path / f"labels{suffix}", found)
    assert read_columns(tmp_path / f"labels{suffix}", ["item"])["item"].to_pylist() == sorted(names)


@pytest.mark.errors
def test_nobody_can_call_himself_the_machine():
    with pytest.raises(ValueError, match="person must not begin with '!'"):
        Event("confirm", "r", person="!machine", label="oak", images=("0" * 64,))
