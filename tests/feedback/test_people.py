"""Invited people: a name is of who has its link, whatever others try."""

import base64
import hashlib
import hmac
import json
from collections import Counter

import pytest

from shortlist.feedback import (
    Event,
    FeedbackStore,
    InviteError,
    admit,
    invite,
    list_people,
    read_manifest,
    read_token,
    revoke,
)
from shortlist.feedback.store import answers_by_item, read_events
from shortlist.feedback.votes import each_vote
from tests.commands import output_of
from tests.postgres import everything_in

IMAGE = "0" * 64


def secret_of(location) -> bytes:
    return bytes.fromhex(read_manifest(location)["secret"])


@pytest.fixture
def store(location):
    with FeedbackStore(location) as opened:
        yield opened


def said(store, number: int, person: str, key: str = ""):
    event = Event("confirm", f"request {number}", person=person, label="oak", images=(IMAGE,), key=key)
    return store.add(event)


def padded(token: str) -> bytes:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))


def test_a_name_is_of_who_has_its_link(store, location):
    said(store, 0, "ana")  # somebody who called herself so before
    token = invite(location, "ana")
    person, key = read_token(store.secret, token)
    assert person == "ana" and admit(location, "ana", key) == "invited"
    said(store, 1, person, key)
    said(store, 2, "bob")
    for number, (name, false) in enumerate([("ana", ""), ("ana", "key-1"), ("bob", key), ("", key)]):
        with pytest.raises(InviteError, match="must be a name with its valid link"):
            said(store, 10 + number, name, false)
        with pytest.raises(InviteError):
            admit(location, name, false)
    assert admit(location, "bob", "") == admit(location, "", "") == ""
    keys = [(event.person, event.key) for event in read_events(location)]
    assert keys == [("ana", ""), ("ana", "invited"), ("bob", "")]
    votes = {vote.user: vote.invited for vote in each_vote(answers_by_item(location), Counter())}
    assert votes == {"ana": 1, "bob": 0}


def test_a_vote_before_the_invitation_is_not_an_invited_one(store, location):
    said(store, 0, "ana")
    invite(location, "ana")
    assert [vote.invited for vote in each_vote(answers_by_item(location), Counter())] == [0]


def test_a_new_link_ends_the_one_before_and_a_revoked_one_is_dead(store, location):
    _, first = read_token(store.secret, invite(location, "ana"))
    said(store, 0, "ana", first)
    _, second = read_token(store.secret, invite(location, "ana"))
    assert first != second and len(list_people(location)) == 1
    with pytest.raises(InviteError):
        said(store, 1, "ana", first)  # replayed
    said(store, 1, "ana", second)
    revoke(location, "ana")
    for number, key in enumerate([first, second, "", "invited:", "invited"]):
        with pytest.raises(InviteError):
            said(store, 10 + number, "ana", key)
        with pytest.raises(InviteError):
            admit(location, "ana", key)
    (person,) = list_people(location)
    assert person.name == "ana" and person.since <= person.revoked
    with pytest.raises(ValueError, match="name must be that of an invited person, got 'ana'"):
        revoke(location, "ana")
    _, third = read_token(store.secret, invite(location, "ana"))
    said(store, 2, "ana", third)
    with pytest.raises(InviteError):
        said(store, 3, "ana", second)
    assert [vote.invited for vote in each_vote(answers_by_item(location), Counter())] == [1]


def test_a_token_is_signed_by_the_secret_over_serial_and_name(store, location, tmp_path):
    token = invite(location, "Zoë")
    content = padded(token)
    serial, name = content[32:48], content[48:].decode()
    right = hmac.new(secret_of(location), b"person\0" + serial + name.encode(), hashlib.sha256).digest()
    assert content[:32] == right and name == "Zoë"
    with FeedbackStore(tmp_path / "other") as other:
        foreign = invite(tmp_path / "other", "Zoë")
        assert read_token(other.secret, foreign)[0] == "Zoë"
    renamed = base64.urlsafe_b64encode(content[:48] + b"Ana").decode()
    flipped = base64.urlsafe_b64encode(bytes([content[0] ^ 1]) + content[1:]).decode()
    unsigned = base64.urlsafe_b64encode(bytes(32) + content[32:]).decode()
    for forged in (foreign, renamed, flipped, unsigned, "", "x", "é", token[:-4], token + "AAAA", "A" * 64):
        with pytest.raises(ValueError, match="token must be one that"):
            read_token(store.secret, forged)


def test_a_receipt_is_no_token(store, location):
    from shortlist.serve.receipts import _written, read_receipt

    receipt = _written({"images": [IMAGE]}, store.secret)
    with pytest.raises(ValueError, match="token must be one"):
        read_token(store.secret, receipt)
    with pytest.raises(ValueError, match="receipt must be one"):
        read_receipt(invite(location, "ana"), store.secret)


def test_a_deleted_person_leaves_nothing_and_no_link(store, location):
    name = "a person of some garden"
    _, before = read_token(store.secret, invite(location, name))
    said(store, 0, name, before)
    assert name.encode() in everything_in(location)
    store.erase_person(name)
    assert list_people(location) == [] and name.encode() not in everything_in(location)
    with pytest.raises(InviteError):
        said(store, 1, name, before)
    said(store, 2, name)  # the name is free again
    store.erase_person(name)
    _, after = read_token(store.secret, invite(location, name))
    with pytest.raises(InviteError):
        said(store, 3, name, before)
    said(store, 3, name, after)


@pytest.mark.parametrize("name", ["", " ", "!machine", "a\nb", "x" * 501])
def test_a_name_that_nobody_can_have_is_refused(store, location, name):
    with pytest.raises(ValueError, match=r"(name|person) must"):
        invite(location, name)
    assert list_people(location) == []


def test_both_ways_to_write_an_accent_are_one_person(store, location):
    _, key = read_token(store.secret, invite(location, "Zoe\u0308"))
    with pytest.raises(InviteError):
        said(store, 0, "Zo\u00eb")
    said(store, 0, "Zoe\u0308", key)
    revoke(location, "Zo\u00eb")
    assert [person.name for person in list_people(location)] == ["Zo\u00eb"]


def test_the_commands(store, location):
    link = output_of("people", "add", location, "ana", "--page", "https://plants.example/").strip()
    page, _, token = link.partition("#person=")
    assert page == "https://plants.example/" and read_token(store.secret, token)[0] == "ana"
    assert json.loads(output_of("people", "add", location, "bob", "--json"))["link"].startswith(
        "http://127.0.0.1:8000/#person="
    )
    output_of("people", "revoke", location, "bob")
    lines = output_of("people", "list", location).splitlines()
    assert lines[0].startswith("ana  since 2") and "revoked" not in lines[0] and "revoked 2" in lines[1]
    listed = json.loads(output_of("people", "list", location, "--json"))["people"]
    assert [(one["name"], one["revoked"] != "") for one in listed] == [("ana", False), ("bob", True)]


def test_nobody_is_invited_where_there_is_no_store(tmp_path):
    with pytest.raises(ValueError, match="is no store of feedback"):
        invite(tmp_path / "nothing", "ana")
    assert not (tmp_path / "nothing").exists()
