"""Observations over HTTP: of one person, reviewed by others, shown as far as their owner lets them."""

import hashlib
import json
import math
from dataclasses import asdict

import pytest
from PIL import Image
from starlette.testclient import TestClient

from shortlist.curation.quality import Quality, QualityBounds, quality_of
from shortlist.feedback import Location, observation_id, owns
from shortlist.feedback.votes import collect_votes
from shortlist.serve.app import make_app
from shortlist.serve.limits import Limits
from shortlist.serve.service import Service
from tests.serve.parts import Index, encoded, files, png, tree_model

SHAS = [hashlib.sha256(png(seed)).hexdigest() for seed in range(4)]


def listed(client, *photos: bytes, headers=None) -> dict:
    answer = client.post("/v1/identify?receipt=true", files=files(*photos), headers=headers)
    return answer.json()


def observed(client, person: str, *photos: bytes, verb: str | None = None, headers=None, **more) -> str:
    """Record an observation of photos, with consent; return its id."""
    said = {"person": person, "receipt": listed(client, *photos, headers=headers)["receipt"], "consent": True}
    said |= more | ({} if verb is None else {"verb": verb})
    form = [("event", ("event", json.dumps(said).encode(), "application/json"))]
    form += files(*photos) if said["consent"] else []
    path = "/v1/observations" if verb is None else "/v1/feedback"
    kept = client.post(path, files=form, headers=headers)
    assert kept.status_code == 201, kept.text
    return kept.json()["observation"]


def seen(client, id: str, person: str = "", headers=None):
    return client.get(f"/v1/observations/{id}", headers={"x-person": person} | (headers or {}))


def voted(client, observation: str, person: str, verb: str = "do_not_know", headers=None, **more):
    said = {"person": person, "verb": verb} | more
    return client.post(f"/v1/observations/{observation}/votes", json=said, headers=headers)


def waiting(client, person: str, headers=None, **options) -> dict:
    answer = client.get("/v1/review/next", headers={"x-person": person} | (headers or {}), params=options)
    assert answer.status_code == 200, answer.text
    return answer.json()


def next_id(client, person: str, **options) -> str | None:
    found = waiting(client, person, **options)["observation"]
    return found and found["id"]


def events(client) -> list:
    return list(client.service.feedback.store.events())


def test_an_observation_is_recorded_with_all_that_is_known_of_it(client):
    about = {"organs": ["leaf", "flower"], "author": "Ana", "license": "CC BY 4.0", "date": "2026-05-01"}
    about["location"] = {"latitude": 43.6117, "longitude": 3.8767, "uncertainty": 20.0}
    id = observed(client, "ann", png(0), png(1), about=about, note="by the river")
    (event,) = events(client)
    assert (event.verb, event.item, event.label) == ("observe", id, "") and event.images == tuple(SHAS[:2])
    assert event.organs == ("leaf", "flower") and event.consent and event.shown
    assert event.about == {
        "author": "Ana",
        "license": "CC BY 4.0",
        "date": "2026-05-01",
        "note": "by the river",
    }
    assert event.location == Location(43.65, 3.85, 6893.0)  # nothing finer is on disk
    folder = client.service.feedback.location
    assert all(b"43.61" not in path.read_bytes() for path in folder.rglob("*") if path.is_file())
    votes = collect_votes([event])
    assert votes.votes == [] and votes.left_out == {"no vote: observe": 1}
    photos = [(one.image, one.organ, one.latitude, one.uncertainty) for one in votes.photos]
    assert photos == [(SHAS[0], "leaf", "43.65", "6893"), (SHAS[1], "flower", "43.65", "6893")]


def test_nobody_hits_an_observation_of_somebody_else_by_a_name(client):
    names = [
        observed(client, person, png(0), about={"observation": "o1"}) for person in ("ann", "bob", "ann")
    ]
    assert names[0] == names[2] != names[1]
    other = observed(client, "bob", png(0), about={"observation": names[0]})  # the id itself as a name
    by_photo = [observed(client, person, png(0), verb="do_not_know") for person in ("ann", "bob")]
    assert len({*names, other, *by_photo}) == 5
    secret = client.service.feedback.store.secret
    assert owns(secret, "ann", names[0]) and not owns(secret, "bob", names[0])
    assert not owns(secret, "ann", "é" * 48) and not owns(secret, "ann", "")
    assert observation_id(secret, "a", "bc") != observation_id(secret, "ab", "c")


def test_without_a_person_each_request_is_an_observation_of_its_own(client):
    """Else a stranger could add photos to it, or change its author and license, by the name or the photos."""
    about = {"license": "CC BY-NC 4.0", "author": "Ana"}
    ids = [observed(client, "", png(0), about=about, id=name) for name in ("r1", "r1", "r2")]
    assert ids[0] == ids[1] != ids[2]
    by_eve = observed(client, "", png(0), about={"license": "CC0 1.0", "author": "Eve"})
    assert by_eve not in ids
    assert [seen(client, ids[0], "bob").json()[name] for name in about] == list(about.values())
    said = {"receipt": listed(client, png(0))["receipt"], "about": {"observation": "o1"}}
    for path, more in (("observations", {}), ("feedback", {"verb": "do_not_know"})):
        refused = client.post(f"/v1/{path}", json=said | more)
        assert refused.status_code == 422 and "about.observation" in refused.json()["error"]["message"]
    assert len(events(client)) == 3


def test_photos_that_come_later_under_the_same_name_are_of_one_observation(client):
    for seed in (0, 1):
        id = observed(client, "ann", png(seed), about={"observation": "tree", "organs": [f"organ {seed}"]})
    content = seen(client, id).json()
    assert sorted(photo["organ"] for photo in content["photos"]) == ["organ 0", "organ 1"]
    assert {client.get(photo["address"]).content for photo in content["photos"]} == {png(0), png(1)}


def test_an_observation_shows_photos_and_list_and_hides_votes_until_one_voted(client):
    first = listed(client, png(0))["candidates"]
    id = observed(client, "ann", png(0), about={"organs": ["leaf"], "license": "CC0 1.0"})
    best = first[0]["id"]
    assert voted(client, id, "bob", "confirm", class_id=best, note="<script>").status_code == 201
    stranger = seen(client, id, "cem").json()
    assert (stranger["own"], stranger["vote"], stranger["votes"]) == (False, None, None)
    assert stranger["license"] == "CC0 1.0" and "ann" not in json.dumps(stranger)
    assert [one["id"] for one in stranger["candidates"]] == [one["id"] for one in first]
    (photo,) = stranger["photos"]
    copy = client.get(photo["address"])
    assert (copy.content, copy.headers["content-type"], photo["organ"]) == (png(0), "image/png", "leaf")
    assert copy.headers["cache-control"] == "private, no-store"
    name = first[0]["name"]
    bob = seen(client, id, "bob").json()
    assert bob["votes"] == [{"verb": "confirm", "class_id": best, "name": name, "people": 1}]
    assert bob["vote"] == bob["votes"][0] and not bob["own"]
    ann = seen(client, id, "ann").json()
    assert ann["own"] and ann["votes"] == bob["votes"] and ann["vote"] is None
    assert seen(client, id, "ann%62").json()["votes"] is None  # a name is percent-encoded


def test_a_proposed_name_is_no_class_though_it_is_called_as_one(client):
    id = observed(client, "ann", png(0))
    voted(client, id, "bob", "new_name", name="q1")
    voted(client, id, "cem", "other_class", class_id="q1")
    proposed = {"verb": "new_name", "class_id": None, "name": "q1", "people": 1}
    assert seen(client, id, "bob").json()["vote"] == proposed
    assert proposed in seen(client, id, "cem").json()["votes"]
    assert seen(client, id, "cem").json()["vote"]["name"] == "Quercus robur"


def test_without_consent_only_the_owner_sees_an_observation(client):
    id = observed(client, "ann", png(0), consent=False)
    assert seen(client, id, "bob").status_code == 404 and seen(client, id).status_code == 404
    assert client.get(f"/v1/observations/{id}/photos/0").status_code == 404
    assert voted(client, id, "bob").status_code == 404 and next_id(client, "bob") is None
    own = seen(client, id, "ann").json()
    assert own["own"] and own["photos"] == [] and own["candidates"]


def test_nobody_votes_on_his_own_observation_and_the_last_vote_of_others_counts(client):
    id = observed(client, "ann", png(0))
    refused = voted(client, id, "ann")
    assert refused.status_code == 403 and refused.json()["error"]["code"] == "own_observation"
    for verb in ("bad_image", "not_this_kind"):
        assert voted(client, id, "bob", verb).json()["observation"] == id
    assert voted(client, id, "cem", "other_class", class_id="q1", id="r1").json()["new"]
    assert not voted(client, id, "cem", "other_class", class_id="q1", id="r1").json()["new"]
    votes = collect_votes(events(client)).votes
    assert [(vote.item, vote.user, vote.label, vote.author) for vote in votes] == [
        (id, "bob", "!not_this_kind", "ann"),
        (id, "cem", "q1", "ann"),
    ]
    assert [one["people"] for one in seen(client, id, "bob").json()["votes"]] == [1, 1]


def test_others_review_what_would_tell_most_first_and_each_only_once(client):
    ids = {observed(client, "ann", png(seed)): seed for seed in range(4)}
    own = observed(client, "bob", png(9))
    order = []
    while (id := next_id(client, "bob")) is not None:
        order.append(id)
        assert voted(client, id, "bob").status_code == 201
    assert set(order) == set(ids) and own not in order

    def entropy(id):
        chances = [one["probability"] for one in seen(client, id).json()["candidates"]]
        total = sum(chances)
        return -sum(p / total * math.log(p / total) for p in chances if p)

    assert order == sorted(order, key=lambda id: (-round(entropy(id), 5), id))
    assert next_id(client, "ann") == own
    content = waiting(client, "cem")
    assert content["observation"]["votes"] is None and content["waiting"] == 5


def test_what_is_skipped_comes_later(client):
    ids = {observed(client, "ann", png(seed)) for seed in range(3)}
    first = next_id(client, "bob")
    second = next_id(client, "bob", skip=[first])
    third = next_id(client, "bob", skip=[first, second])
    assert {first, second, third} == ids and next_id(client, "bob", skip=list(ids)) is None
    assert next_id(client, "bob") == first
    many = client.get("/v1/review/next", headers={"x-person": "b"}, params={"skip": ["x"] * 201})
    assert many.status_code == 422


def test_a_review_has_known_images_like_the_photos(client):
    observed(client, "ann", png(0))
    candidates = waiting(client, "bob", related_images=2)["observation"]["candidates"]
    answer = client.post("/v1/identify?related_images=2", files=files(png(0))).json()
    expected = {one["id"]: one["related_images"] for one in answer["candidates"]}
    assert {one["id"]: one["related_images"] for one in candidates} == expected
    assert len(candidates[0]["related_images"]) == 2
    assert waiting(client, "bob")["observation"]["candidates"][0]["related_images"] == []


def test_what_was_deleted_is_gone_from_queue_and_addresses(client):
    ids = [observed(client, person, png(seed)) for seed, person in enumerate(("ann", "bea", "bea"))]
    assert voted(client, ids[0], "cem").status_code == 201
    assert next_id(client, "bob") in ids  # the queue is made
    store = client.service.feedback.store
    store.erase_person("ann")
    assert {seen(client, ids[0], who).status_code for who in ("ann", "bob", "cem")} == {404}
    assert client.get(f"/v1/observations/{ids[0]}/photos/0").status_code == 404
    assert voted(client, ids[0], "dan").status_code == 404
    store.erase_image(SHAS[1])
    assert seen(client, ids[1], "bob").status_code == 404
    assert next_id(client, "bob") == ids[2] and voted(client, ids[2], "bob").status_code == 201
    assert next_id(client, "bob") is None


def test_reviews_that_another_process_took_are_not_given_again(model, tmp_path):
    first, second = (Service(model, index=Index(), feedback=tmp_path / "store") for _ in range(2))
    with TestClient(make_app(first)) as one, TestClient(make_app(second)) as other:
        ids = {observed(one, "ann", png(seed)) for seed in range(2)}
        shown = next_id(other, "bob")
        assert voted(one, shown, "bob").status_code == 201
        assert {next_id(other, "bob"), shown} == ids


def test_with_keys_a_name_is_of_one_key_and_photos_are_fetched_by_signature(model, tmp_path):
    keys = {name: {"x-api-key": f"the-key-of-{name}-0123"} for name in ("ann", "bob")}
    (tmp_path / "keys").write_text("\n".join(key["x-api-key"] for key in keys.values()))
    service = Service(model, feedback=tmp_path / "store", keys=tmp_path / "keys")
    with TestClient(make_app(service)) as client:
        id = observed(client, "ann", png(0), headers=keys["ann"])
        hidden = observed(client, "ann", png(1), headers=keys["ann"], consent=False)
        assert seen(client, id, "ann").status_code == 401
        assert seen(client, id, "ann", keys["ann"]).json()["own"]
        assert not seen(client, id, "ann", keys["bob"]).json()["own"]  # who says to be ann
        assert seen(client, hidden, "ann", keys["bob"]).status_code == 404
        photo = seen(client, id, "bob", keys["bob"]).json()["photos"][0]["address"]
        assert client.get(photo).content == png(0)
        assert client.get(photo.partition("?")[0]).status_code == 401
        assert client.get(photo.replace("photos/0", "photos/1")).status_code == 401
        assert voted(client, id, "ann", headers=keys["bob"]).status_code == 403
        assert voted(client, id, "bob", headers=keys["bob"]).status_code == 201
        assert seen(client, id, "bob", keys["ann"]).json()["votes"] is None


@pytest.mark.errors
@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"organs": ["leaf", "flower"]}, "organs must be as many as images (1), got 2"),
        ({"organs": ["le\u0000af"]}, "organ must have no control characters"),
        ({"organs": ["x"] * 6}, "about.organs"),
        ({"license": "mine"}, "about.license"),
        ({"date": "yesterday"}, "about.date"),
        ({"date": "2026-02-30"}, "about.date"),
        ({"date": "2026-13"}, "about.date"),
        ({"date": "2026-01-01T.:."}, "about.date"),
        ({"date": "2026-01-01T25:61:00Z"}, "about.date"),
        ({"date": "2026-01-01T08:30:99"}, "about.date"),
        ({"date": "0000"}, "about.date"),
        ({"date": "9999-12-31"}, "about.date: Value error, date must not be in the future"),
        ({"location": {"latitude": 91, "longitude": 0}}, "about.location.latitude"),
        ({"location": {"latitude": 1, "longitude": 0, "degrees": 0}}, "about.location.degrees"),
        ({"location": {"latitude": 1}}, "about.location.longitude"),
        ({"observation": "a\u0000b"}, "observation must be a name without control characters"),
        ({"place": "here"}, "about.place"),
    ],
)
def test_what_cannot_be_of_an_observation_is_refused(client, about, words):
    said = {"person": "ann", "receipt": listed(client, png(0))["receipt"], "about": about}
    refused = client.post("/v1/observations", json=said)
    assert refused.status_code == 422 and words in refused.json()["error"]["message"]
    assert events(client) == []


@pytest.mark.parametrize(
    "date",
    ["2024-02-29", "1899", "2026-05", "2026-05-01T08:30", "2026-05-01T08:30:59.5Z", "2026-05-01T08:30+05:30"],
)
def test_a_date_is_kept_as_it_was_said(client, date):
    assert seen(client, observed(client, "ann", png(0), about={"date": date})).json()["date"] == date


@pytest.mark.errors
def test_votes_and_reviews_that_make_no_sense_are_refused(client):
    id = observed(client, "ann", png(0))
    listed_ids = [one["id"] for one in seen(client, id).json()["candidates"]]
    for said, words in (
        ({"verb": "confirm"}, "class_id must be given"),
        (
            {"verb": "confirm", "class_id": "no class"},
            "class_id must be the id of one of the model's classes",
        ),
        ({"verb": "observe"}, "verb"),
        ({"verb": "bad_image", "class_id": listed_ids[0]}, "class_id must be given for"),
        ({"verb": "bad_image", "person": ""}, "person"),
        ({"verb": "bad_image", "person": "!machine"}, "person must not begin with"),
        ({"verb": "bad_image", "consent": True}, "consent"),
    ):
        refused = client.post(f"/v1/observations/{id}/votes", json={"person": "bob"} | said)
        assert refused.status_code == 422 and words in refused.json()["error"]["message"], said
    for strange in ("no-such-id", "é" * 48, id[:-1], id + "0", "%00"):
        assert voted(client, strange, "bob").status_code == 404
        assert seen(client, strange, "bob").status_code == 404
    assert client.get(f"/v1/observations/{id}/photos/9").status_code == 404
    assert client.get(f"/v1/observations/{id}/photos/-1").status_code == 404
    assert client.get(f"/v1/observations/{id}/photos/{10**30}").status_code in (404, 422)
    assert client.get("/v1/review/next").status_code == 422
    assert len(events(client)) == 1


def test_rates_hold_for_observations_and_reviews(start):
    client = start(limits=Limits(rate=5))
    id = observed(client, "ann", png(0))  # two requests
    statuses = [seen(client, id).status_code for _ in range(2)] + [voted(client, id, "b").status_code]
    assert statuses == [200, 200, 201]
    assert client.get("/v1/review/next", headers={"x-person": "c"}).status_code == 429
    assert client.get(f"/v1/observations/{id}/photos/0").status_code == 429


def test_blurred_and_small_photos_are_flagged_at_upload_and_wait_for_others(tmp_path):
    """By the bounds that the model carries: 99 of 100 photos as good as the known ones are not flagged."""

    def measured(photo: bytes) -> Quality:
        (tmp_path / "photo").write_bytes(photo)
        return quality_of(tmp_path / "photo")

    bounds = QualityBounds.calibrate([measured(png(seed, (60, 60))) for seed in range(300)], keep=0.99)
    model = tree_model(about={"name": "trees", "quality": {"keep_good": 0.99, **asdict(bounds)}})
    flat, tiny = encoded(Image.new("L", (60, 60), 90)), png(7, (20, 20))
    service = Service(model, feedback=tmp_path / "store")
    with TestClient(make_app(service)) as client:
        client.service = service
        photos = [png(seed, (60, 60)) for seed in range(1000, 1060)]
        expected = [measured(photo).sharpness < bounds.sharpness for photo in photos]
        assert [listed(client, photo)["flags"] == ["blurred"] for photo in photos] == expected
        assert sum(expected) <= 3
        assert listed(client, flat)["flags"] == ["blurred"] and "small" in listed(client, tiny)["flags"]
        assert listed(client, flat, tiny)["flags"] == ["blurred", "small"]
        plain = client.post("/v1/identify", files=files(flat)).json()
        assert "flags" not in plain  # nothing of it can be kept, so nothing is looked at
        best = listed(client, flat)["candidates"][0]["id"]
        id = observed(client, "ann", flat, verb="confirm", class_id=best)
        content = seen(client, id, "bob").json()
        assert content["flags"] == ["blurred"] and next_id(client, "bob") == id
        assert collect_votes(events(client)).votes == []
        kept = voted(client, id, "bob", "confirm", class_id=best).json()
        assert kept["flags"] == ["blurred"]
        assert {vote.user for vote in collect_votes(events(client)).votes} == {"ann", "bob"}
        again = observed(client, "cem", flat)
        assert seen(client, again, "cem").json()["flags"] == ["blurred", "duplicate"]


def test_a_model_without_bounds_flags_no_photo(client):
    answer = listed(client, encoded(Image.new("L", (60, 60), 90)))
    assert answer["flags"] == []


def test_consent_counts_as_it_was_said_last(client):
    """Null leaves it as it was, false takes it back, for this observation alone."""
    ids = [observed(client, "ann", png(seed)) for seed in (0, 1)]

    def answered(**consent) -> None:
        said = {"person": "ann", "verb": "do_not_know", "receipt": listed(client, png(0))["receipt"]}
        assert client.post("/v1/feedback", json=said | consent).json()["observation"] == ids[0]

    address = seen(client, ids[0], "bob").json()["photos"][0]["address"]
    for consent in ({}, {"consent": None}):
        answered(**consent)
        assert client.get(address).content == png(0)
    assert next_id(client, "bob", skip=[ids[1]]) == ids[0]
    answered(consent=False)
    assert client.get(address).status_code == 404 and seen(client, ids[0], "bob").status_code == 404
    assert voted(client, ids[0], "bob").status_code == 404
    assert next_id(client, "bob") == ids[1] and next_id(client, "bob", skip=[ids[1]]) is None
    own = seen(client, ids[0], "ann").json()
    assert own["own"] and own["photos"] == []
