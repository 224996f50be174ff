"""Invited people over HTTP: the token says who somebody is, and nobody else can be that person."""

from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from shortlist.feedback import FeedbackStore, invite, revoke
from shortlist.serve.limits import Limits
from tests.serve.parts import files, png
from tests.serve.test_observations import events, observed, seen, voted, waiting


def with_link(client, name: str) -> dict[str, str]:
    """Invite a person to the store of a server; return the header of the link."""
    return {"x-person-token": invite(client.service.feedback.store._database.location, name)}


def answered(client, person: str | None, photo: bytes = png(0), headers=None):
    receipt = client.post("/v1/identify?receipt=true", files=files(photo)).json()["receipt"]
    said = {"verb": "none_of_these", "receipt": receipt, "person": person}
    return client.post("/v1/feedback", json=said, headers=headers)


def refused(answer, code: str = "bad_link") -> bool:
    return (answer.status_code, answer.json()["error"]["code"]) == (403, code)


def test_the_link_names_the_person_on_any_device(client):
    link = with_link(client, "ana")
    for device in ("page-1", "page-2", None, "bob"):
        assert answered(client, device, headers=link).status_code == 201
    id = observed(client, "page-3", png(1), headers=link)
    assert {(event.person, event.key) for event in events(client)} == {("ana", "invited")}
    assert seen(client, id, "page-4", headers=link).json()["own"]
    assert voted(client, id, "page-5", headers=link).json()["error"]["code"] == "own_observation"
    assert voted(client, id, "page-5").status_code == 201
    assert waiting(client, "page-1", headers=link)["observation"] is None  # nobody else's


def test_a_name_of_an_invited_person_is_refused_without_the_link(client):
    link = with_link(client, "ana")
    id = observed(client, "bob", png(1))
    own = observed(client, "x", png(2), headers=link, consent=False)
    assert refused(answered(client, "ana")) and refused(voted(client, id, "ana"))
    assert refused(seen(client, id, "ana")) and refused(seen(client, own, "ana"))
    assert refused(client.get("/v1/review/next", headers={"x-person": "ana"}))
    said = {"person": "ana", "receipt": "", "consent": False}
    said["receipt"] = client.post("/v1/identify?receipt=true", files=files(png(3))).json()["receipt"]
    assert refused(client.post("/v1/observations", json=said))
    assert {event.person for event in events(client)} == {"bob", "ana"} and len(events(client)) == 2
    assert seen(client, own, "page", headers=link).json()["own"]


@pytest.mark.parametrize("attack", ["forged", "other store", "again", "revoked", "deleted"])
def test_links_that_do_not_count_are_refused(client, tmp_path, attack):
    place = client.service.feedback.store._database.location
    link = with_link(client, "ana")
    id = observed(client, "bob", png(1))
    own = observed(client, "x", png(2), headers=link, consent=False)
    if attack == "forged":
        link = {"x-person-token": link["x-person-token"][:-2] + "AA"}
    elif attack == "other store":
        FeedbackStore(tmp_path / "other").close()
        link = {"x-person-token": invite(tmp_path / "other", "ana")}
    elif attack == "again":
        invite(place, "ana")
    elif attack == "revoked":
        revoke(place, "ana")
    else:
        client.service.feedback.store.erase_person("ana")
    number = len(events(client))
    assert refused(answered(client, "ana", headers=link)) and refused(voted(client, id, "x", headers=link))
    assert refused(seen(client, own, "ana", headers=link))
    assert refused(client.get("/v1/review/next", headers=link))
    assert len(events(client)) == number


def test_only_invited_people_answer_where_others_may_not(start):
    client = start(people="invited")
    link = with_link(client, "ana")
    assert client.post("/v1/identify", files=files(png(0))).status_code == 200  # lists stay free
    for person in ("bob", "ana", None):
        assert refused(answered(client, person), "not_invited")
    assert answered(client, "page", headers=link).status_code == 201
    id = events(client)[0].item
    assert refused(voted(client, id, "bob"), "not_invited")
    assert refused(client.get("/v1/review/next", headers={"x-person": "bob"}), "not_invited")
    assert len(events(client)) == 1


def test_a_link_goes_beside_any_key(start, tmp_path):
    keys = ["first-key-of-sixteen", "second-key-of-sixteen"]
    (tmp_path / "keys.txt").write_text("\n".join(keys))
    client = start(keys=tmp_path / "keys.txt")
    link = with_link(client, "ana")
    for number, key in enumerate(keys):
        observed(client, "x", png(number), headers=link | {"x-api-key": key})
    assert {(event.person, event.key) for event in events(client)} == {("ana", "invited")}
    assert answered_with(client, keys[0], "ana").status_code == 403
    assert answered_with(client, keys[0], "bob").status_code == 201


def answered_with(client, key: str, person: str):
    headers = {"x-api-key": key}
    answer = client.post("/v1/identify?receipt=true", files=files(png(0)), headers=headers)
    said = {"verb": "none_of_these", "receipt": answer.json()["receipt"], "person": person}
    return client.post("/v1/feedback", json=said, headers=headers)


def test_the_rate_of_answers_is_of_a_person_on_all_devices_or_of_an_address(start):
    """Lists stay free, and so does looking at observations."""
    client = start(limits=Limits(answer_rate=3))
    id = observed(client, "bob", png(1))
    other = TestClient(client.app, client=("10.0.0.2", 1))
    link, next_link = with_link(client, "ana"), with_link(client, "eva")
    assert refused(voted(other, id, "ana"), "bad_link")  # counts: who asks has an address
    devices = [(client, "d1"), (client, "d2"), (other, "d3"), (other, "d4"), (client, "d5")]
    statuses = [voted(device, id, name, headers=link).status_code for device, name in devices]
    assert statuses == [201, 201, 201, 429, 429]
    assert [voted(other, id, f"p{n}").status_code for n in range(3)] == [201, 201, 429]
    assert voted(client, id, "x", headers=next_link).status_code == 201
    stopped = [voted(client, id, f"q{n}") for n in range(3)]
    assert [answer.status_code for answer in stopped] == [201, 201, 429]
    assert "Too many answers: 3 per minute" in stopped[2].json()["error"]["message"]
    assert int(stopped[2].headers["retry-after"]) >= 1
    assert answered(client, "new").status_code == 429  # the list before it was free
    assert seen(client, id, "q0").status_code == 200


def test_people_must_be_open_or_invited(start):
    with pytest.raises(ValueError, match="people must be one of"):
        start(people="some")


LOOK_ALIKES = {
    "a blank before": " ann",
    "a blank after": "ann ",
    "two blanks": "ann  b",
    "a blank of another width": "ann\u2003b",
    "a blank that does not break": "ann\u00a0b",
    "nothing wide": "a\u200bnn",
    "a joiner": "a\u200dnn",
    "a byte order mark": "\ufeffann",
    "from right to left": "\u202eann",
    "an isolate": "\u2066ann",
    "a soft hyphen": "an\u00adn",
    "a tag": "ann\U000e0061",
    "a selector": "ann\ufe0f",
    "a filler": "ann\u3164",
    "a grapheme joiner": "a\u034fnn",
    "an unassigned character": "ann\u0378",
    "a private character": "ann\ue000",
    "a line separator": "ann\u2028b",
    "a Cyrillic letter among Latin ones": "\u0430nn",
    "a Greek letter among Latin ones": "ann\u03bf",
}


@pytest.mark.errors
@pytest.mark.parametrize("name", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_no_person_can_look_like_another_one(client, name):
    id = observed(client, "bob", png(1))
    asked = {"x-person": quote(name)}
    answers = [answered(client, name), voted(client, id, name), seen(client, id, quote(name))]
    answers.append(client.get("/v1/review/next", headers=asked))
    answers.append(client.post("/v1/observations", json={"person": name, "receipt": ""}))
    answers.append(client.post("/v1/observations", json={"about": {"author": name}, "receipt": ""}))
    for answer in answers:
        words = answer.json()["error"]["message"]
        assert answer.status_code == 422 and "must have no blanks but single ones between words" in words
        assert words.isprintable() and words.isascii()
    with pytest.raises(ValueError, match="name must have no blanks"):
        invite(client.service.feedback.store._database.location, name)
    assert len(events(client)) == 1


@pytest.mark.errors
@pytest.mark.parametrize("name", ["a\u200bnn", "\u202eann", "\u0430nn", "ann\u3164"])
def test_no_proposed_name_can_look_like_another_one(client, name):
    id = observed(client, "ann", png(1))
    refused = voted(client, id, "bob", "new_name", name=name)
    assert refused.status_code == 422 and "name must have no blanks" in refused.json()["error"]["message"]
    # blanks of a proposed name become single ones, so that nothing looks like it
    assert voted(client, id, "bob", "new_name", name=" Tilia\u00a0 \u00d7europaea ").status_code == 201
    assert events(client)[-1].label == "Tilia \u00d7europaea"


@pytest.mark.parametrize(
    "name", ["Élodie", "O'Neil-Şahin", "李 小龙", "анна", "Άννα", "पार्वती", "محمد", "p-41", "a😀"]
)
def test_names_of_one_alphabet_are_names(client, name):
    assert answered(client, name).status_code == 201
    assert [event.person for event in events(client)] == [name]
