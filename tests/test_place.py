"""Places: weights over classes from files and lists, matched by id or name."""

import math
import os
import pickle

import pytest
import torch

from shortlist import ClassTable, Place

TREES = ClassTable(
    names=("Quercus robur L.", "Fagus sylvatica", "Betula pendula Roth", "Picea abies (L.) H.Karst."),
    ids=("q1", "f1", "b1", "p1"),
)


def written(tmp_path, text, name="home.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "q1,3\nFagus sylvatica,1\n",
        "id,weight\nq1,3\nf1,1\n",
        "\ufeffid;x,weight\nq1,2\nf1,1\nq1,1\n",  # a header by its second cell, a class twice
        "name,weight\r\n\r\nQuercus robur,3\r\nFagus sylvatica L.,1\r\n",
        "\ufeffid;weight\r\nq1;3\r\nf1;1\r\n",
        '"Quercus robur L., 1753";3\n"Fagus sylvatica (Ehrh., 1780)";1\n',
        '"Quercus robur L., 1753",3\n"Fagus sylvatica (Ehrh., 1780)",1\n',
        "id,weight\nq1, 1800\nf1, 600\n",
    ],
)
def test_a_csv_of_ids_or_names_with_weights(tmp_path, text):
    place = Place.from_file(written(tmp_path, text))
    assert place.name == "home"
    assert place.vector(TREES).tolist() == [0.75, 0.25, 0, 0]


def test_weights_of_one_class_add_up_however_it_is_written(tmp_path):
    table = ClassTable(names=("Vicia cre\u0301tica", "oak", "ash"))
    for text in ("Vicia cr\u00e9tica,1\nVicia cre\u0301tica,2\noak,1\n", "Vicia cr\u00e9tica,3\noak,1\n"):
        assert Place.from_file(written(tmp_path, text)).vector(table).tolist() == [0.75, 0.25, 0]
    assert Place({"Vicia cre\u0301tica": 1, "Vicia cr\u00e9tica": 2, "oak": 1}).vector(table)[0] == 0.75
    for text in ("oak,1e308\nash,1e308\nVicia,1e308\n", "oak,1e-320\nash,1e-320\n"):  # only ratios matter
        assert Place.from_file(written(tmp_path, text)).vector(table).tolist() == [0, 0.5, 0.5]


def test_synonyms_of_all_rows_count(tmp_path):
    head = "scientificName\tacceptedScientificName\n"
    rows = ["Quercus p\u00e9dunculata\tQuercus robur L.\n", "Quercus pe\u0301dunculata\t\n", "f1\t\n"]
    for first, second in ((0, 1), (1, 0)):
        text = head + rows[first] + rows[second] + rows[2]
        match = Place.from_file(written(tmp_path, text, "list.tsv")).match(TREES)
        assert match.unknown == () and match.vector.tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])


@pytest.mark.parametrize(
    "header", ["scientificname\tn", "dwc:scientificName\tn", '"ScientificName"\t"n"', " scientificName , n "]
)
def test_columns_of_darwin_core_are_found_however_they_are_written(tmp_path, header):
    quote, comma = '"' if '"' in header else "", "," if "," in header else "\t"
    rows = [
        f"{quote}{name}{quote}{comma}3" for name in ("Quercus robur", "Quercus robur L.", "Fagus sylvatica")
    ]
    place = Place.from_file(written(tmp_path, "\n".join([header, *rows]), "list.tsv"))
    assert place.vector(TREES).tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0])
    counted = Place.from_dwc(written(tmp_path, "\n".join([header, *rows])), counts="n")
    assert counted.weights == {"Quercus robur": 3, "Quercus robur L.": 3, "Fagus sylvatica": 3}


@pytest.mark.parametrize(
    "text",
    [
        "species,weight\nQuercus robur,3\nFagus sylvatica,1\n",
        "scientificName\tcountry\tWeight\nQuercus robur L.\tFR\t3\nFagus sylvatica\tFR\t\n",
        "id,name,weight\nq1,Quercus robur,3\nf1,Fagus sylvatica,1\n",
        "id;weight;notes\nq1;3;common\nf1;1;\n",
        "q1,3,\nf1,1,,\n",
    ],
)
def test_a_column_called_weight_has_the_weights(tmp_path, text):
    assert Place.from_file(written(tmp_path, text)).vector(TREES).tolist() == [0.75, 0.25, 0, 0]


def test_a_csv_without_weights_is_even(tmp_path):
    for text in ("q1\nb1\n", "id\nq1\nb1\n"):
        assert Place.from_file(written(tmp_path, text)).vector(TREES).tolist() == [0.5, 0, 0.5, 0]


def test_occurrences_are_counted_by_row_without_absences(tmp_path):
    text = (
        "gbifID\tscientificName\tspecies\toccurrenceStatus\tindividualCount\n"
        "1\tQuercus robur L.\tQuercus robur\tPRESENT\t7\n"
        "2\tQuercus pedunculata Ehrh.\tQuercus robur\tPRESENT\t\n"
        '3\tPicea abies "x"\tPicea abies\tPRESENT\t2\n'
        "4\tBetula pendula Roth\tBetula pendula\tABSENT\t9\n"
        "5\tYeti nivalis Tenzing\t\tPRESENT\t1\n"
        "6\tFagus sylvatica L.\tFagus sylvatica\n"
    )
    path = written(tmp_path, text, "alps.tsv")
    match = Place.from_file(path).match(TREES)
    assert match.vector.tolist() == [0.5, 0.25, 0, 0.25]
    assert (match.matched, match.unknown) == (3, ("Yeti nivalis Tenzing",))
    by_number = Place.from_dwc(path, counts="individualCount").vector(TREES)
    assert by_number.tolist() == pytest.approx([8 / 11, 1 / 11, 0, 2 / 11], abs=1e-15)


def test_a_species_list_of_gbif_has_its_counts(tmp_path):
    text = (
        "taxonKey\tscientificName\tacceptedScientificName\tnumberOfOccurrences\n"
        "1\tPicea excelsa (Lam.) Link\tPicea abies (L.) H.Karst.\t30\n"
        "2\tQuercus robur subsp. robur\tQuercus robur L.\t10\n"
    )
    assert Place.from_file(written(tmp_path, text)).vector(TREES).tolist() == [0.25, 0, 0, 0.75]


def test_a_name_of_several_classes_is_no_guess():
    table = ClassTable(("Abies alba Mill.", "Abies alba Michx.", "ash", "ash"), ids=("a", "b", "c", "d"))
    match = Place({"Abies alba": 1, "ash": 1, "Abies alba Mill.": 1}).match(table)
    assert match.vector.tolist() == [1, 0, 0, 0] and match.unknown == ("Abies alba", "ash")


def test_any_set_of_classes_and_all_of_them():
    assert Place.of(["q1", "Betula pendula", "q1"]).vector(TREES).tolist() == [0.5, 0, 0.5, 0]
    assert Place.even().vector(TREES).tolist() == [0.25] * 4
    big = {name: 1e300 for name in TREES.ids}
    assert float(Place(big).vector(TREES).sum()) == pytest.approx(1)


def test_a_place_is_a_value():
    place = Place({"q1": 1}, name="a")
    assert place == Place({"q1": 1.0}, name="a") and len({place, Place({"q1": 1.0}, name="a")}) == 1
    assert place != Place({"q1": 2}, name="a")
    assert pickle.loads(pickle.dumps(place)) == place
    assert place.vector(TREES).dtype == torch.float64


BAD = {
    "empty": ("", r"home.csv must have at least 1 row, got an empty file"),
    "blank": ("\n \n", r"home.csv must have at least 1 row, got an empty file"),
    "header alone": ("id,weight\n", "place home: a place must have a class with a weight above 0, got no"),
    "negative": ("q1,1\nf1,-2\n", r"home.csv, row 2: the weight must be a finite number >= 0, got -2"),
    "nan": ("id,weight\nq1,nan\n", r"home.csv, row 2: the weight must be a finite number >= 0, got nan"),
    "infinite": ("q1,inf\n", r"row 1: the weight must be a finite number >= 0, got inf"),
    "text": ("q1,1\nf1,many\n", r"row 2: the weight must be a finite number >= 0, got many"),
    "thousands": ('q1,"1,000"\nf1,1\n', "row 1: the weight must be a finite number >= 0, got 1,000"),
    "percent": ("q1,30%\nf1,70%\n", "row 1: the weight must be a finite number >= 0, got 30%"),
    "not available": ("q1,NA\nf1,1\n", "row 1: the weight must be a finite number >= 0, got NA"),
    "decimal comma": ("id;weight\nq1;3,5\n", "row 2: the weight must be a finite number >= 0, got 3,5"),
    "author": ("f1\nQuercus robur L., 1753\n", "row 2: the name with a comma must be in quotes, got Quercus"),
    "bracket": ("Quercus robur (L., 1753)\nf1\n", r"row 1: the name with a comma must be in q"),
    "bare thousands": ("q1,1,000\n", "row 1: a row must be an id or name and a weight, got 3 cells: put"),
    "many columns": ("name,lat,count\nq1,45,2\n", "home.csv must have a column weight among more "
                     "than 2, got name, lat, count"),
    "zero": ("q1,0\n", "place home: a place must have a class with a weight above 0, got only weights of 0"),
    "unknown": ("yeti\nwolpertinger\n", r"place home must name at least 1 class of the model by id or name, "
                r"got 2 unknown \(yeti, wolpertinger\)"),
    "negative count": ("species,numberOfOccurrences\nQuercus robur,-1\n", "row 2: the count must be"),
}  # fmt: skip


@pytest.mark.errors
@pytest.mark.parametrize("text, words", BAD.values(), ids=list(BAD))
def test_a_bad_file_gets_a_sentence(tmp_path, text, words):
    with pytest.raises(ValueError, match=words) as caught:
        Place.from_file(written(tmp_path, text)).match(TREES)
    assert "\n" not in str(caught.value)


@pytest.mark.errors
def test_other_bad_places(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere.csv cannot be read as a place: No such file"):
        Place.from_file(tmp_path / "nowhere.csv")
    (tmp_path / "photo.csv").write_bytes(b"\xff\xd8\xff\xe0 no text")
    with pytest.raises(ValueError, match=r"photo.csv cannot be read as a table: it must be text in UTF-8"):
        Place.from_file(tmp_path / "photo.csv")
    with (tmp_path / "long.csv").open("wb") as file:
        file.truncate(2**31)  # one line of 2 GB, which takes no room on the disk
    with pytest.raises(
        ValueError, match=r"long.csv cannot be read as a table: a line has more than 1,000,000"
    ):
        Place.from_file(tmp_path / "long.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match=r"pipe.csv"):
        Place.from_file(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="weights must be numbers by id or name of a class, got list"):
        Place(["q1"])  # pyright: ignore
    with pytest.raises(ValueError, match=r"must have a column individualCount, got species"):
        Place.from_dwc(written(tmp_path, "species\nQuercus robur\n"), counts="individualCount")
    with pytest.raises(ValueError, match="the weight of 'q1' must be a finite number >= 0, got nan"):
        Place({"q1": math.nan})
    with pytest.raises(ValueError, match="the weight of 'q1' must be a finite number >= 0, got 1000"):
        Place({"q1": 10**400})
    with pytest.raises(ValueError, match=r"the place must name only classes of the model by id or name, "
                       r"got 1 unknown \(yeti\)"):  # fmt: skip
        Place.of(["q1", "yeti"]).match(TREES, strict=True)
    with pytest.raises(ValueError, match="classes must be at most 50,000 ids or names, got 100,000"):
        Place.of(range(100_000))
