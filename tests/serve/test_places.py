"""Lists for a place, for several photos, for an organ: their sets and promises, over HTTP."""

import json
import logging
import re

import numpy as np
import pytest
import torch

from shortlist import Model, Place
from shortlist.model import Choice, ModelError
from shortlist.predictors import Population
from shortlist.serve import schemas
from shortlist.serve.places import read_places
from shortlist.serve.source import ServiceSource
from tests.serve.parts import TREES, TREES_WITH_AUTHORS, files, photographed_model, picture, png, tree_model

ALPS = {"f1": 4.0, "b1": 2.0, "b2": 1.0}


@pytest.fixture(scope="module")
def trees():
    return photographed_model()


@pytest.fixture
def alps(start, trees):
    place = Place(ALPS, "alps", {"en": "The Alps", "de": "Die Alpen"})
    return start(made=trees, places=[place, Place({"q1": 1, "yeti": 1}, "park")])


def population(model: Model, *, place=None, photos=1, organ=None, macro=False) -> Population:
    """Make a population from the rows, without what the server remembers or chooses."""
    rows = model.calibration_rows
    frequency = None
    if place is not None:
        frequency = torch.tensor([place.get(id, 0.0) for id in model.classes.ids], dtype=torch.float64)
        frequency /= frequency.sum()
    importance = frequency
    if macro:
        occurs = torch.ones(6, dtype=torch.float64) if frequency is None else (frequency > 0).double()
        importance = occurs / occurs.sum()
    members = None if organ is None else rows.members("organ", organ)
    return Population(rows, rows.objects(photos, members), importance=importance, frequency=frequency)


def inside(body) -> set[str]:
    return {candidate["id"] for candidate in body["candidates"] if candidate["in_set"]}


def expected(sets: np.ndarray) -> set[str]:
    return {TREES.ids[index] for index in sets[0].nonzero()[0]}


SCOPES = [
    {"place": ALPS},
    {"photos": 3},
    {"organ": "leaf"},
    {"macro": True},
    {"place": ALPS, "photos": 2, "organ": "flower"},
    {"place": ALPS, "photos": 3, "macro": True},
    {"place": dict.fromkeys(("q1", "q2", "a/1"), 1.0), "organ": "leaf", "macro": True},
]


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("seed", [1, 4])
def test_sets_are_those_of_the_population(alps, trees, scope, seed):
    photos = scope.get("photos", 1)
    options = {name: scope[name] for name in ("organ", "macro") if name in scope}
    if "place" in scope:
        options |= {"place": "alps"} if scope["place"] is ALPS else {"classes": list(scope["place"])}
    seeds = [seed + i for i in range(photos)]

    def ask(**choice):
        sent = files(*map(png, seeds))
        response = alps.post("/v1/identify", params=options | choice, files=sent)
        assert response.status_code == 200, response.text
        schemas.IdentifyAnswer.model_validate(response.json())
        return response.json()

    rows = population(trees, **scope)
    values = rows.values(trees.scores(trees.prepare(map(picture, seeds))))
    for coverage in (0.51, 0.83, 0.93):
        body = ask(coverage=coverage)
        assert inside(body) == expected(rows.sets_of_coverage(values, coverage))
        assert body["promise"]["holds"] and body["promise"]["level"] == coverage
        assert body["promise"]["rows"] == rows.size
        sure = {c["id"] for c in body["candidates"] if c["enters_at"]["coverage"] < coverage}
        assert sure == inside(body)
    assert inside(ask(coverage=0.5, at_least=1)) == expected(rows.sets_of_coverage(values, 0.5, at_least=1))
    body = ask(average=1.5, at_least=1, at_most=2)
    assert inside(body) == expected(rows.sets_of_size(values, 1.5, at_least=1, at_most=2))
    assert body["promise"]["share"] == pytest.approx(rows.coverage_at(1.5, at_least=1, at_most=2))
    body = ask(top=2)
    assert len(inside(body)) == 2 and body["promise"]["share"] == pytest.approx(rows.coverage_of_top(2))
    assert body["renormalized"] == ("place" in scope)
    if "place" in scope:
        assert {c["id"] for c in body["candidates"]} == set(scope["place"])
        assert sum(c["probability"] for c in body["candidates"]) == pytest.approx(1, abs=1e-5)


def test_the_sentence_says_what_it_is_about_and_what_not(alps):
    def words(*seeds, **options) -> str:
        sent = files(*map(png, seeds))
        return alps.post("/v1/identify", params={"coverage": 0.9, **options}, files=sent).json()["promise"][
            "words"
        ]

    alone = words(1)
    assert alone.startswith("90 of 100 such lists contain the right class. The promise is for all photos")
    at_place = words(1, place="alps")
    assert "for photos of the 3 classes of The Alps" in at_place
    assert "Nothing is promised for classes that do not occur there." in at_place
    assert "1 name of park is unknown to the model" in words(1, place="park")
    assert "The promise is for objects with 3 photos, not for each class." in words(1, 2, 3)
    assert "calibrated on 300 objects" in words(1, 2, 3)
    assert "The promise is for photos with organ: leaf, not for each class." in words(1, organ="leaf")
    both = words(1, 2, place="alps", group="organ:flower", macro=True)
    for part in ("rare classes count as much", "3 classes of The Alps", "2 photos", "organ: flower"):
        assert part in both
    four = alps.post("/v1/identify", params={"coverage": 0.9}, files=files(*map(png, range(4)))).json()
    assert not four["promise"]["holds"] and "too few calibration objects" in four["promise"]["why_not"]


def test_the_sentence_calls_a_place_by_its_title_in_the_language(alps):
    options = {"place": "alps", "coverage": 0.9}
    for lang, title in (("de", "Die Alpen"), ("en", "The Alps"), ("fr", "The Alps")):
        body = alps.post("/v1/identify", params=options | {"lang": lang}, files=files(png(1))).json()
        assert title in body["promise"]["words"] and body["promise"]["place"] == title
        assert title in alps.get("/v1/ladder", params={"place": "alps", "lang": lang}).json()["scope"]
        body = alps.post("/v2/identify/alps", params={"lang": lang}, files=files(png(1))).json()
        assert title in body["promise"]["words"]
    listed = {"classes": ["q1", "b1"], "coverage": 0.9, "lang": "de"}
    body = alps.post("/v1/identify", params=listed, files=files(png(1))).json()
    assert "für Fotos der 2 Klassen dieses Ortes: die gewählten Klassen." in body["promise"]["words"]


def test_lists_of_a_small_place_have_no_more_classes_than_occur_there(alps):
    said = alps.post("/v1/identify", params={"place": "alps", "top": 5}, files=files(png(1))).json()
    assert said["promise"]["size"] == 3 == said["set_size"]
    assert said["promise"]["words"].startswith("Such lists have 3 classes.")


def test_a_share_by_class_says_so(alps, trees):
    body = alps.post("/v1/identify", params={"top": 1, "macro": True}, files=files(png(1))).json()
    assert "For the average class, " in body["promise"]["words"]
    rows = population(trees, macro=True)
    assert body["promise"]["share"] == pytest.approx(rows.coverage_of_top(1), abs=1e-12)


def test_the_steps_of_a_control_say_what_they_were_measured_on(alps):
    for photos, what in ((1, "300 photos"), (3, "300 objects"), (5, "300 objects")):
        body = alps.get("/v1/ladder", params={"photos": photos}).json()
        assert f"are those of {what} for calibration" in body["words"]


def test_places_are_listed_with_their_titles(alps):
    body = alps.get("/v1/places", params={"lang": "de"}).json()
    schemas.PlaceList.model_validate(body)
    assert body["places"] == [
        {
            "name": "alps",
            "title": "Die Alpen",
            "titles": {"en": "The Alps", "de": "Die Alpen"},
            "classes": 3,
            "unknown": 0,
            "unknown_names": [],
        },
        {
            "name": "park",
            "title": "park",
            "titles": {},
            "classes": 1,
            "unknown": 1,
            "unknown_names": ["yeti"],
        },
    ]
    assert [place["title"] for place in alps.get("/v1/places").json()["places"]] == ["The Alps", "park"]


def test_the_ladder_is_that_of_the_population(alps, trees, start):
    options = {"place": "alps", "photos": 2, "organ": "flower", "macro": True}
    body = alps.get("/v1/ladder", params=options).json()
    schemas.LadderForm.model_validate(body)
    rows = population(trees, place=ALPS, photos=2, organ="flower", macro=True)
    assert body["rows"] == rows.size
    for step in body["coverage"]:
        assert step["average_size"] == pytest.approx(rows.size_at(step["coverage"]))
    assert body["top"] == [{"top": k, "share": pytest.approx(rows.coverage_of_top(k))} for k in (1, 2, 3)]
    assert body["scope"] == (
        "This is about the 3 classes of The Alps, and not about a class that does not occur there. "
        "This is about objects with 2 photos that all have organ: flower."
    )
    assert alps.get("/v1/ladder").json() == alps.get("/v1/model").json()["ladder"]
    assert alps.get("/v1/model").json()["choices"]["groups"] == {"organ": ["flower", "leaf"]}
    plain = start(made=tree_model(calibration_rows=None), index=None)
    assert plain.get("/v1/ladder").json() is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"place": "moon"}, "place must be one of this server (alps, park), got 'moon'."),
        ({"place": "alps", "classes": "q1"}, "At most one of place and classes must be given."),
        ({"classes": ["q1", "yeti"]}, "classes must be ids of the model's classes, got 'yeti'."),
        ({"classes": ["q1"] * 5_000}, "classes: List should have at most 2000 items"),
        ({"group": "leaf"}, "group must be COLUMN:VALUE, such as organ:leaf, got 'leaf'."),
        ({"group": "organ:"}, "group must be COLUMN:VALUE, such as organ:leaf, got 'organ:'."),
        ({"classes": ["q1", ""]}, "classes: String should have at least 1 character."),
        ({"group": "organ:root"}, "group must be one of flower, leaf (organ), got 'root'."),
        ({"group": "color:red"}, "group must be of a column of the calibration rows (organ), got 'color'."),
        ({"group": "organ:leaf", "organ": "leaf"}, "At most one of group and organ must be given."),
        ({"coverage": 0.9, "at_most": 0}, "at_most: Input should be greater than or equal to 1"),
        ({"coverage": 0.9, "at_least": -1}, "at_least: Input should be greater than or equal to 0"),
        ({"coverage": 0.9, "at_least": 3, "at_most": 2}, "at_most must be >= at_least (3), got 2."),
        ({"top": 2, "at_most": 2}, "at_most goes with average or coverage, got it with top."),
        ({"average": 3, "at_most": 2}, "average must be from 1 to 2, got 3."),
        (
            {"average": 3, "place": "alps"},
            "average must be from 1 to 2.99333, got 3 (3 classes are possible).",
        ),
        ({"average": 1, "classes": ["q1"]}, "average must be left out where 1 class is possible: choose top"),
        ({"classes": ["q1"] * 2001}, "classes: List should have at most 2000 items, not 2001."),
    ],
)
def test_bad_options_are_refused_in_one_sentence(alps, options, words):
    for path in ("/v1/identify", "/v1/identify/batch"):
        response = alps.post(path, params=options, files=files(png(1)))
        assert response.status_code == 422
        message = response.json()["error"]["message"]
        assert message.startswith(words) and message.endswith(".") and "\n" not in message


def test_places_come_from_the_files_of_a_folder(tmp_path):
    (tmp_path / "alps.csv").write_text("id,weight\nf1,4\nFagus sylvatica,2\nBetula nana,1\n")
    (tmp_path / "park.tsv").write_text("scientificName\tcountry\nQuercus robur L.\tDE\nYeti yeti Me\tNP\n")
    (tmp_path / "notes.md").write_text("no place")
    (tmp_path / "places.json").write_text(json.dumps({"alps": {"en": "The Alps", "de": "Die Alpen"}}))
    alps, park = read_places(tmp_path)
    assert (alps.name, alps.title, alps.shown) == ("alps", {"en": "The Alps", "de": "Die Alpen"}, "The Alps")
    assert alps.vector(TREES).tolist() == pytest.approx([0, 0, 6 / 7, 0, 1 / 7, 0])
    assert (park.name, park.shown, park.match(TREES).unknown) == ("park", "park", ("Yeti yeti Me",))


@pytest.mark.parametrize(
    ("files_", "words"),
    [
        ({}, "--places must be a folder with files .csv, .tsv, .txt, got none in "),
        ({"a.csv": ""}, "must have at least 1 row, got an empty file"),
        ({"a.csv": "yeti\nbigfoot\n"}, "place a must name at least 1 class of the model"),
        ({"a.csv": "q1,-1\n"}, "the weight must be a finite number >= 0, got -1"),
        ({"a.csv": "q1,NaN\n"}, "the weight must be a finite number >= 0, got NaN"),
        ({"a.csv": "q1,0\n"}, "a place must have a class with a weight above 0, got only weights of 0"),
        ({"all.csv": "q1\n"}, "must have another name: all stands for all classes"),
        ({"a.csv": "q1\n", "places.json": "{"}, "cannot be read as JSON"),
        ({"a.csv": "q1\n", "places.json": '{"b": "B"}'}, "must have names of files in"),
        ({"a.csv": "q1\n", "places.json": '{"a": 1}'}, "must have a title for each name"),
    ],
)
def test_bad_places_are_refused_when_the_server_starts(tmp_path, files_, words):
    tree_model().save(tmp_path / "model")
    folder = tmp_path / "places"
    folder.mkdir()
    for name, text in files_.items():
        (folder / name).write_text(text)
    source = ServiceSource(
        str(tmp_path / "model"),
        places=str(folder),
        feedback=str(tmp_path / "f"),
        network="tests.serve.parts:Gray",
    )
    with pytest.raises(ValueError, match=re.escape(words)) as error:
        source.open()
    assert "\n" not in str(error.value)


def test_damaged_calibration_rows_are_refused_when_the_server_starts(tmp_path):
    tree_model().save(tmp_path / "model")
    path = tmp_path / "model" / "calibration_rows.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # as long as before
    source = ServiceSource(
        str(tmp_path / "model"), feedback=str(tmp_path / "f"), network="tests.serve.parts:Gray"
    )
    with pytest.raises(ModelError, match=r"calibration_rows\.safetensors is damaged or was changed"):
        source.open()


def test_two_files_of_one_name_are_refused_and_hidden_files_are_not_read(tmp_path):
    (tmp_path / "alps.csv").write_text("q1\n")
    (tmp_path / "._alps.csv").write_bytes(b"\x00\x05\x16\x07 of a file system")
    assert [place.name for place in read_places(tmp_path)] == ["alps"]
    (tmp_path / "alps.tsv").write_text("b1\n")
    with pytest.raises(ValueError, match=r"alps\.tsv must have another name: alps\.csv is the place alps"):
        read_places(tmp_path)


def test_names_without_a_class_are_counted_and_listed_at_the_start(start, trees, caplog):
    with caplog.at_level(logging.WARNING, "shortlist.serve"):
        start(made=trees, places=[Place({"q1": 1, "yeti": 1, "elf": 2}, "park")])
    assert "place park: names that are no class of the model: 2 (yeti, elf)" in caplog.text


def test_a_place_follows_the_classes_of_each_model(start):
    """A release may have another class table: the place is then made of its classes."""
    place = Place({"Quercus robur L.": 1, "Betula nana": 1}, "park")
    for table in (TREES, TREES_WITH_AUTHORS):
        client = start(made=tree_model(table), places=[place])
        body = client.post("/v1/identify", params={"place": "park"}, files=files(png(1))).json()
        assert {c["id"] for c in body["candidates"]} == {"q1", "b2"}


def test_projects_of_plantnets_api_are_the_places(alps, trees):
    listed = alps.get("/v2/projects", params={"lang": "de"}).json()
    assert [(p["id"], p["title"], p["speciesCount"]) for p in listed] == [
        ("all", "trees", 6),
        ("alps", "Die Alpen", 3),
        ("park", "park", 1),
    ]
    assert [form["id"] for form in alps.get("/v2/projects/alps/species").json()] == ["f1", "b1", "b2"]
    own = alps.post("/v1/identify", params={"place": "alps", "top": 3}, files=files(png(1))).json()
    body = alps.post("/v2/identify/alps", files=files(png(1))).json()
    assert [r["species"]["scientificName"] for r in body["results"]] == [c["name"] for c in own["candidates"]]
    assert [r["score"] for r in body["results"]] == pytest.approx(
        [c["probability"] for c in own["candidates"]], abs=1e-5
    )
    assert body["query"]["project"] == "alps"
    share = population(trees, place=ALPS, photos=2, organ="leaf").coverage_of_top(1)
    sent = {"data": {"organs": ["leaf", "Leaf"]}, "files": files(png(1), png(2))}
    body = alps.post("/v2/identify/alps", params={"nb-results": 1}, **sent).json()
    assert body["promise"]["share"] == pytest.approx(share)
    assert body["promise"]["scope"]["value"] == "leaf" and body["promise"]["scope"]["photos"] == 2
    sent["data"] = {"organs": ["leaf", "flower"]}
    assert alps.post("/v2/identify/alps", **sent).json()["promise"]["scope"]["value"] == ""
    refused = alps.post("/v2/identify/moon", files=files(png(1)))
    assert refused.status_code == 404
    assert refused.json()["message"].endswith("this server has the project 'all', 'alps', 'park'")


def test_what_clients_choose_is_not_remembered_for_ever(start, trees):
    """Populations of places are large: those of the last 64 choices are kept, and those used are not lost."""
    client, ids = start(made=trees, places=[Place(ALPS, "alps")]), [*TREES.ids]
    resolver = trees._lister.resolve
    for number in range(1, 64):
        chosen = [id for bit, id in enumerate(ids) if number >> bit & 1]
        for options in ({"coverage": 0.8 + number / 1000}, {"top": 1}):
            sent = client.post("/v1/identify", params={"classes": chosen, **options}, files=files(png(1)))
            assert sent.status_code == 200
        client.post("/v1/identify", params={"place": "alps", "coverage": 0.9}, files=files(png(1)))
        assert Choice(coverage=0.9, place=Place(ALPS, "alps")) in resolver._at_places
    assert len(resolver._at_places) == 64 and len(resolver._populations._made) == 64
    assert Choice(top=1, place=Place.of(["q1"])) not in resolver._at_places
    rows = trees.population(Choice(top=1))
    for number in range(200):
        params = {"coverage": 0.5 + number / 1000, "at_most": 1 + number % 30}
        assert client.post("/v1/identify", params=params, files=files(png(1))).status_code == 200
    assert len(rows._thresholds) <= 64


def test_one_photo_sent_five_times_is_one_photo(alps):
    def ask(*seeds):
        return alps.post("/v1/identify", params={"coverage": 0.9}, files=files(*map(png, seeds))).json()

    once, five = ask(1), ask(1, 1, 1, 1, 1)
    assert five["images"] == 1 and five["promise"] == once["promise"]
    assert five["candidates"] == once["candidates"]
    assert ask(1, 4, 1)["candidates"] == ask(1, 4)["candidates"] != once["candidates"]
    twice = alps.post("/v2/identify/all", files=files(png(1), png(1))).json()
    assert len(twice["query"]["images"]) == 2
    assert twice["results"] == alps.post("/v2/identify/all", files=files(png(1))).json()["results"]
