"""Checklists from files: plain tables and Darwin Core taxon tables."""

import pytest

from shortlist import ClassTable
from shortlist.checklist import Checklist

SIMPLE = (
    "id,name,author,family,synonyms,common_names_fr,common name (pt_BR),gbif\n"
    "q1,Quercus robur,L.,Fagaceae,Quercus pedunculata Ehrh.|Quercus femina Mill.,"
    "chêne pédonculé|gravelin,carvalho,2878688\n"
    "f1,Fagus sylvatica,L.,Fagaceae,,hêtre,,\n"
)
DARWIN_CORE = (
    "taxonID\tscientificNameID\tscientificName\tscientificNameAuthorship\ttaxonRank\tacceptedNameUsageID"
    "\ttaxonomicStatus\tparentNameUsageID\n"
    "1\t\tFagaceae\tDumort.\tfamily\t\taccepted\t\n"
    "2\t\tQuercus L.\tL.\tgenus\t\taccepted\t1\n"
    "3\tipni:304293-2\tQuercus robur L.\tL.\tSPECIES\t\taccepted\t2\n"
    "4\t\tQuercus pedunculata Ehrh.\tEhrh.\tspecies\t3\tsynonym\t2\n"
    "5\t\tQuercus femina Mill.\tMill.\tspecies\t4\theterotypic synonym\t2\n"
    "6\t\tQuercus robur subsp. brutia (Ten.) O.Schwarz\t(Ten.) O.Schwarz\tsubspecies\t\taccepted\t3\n"
    "7\t\tLost name\t\tspecies\t99\tsynonym\t\n"
    '8\t\tQuercus "odd" quote\t\tspecies\t\taccepted\t2\n'
)
VERNACULAR = (
    "taxonID\tvernacularName\tlanguage\tisPreferredName\n"
    "3\tcommon oak\teng\tfalse\n3\tEnglish oak\tENG\ttrue\n3\tCommon Oak\ten\tfalse\n"
    "3\tStieleiche\tdeu\t\n99\tnobody\tde\t\n3\troble\t\t\n"
)


def test_a_plain_table(tmp_path):
    (tmp_path / "classes.csv").write_text(SIMPLE, encoding="utf-8-sig")
    oak, beech = Checklist.read(tmp_path / "classes.csv").taxa
    assert (oak.id, oak.name, oak.author, oak.rank) == ("q1", "Quercus robur", "L.", "")
    assert oak.parents == {"family": "Fagaceae"} and oak.external == {"gbif": "2878688"}
    assert oak.synonyms == ("Quercus pedunculata Ehrh.", "Quercus femina Mill.")
    assert oak.common_names == {"fr": ("chêne pédonculé", "gravelin"), "pt-br": ("carvalho",)}
    assert beech.synonyms == () and beech.common_names == {"fr": ("hêtre",)} and beech.external == {}


@pytest.mark.parametrize("place", ["folder", "file"])
def test_a_darwin_core_table(tmp_path, place):
    (tmp_path / "Taxon.tsv").write_text(DARWIN_CORE)
    (tmp_path / "VernacularName.tsv").write_text(VERNACULAR)
    checklist = Checklist.read(tmp_path if place == "folder" else tmp_path / "Taxon.tsv")
    taxa = {taxon.id: taxon for taxon in checklist.taxa}
    assert list(taxa) == ["1", "2", "3", "6", "8"]
    oak = taxa["3"]
    assert (oak.name, oak.author, oak.rank) == ("Quercus robur", "L.", "species")
    assert oak.parents == {"genus": "Quercus", "family": "Fagaceae"} and oak.external == {"powo": "304293-2"}
    assert oak.synonyms == ("Quercus pedunculata Ehrh.", "Quercus femina Mill.")  # one of them of a synonym
    assert oak.common_names == {"en": ("English oak", "common oak"), "de": ("Stieleiche",), "und": ("roble",)}
    assert taxa["2"].parents == {"family": "Fagaceae"} and taxa["2"].author == "L."
    assert taxa["6"].name == "Quercus robur subsp. brutia" and taxa["6"].author == "(Ten.) O.Schwarz"
    assert taxa["6"].parents == {"genus": "Quercus", "family": "Fagaceae"}
    assert taxa["8"].name == 'Quercus "odd" quote'
    assert checklist.left_out == {"synonyms of a name that is not there": 1}


def test_tables_with_bars_quotes_and_capitals(tmp_path):
    bars = "taxonid|family|genus|scientfiicname|scientfiicnameauthorship|taxonrank\n"  # so spelt
    bars += "9|Fagaceae|Quercus|Quercus rubra|L.|Species\n"
    (tmp_path / "wcvp_taxon.csv").write_text(bars)
    (taxon,) = Checklist.read(tmp_path / "wcvp_taxon.csv").taxa
    assert taxon[:4] == ("9", "Quercus rubra", "L.", "species")
    assert taxon.parents == {"genus": "Quercus", "family": "Fagaceae"}
    quoted = '"dwc:taxonID"\t"dwc:scientificName"\n"a"\t"Quercus ""x"""\n'
    (tmp_path / "wcvp_taxon.csv").write_text(quoted)
    (taxon,) = Checklist.read(tmp_path).taxa
    assert taxon[:2] == ("a", 'Quercus "x"')


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("3", "3"),
        ("Quercus robur", "3"),
        ("Quercus  robur L.", "3"),
        ("Quercus pedunculata", "3"),
        ("Quercus femina Mill.", "3"),
        ("Quercus", "2"),
        ("Quercus rubra", None),
        ("Lost name", None),
        ("99", None),
    ],
)
def test_a_text_is_a_taxon(tmp_path, text, id):
    (tmp_path / "Taxon.tsv").write_text(DARWIN_CORE)
    taxon = Checklist.read(tmp_path).find(text)
    assert (None if taxon is None else taxon.id) == id


def test_homonyms_are_known_by_their_authors(tmp_path):
    (tmp_path / "a.csv").write_text("id,name,author\n1,Acer nigrum,Michx.\n2,Acer nigrum,Bosc\n")
    checklist = Checklist.read(tmp_path / "a.csv")
    assert checklist.find("Acer nigrum") is None
    assert [checklist.find(f"Acer nigrum {author}").id for author in ("Michx.", "Bosc")] == ["1", "2"]


def test_search_finds_names_synonyms_and_common_names(tmp_path):
    (tmp_path / "Taxon.tsv").write_text(DARWIN_CORE)
    (tmp_path / "vernacular.txt").write_text(VERNACULAR)
    checklist = Checklist.read(tmp_path)
    for text, name in {"quercus ped": "Quercus pedunculata Ehrh.", "stielei": "Stieleiche"}.items():
        taxon, matched, mistakes = checklist.search(text)[0]
        assert (taxon.id, matched, mistakes) == ("3", name, 0)
    assert checklist.search("englihs oak")[0][1:] == ("English oak", 1)


def test_classes_of_a_model_are_a_checklist():
    table = ClassTable(["Quercus robur L.", "ash"], ["1", "2"], parents={"genus": ["Quercus", "Fraxinus"]})
    first, second = Checklist.of_classes(table).taxa
    assert first[:3] == ("1", "Quercus robur", "L.") and first.parents == {"genus": "Quercus"}
    assert second[:3] == ("2", "ash", "")


@pytest.mark.errors
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have at least 1 row, got an empty file"),
        ("id,label\n1,x\n", "must have a column scientificname or name, got id, label"),
        ("id,name\n", "must have at least 1 name, got none"),
        ("id,name\n1,a\n1,b\n", "ids must all be different, got '1' twice"),
    ],
)
def test_tables_that_are_no_checklists_are_refused(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        Checklist.read(tmp_path / "a.csv")
    with pytest.raises(ValueError, match="must have one table with a column scientificName, got none"):
        (tmp_path / "a.csv").unlink()
        Checklist.read(tmp_path)


@pytest.mark.errors
def test_a_checklist_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"none.csv cannot be read as a checklist: No such file"):
        Checklist.read(tmp_path / "none.csv")
