"""The form of Pl@ntNet's API, against a schema written from its public list of fields."""

import pytest

from shortlist.serve.exchange import Answer
from shortlist.serve.limits import Limits
from tests.serve.parts import files, png

NAME = {"scientificNameWithoutAuthor": str, "scientificNameAuthorship": str, "scientificName": str}
IMAGE = {
    "organ": str,
    "author": str,
    "license": str,
    "citation": str,
    "date": {"timestamp": int, "string": str},
    "url": {"o": str, "m": str, "s": str},
}
RESULT = {
    "score": float,
    "species": {**NAME, "genus": NAME, "family": NAME, "commonNames": [str]},
}
ANSWER = {
    "query": {
        "project": str,
        "images": [str],
        "organs": [str],
        "includeRelatedImages": bool,
        "noReject": bool,
    },
    "language": str,
    "preferedReferential": str,
    "bestMatch": str,
    "results": [RESULT],
    "version": str,
    "remainingIdentificationRequests": int,
    "promise": dict,  # which only this server has
    "predictedOrgans": [{"image": str, "filename": str, "organ": str, "score": float}],
}


def check(value, form, place="answer"):
    if isinstance(form, dict):
        assert isinstance(value, dict) and value.keys() == form.keys(), place
        for key, inner in form.items():
            check(value[key], inner, f"{place}.{key}")
    elif isinstance(form, list):
        assert isinstance(value, list), place
        for item in value:
            check(item, form[0], f"{place}[]")
    else:
        assert type(value) is form, (place, value)


def test_answers_have_the_form(client):
    body = client.post("/v2/identify/all", files=files(png(3), name="leaf.png")).json()
    check(body, ANSWER)
    assert body["query"] == {
        "project": "all",
        "images": ["leaf.png"],
        "organs": ["auto"],
        "includeRelatedImages": False,
        "noReject": False,
    }
    own = client.post("/v1/identify", params={"top": 6}, files=files(png(3))).json()["candidates"]
    assert [r["species"]["scientificName"] for r in body["results"]] == [c["name"] for c in own]
    assert [r["score"] for r in body["results"]] == pytest.approx([c["probability"] for c in own], abs=1e-5)
    assert body["bestMatch"] == own[0]["name"]
    first = body["results"][0]["species"]
    assert first["genus"]["scientificName"] == own[0]["parents"]["genus"]
    assert first["family"]["scientificNameWithoutAuthor"] == own[0]["parents"]["family"]


def test_related_images_and_options_have_the_form(client):
    params = {"include-related-images": "true", "nb-results": 2, "lang": "fr", "no-reject": "true"}
    data = {"organs": ["leaf", "flower"]}
    body = client.post("/v2/identify/all", params=params, data=data, files=files(png(1), png(2))).json()
    check(body, {**ANSWER, "results": [{**RESULT, "images": [IMAGE]}]})
    assert len(body["results"]) == 2 and body["language"] == "fr"
    assert body["query"]["organs"] == ["leaf", "flower"] and body["query"]["noReject"]
    image = body["results"][0]["images"][0]
    assert image["date"] == {"timestamp": 1714521600000, "string": "2024-05-01"}
    assert image["citation"] == "A. Person, CC BY"
    assert client.get(image["url"]["o"]).headers["content-type"] == "image/jpeg"


def test_projects_are_listed(client):
    [project] = client.get("/v2/projects", params={"lang": "en"}).json()
    assert project["id"] == "all" and project["speciesCount"] == 6


def test_any_project_is_all_if_the_server_says_so(client, start):
    """An unknown project is not the answer for a photo of no plant, which clients tell by its message."""
    refused = client.post("/v2/identify/k-world-flora", files=files(png()))
    assert refused.json() == {
        "statusCode": 404,
        "error": "Not Found",
        "message": "Project not found: this server has the project 'all'",
    }
    generous = start(any_project=True)
    answers = [
        generous.post(f"/v2/identify/{project}", files=files(png())).json()
        for project in ("all", "k-world-flora")
    ]
    assert (
        answers[1]["query"].pop("project") == "k-world-flora" and answers[0]["query"].pop("project") == "all"
    )
    assert answers[0] == answers[1]
    paths = ("/v2/species", "/v2/projects/all/species", "/v2/projects/k-world-flora/species")
    lists = [generous.get(path).json() for path in paths]
    assert lists[0] == lists[1] == lists[2] and len(lists[0]) == 6


def test_classes_are_listed_by_prefix_and_page(client):
    def ids(**params):
        return [form["id"] for form in client.get("/v2/species", params=params).json()]

    assert ids() == ["q1", "q2", "f1", "b1", "b2", "a/1"]
    assert ids(prefix="betula n") == ["b2"] and ids(prefix="etula") == []
    assert ids(pageSize=4, page=2) == ["b2", "a/1"] and ids(pageSize=4, page=3) == []
    assert ids(pageSize=4) == ids(page=2) == ids()  # each alone does nothing, as theirs
    assert ids(prefix="B", pageSize=1, page=2) == ["b2"]
    assert client.get("/v2/species", params={"prefix": "Fagus"}).json() == [
        {
            "id": "f1",
            "scientificNameWithoutAuthor": "Fagus sylvatica",
            "scientificNameAuthorship": "",
            "gbifId": None,
            "powoId": None,
            "iucnCategory": None,
            "commonNames": [],
            "genus": "Fagus",
            "family": "Fagaceae",
        }
    ]


def test_the_quota_is_told_without_taking_of_it(client, start, monkeypatch):
    free = client.get("/v2/quota/daily").json()["quota"]["identify"]
    assert free["count"] == 0 and free["total"] == free["remaining"] > 1e9
    limited = start(limits=Limits(rate=2))
    monkeypatch.setattr(limited.service.rate, "_clock", lambda: 0.0)
    for left in (2, 1, 0):
        for _ in range(3):
            body = limited.get("/v2/quota/daily", params={"day": "2026-05-01"}).json()
            assert body["quota"]["identify"] == {"count": 2 - left, "total": 2, "remaining": left}
        assert limited.get("/v2/quota").json() == {"quota": {"identify": {"total": 2}}}
        assert limited.post("/v2/identify/all", files=files(png())).status_code == (200 if left else 429)


@pytest.mark.parametrize(
    ("query", "form"),
    [
        ("include-related-images=&nb-results=&lang=&no-reject=&api-key=", {}),
        ("include-related-images=0&no-reject=False&nb-results=1000000&unknown=1", {}),
        ("", {"organs": "Leaf"}),
        ("", {"organs": " LEAF "}),
        ("", {"organs": ""}),
        ("", {"organs[0]": "leaf", "modifiers": "[]", "lang": "fr", "api-key": "x", "images": "a text"}),
    ],
)
@pytest.mark.parametrize("field", ["images", "images[]", "images[0]"])
def test_what_does_no_harm_is_accepted(client, query, form, field):
    response = client.post(f"/v2/identify/all?{query}", data=form, files=[(field, ("a.png", png(3)))])
    assert response.status_code == 200, response.text
    check(response.json(), ANSWER)


@pytest.mark.errors
def test_errors_have_the_form(client, start, tmp_path):
    def refused(response, status, words, message=None):
        assert response.status_code == status
        body = response.json()
        assert body.keys() == {"statusCode", "error", "message"}
        assert body["statusCode"] == status and body["error"] == words
        assert message is None or message in body["message"]

    place = "/v2/identify/all"
    refused(client.post(place, files=files(b"text")), 415, "Unsupported Media Type")
    refused(
        client.post(place, params={"nb-results": 0}, files=files(png())), 400, "Bad Request", "nb-results"
    )
    refused(client.post(place, data={"organs": "root"}, files=files(png())), 400, "Bad Request", "organs")
    both = {"organs": ["leaf", "leaf"]}
    refused(client.post(place, data=both, files=files(png())), 400, "Bad Request", "as many")
    refused(client.post(place, data={"organs": "leaf"}), 415, "Unsupported Media Type")
    refused(client.post("/v2/identify/moon", files=files(png())), 404, "Not Found", "Project not found")
    refused(client.put(place), 405, "Method Not Allowed")
    refused(client.get(place), 400, "Bad Request", "images")
    by_address = {"images": "http://127.0.0.1:1/leaf.png"}
    refused(client.get(place, params=by_address), 400, "Bad Request", "fetches no photos")
    refused(
        client.get(place, params=by_address | {"organs": ["leaf", "leaf"]}), 400, "Bad Request", "as many"
    )
    refused(client.post(place, files=[("image", ("a.png", png()))]), 400, "Bad Request", "'images'")
    refused(client.post(place, files=[("organs", (None, "leaf"))]), 400, "Bad Request", "At least one image")
    refused(client.get("/v2/species", params={"page": 0}), 400, "Bad Request", "page")
    refused(client.get("/v2/projects/moon/species"), 404, "Not Found", "Project not found")
    refused(client.get("/v2/nothing"), 404, "Not Found")
    small = start(limits=Limits(image_bytes=100))
    refused(small.post(place, files=files(b"x" * 101)), 413, "Payload Too Large")
    limited = start(limits=Limits(rate=1))
    allowed = limited.post(place, files=files(png()))
    assert allowed.json()["remainingIdentificationRequests"] == 0
    assert allowed.headers["ratelimit-policy"] == '"minute";q=1;w=60'
    assert allowed.headers["ratelimit"] == '"minute";r=0;t=60'
    refused(limited.post(place, files=files(png())), 429, "Too Many Requests")
    (tmp_path / "keys").write_text("0123456789abcdef\n")
    locked = start(keys=tmp_path / "keys")
    refused(locked.post(place, files=files(png())), 401, "Unauthorized")
    for path in ("languages", "projects", "species", "projects/moon/species", "quota", "quota/daily"):
        refused(locked.get(f"/v2/{path}"), 401, "Unauthorized")
    refused(locked.get(place, params=by_address), 401, "Unauthorized")
    assert locked.get("/v2/_status").json() == {"status": "ok"}
    key = {"api-key": "0123456789abcdef"}
    assert locked.post(place, params=key, files=files(png())).status_code == 200


def test_what_is_like_nothing_known_is_rejected(client, monkeypatch):
    """As Pl@ntNet does, unless no-reject is asked for."""
    import dataclasses

    answer = client.service.answerer.answer

    def novel(queries) -> list[Answer]:
        return [dataclasses.replace(found, status="novel") for found in answer(queries)]

    monkeypatch.setattr(client.service.batcher, "_answer", novel)
    response = client.post("/v2/identify/all", files=files(png()))
    assert response.status_code == 404 and response.json()["message"] == "Species not found"
    asked = client.post("/v2/identify/all", params={"no-reject": "true"}, files=files(png()))
    assert asked.status_code == 200 and asked.json()["results"]
    assert client.post("/v1/identify", files=files(png())).json()["status"] == "novel"


def test_a_page_of_another_origin_may_be_allowed(start):
    """A known web component posts from another page and reads these keys."""
    client = start(origins=["https://page.example"])
    params = {"include-related-images": "true"}
    response = client.post(
        "/v2/identify/all",
        params=params,
        data={"organs": "auto"},
        files=files(png()),
        headers={"origin": "https://page.example"},
    )
    assert response.headers["access-control-allow-origin"] == "https://page.example"
    body = response.json()
    assert "error" not in body
    for result in body["results"]:
        species, images = result["species"], result["images"]
        assert result["score"] >= 0 and species["scientificNameWithoutAuthor"]
        assert species["scientificNameAuthorship"] == "" and species["commonNames"] == []
        assert species["family"]["scientificName"]
        assert all(image["url"]["o"] and image["citation"] and image["date"]["string"] for image in images)
