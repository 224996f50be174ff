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
    refused(client.get(place), 405, "Method Not Allowed")
    small = start(limits=Limits(image_bytes=100))
    refused(small.post(place, files=files(b"x" * 101)), 413, "Payload Too Large")
    limited = start(limits=Limits(rate=1))
    allowed = limited.post(place, files=files(png()))
    assert allowed.json()["remainingIdentificationRequests"] == 0
    assert allowed.headers["ratelimit-policy"] == "1;w=60"
    refused(limited.post(place, files=files(png())), 429, "Too Many Requests")
    (tmp_path / "keys").write_text("0123456789abcdef\n")
    locked = start(keys=tmp_path / "keys")
    refused(locked.post(place, files=files(png())), 401, "Unauthorized")
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
