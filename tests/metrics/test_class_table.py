"""The table of classes refuses counts that are none."""

import json
import math
import unicodedata

import numpy as np
import pytest
import torch

from shortlist.class_table import ClassTable


@pytest.mark.errors
@pytest.mark.parametrize(
    "counts", [(3, 4), (3.0, 4.0), torch.tensor([3, 4]), torch.tensor([3.0, 4.0]), np.array([3, 4])]
)
def test_counts_of_any_kind(counts):
    assert ClassTable(names=("oak", "beech"), counts=counts).counts == (3, 4)
    assert ClassTable(names=("oak", "beech")).with_counts(counts).counts == (3, 4)


@pytest.mark.errors
@pytest.mark.parametrize("wrong", [1.7, math.nan, math.inf])
def test_counts_that_are_not_whole(wrong):
    for counts in ((2, wrong), torch.tensor([2, wrong])):
        with pytest.raises(ValueError, match="counts must be whole numbers, got"):
            ClassTable(names=("oak", "beech"), counts=counts)
        with pytest.raises(ValueError, match="counts must be whole numbers, got"):
            ClassTable(names=("oak", "beech")).with_counts(counts)


@pytest.mark.errors
def test_a_bad_table_in_a_file_is_named(tmp_path):
    path = tmp_path / "classes.json"
    ClassTable(names=("oak", "beech")).save(path)
    path.write_text(path.read_text().replace("beech", "oak"))
    with pytest.raises(ValueError, match=r"classes.json is not a class table.*must all be different"):
        ClassTable.load(path)


NAMED = ClassTable(
    ["Quercus robur", "Fagus sylvatica L."],
    ["q", "f"],
    [3, 4],
    {"genus": ["Quercus", "Fagus"]},
    authors=["L.", ""],
    common_names={"fra": [["chêne pédonculé", "gravelin"], []], "pt_BR": [[], ["faia"]], "it": [[], []]},
    synonyms=[["Quercus pedunculata Ehrh."], []],
    external={"gbif": ["2878688", ""]},
)


def test_names_come_back_from_a_file(tmp_path):
    NAMED.save(tmp_path / "classes.json")
    assert json.loads((tmp_path / "classes.json").read_text())["format"] == "shortlist class table 2"
    for table in (ClassTable.load(tmp_path / "classes.json"), NAMED.with_counts([3, 4])):
        assert table == NAMED
        assert table.common_names == {
            "fr": (("chêne pédonculé", "gravelin"), ()),
            "pt-br": ((), ("faia",)),
        }  # a language without a name is none
        assert table.synonyms == (("Quercus pedunculata Ehrh.",), ()) and table.authors == ("L.", "")
        assert table.external == {"gbif": ("2878688", "")}
        assert table.scientific_names == (("Quercus robur", "L."), ("Fagus sylvatica", "L."))


def test_an_older_format_is_read_and_a_newer_one_refused_by_name(tmp_path):
    path = tmp_path / "classes.json"
    old = {"format": "shortlist class table 1", "names": ["oak"], "ids": ["1"], "counts": [2], "parents": {}}
    path.write_text(json.dumps(old))
    assert ClassTable.load(path) == ClassTable(["oak"], ["1"], [2])
    path.write_text(json.dumps(old | {"format": "shortlist class table 3"}))
    with pytest.raises(ValueError, match=r"format must be one of .* 2, got 'shortlist class table 3'"):
        ClassTable.load(path)


@pytest.mark.parametrize(
    ("language", "names"),
    [
        ("fr", ("gravelin", None)),
        ("fr-CA", ("gravelin", None)),
        ("FRA", ("gravelin", None)),
        ("pt", (None, "faia")),
        ("de, pt;q=0.5, fr;q=0.4", (None, "faia")),
        ("de;q=0.9,fr;q=0.1,pt;q=0", ("gravelin", None)),
        ("de", (None, None)),
        ("", (None, None)),
        (";;q=,", (None, None)),
    ],
)
def test_common_names_in_the_language_that_is_wanted_most(language, names):
    found = NAMED.common_names_in(language)
    assert tuple(column[-1] if column else None for column in found) == names


def test_names_have_one_form_of_accents():
    apart = unicodedata.normalize("NFD", "chêne")
    table = ClassTable(["a"], authors=[apart], common_names={"fr": [[apart]]}, synonyms=[[apart]])
    assert table.authors == ("chêne",) and table.synonyms == (("chêne",),)
    assert table.common_names == {"fr": (("chêne",),)}


@pytest.mark.errors
@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"authors": ["L."]}, r"authors must have one entry per class \(2\), got 1"),
        ({"synonyms": [[]]}, r"synonyms must have one entry per class \(2\), got 1"),
        ({"common_names": {"fr": [["x"]]}}, r"common_names\['fr'\] must have one entry per class"),
        ({"external": {"gbif": []}}, r"external\['gbif'\] must have one entry per class \(2\), got 0"),
        ({"synonyms": ["abc", "d"]}, r"must have a list of names per class, got 'abc'"),
    ],
)
def test_columns_that_do_not_fit_are_refused(column, message):
    with pytest.raises(ValueError, match=message):
        ClassTable(["a", "b"], **column)
