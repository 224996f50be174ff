"""Darwin Core archives, read by another library and checked term by term."""

import io
import math
import random
import re
import zipfile
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest
from PIL import Image

from shortlist.feedback.darwin_core import Media, Occurrence, write_archive
from shortlist.feedback.location import Location

_DWC, _DC = "http://rs.tdwg.org/dwc/terms/", "http://purl.org/dc/terms/"
MEDIA = "http://rs.gbif.org/terms/1.0/Multimedia"
REQUIRED = ("occurrenceID", "basisOfRecord", "scientificName", "eventDate")


def check_terms(path) -> list[tuple[dict[str, str], list[dict[str, str]]]]:
    """Require of an archive, as python-dwca-reader opens it, what GBIF does; return rows and photos."""
    reader = pytest.importorskip("dwca.read")
    with reader.DwCAReader(path) as archive:
        assert archive.descriptor.core.type == f"{_DWC}Occurrence"
        rows = [(row.data, [media.data for media in row.extensions]) for row in archive]
        assert {table.type for table in archive.descriptor.extensions} == {MEDIA}
    assert len({data[f"{_DWC}occurrenceID"] for data, _ in rows}) == len(rows)
    for data, photos in rows:
        assert all(data[_DWC + term] for term in REQUIRED), data
        assert (
            data[f"{_DWC}basisOfRecord"] == "HumanObservation"
            and data[f"{_DWC}occurrenceStatus"] == "present"
        )
        assert re.fullmatch(r"\d{4}(-\d\d(-\d\d(T[\d:.]+(Z|[+-]\d\d:\d\d)?)?)?)?", data[f"{_DWC}eventDate"])
        if data[f"{_DWC}decimalLatitude"]:
            assert -90 <= float(data[f"{_DWC}decimalLatitude"]) <= 90
            assert -180 <= float(data[f"{_DWC}decimalLongitude"]) <= 180
            assert data[f"{_DWC}geodeticDatum"] == "WGS84"
            assert float(data[f"{_DWC}coordinateUncertaintyInMeters"]) > 0
        for photo in photos:
            assert photo[f"{_DC}type"] == "StillImage" and photo[f"{_DC}identifier"]
            assert photo[f"{_DC}format"].startswith("image/")
            assert urlsplit(photo[f"{_DC}license"]).scheme == "http"
    return rows


def test_an_archive_says_all_that_is_known(tmp_path):
    Image.new("RGB", (4, 3), "green").save(tmp_path / "a.jpg")
    media = [
        Media("images/a.jpg", "image/jpeg", tmp_path / "a.jpg"),
        Media("https://x.org/b.png", "image/png"),
    ]
    first = Occurrence(
        "o-1",
        "Quercus robur",
        "L.",
        "2878688",
        {"genus": "Quercus", "family": "Fagaceae", "shape": "round"},
        "2024-05-01",
        Location(43.65, 3.85, 7000.0),
        'Ana "the\tbotanist"',
        "CC BY-NC 4.0",
        "list: Quercus robur 0.71,\nQuercus petraea 0.22; 90 of 100 such lists hold the name",
        True,
        media,
    )
    second = Occurrence("ö/2", "Fagus sylvatica L.", "L.", date="2024", license="CC0 1.0")
    written = write_archive(tmp_path / "a.zip", iter([first, second]), title="Trees & <leaves>")
    rows = check_terms(tmp_path / "a.zip")
    assert written == 2 == len(rows)
    data = {term.rsplit("/", 1)[1]: value for term, value in rows[0][0].items()}
    assert data["scientificName"] == "Quercus robur L." and data["scientificNameAuthorship"] == "L."
    assert data["taxonID"] == "2878688" and data["genus"] == "Quercus" and data["family"] == "Fagaceae"
    assert data["recordedBy"] == 'Ana "the botanist"' and data["kingdom"] == ""
    assert data["license"] == "http://creativecommons.org/licenses/by-nc/4.0/legalcode"
    assert data["identificationVerificationStatus"] == "verified"
    assert data["identificationRemarks"].startswith("list: Quercus robur 0.71, Quercus petraea 0.22;")
    assert data["coordinateUncertaintyInMeters"] == "7000" and data["decimalLongitude"] == "3.85"
    assert [photo[f"{_DC}identifier"] for photo in rows[0][1]] == [
        "images/a.jpg",
        "https://x.org/b.png",
    ]
    assert rows[1][0][f"{_DWC}scientificName"] == "Fagus sylvatica L." and not rows[1][1]
    assert rows[1][0][f"{_DWC}occurrenceID"] == "ö/2" and rows[1][0][f"{_DWC}geodeticDatum"] == ""
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.testzip() is None
        assert Image.open(io.BytesIO(archive.read("images/a.jpg"))).size == (4, 3)
        assert b"Trees &amp; &lt;leaves&gt;" in archive.read("eml.xml")
    write_archive(tmp_path / "b.zip", [first, second], title="Trees & <leaves>")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


# the order of schema eml-dataset.xsd of EML 2.1.1, as far as it is used here
EML_ORDER = ["title", "creator", "intellectualRights", "contact"]


@pytest.mark.parametrize(
    ("licenses", "strictest"),
    [
        (["CC0 1.0"], "publicdomain/zero/1.0"),
        (["CC BY 4.0", "CC0 1.0"], "licenses/by/4.0"),
        (["CC0 1.0", "CC BY-NC 4.0", "CC BY 4.0"], "licenses/by-nc/4.0"),
    ],
)
def test_a_data_set_is_as_free_as_its_strictest_record(tmp_path, licenses, strictest):
    rows = [Occurrence(str(number), "Alnus", license=license) for number, license in enumerate(licenses)]
    write_archive(tmp_path / "a.zip", iter(rows), title="Trees")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        (dataset,) = ElementTree.fromstring(archive.read("eml.xml"))
    assert [part.tag for part in dataset] == EML_ORDER
    (link,) = dataset.iter("ulink")
    assert link.get("url") == f"http://creativecommons.org/{strictest}/legalcode"


@pytest.mark.errors
def test_an_archive_is_whole_or_not_there(tmp_path):
    def failing():
        yield Occurrence("1", "Fagus sylvatica")
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        write_archive(tmp_path / "a.zip", failing(), title="Trees")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"path must end in .zip .*, got .*a.csv"):
        write_archive(tmp_path / "a.csv", [], title="Trees")


def _meters(one: Location, other: Location) -> float:
    """Haversine distance on a sphere of the largest radius that the Earth has."""
    latitudes = math.radians(one.latitude), math.radians(other.latitude)
    turned = math.radians(one.longitude - other.longitude)
    rise = math.sin((latitudes[1] - latitudes[0]) / 2) ** 2
    return (
        2
        * 6_378_137
        * math.asin(math.sqrt(rise + math.prod(map(math.cos, latitudes)) * math.sin(turned / 2) ** 2))
    )


@pytest.mark.parametrize("degrees", [0.01, 0.1, 0.7, 1.0, 7.0, 8.0])
def test_a_coarse_place_covers_the_true_one_and_tells_no_more(degrees):
    draw = random.Random(0)
    corners = [
        Location(latitude, longitude) for latitude in (-90.0, 0.0, 90.0) for longitude in (-180.0, 180.0)
    ]
    true = [Location(draw.uniform(-90, 90), draw.uniform(-180, 180)) for _ in range(2000)] + corners
    for location in true:
        coarse = location.check().coarse(degrees).check()
        assert _meters(location, coarse) <= coarse.uncertainty, location
        if abs(coarse.latitude) < 90 - degrees and abs(coarse.longitude) < 180 - degrees:  # a whole cell
            cell = Location(coarse.latitude + 0.49 * degrees, coarse.longitude - 0.49 * degrees)
            assert cell.coarse(degrees) == coarse
    assert Location(43.6, 3.9, 500.0).coarse().uncertainty == Location(43.6, 3.9).coarse().uncertainty + 500


@pytest.mark.errors
@pytest.mark.parametrize(
    ("location", "message"),
    [
        (Location(90.1, 0.0), "latitude must be .*90.1"),
        (Location(0.0, -180.5), "longitude must be .*-180.5"),
        (Location(float("nan"), 0.0), "latitude must be .*nan"),
        (Location(0.0, 0.0, 0.0), "uncertainty must be .*0.0"),
    ],
)
def test_a_place_that_cannot_be_is_refused(location, message):
    with pytest.raises(ValueError, match=message):
        location.check()
