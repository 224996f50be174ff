"""Names in the language of a request: authors, common names, synonyms, ids elsewhere."""

from dataclasses import replace

import pytest

from shortlist.checklist import Checklist
from shortlist.serve import schemas
from tests.serve.parts import TREES, TREES_WITH_AUTHORS, files, png, tree_model

NONE = ((),) * 5
NAMED = replace(
    TREES,
    authors=("L.", "(Matt.) Liebl.", "", "", "", ""),
    common_names={
        "fr": (("chêne pédonculé", "gravelin"), *NONE),
        "de": (("Stieleiche",), ("Traubeneiche",), *NONE[1:]),
    },
    synonyms=(("Quercus pedunculata Ehrh.",), *NONE),
    external={"gbif": ("2878688", "", "", "", "", ""), "powo": ("304293-2", "", "", "", "", "")},
)


@pytest.fixture
def named(start):
    return start(made=tree_model(NAMED))


def oak(answer) -> dict:
    return next(candidate for candidate in answer["candidates"] if candidate["id"] == "q1")


@pytest.mark.parametrize(
    ("options", "header", "names"),
    [
        ({}, None, []),
        ({"lang": "fr"}, None, ["chêne pédonculé", "gravelin"]),
        ({"lang": "de-AT"}, "fr", ["Stieleiche"]),
        ({}, "nl;q=0.9, fr-FR;q=0.8, de;q=0.1", ["chêne pédonculé", "gravelin"]),
        ({"lang": "xx"}, "fr", []),
    ],
)
def test_candidates_have_names_in_the_language_of_the_request(named, options, header, names):
    headers = {} if header is None else {"accept-language": header}
    answer = named.post("/v1/identify", params=options, headers=headers, files=files(png(1))).json()
    assert oak(answer)["common_names"] == names and oak(answer)["author"] == "L."
    batch = named.post("/v1/identify/batch", params=options, headers=headers, files=files(png(1)))
    assert oak(batch.json()["answers"][0])["common_names"] == names
    (found,) = named.get("/v1/classes", params={"search": "robur", **options}, headers=headers).json()[
        "classes"
    ]
    assert found["common_names"] == names and found["author"] == "L."


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("chene PEDONCULE", ["q1"]),
        ("pedunculata", ["q1"]),
        ("eiche", ["q1", "q2"]),
        ("liebl", ["q2"]),
        ("betula", ["b1", "b2", "a/1"]),
    ],
)
def test_classes_are_searched_by_all_their_names(named, text, ids):
    found = named.get("/v1/classes", params={"search": text}).json()
    assert [one["id"] for one in found["classes"]] == ids


def test_a_class_says_all_its_names(named):
    found = named.get("/v1/classes/q1", params={"lang": "de"}).json()
    assert found["common_names"] == ["Stieleiche"] and found["synonyms"] == ["Quercus pedunculata Ehrh."]
    assert found["common_names_by_language"] == {
        "fr": ["chêne pédonculé", "gravelin"],
        "de": ["Stieleiche"],
    }
    assert found["external"] == {"gbif": "2878688", "powo": "304293-2"}
    other = named.get("/v1/classes/f1").json()
    assert other["synonyms"] == [] == other["common_names"] and other["external"] == {}


def test_the_form_of_plantnet_has_names_and_ids(named):
    body = named.post("/v2/identify/all", params={"lang": "fr"}, files=files(png(1))).json()
    results = {result["species"]["scientificNameWithoutAuthor"]: result for result in body["results"]}
    robur, beech = results["Quercus robur"], results["Fagus sylvatica"]
    assert robur["species"]["commonNames"] == ["chêne pédonculé", "gravelin"] and body["language"] == "fr"
    assert robur["species"]["scientificName"] == "Quercus robur L."
    assert robur["species"]["scientificNameAuthorship"] == "L."
    assert robur["gbif"] == {"id": "2878688"} and robur["powo"] == {"id": "304293-2"}
    assert beech["species"]["commonNames"] == [] and not {"gbif", "powo"} & beech.keys()
    assert body["bestMatch"] == body["results"][0]["species"]["scientificName"]
    assert named.get("/v2/languages").json() == ["de", "fr"]
    first, second = named.get("/v2/species", params={"prefix": "quercus", "lang": "de"}).json()
    assert first["gbifId"] == "2878688" and first["powoId"] == "304293-2" and second["gbifId"] is None
    assert first["commonNames"] == ["Stieleiche"] and second["scientificNameAuthorship"] == "(Matt.) Liebl."


def test_an_author_in_the_name_is_not_written_twice(start):
    both = replace(TREES_WITH_AUTHORS, authors=("L.", *[""] * 5))
    body = start(made=tree_model(both)).get("/v2/species", params={"prefix": "quercus"}).json()
    assert [one["scientificNameAuthorship"] for one in body] == ["L.", "(Matt.) Liebl."]
    answer = start(made=tree_model(both)).post("/v2/identify/all", files=files(png(1))).json()
    names = {result["species"]["scientificName"] for result in answer["results"]}
    assert names == set(TREES_WITH_AUTHORS.names)


def test_a_checklist_is_searched_and_says_what_the_model_knows(start, tmp_path):
    (tmp_path / "names.csv").write_text(
        "id,name,author,rank,family,synonyms,common_names_fr\n"
        "w1,Quercus robur,L.,species,Fagaceae,Quercus pedunculata Ehrh.,chêne pédonculé\n"
        "w2,Quercus ilex,L.,species,Fagaceae,,chêne vert\n"
    )
    client = start(made=tree_model(NAMED), names=Checklist.read(tmp_path / "names.csv"))
    body = client.get("/v1/names", params={"q": "qercus peduncul", "lang": "fr"}).json()
    schemas.NameList.model_validate(body)
    assert body == {
        "total": 2,
        "names": [
            {
                "id": "w1",
                "name": "Quercus robur",
                "author": "L.",
                "rank": "species",
                "parents": {"family": "Fagaceae"},
                "common_names": ["chêne pédonculé"],
                "matched": "Quercus pedunculata Ehrh.",
                "mistakes": 1,
                "class_id": "q1",
            }
        ],
    }
    found = client.get("/v1/names", params={"q": "chene v"}).json()["names"]
    assert [(one["id"], one["class_id"]) for one in found] == [("w2", None), ("w1", "q1")]
    assert [one["mistakes"] for one in found] == [0, 1] and found[0]["common_names"] == []
    assert len(client.get("/v1/names", params={"q": "Quercus", "limit": 1}).json()["names"]) == 1


def test_without_a_checklist_the_classes_are_searched(named):
    body = named.get("/v1/names", params={"q": "Stileiche", "lang": "de"}).json()
    assert body["total"] == 6 and body["names"][0]["class_id"] == "q1" == body["names"][0]["id"]
    assert body["names"][0]["matched"] == "Stieleiche" and body["names"][0]["mistakes"] == 1
    assert named.get("/v1/names").status_code == 422
    assert named.get("/v1/names", params={"q": "x" * 201}).status_code == 422
