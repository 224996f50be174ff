"""People's answers over HTTP: recorded with the list that was shown, counted, deleted."""

import hashlib
import json
import re

import pytest
import torch
from starlette.testclient import TestClient

from shortlist.feedback import Event, Shown
from shortlist.feedback.votes import collect_votes
from shortlist.predictors import NoveltyDetector
from shortlist.serve.app import make_app
from shortlist.serve.limits import Limits
from shortlist.serve.service import Service
from tests.serve.parts import Index, encoded, files, picture, png, receipt_of, tree_model

SHA = hashlib.sha256(png(1)).hexdigest()


def listed(client, *, seed: int = 1, **options) -> dict:
    return client.post("/v1/identify", files=files(png(seed)), params={"receipt": True, **options}).json()


def events(client) -> list:
    return list(client.service.feedback.store.events())


def form(event: dict, *photos: bytes) -> list:
    return [("event", ("event", json.dumps(event).encode(), "application/json")), *files(*photos)]


def deleted(client, what: dict, headers: dict | None = None):
    return client.post("/v1/feedback/deletions", json=what, headers=headers)


def test_an_answer_is_recorded_with_the_list_that_was_shown(client):
    answer = listed(client, coverage=0.9, limit=4)
    best = answer["candidates"][0]
    said = {"verb": "confirm", "class_id": best["id"], "person": "p1", "receipt": answer["receipt"]}
    about = {"organs": ["leaf"], "observation": "o1", "author": "Ana"}
    kept = client.post("/v1/feedback", json=said | {"about": about})
    (event,) = events(client)
    content = {"kept": True, "number": 1, "new": True, "observation": event.item, "flags": []}
    assert kept.status_code == 201 and kept.json() == content
    assert (event.verb, event.label, event.person, event.images) == ("confirm", best["id"], "p1", (SHA,))
    expected = [(one["id"], round(one["probability"], 6), one["in_set"]) for one in answer["candidates"]]
    assert [tuple(one) for one in event.shown] == expected and isinstance(event.shown[0], Shown)
    assert event.choice == {"coverage": 0.9, "promised": 0.9} and event.model == client.service.version
    assert event.about == {"author": "Ana"} and event.organs == ("leaf",) and event.status == answer["status"]
    assert client.service.feedback.store.copy_of(SHA) is None


def test_there_is_no_receipt_unless_it_is_asked_for(client, tmp_path):
    assert "receipt" not in client.post("/v1/identify", files=files(png(1))).json()
    assert not (tmp_path / "feedback").exists()


def test_an_answer_that_is_sent_again_is_recorded_once(client):
    said = {"verb": "none_of_these", "id": "r1", "receipt": receipt_of(client.post)}
    answers = [client.post("/v1/feedback", json=said).json() for _ in range(3)]
    assert [one["new"] for one in answers] == [True, False, False] and len(events(client)) == 1
    other = client.post("/v1/feedback", json=said | {"verb": "do_not_know"})
    assert other.status_code == 409 and other.json()["error"]["code"] == "other_answer"


def test_a_name_that_the_model_does_not_know_can_be_proposed(client):
    said = {
        "verb": "new_name",
        "name": "Tilia × europaea",
        "person": "p1",
        "receipt": receipt_of(client.post),
    }
    assert client.post("/v1/feedback", json=said).status_code == 201
    assert [(event.verb, event.label) for event in events(client)] == [("new_name", "Tilia × europaea")]
    wrong = [{"name": "x" * 201}, {"name": "a\nb"}, {"name": ""}, {"name": None}, {"name": "!bad_image"}]
    wrong += [{"verb": "bad_image"}, {"class_id": "q1"}]
    for change in wrong:
        refused = client.post("/v1/feedback", json=said | change)
        words = refused.json()["error"]["message"]
        assert refused.status_code == 422 and ("class_id" if "class_id" in change else "name") in words, (
            change
        )
    assert len(events(client)) == 1


def test_the_page_asks_whether_a_photo_is_of_the_kind(tmp_path):
    for kind, words in (("a <b>", "This is not a &lt;b&gt;"), ("", "Something of another kind")):
        service = Service(tree_model(), index=Index(), feedback=tmp_path / "feedback", kind=kind)
        with TestClient(make_app(service)) as client:
            page = client.get("/").text
        assert re.search(f'data-verb="not_this_kind"><span data-said>{words}', page)


def test_what_the_person_saw_can_be_less_than_the_list(client):
    answer = listed(client, top=5)
    ids = [one["id"] for one in answer["candidates"]]
    said = {"verb": "none_of_these", "receipt": answer["receipt"], "shown": ids[:2]}
    assert client.post("/v1/feedback", json=said).status_code == 201
    assert [one.id for one in events(client)[0].shown if one.in_set] == ids[:2]


def test_photos_are_kept_with_consent_alone(client):
    answer = listed(client)
    said = {"verb": "do_not_know", "receipt": answer["receipt"], "consent": True}
    assert client.post("/v1/feedback", files=form(said, png(1))).status_code == 201
    store = client.service.feedback.store
    assert store.copy_of(SHA) == png(1)
    refused = client.post("/v1/feedback", files=form(said | {"consent": False}, png(1)))
    assert refused.status_code == 422
    other = client.post("/v1/feedback", files=form(said, encoded(picture(5))))
    assert other.status_code == 422 and "SHA-256" in other.json()["error"]["message"]
    assert client.post("/v1/feedback", files=form(said, b"no image")).status_code == 415
    assert len(events(client)) == 1


@pytest.mark.errors
@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b'{"verb": "confirm", "receipt": "RECEIPT"}', "application/json", 422),
        (b'{"verb": "confirm", "class_id": "oak", "receipt": "RECEIPT"}', "application/json", 422),
        (b'{"verb": "do_not_know", "images": ["%s"]}' % SHA.encode(), "application/json", 422),
        (b'{"verb": "do_not_know", "receipt": "RECEIPT", "person": " "}', "application/json", 422),
        (b'{"verb": "do_not_know", "receipt": "RECEIPT", "person": "NaN"}', "application/json", 422),
        (b'{"verb": "do_not_know", "receipt": "RECEIPT", "id": "\\n"}', "application/json", 422),
        (
            b'{"verb": "do_not_know", "receipt": "RECEIPT", "about": {"observation": "new-0-0\\u0000z"}}',
            "application/json",
            422,
        ),
        (
            b'{"verb": "do_not_know", "receipt": "RECEIPT", "about": {"observation": "\\t "}}',
            "application/json",
            422,
        ),
        (
            b'{"verb": "do_not_know", "receipt": "RECEIPT", "about": {"author": "a\\u001b[2J"}}',
            "application/json",
            422,
        ),
        (b'{"verb": "bad_image", "path": "/etc"}', "application/json", 422),
        (b'{"verb": "bad_image"}', "application/json", 422),
        (b'{"verb": "bad_image", "images": ["../../etc/passwd"]}', "application/json", 422),
        (b'{"verb": "bad_image", "receipt": "eyJ9"}', "application/json", 422),
        (b'{"verb": "bad_image", "receipt": "\xc3\xa9"}', "application/json", 422),
        (b"{", "application/json", 422),
        (b'{"verb": "bad_image"}', "text/plain", 415),  # which a form of any page can send
        (b'{"note": "' + 300_000 * b"x" + b'"}', "application/json", 413),
    ],
)
def test_bad_feedback_is_not_kept(client, body, kind, status):
    body = body.replace(b"RECEIPT", receipt_of(client.post).encode())
    response = client.post("/v1/feedback", content=body, headers={"content-type": kind})
    assert response.status_code == status and "message" in response.json()["error"]
    assert events(client) == []


@pytest.mark.errors
def test_a_receipt_cannot_be_made_up_nor_changed(client):
    receipt = listed(client)["receipt"]
    other = "B" if receipt[0] == "A" else "A"
    for wrong in (receipt[:-4], other + receipt[1:], receipt[:100] + "AAAA" + receipt[104:], ""):
        said = {"verb": "none_of_these", "receipt": wrong}
        assert client.post("/v1/feedback", json=said).status_code == 422
    said = {"verb": "confirm", "class_id": "q1", "receipt": receipt, "shown": ["q1", "no class"]}
    assert client.post("/v1/feedback", json=said).status_code == 422


def test_a_full_store_says_so(client):
    client.service.feedback.store._writer._max_bytes = 90_000
    receipt = receipt_of(client.post)
    answers = {
        client.post(
            "/v1/feedback", json={"verb": "do_not_know", "receipt": receipt, "note": 2000 * "x"}
        ).status_code
        for _ in range(20)
    }
    assert answers == {201, 507}


def test_answers_are_counted_and_deleted_with_a_key_alone(model, tmp_path):
    (tmp_path / "keys").write_text("an-administrators-key")
    service = Service(
        model, index=Index(), feedback=tmp_path / "store", admin_keys=tmp_path / "keys", limits=Limits()
    )
    with TestClient(make_app(service)) as client:
        for number, person in enumerate(["p1", "p1", "p/2"]):
            said = {"verb": "do_not_know", "person": person, "id": f"r{number}", "consent": True}
            photo = png(number)
            said["receipt"] = receipt_of(client.post, photo)
            assert client.post("/v1/feedback", files=form(said, photo)).status_code == 201
        stats = client.get("/v1/feedback/stats").json()
        assert (stats["events"], stats["people"], stats["images"], stats["copies"]) == (3, 2, 3, 3)
        assert stats["verbs"]["do_not_know"] == 3 and stats["first"] <= stats["last"]
        assert deleted(client, {"person": "p1"}).status_code == 401
        for wrong in ({"x-api-key": "no-key-of-any-administrator"}, {"authorization": "Bearer no-such-key"}):
            assert deleted(client, {"person": "p1"}, wrong).json()["error"]["code"] == "key_wrong"
        key = {"x-api-key": "an-administrators-key"}
        assert deleted(client, {"person": "p1"}, key).json() == {"events": 2, "copies": 2, "pending": False}
        image = hashlib.sha256(png(2)).hexdigest()
        bearer = {"authorization": "Bearer an-administrators-key"}
        assert deleted(client, {"image": image}, bearer).json() == {
            "events": 1,
            "copies": 1,
            "pending": False,
        }
        stats = client.get("/v1/feedback/stats").json()
        assert (stats["events"], stats["deletions"], stats["erased_events"], stats["copies"]) == (0, 2, 3, 0)


def test_people_of_any_name_can_be_deleted(model, tmp_path):
    """Names that no address can carry, each of which is another person."""
    (tmp_path / "keys").write_text("an-administrators-key")
    people = ["a/b", ".", "..", "a", "../a", "a%2Fb", "a?b#c", "a b", "é", "'a", "x" * 500]
    service = Service(model, feedback=tmp_path / "store", admin_keys=tmp_path / "keys")
    with TestClient(make_app(service)) as client:
        client.service, key = service, {"authorization": "bearer an-administrators-key"}
        for person in people:
            service.feedback.store.add(Event("do_not_know", person, person=person, images=(SHA,)))
        for number, person in enumerate(people):
            assert deleted(client, {"person": person}, key).json() == {
                "events": 1,
                "copies": 0,
                "pending": False,
            }
            assert [event.person for event in events(client)] == people[number + 1 :]


@pytest.mark.errors
@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{}", "application/json", 422),
        (b'{"person": "p1", "image": "%s"}' % SHA.encode(), "application/json", 422),
        (b'{"person": ""}', "application/json", 422),
        (b'{"image": "../../etc"}', "application/json", 422),
        (b'{"person": "p1", "all": true}', "application/json", 422),
        (b'{"person": "%s"}' % (300_000 * b"x"), "application/json", 413),
        (b'{"person": "p1"}', "text/plain", 415),
    ],
)
def test_deletions_that_name_nobody_or_two_are_refused(model, tmp_path, body, kind, status):
    (tmp_path / "keys").write_text("an-administrators-key")
    service = Service(model, feedback=tmp_path / "store", admin_keys=tmp_path / "keys")
    with TestClient(make_app(service)) as client:
        headers = {"x-api-key": "an-administrators-key", "content-type": kind}
        refused = client.post("/v1/feedback/deletions", content=body, headers=headers)
        assert refused.status_code == status and "message" in refused.json()["error"]


def test_a_store_that_fails_says_so_at_every_route(model, tmp_path):
    keys, store = tmp_path / "keys", tmp_path / "feedback"
    keys.write_text("an-admin-key-of-2026\n")
    service = Service(model, feedback=store, admin_keys=keys)
    with TestClient(make_app(service), raise_server_exceptions=False) as client:
        said = {"verb": "none_of_these", "receipt": receipt_of(client.post), "person": "p"}
        assert client.post("/v1/feedback", json=said).status_code == 201
        service.feedback.store.close()  # nothing can be written from now on
        (store / "feedback.json").write_text("{}")
        headers = {"x-api-key": "an-admin-key-of-2026"}
        answers = [
            client.post("/v1/feedback", json=said),
            client.get("/v1/feedback/stats"),
            deleted(client, {"person": "p"}, headers),
            deleted(client, {"image": SHA}, headers),
        ]
        assert [one.status_code for one in answers] == [507] * 4
        assert {one.json()["error"]["code"] for one in answers} == {"log_failed"}
        service.feedback._store = None  # it is closed


def test_lists_do_not_need_the_store(client, tmp_path):
    """No store can be made there: lists come without a receipt, and answers say that they cannot be kept."""
    (tmp_path / "feedback").write_text("no store")
    answer = listed(client)
    assert answer["candidates"] and (answer["receipt"], answer["audit"]) == (None, False)
    said: dict = {"verb": "none_of_these"}
    for more in ({}, {"receipt": None}):
        refused = client.post("/v1/feedback", json=said | more)
        assert refused.status_code == 507 and refused.json()["error"]["code"] == "log_failed"
    (tmp_path / "feedback").unlink()  # somebody made room for it
    said["receipt"] = listed(client)["receipt"]
    assert client.post("/v1/feedback", json=said).status_code == 201


def test_several_servers_of_one_machine_write_to_one_store(model, tmp_path):
    first, second = (Service(model, feedback=tmp_path / "store", audit=0.5) for _ in range(2))
    with TestClient(make_app(first)) as one, TestClient(make_app(second)) as other:
        said = {"verb": "bad_image", "receipt": receipt_of(one.post)}
        assert [client.post("/v1/feedback", json=said).json()["number"] for client in (one, other)] == [1, 2]
        assert one.get("/v1/feedback/stats").json()["events"] == 2


def test_a_server_of_another_machine_gives_receipts_and_refuses_answers(model, tmp_path, monkeypatch):
    first, second = (Service(model, feedback=tmp_path / "store", audit=0.5) for _ in range(2))
    with TestClient(make_app(first)) as writer, TestClient(make_app(second)) as other:
        said = {"verb": "bad_image", "receipt": receipt_of(writer.post)}
        assert writer.post("/v1/feedback", json=said).status_code == 201
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
        answers = [listed(other, seed=seed) for seed in range(6)]
        assert [one["audit"] for one in answers] == [listed(writer, seed=seed)["audit"] for seed in range(6)]
        said = {"verb": "none_of_these", "receipt": answers[1]["receipt"]}
        assert other.post("/v1/feedback", json=said).status_code == 507
        assert writer.post("/v1/feedback", json=said).status_code == 201
        assert other.get("/v1/feedback/stats").json()["events"] == 2  # who cannot write can count


def test_nobody_can_vote_as_the_machine(client):
    said = {"verb": "do_not_know", "person": "!machine", "receipt": receipt_of(client.post)}
    refused = client.post("/v1/feedback", json=said)
    assert refused.status_code == 422 and "person must not begin with" in refused.json()["error"]["message"]


def test_without_admin_keys_nothing_can_be_deleted_over_http(client):
    refused = deleted(client, {"person": "p1"})
    assert refused.status_code == 403 and refused.json()["error"]["code"] == "no_admin_keys"


def test_a_share_of_requests_is_drawn_for_the_audit_with_a_wide_list(model, tmp_path):
    service = Service(model, index=Index(), feedback=tmp_path / "store", audit=0.3)
    with TestClient(make_app(service)) as client:
        answers = [listed(client, seed=seed, top=1, limit=1) for seed in range(60)]
        assert [one["audit"] for one in answers[:20]] == [
            listed(client, seed=seed, top=1, limit=1)["audit"] for seed in range(20)
        ]
        drawn = [one for one in answers if one["audit"]]
        assert len(drawn) == pytest.approx(18, abs=11)  # three standard deviations
        assert {len(one["candidates"]) for one in drawn} == {6}
        assert {len(one["candidates"]) for one in answers if not one["audit"]} == {1}
        assert client.get("/v1/model").json()["feedback"] is None
        service._drift_until = -1.0
        for one in drawn:
            said = {"verb": "confirm", "class_id": one["candidates"][0]["id"], "receipt": one["receipt"]}
            assert client.post("/v1/feedback", json=said).status_code == 201
        told = client.get("/v1/model").json()["feedback"]
        assert f"of {len(drawn)} audited lists hold the class" in told["words"] and not told["is_below"]
        assert (told["audited"], told["coverage"], told["promised"]) == (len(drawn), 1.0, None)


def test_the_receipt_says_what_was_promised_about_this_list(client):
    """By a predictor as by a number; nothing of sets by size, nor of several photos taken together."""

    def promised(seed: int, **choice) -> float | None:
        said = {"verb": "do_not_know", "receipt": listed(client, seed=seed, **choice)["receipt"]}
        assert client.post("/v1/feedback", json=said).status_code == 201
        return list(client.service.feedback.store.events())[-1].choice.get("promised")

    assert promised(1, coverage=0.8) == 0.8 and promised(2, top=2) is None
    names = {name: one.level for name, one in client.service.model.promises.items() if one.about == "rows"}
    assert names and {name: promised(3, predictor=name) for name in names} == names


def test_what_is_like_nothing_known_is_kept_out_of_the_votes_at_the_promised_rate(tmp_path):
    """Photos of the kind that the detector was calibrated on: at most a tenth of them are flagged."""
    level, photos = 0.1, [png(seed) for seed in range(1000, 1080)]
    plain = tree_model()
    known = plain.prepare([picture(seed) for seed in range(400)])
    detector = NoveltyDetector(strangeness="probability", level=level, num_classes=6)
    detector.calibrate(torch.zeros(400, dtype=torch.int64), scores=plain.scores(known))
    service = Service(tree_model(novelty=detector), index=Index(), feedback=tmp_path / "store")
    flagged, items = set(), {}
    with TestClient(make_app(service)) as client:
        for photo in photos:
            answer = client.post("/v1/identify?receipt=true", files=files(photo)).json()
            said = {"verb": "other_class", "class_id": "q1", "person": "p", "receipt": answer["receipt"]}
            kept = client.post("/v1/feedback", json=said)
            items[hashlib.sha256(photo).hexdigest()] = kept.json()["observation"]
            if answer["status"] == "novel":
                flagged.add(hashlib.sha256(photo).hexdigest())
        events = list(service.feedback.store.events())
    # beyond the promise by less than four standard deviations of 80 draws and 400 calibration rows
    assert 0 < len(flagged) <= 80 * (level + 4 * (level * (1 - level) * (1 / 80 + 1 / 400)) ** 0.5)
    voted = {vote.item for vote in collect_votes(events).votes}
    assert voted == {item for photo, item in items.items() if photo not in flagged}
    assert len(collect_votes(events, with_flagged=True).votes) == 80


def test_a_vote_needs_a_receipt_for_its_photo(client):
    """Made-up photos gave one stranger any number of votes."""
    for images in (["0" * 64], [SHA], []):
        refused = client.post("/v1/feedback", json={"verb": "do_not_know", "person": "p", "images": images})
        assert refused.status_code == 422
    said = {"verb": "do_not_know", "person": "p", "receipt": receipt_of(client.post, png(2))}
    refused = client.post("/v1/feedback", files=form(said | {"consent": True}, png(1)))
    assert refused.status_code == 422 and "SHA-256" in refused.json()["error"]["message"]
    assert events(client) == []


def test_a_person_belongs_to_the_key_that_used_the_name_first(model, tmp_path):
    keys = {name: {"x-api-key": f"the-key-of-{name}-0123"} for name in ("ann", "bob")}
    (tmp_path / "keys").write_text("\n".join(key["x-api-key"] for key in keys.values()))
    service = Service(model, feedback=tmp_path / "store", keys=tmp_path / "keys")
    with TestClient(make_app(service)) as client:
        receipt = receipt_of(client.post, headers=keys["ann"])
        client.service, said = service, {"verb": "bad_image", "receipt": receipt, "person": "expe\u0301rt"}
        assert client.post("/v1/feedback", json=said, headers=keys["ann"]).status_code == 201
        for name in ("expe\u0301rt", "exp\u00e9rt"):  # which votes take for one person
            other = client.post("/v1/feedback", json=said | {"person": name}, headers=keys["bob"])
            assert other.status_code == 403 and other.json()["error"]["code"] == "other_person"
        assert client.post("/v1/feedback", json=said, headers=keys["ann"]).status_code == 201
        mine = said | {"person": "bob", "verb": "do_not_know"}
        assert client.post("/v1/feedback", json=mine, headers=keys["bob"]).status_code == 201
        assert [(one.person, one.verb) for one in events(client)] == [
            *[("exp\u00e9rt", "bad_image")] * 2,
            ("bob", "do_not_know"),
        ]
        assert all("0123" not in one.key and one.key.startswith("key-") for one in events(client))
        service.feedback.store.erase_person("expe\u0301rt")
        assert client.post("/v1/feedback", json=said, headers=keys["bob"]).status_code == 201  # it is free


def test_what_a_person_says_to_have_seen_does_not_break_a_promise(model, tmp_path):
    service = Service(model, feedback=tmp_path / "store", audit=1.0)
    with TestClient(make_app(service)) as client:
        client.service, answer = service, listed(client, coverage=0.9)
        first = answer["candidates"][0]["id"]
        said = {"verb": "confirm", "class_id": first, "receipt": answer["receipt"], "shown": []}
        assert client.post("/v1/feedback", json=said).status_code == 201
        (event,) = events(client)
        in_set = [one["in_set"] for one in answer["candidates"]]
        assert event.audit and [one.in_set for one in event.shown] == in_set and in_set[0]
