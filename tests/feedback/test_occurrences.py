"""From what people said to a Darwin Core archive, by the command."""

import csv
import hashlib
import io
import json
import zipfile

import pytest
from PIL import Image
from typer.testing import CliRunner

from shortlist.class_table import ClassTable
from shortlist.cli import app
from shortlist.feedback import Event, FeedbackStore, Location, Shown
from shortlist.feedback.store import read_events
from shortlist.feedback.votes import collect_votes
from tests.feedback.test_darwin_core import check_terms

_DWC, _DC = "http://rs.tdwg.org/dwc/terms/", "http://purl.org/dc/terms/"
LICENSES = ("publicdomain/zero/1.0", "licenses/by/4.0", "licenses/by-nc/4.0")


def photo(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (4, 3), (40 * number, 0, 0)).save(file, "JPEG")
    return file.getvalue()


def fill(folder) -> None:
    """Agreed on, disputed, without license, consent or date, bad photo: observations 0 to 5."""
    about = {"license": "CC BY 4.0", "date": "2026-05-01", "author": "Ana <b>"}
    facts = [about, about, about | {"license": ""}, about, about | {"date": ""}, about]
    shown = (Shown("7", 0.6, True), Shown("9", 0.3, True), Shown("8", 0.1, False))
    with FeedbackStore(folder) as store:
        for number, known in enumerate(facts):
            content = photo(number)
            image = hashlib.sha256(content).hexdigest()
            observed = {"images": (image,), "observation": f"o{number}", "shown": shown}
            observed |= {"choice": {"promised": 0.9}, "model": "m"}
            consent = number != 3
            more = {"about": known, "consent": consent, "location": Location(43.65, 3.85, 6873.0)}
            event = Event("observe", f"{number}", person="ann", **observed, **more)
            store.add(event, [content] if consent else [])
            for voter in range(3):
                label = ("9" if voter else "7") if number == 1 else "7"
                label = "" if number == 1 and voter == 2 else label
                verb = "bad_image" if number == 5 else "other_class" if label else "none_of_these"
                label = label if verb == "other_class" else ""
                store.add(Event(verb, f"{number} {voter}", person=f"p{voter}", label=label, **observed))


def run(*words) -> dict:
    done = CliRunner().invoke(app, ["feedback", "export", *map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_agreed_observations_are_exported_as_an_archive(tmp_path):
    fill(tmp_path / "store")
    names, parents = ("Quercus robur L.", "Fagus sylvatica", "Alnus/x"), {"family": ("Fagaceae",) * 3}
    ClassTable(names, ("7", "8", "9"), parents=parents).save(tmp_path / "class_table.json")
    options = ("--form", "dwca", "--classes", tmp_path, "--title", "Trees", "-o")
    content = run(tmp_path / "store", *options, tmp_path / "a.zip")
    assert content["observations"] == 1
    assert {name: value for name, value in content.items() if name.startswith("left out")} == {
        "left out: no class of the table": 1,
        "left out: no date": 1,
        "left out: no license": 1,
        "left out: no valid label": 1,
    }
    ((data, photos),) = check_terms(tmp_path / "a.zip")
    row = {term.rsplit("/", 1)[1]: value for term, value in data.items()}
    assert (row["occurrenceID"], row["scientificName"], row["taxonID"]) == ("o0", "Quercus robur L.", "7")
    assert (row["scientificNameAuthorship"], row["family"]) == ("L.", "Fagaceae")
    assert (row["decimalLatitude"], row["coordinateUncertaintyInMeters"]) == ("43.65", "6873")
    assert row["identificationVerificationStatus"] == "verified" and row["recordedBy"] == "Ana <b>"
    assert row["identificationRemarks"] == (
        "3 votes; list: Quercus robur L. 0.60, Alnus/x 0.30; 90 of 100 such lists hold the name"
    )
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.read(photos[0][f"{_DC}identifier"]) == photo(0)
        assert not any(b"ann" in archive.read(name) for name in archive.namelist())  # nor any other name
    more = (*options, tmp_path / "b.zip", "--with-unverified", "--media-url", "https://x.org/photos/")
    assert run(tmp_path / "store", *more)["observations"] == 2
    rows = check_terms(tmp_path / "b.zip")
    status = f"{_DWC}identificationVerificationStatus"
    assert {data[f"{_DWC}occurrenceID"]: data[status] for data, _ in rows} == {
        "o0": "verified",
        "o1": "unverified",
    }
    address = rows[0][1][0][f"{_DC}identifier"]
    assert address == f"https://x.org/photos/{hashlib.sha256(photo(0)).hexdigest()}.jpg"
    assert not any(name.startswith("images") for name in zipfile.ZipFile(tmp_path / "b.zip").namelist())


def test_each_photo_has_the_license_that_was_said_of_it_last(tmp_path, location):
    """Photos of one observation with three licenses; one is licensed later, one never, one by another."""
    licenses = ["CC0 1.0", "", "CC BY-NC 4.0", "CC BY 4.0", ""]
    shas = [hashlib.sha256(photo(number)).hexdigest() for number in range(5)]
    with FeedbackStore(location) as store:

        def observe(request: str, number: int, person: str = "ann", item: str = "o1", **known: str) -> None:
            about = {"date": "2026-05-01", "author": f"A. {person}"} | known
            shot = {"images": (shas[number],), "about": about}
            event = Event("observe", request, person=person, observation=item, consent=True, **shot)
            store.add(event, [photo(number)])

        for number, license in enumerate(licenses):
            observe(f"o{number}", number, license=license)
        observe("later", 1, license="CC BY 4.0", author="Ann B.")
        observe("stricter", 3, license="CC BY-NC 4.0")
        observe("other", 2, person="eve", item="e1", license="CC0 1.0", author="Eve")
        for person in ("p0", "p1", "p2"):
            said = {"images": (shas[0],), "observation": "o1", "label": "7"}
            store.add(Event("other_class", person, person=person, **said))
    ClassTable(("Quercus robur",), ("7",)).save(tmp_path / "class_table.json")
    options = ("--form", "dwca", "--classes", tmp_path, "--title", "Trees", "-o", tmp_path / "a.zip")
    assert run(location, *options)["observations"] == 1
    ((data, media),) = check_terms(tmp_path / "a.zip")
    free, named, strict = (f"http://creativecommons.org/{end}/legalcode" for end in LICENSES)
    told = {one[f"{_DC}identifier"]: (one[f"{_DC}license"], one[f"{_DC}creator"]) for one in media}
    assert told == {
        f"images/{shas[0]}.jpg": (free, "A. ann"),
        f"images/{shas[1]}.jpg": (named, "Ann B."),
        f"images/{shas[2]}.jpg": (strict, "A. ann"),
        f"images/{shas[3]}.jpg": (strict, "A. ann"),
    }
    assert data[f"{_DC}license"] == strict
    votes_file, listed = tmp_path / "votes.csv", tmp_path / "photos.csv"
    run(location, "-o", votes_file, "--images", listed)
    with listed.open(newline="") as file:
        exported = {row["image"]: (row["item"], row["license"]) for row in csv.DictReader(file)}
    expected = ["CC0 1.0", "CC BY 4.0", "CC BY-NC 4.0", "CC BY-NC 4.0", ""]
    assert exported == {sha: ("o1", license) for sha, license in zip(shas, expected, strict=True)}
    in_memory = {one.image: (one.item, one.license) for one in collect_votes(read_events(location)).photos}
    assert in_memory == exported


@pytest.mark.errors
def test_an_archive_needs_classes_and_a_title(tmp_path):
    fill(tmp_path / "store")
    words = ["feedback", "export", str(tmp_path / "store"), "--form", "dwca", "-o", str(tmp_path / "a.zip")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0 and not (tmp_path / "a.zip").exists()


def test_review_names_the_files_of_photos(tmp_path):
    fill(tmp_path / "store")
    done = CliRunner().invoke(app, ["feedback", "review", str(tmp_path / "store"), "--json"])
    first = {row["item"]: row["photos"] for row in json.loads(done.stdout)["first"]}
    image = hashlib.sha256(photo(1)).hexdigest()
    assert first["o1"] == [str(tmp_path / "store" / "images" / image[:2] / image)]
    told = CliRunner().invoke(app, ["feedback", "review", str(tmp_path / "store")]).stdout
    assert f"    {first['o1'][0]}" in told.splitlines()


def test_a_proposed_name_that_became_a_class_is_exported(tmp_path):
    """Votes for a new name count for the class that was made of it, also beside votes for the class."""
    about = {"license": "CC BY 4.0", "date": "2026-05-01"}
    image = hashlib.sha256(photo(1)).hexdigest()
    observed = {"images": (image,), "observation": "o1"}
    with FeedbackStore(tmp_path / "store") as store:
        store.add(Event("observe", "0", person="ann", consent=True, about=about, **observed), [photo(1)])
        for voter, name in enumerate(("Tilia cordata", "tilia cordata")):
            store.add(Event("new_name", f"r{voter}", person=f"p{voter}", label=name, **observed))
        store.add(Event("other_class", "2", person="p2", label="12", **observed))
    options = ("--form", "dwca", "--classes", tmp_path, "--title", "Trees", "-o", tmp_path / "a.zip")
    ClassTable(("Fagus sylvatica",), ("9",)).save(tmp_path / "class_table.json")
    assert run(tmp_path / "store", *options)["observations"] == 0
    ClassTable(("Fagus sylvatica", "Tilia cordata"), ("9", "12")).save(tmp_path / "class_table.json")
    assert run(tmp_path / "store", *options)["observations"] == 1
    ((data, _),) = check_terms(tmp_path / "a.zip")
    assert (data[f"{_DWC}scientificName"], data[f"{_DWC}taxonID"]) == ("Tilia cordata", "12")
