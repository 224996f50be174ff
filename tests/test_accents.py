"""The same word with its accents written in two ways of Unicode is one class, wherever labels are read."""

import json
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from shortlist import ClassTable
from shortlist.class_table import class_finder
from shortlist.compare.frozen import class_numbers, read_frozen_images
from shortlist.curation.build import plan_benchmark
from shortlist.curation.votes import aggregate_votes
from shortlist.datasets.folders import image_folder
from shortlist.datasets.label_set_lists import label_set_list
from shortlist.datasets.lists import image_list
from shortlist.index.sources import source_of_images
from shortlist.passes.planning import find_shards, shards_to_embed
from tests.datasets.trees import class_folders, image
from tests.index.small import SMALL

ONE, TWO = "\u00e9rable", "e\u0301rable"  # the same word, with an accent in one and in two characters


def holds_two_folders(folder: Path) -> bool:
    """Whether the file system keeps both forms apart."""
    (folder / ONE).mkdir()
    (folder / TWO).mkdir(exist_ok=True)
    both = len(list(folder.iterdir())) == 2
    for one in folder.iterdir():
        one.rmdir()
    return both


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Class folders of training images in one form and of test images in the other."""
    if not holds_two_folders(tmp_path):
        pytest.skip("this file system has one form for names")
    class_folders(tmp_path / "photos/train", {ONE: 4, "oak": 4})
    class_folders(tmp_path / "photos/val", {ONE: 1, TWO: 2, "oak": 1}, seed=10)
    class_folders(tmp_path / "photos/test", {TWO: 3, "oak": 2}, seed=20)
    return tmp_path / "photos"


def test_the_two_forms_are_not_equal_to_python():
    assert (
        ONE != TWO and unicodedata.normalize("NFC", TWO) == ONE and unicodedata.normalize("NFD", ONE) == TWO
    )


def test_a_class_table_keeps_the_composed_form_and_refuses_a_class_twice(tmp_path):
    table = ClassTable([TWO, "oak"], parents={"genus": [TWO, "q"]})
    assert table.names == table.ids == (ONE, "oak") and table.parents == {"genus": (ONE, "q")}
    content = {"format": "shortlist class table 1", "names": [TWO], "ids": [TWO], "counts": [], "parents": {}}
    (tmp_path / "table.json").write_text(json.dumps(content))
    assert ClassTable.load(tmp_path / "table.json").ids == (ONE,)
    with pytest.raises(ValueError, match="ids must all be different"):
        ClassTable([ONE, TWO])


def test_class_folders_of_both_forms_are_one_class(photos):
    splits = image_folder(photos, image_size=8)
    assert splits.class_table.names == ("oak", ONE) and splits.class_table.counts == (4, 4)
    assert splits.val.targets.tolist() == [0, 1, 1, 1] and splits.test.targets.tolist() == [0, 0, 1, 1, 1]
    assert all(
        torch.isfinite(splits.test[row][0]).all() for row in range(5)
    )  # found on disk as they are named


def test_embed_and_score_and_index_find_the_folders_of_a_class(photos):
    shards, table = shards_to_embed(photos, shard_rows=100)
    assert table.ids == ("oak", ONE) and shards["test"][0].targets == (0, 0, 1, 1, 1)
    rows = [target for shard in find_shards(photos, table, split="val") for target in shard.open().targets]
    assert rows == [0, 1, 1, 1]
    model = SimpleNamespace(classes=table, preprocessing=SMALL)
    assert source_of_images(photos / "val", model).classes.tolist() == [0, 1, 1, 1]


def test_frozen_images_are_of_the_class_that_they_name(photos):
    found = read_frozen_images(photos)
    model = SimpleNamespace(classes=ClassTable(["oak", ONE]))
    assert class_numbers(model, found).tolist() == [0, 0, 1, 1, 1]


def test_data_build_counts_both_forms_as_one_class(photos):
    plan = plan_benchmark(photos / "val", min_images=3)
    assert plan.class_table.names == (ONE,) and len(plan.rows) == 3


def test_labels_of_lists(tmp_path):
    for number in range(8):
        image(tmp_path / f"{number}.png", seed=number)
    rows = [f"{number}.png,{label}" for number, label in enumerate([ONE, TWO, "oak", "oak"] * 2)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows]), encoding="utf-8")
    assert image_list(tmp_path / "list.csv", val_fraction=0.1, image_size=8).class_table.names == ("oak", ONE)
    rows = [f"{n}.png,{sets},{part}" for n, (sets, part) in enumerate(
        [(f"{ONE};oak", "train"), (TWO, "val"), ("oak", "test")]
    )]  # fmt: skip
    (tmp_path / "sets.csv").write_text("\n".join(["path,labels,split", *rows]), encoding="utf-8")
    assert label_set_list(tmp_path / "sets.csv", image_size=8).class_table.names == ("oak", ONE)
    assert [class_finder(ClassTable(["oak", ONE]))(label) for label in (ONE, TWO, "1")] == [1, 1, 1]


def test_votes_for_both_forms_are_for_one_label_and_a_person_is_one_person():
    items, users = ["a"] * 3 + ["b"], ["x", "y", "z", "x"]
    found = aggregate_votes(items, users, [ONE, TWO, "oak", "oak"], rule="majority")
    assert found.labels.tolist() == [ONE, "oak"] and found.weights.tolist() == [2.0, 1.0]
    twice = aggregate_votes(["a", "a"], [ONE, TWO], ["oak", "ash"], rule="majority", theta=0.5)
    assert twice.users.tolist() == [ONE] and twice.labels.tolist() == [
        "ash"
    ]  # the last vote of a user counts
