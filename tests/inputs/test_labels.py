"""The label rule: one table of labels, and each verb that reads labels finds the same class."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from shortlist import ClassTable
from shortlist.class_table import class_finder
from shortlist.compare.answers import read_answers
from shortlist.compare.frozen import class_numbers, read_frozen_images
from shortlist.curation.build import apply_plan, plan_benchmark
from shortlist.curation.grow import plan_growth
from shortlist.datasets import image_folder, image_list
from shortlist.index.sources import source_of_images
from shortlist.inputs.labels import class_indices, classes_of_labels
from shortlist.passes.planning import find_shards, shards_to_embed
from tests.datasets.trees import image
from tests.index.small import SMALL
from tests.passes.test_inputs import write_tar

PLAIN = ClassTable(["ash", "oak", "\u00e9rable"])  # ids are names
NUMBERED = ClassTable(["7", "100", "12"])  # names are numbers, which may be ids
POSITIONS = ClassTable(["oak", "ash", "elm"], ids=["0", "1", "2"])
WITH_IDS = ClassTable(["Oak tree", "Ash tree", "Elm tree"], ids=["oak", "ash", "elm"])
CROSSED = ClassTable(["b", "c", "a"], ids=["a", "b", "c"])
TWICE = ClassTable(["Oak", "Oak", "Ash"], ids=["x1", "x2", "x3"])
GBIF = ClassTable(["Quercus robur", "Fraxinus excelsior", "Ulmus minor"], ids=["28786", "31723", "53618"])
NAMED = ClassTable(
    ["Quercus robur L.", "Quercus pedunculata", "Acer nigrum Michx.", "Acer nigrum Bosc", "Ulmus minor"],
    ids=["q1", "q2", "a1", "a2", "u1"],
    authors=["", "", "", "", "Mill."],
    synonyms=[
        ["Quercus pedunculata", "Quercus femina Mill."],
        ["Both"],
        ["Both"],
        [],
        ["Ulmus carpinifolia"],
    ],
)

SEVERAL = "several"
TABLE = [
    (PLAIN, "oak", 1),
    (PLAIN, "1", 1),  # no ids of its own: an index
    (PLAIN, "01", None),
    (PLAIN, "3", None),
    (PLAIN, "-1", None),
    (PLAIN, "elm", None),
    (PLAIN, "Oak", None),
    (PLAIN, "e\u0301rable", 2),  # an accent of its own character
    (PLAIN, "\u00e9rable", 2),
    (NUMBERED, "12", 2),
    (NUMBERED, "1", None),  # the index 1 is the class 100
    (POSITIONS, "1", 1),
    (POSITIONS, "ash", 1),
    (POSITIONS, "3", None),
    (WITH_IDS, "ash", 1),
    (WITH_IDS, "Ash tree", 1),
    (WITH_IDS, "1", None),  # ids of its own: no index
    (CROSSED, "a", 0),  # an id goes before a name
    (CROSSED, "c", 2),
    (TWICE, "x2", 1),
    (TWICE, "Ash", 2),
    (TWICE, "Oak", SEVERAL),
    (GBIF, "31723", 1),
    (GBIF, "Ulmus minor", 2),
    (GBIF, "0", None),
    (GBIF, "Ulmus minor Mill.", 2),
    (NAMED, "Quercus robur", 0),
    (NAMED, "Quercus robur Linnaeus", 0),
    (NAMED, "Quercus pedunculata", 1),  # a name goes before the synonym of another class
    (NAMED, "Quercus femina", 0),
    (NAMED, "Quercus femina Mill.", 0),
    (NAMED, "Acer nigrum", None),  # the name of two, without its author
    (NAMED, "Acer nigrum Bosc", 3),
    (NAMED, "Both", None),  # a synonym of two
    (NAMED, "Ulmus minor Mill.", 4),
    (NAMED, "Ulmus carpinifolia", 4),
    (NAMED, "Ulmus", None),
]  # fmt: skip


def model_of(table: ClassTable) -> SimpleNamespace:
    return SimpleNamespace(classes=table, preprocessing=SMALL)


def as_list(folder: Path, label: str) -> Path:
    image(folder / "a.png")
    (folder / "rows.csv").write_text(f"path,label\na.png,{label}\n", encoding="utf-8")
    return folder / "rows.csv"


def as_folder(folder: Path, label: str) -> Path:
    image(folder / "photos" / label / "a.png")
    return folder / "photos"


def as_tar(folder: Path, label: str) -> Path:
    photo = image(folder / "a.png").read_bytes()
    write_tar(folder / "rows.tar", {"a.png": photo, "a.cls": label.encode()})
    return folder / "rows.tar"


def trained(path: Path, table: ClassTable) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes without images
        if path.is_dir():
            table.save(path / "class_table.json")
            return image_folder(path).train.targets.tolist()[0]
        return image_list(path, class_table=table).train.targets.tolist()[0]


def embedded(path: Path, table: ClassTable) -> int:
    table.save((path if path.is_dir() else path.parent) / "class_table.json")
    shards, known = shards_to_embed(path, shard_rows=10)
    assert known == table
    return shards["train"][0].open(known).targets[0]


def scored(path: Path, table: ClassTable) -> int:
    return find_shards(path, table)[0].open(table).targets[0]


def indexed(path: Path, table: ClassTable) -> int:
    return source_of_images(path, model_of(table)).classes.tolist()[0]


def gated(path: Path, table: ClassTable) -> int | None:
    """The gate counts a class that the model does not know as missed, and goes on."""
    index = class_numbers(model_of(table), read_frozen_images(path)).tolist()[0]
    return None if index < 0 else index


def answered(path: Path, table: ClassTable) -> int:
    label = path.read_text(encoding="utf-8").split(",")[-1].strip()
    (path.parent / "answers.csv").write_text(f"row,class\n0,{label}\n", encoding="utf-8")
    answers = read_answers(path.parent / "answers.csv", table, num_rows=1)
    return answers.sets[0].nonzero().squeeze(1).tolist()[0]


VERBS: dict[str, tuple[Callable, Callable]] = {
    f"{verb.__name__} {form.__name__}": (form, verb)
    for verb, forms in {
        trained: (as_list, as_folder),
        embedded: (as_list, as_folder, as_tar),
        scored: (as_list, as_folder, as_tar),
        indexed: (as_list, as_folder, as_tar),
        gated: (as_list, as_folder),
        answered: (as_list,),
    }.items()
    for form in forms
}


@pytest.mark.errors
@pytest.mark.parametrize("name", VERBS)
def test_every_verb_finds_the_same_class(tmp_path, name):
    form, verb = VERBS[name]
    for number, (table, label, expected) in enumerate(TABLE):
        path = form(tmp_path / str(number), label)
        if isinstance(expected, int):
            assert verb(path, table) == expected, (table, label)
        elif expected is SEVERAL:
            with pytest.raises(ValueError, match=r"got 'Oak', the name of x1, x2: write an id"):
                verb(path, table)
        elif verb is gated:
            assert verb(path, table) is None, (table, label)
        else:
            with pytest.raises(ValueError, match=rf"'?{re.escape(label)}'?"):
                print(table, label, verb(path, table))


@pytest.mark.errors
def test_the_finder_takes_text_and_whole_numbers():
    for table, label, expected in TABLE:
        if expected is not SEVERAL:
            assert class_finder(table)(label) == expected
            if label == str(int(label)) if label.isdecimal() else False:
                assert class_finder(table)(int(label)) == expected
    for odd in (True, 1.5, [1], None):
        with pytest.raises(ValueError, match=r"a class must be text or a whole number, got "):
            class_finder(PLAIN)(odd)


@pytest.mark.errors
def test_a_refused_label_is_named_with_its_row():
    assert class_indices(["oak", None, 0], PLAIN, where="list") == [1, -100, 0]
    with pytest.raises(ValueError, match=r"^list, row 3: the class 'elm' is none of the 3 classes \(ash"):
        class_indices(["oak", None, "elm"], PLAIN, where="list")
    with pytest.raises(ValueError, match=r"^a.tar, row x/1: class must be one class"):
        class_indices(["Oak"], TWICE, where="a.tar", rows=["x/1"])


@pytest.mark.errors
def test_classes_of_labels_without_a_table():
    assert classes_of_labels(["oak", "ash", None, "oak"], where="list").ids == ("ash", "oak")
    assert classes_of_labels([3, "1"], where="list").ids == ("0", "1", "2", "3")
    assert classes_of_labels(["007", "012"], where="list").ids == ("007", "012")  # written so, they are ids
    assert classes_of_labels([None], where="list").ids == ()
    with pytest.raises(ValueError, match=r"list: whole numbers are class indices, but 2 .* up to 1355868"):
        classes_of_labels([7, 1355868], where="list")
    for odd in (True, 1.5, [1]):
        with pytest.raises(ValueError, match=r"list: a class must be text or a whole number, got "):
            classes_of_labels([odd], where="list")


def test_a_benchmark_that_grows_takes_ids_and_names(tmp_path):
    """And what is neither is a new class."""
    for number in range(16):
        image(tmp_path / f"{number}.png", seed=number)
    old = {number: "a/b" if number % 2 else "oak" for number in range(8)}
    (tmp_path / "old.csv").write_text(
        "\n".join(["path,label", *(f"{number}.png,{label}" for number, label in old.items())])
    )
    ClassTable(["oak", "a/b"], ["7", "8"]).save(tmp_path / "class_table.json")
    apply_plan(plan_benchmark(tmp_path / "old.csv", min_images=3, split="hash", seed=1), tmp_path / "old")
    votes = dict.fromkeys(range(8, 11), "8") | dict.fromkeys(range(11, 13), "a/b")
    votes |= dict.fromkeys(range(13, 16), "elm")
    lines = [f"{number}.png,ann,{label}" for number, label in votes.items()]
    (tmp_path / "votes.csv").write_text("\n".join(["item,user,label", *lines]))
    lines = [f"{number}.png,{number}.png" for number in votes]
    (tmp_path / "photos.csv").write_text("\n".join(["path,item", *lines]))
    files = {"votes": tmp_path / "votes.csv", "images": tmp_path / "photos.csv"}
    new = plan_growth(tmp_path / "old", **files, theta=0.5, min_voters=1, min_observations=3)
    assert new.class_table.names == ("oak", "a/b", "elm") and new.class_table.ids == ("7", "8", "elm")
    classes = {int(Path(path).stem): index for path, index, _ in new.rows}
    assert [classes[number] for number in range(16)] == [0, 1] * 4 + [1] * 5 + [2] * 3
