"""Flagged observations wait for a look of others, and consent that is taken back counts."""

import hashlib
import json

import pytest

from shortlist import ClassTable
from shortlist.feedback import (
    Event,
    FeedbackStore,
    SameRequestError,
    Shown,
    photos_of,
    read_observation,
    waiting_observations,
)
from shortlist.feedback.doctor import examine_store
from shortlist.feedback.observations import observation_id
from shortlist.feedback.review import review_queue
from shortlist.feedback.store import copies_in, read_events, stats_of
from shortlist.feedback.votes import collect_votes
from tests.commands import output_of
from tests.postgres import everything_in
from tests.serve.parts import png

PHOTOS = [png(seed) for seed in range(4)]
SHAS = [hashlib.sha256(photo).hexdigest() for photo in PHOTOS]
SHOWN = (Shown("oak", 0.6, True), Shown("ash", 0.4, True))
counter = iter(range(10_000))


def said(verb: str, person: str, item: str, photo: int = 0, **more) -> Event:
    label = {"label": "oak"} if verb in ("confirm", "other_class", "new_name") else {}
    values = {"images": (SHAS[photo],), "shown": SHOWN, "observation": item} | label | more
    return Event(verb, f"request {next(counter)}", person=person, **values)


def voters(location, **options) -> list[tuple[str, str]]:
    return [(vote.item, vote.user) for vote in collect_votes(read_events(location), **options).votes]


@pytest.mark.parametrize("flagged", [{"flags": ("blurred",)}, {"flags": ("small",)}, {"status": "novel"}])
def test_a_flagged_observation_counts_after_somebody_else_has_looked(flagged, location):
    with FeedbackStore(location) as store:
        store.add(said("confirm", "ann", "good", photo=1, consent=True))
        store.add(said("confirm", "ann", "odd", consent=True, **flagged))
        assert voters(location) == [("good", "ann")]
        assert dict(collect_votes(read_events(location)).left_out) == {
            "flagged, until somebody else has looked": 1
        }
        assert voters(location, with_flagged=True) == [("good", "ann"), ("odd", "ann")]
        store.add(said("confirm", "ann", "odd", consent=True, **flagged))  # again, which is no look
        store.add(said("do_not_know", "bob", "odd", **flagged))
        assert voters(location) == [("good", "ann")]
        rule = {"rule": "majority", "theta": 0.5, "min_voters": 1}  # by which one vote is enough
        assert [one.item for one in review_queue(location, **rule)] == ["odd"]
        waiting, number = waiting_observations(location, most=9, **rule)
        assert number == 1 and waiting[0].item == "odd" and waiting[0].people == {"ann", "bob"}
        store.add(said("confirm", "cem", "odd", **flagged))
        assert voters(location) == [("good", "ann"), ("odd", "ann"), ("odd", "cem")]
    assert examine_store(location) == []


def test_a_name_for_what_is_like_nothing_known_counts_but_not_of_a_blurred_photo(location):
    with FeedbackStore(location) as store:
        store.add(said("new_name", "ann", "strange", status="novel"))
        store.add(said("new_name", "ann", "blurred", photo=1, status="novel", flags=("blurred",)))
    assert voters(location) == [("strange", "ann")]


def test_the_store_flags_photos_of_an_earlier_observation(location):
    """By the first one that they were sent for, also in one transaction; a repeated request says it again."""
    with FeedbackStore(location) as store:
        first = store.add(said("confirm", "ann", "a"))
        again = said("confirm", "bob", "b")
        assert first.flags == () and store.add(again).flags == ("duplicate",)
        assert store.add(again) == (2, False, ("duplicate",))
        assert store.add(said("confirm", "ann", "a")).flags == ()  # the first stays without it
        both = said("confirm", "cem", "c", images=(SHAS[2], SHAS[1]), flags=("small",))
        assert store.add(both).flags == ("small",)
        together = [store.submit(said("confirm", f"p{i}", f"i{i}", photo=3)) for i in range(5)]
        assert [kept.result().flags for kept in together] == [(), *[("duplicate",)] * 4]
        assert store.add(said("confirm", "dan", "d", photo=1)).flags == ("duplicate",)
        assert [event.flags for event in store.events()][:2] == [(), ("duplicate",)]
        store.erase_person("ann")
        assert store.add(said("confirm", "eve", "e")).flags == ("duplicate",)  # of what bob sent
    assert examine_store(location) == []


@pytest.mark.errors
def test_flags_are_of_a_list_and_nobody_gives_and_takes_consent_at_once():
    with pytest.raises(ValueError, match="flags must be one of"):
        said("confirm", "ann", "a", flags=("ugly",))
    with pytest.raises(ValueError, match="withdraws must be False with consent"):
        said("confirm", "ann", "a", consent=True, withdraws=True)


def test_consent_that_is_taken_back_takes_photos_out_of_store_export_review_and_archive(location, tmp_path):
    with FeedbackStore(location) as store:
        mine = observation_id(store.secret, "ann", "tree")
        theirs = observation_id(store.secret, "bob", "tree")
        about = {"license": "CC BY 4.0", "date": "2026-05-01"}
        for person, item, photos in (("ann", mine, (0, 1)), ("bob", theirs, (1, 2))):
            images, copies = tuple(SHAS[i] for i in photos), [PHOTOS[i] for i in photos]
            event = said("observe", person, item, images=images, consent=True, about=about)
            store.add(event, copies)
        for person in ("cem", "dan"):
            store.add(said("confirm", person, mine, images=(SHAS[0], SHAS[1])))
            store.add(said("confirm", person, theirs, images=(SHAS[1], SHAS[2])))
        store.add(said("confirm", "ann", mine, images=(SHAS[0], SHAS[1])))  # says nothing about consent
        assert read_observation(location, store.secret, mine).consent and copies_in(location) == {*SHAS[:3]}
        before = [event.request for event in store.events()]
        store.add(said("do_not_know", "ann", mine, images=(SHAS[0], SHAS[1]), withdraws=True))
        assert copies_in(location) == {SHAS[1], SHAS[2]}  # one of them bob gave too
        assert store.copy_of(SHAS[0]) is None and store.copy_of(SHAS[1]) == PHOTOS[1]
        assert PHOTOS[0] not in everything_in(location)
        assert [event.request for event in store.events()][:-1] == before  # what was said stays
        assert not read_observation(location, store.secret, mine).consent
        assert read_observation(location, store.secret, theirs).consent
        rule = {"theta": 99.0}
        assert [one.item for one in waiting_observations(location, most=9, **rule)[0]] == [theirs]
        assert {(image, item) for image, item, _ in photos_of(location)} == {(i, theirs) for i in SHAS[1:3]}
    assert examine_store(location) == [] and stats_of(location)["copies"] == 2
    output_of("feedback", "export", location, "--out", tmp_path / "votes.csv", "--images", tmp_path / "p.csv")
    listed = (tmp_path / "p.csv").read_text()
    assert SHAS[0] not in listed and mine not in listed and theirs in listed
    ClassTable(names=["oak", "ash"]).save(tmp_path / "class_table.json")
    options = ["--form", "dwca", "--classes", tmp_path, "--title", "t", "--with-unverified"]
    counted = output_of("feedback", "export", location, "--out", tmp_path / "a.zip", *options, "--json")
    assert json.loads(counted)["observations"] == 1
    with FeedbackStore(location) as store:  # and given again
        event = said("confirm", "ann", mine, images=(SHAS[0], SHAS[1]), consent=True)
        store.add(event, [PHOTOS[0]])
        assert store.copy_of(SHAS[0]) == PHOTOS[0] and read_observation(location, store.secret, mine).consent
    assert examine_store(location) == []


def test_nobody_takes_back_consent_of_somebody_else(location):
    with FeedbackStore(location) as store:
        store.add(said("observe", "ann", "a", consent=True), [PHOTOS[0]])
        store.add(said("do_not_know", "bob", "a", withdraws=True))
        store.add(said("do_not_know", "ann", "b", withdraws=True))
        assert copies_in(location) == {SHAS[0]}


def observed(location, person: str, seed: int, voters: str = "abcd") -> bytes:
    """One observation of a photo, with a valid label if four others vote; returns the photo."""
    photo = png(seed, (9, 9))
    with FeedbackStore(location) as store:
        item = observation_id(store.secret, person, f"{seed}")
        about = {"author": f"Author {person}", "license": "CC BY 4.0"}
        values = {"images": (hashlib.sha256(photo).hexdigest(),), "observation": item, "label": "oak"}
        own = Event("confirm", f"own {next(counter)}", person=person, consent=True, about=about, **values)
        store.add(own, [photo])
        for voter in voters:
            store.add(Event("confirm", f"{voter} {next(counter)}", person=voter, **values))
    return photo


def grown(location, tmp_path, number: int) -> bytes:
    """Export the votes, and let the data grow by them; returns all bytes of the new data."""
    files = {"--votes": tmp_path / "votes.csv", "--images": tmp_path / "photos.csv"}
    output_of("feedback", "export", location, "--out", files["--votes"], "--images", files["--images"])
    more = [] if hasattr(location, "parts") else ["--store", location]
    words = [word for pair in files.items() for word in pair]
    old, new = tmp_path / f"data-{number}", tmp_path / f"data-{number + 1}"
    output_of("data", "grow", old, new, *words, "--held-out", "0", *more)
    return everything_in(new)


@pytest.mark.slow
def test_who_was_deleted_and_who_took_consent_back_are_in_no_later_build(location, tmp_path):
    for label in ("ash", "oak"):
        for seed in range(10):
            file = tmp_path / "photos" / label / f"{seed}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(png(1000 + seed + 100 * (label == "oak"), (9, 9)))
    output_of("data", "build", tmp_path / "photos", tmp_path / "data-1", "--split", "hash", "--apply")
    photos = {person: observed(location, person, seed) for seed, person in enumerate(("ann", "bob", "cem"))}
    first = grown(location, tmp_path, 1)
    assert all(photo in first and f"Author {person}".encode() in first for person, photo in photos.items())
    with FeedbackStore(location) as store:
        store.erase_person("ann")
        images = (hashlib.sha256(photos["bob"]).hexdigest(),)
        item = observation_id(store.secret, "bob", "1")
        store.add(Event("do_not_know", "no", person="bob", images=images, observation=item, withdraws=True))
    for number in (2, 3):
        later = grown(location, tmp_path, number)
        for person, photo in photos.items():
            is_there = person == "cem"
            assert (photo in later) is is_there and (f"Author {person}".encode() in later) is is_there
            assert (hashlib.sha256(photo).hexdigest().encode() in later) is is_there


@pytest.mark.slow
@pytest.mark.parametrize("voters", ["abcd", ""])  # without votes, the second observation waits as a duplicate
def test_a_photo_that_somebody_else_gave_too_loses_all_that_a_deleted_person_said(location, tmp_path, voters):
    for label in ("ash", "oak"):
        for seed in range(10):
            file = tmp_path / "photos" / label / f"{seed}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(png(1000 + seed + 100 * (label == "oak"), (9, 9)))
    output_of("data", "build", tmp_path / "photos", tmp_path / "data-1", "--split", "hash", "--apply")
    photo = observed(location, "ann", 0)
    assert b"Author ann" in grown(location, tmp_path, 1) and observed(location, "bob", 0, voters) == photo
    assert b"Author ann" in grown(location, tmp_path, 2)  # who gave it first
    with FeedbackStore(location) as store:
        item = observation_id(store.secret, "ann", "0").encode()
        store.erase_person("ann")
    later = grown(location, tmp_path, 3)
    assert photo in later and b"Author bob" in later
    assert b"Author ann" not in later and item not in later


def test_a_flag_stays_whatever_list_comes_later_or_without_a_list(location):
    with FeedbackStore(location) as store:
        store.add(said("confirm", "ann", "odd", consent=True, flags=("blurred",)))
        store.add(said("confirm", "ann", "odd", photo=1, consent=True))
        store.add(said("confirm", "bob", "new", photo=2, consent=True, status="novel"))
        store.add(said("confirm", "bob", "new", photo=3, consent=True))
        store.add(said("other_class", "cem", "again", photo=3, shown=()))
        assert voters(location) == []
        mine = observation_id(store.secret, "dan", "tree")
        for flags in (("small",), ()):
            store.add(said("observe", "dan", mine, consent=True, flags=flags))
        assert read_observation(location, store.secret, mine).flags == ("small", "duplicate")


def test_votes_count_for_the_photos_that_people_saw(location):
    """Who adds a photo, or deletes all and sends another photo under the same name, needs new votes."""
    with FeedbackStore(location) as store:
        tree = observation_id(store.secret, "ann", "tree")
        store.add(said("observe", "ann", tree, consent=True))
        for person in ("bob", "cem"):
            store.add(said("confirm", person, tree))
        store.add(said("confirm", "ann", tree, consent=True))  # the same photo
        assert voters(location) == [(tree, "bob"), (tree, "cem"), (tree, "ann")]
        store.add(said("observe", "ann", tree, photo=1, consent=True))
        assert voters(location) == [(tree, "ann")]
        assert collect_votes(read_events(location)).left_out["of earlier photos"] == 2
        waiting, _ = waiting_observations(location, most=9)
        assert [one.people for one in waiting] == [{"ann"}]  # the others may look again
        assert read_observation(location, store.secret, tree).answer_of("bob") is None
        store.add(said("confirm", "bob", tree, images=(SHAS[0], SHAS[1])))
        store.add(said("confirm", "ann", tree, consent=True))  # a photo from before, which bob saw
        assert voters(location) == [(tree, "ann"), (tree, "bob")]
        store.erase_person("ann")
        store.add(said("confirm", "ann", tree, photo=2, consent=True, flags=("blurred",)))
        assert voters(location) == []
        store.add(said("confirm", "cem", tree, photo=2))
        assert voters(location) == [(tree, "ann"), (tree, "cem")]


def test_a_request_that_takes_consent_back_is_not_taken_for_an_earlier_one(location):
    values = {"request": "same", "images": (SHAS[0],), "observation": "a"}
    with FeedbackStore(location) as store:
        store.add(Event("observe", person="ann", consent=True, **values), [PHOTOS[0]])
        with pytest.raises(SameRequestError):
            store.add(Event("observe", person="ann", withdraws=True, **values))
        with pytest.raises(SameRequestError):
            store.add(Event("observe", person="ann", **values | {"observation": "b"}))
        later = values | {"request": "later"}
        store.add(Event("observe", person="ann", **later))
        assert copies_in(location) == {SHAS[0]}
        for _ in range(2):  # what said nothing of consent now takes it back
            assert store.add(Event("observe", person="ann", withdraws=True, **later))[:2] == (2, False)
            assert copies_in(location) == set()
    assert examine_store(location) == []
