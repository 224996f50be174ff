"""Files as people have them: odd encodings, empty fields, ids, deep images, leaks, missing pieces."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, strategies as st
from PIL import Image

from shortlist._tables import plain_cell, read_columns, safe_cell, write_columns
from shortlist.class_table import ClassTable
from shortlist.curation.build import build_benchmark, plan_benchmark
from shortlist.curation.check import check_images, difference_hash
from shortlist.curation.describe import open_dataset
from shortlist.curation.votes import aggregate_votes, read_votes
from shortlist.datasets.assembly import Files, assemble
from shortlist.datasets.cifar import cifar100_lt
from shortlist.datasets.embeddings import embeddings, save_embeddings
from shortlist.datasets.folders import image_folder
from shortlist.datasets.glyphs import glyphs, glyphs_full
from shortlist.datasets.imagenet import imagenet
from shortlist.datasets.images import ImageFiles, why_unreadable
from shortlist.datasets.lists import image_list
from shortlist.datasets.partition import balanced_split
from shortlist.datasets.plantnet import plantnet300k, plantnet_metadata
from shortlist.datasets.splits import ChangedSplit
from shortlist.inputs.folders import images_below
from shortlist.preprocessing import read_image
from tests.datasets import trees


def listed(folder: Path, labels: list[str], *, header: str = "path,label", name: str = "list.csv") -> Path:
    """A list of that many images, with its images."""
    for i in range(len(labels)):
        trees.image(folder / f"{i}.png", seed=i)
    rows = [f"{i}.png,{label}" for i, label in enumerate(labels)]
    (folder / name).write_text("\n".join([header, *rows]), encoding="utf-8")
    return folder / name


# images


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_images_of_16_bits_keep_their_shades(tmp_path, suffix):
    ramp = np.linspace(0, 65535, 256).astype(np.uint16)[None].repeat(8, 0)
    Image.fromarray(ramp).save(tmp_path / f"deep{suffix}")
    Image.fromarray((ramp >> 8).astype(np.uint8)).save(tmp_path / f"flat{suffix}")
    deep = np.asarray(read_image(tmp_path / f"deep{suffix}"))
    assert deep[0, :, 0].tolist() == list(range(256))
    assert why_unreadable(tmp_path / f"deep{suffix}") is None
    looks = difference_hash(tmp_path / f"deep{suffix}")
    assert looks is not None
    assert looks == difference_hash(tmp_path / f"flat{suffix}")


@pytest.mark.errors
@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_images_of_32_bits_are_unreadable(tmp_path, kind):
    path = tmp_path / "deep.tif"
    Image.fromarray(np.linspace(0, 1000, 64, dtype=kind).reshape(8, 8)).save(path)
    with pytest.raises(ValueError, match=r"deep.tif cannot be read as an image: its pixels are .* 32 bits"):
        read_image(path)
    assert "32 bits" in (why_unreadable(path) or "")
    report = check_images(tmp_path, workers=0)
    assert "32 bits" in report.unreadable[str(path)]


def test_changed_labels_leave_unreadable_rows_out(tmp_path):
    """By row and by batch: a row of zeros never gets a class."""
    paths = [trees.image(tmp_path / "a.png"), trees.truncate(trees.image(tmp_path / "b.png"))]
    split = ChangedSplit(ImageFiles(paths, torch.tensor([0, 0])), torch.tensor([1, 0]), torch.tensor([3, 4]))
    with pytest.warns(UserWarning, match="cannot be read"):
        assert [split[i][1] for i in range(2)] == [-100, 4]
    assert split.batch(torch.tensor([0, 1]))[1].tolist() == [-100, 4]


def test_a_link_to_a_folder_above_is_no_endless_folder(tmp_path):
    trees.class_folders(tmp_path, {"a": 2, "ab": 1})
    (tmp_path / "a" / "up").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "other").symlink_to(tmp_path / "ab")
    assert [os.path.relpath(p, tmp_path) for p in images_below(tmp_path / "a")] == [
        "a/image 0.jpg", "a/image 1.jpg", "a/other/image 0.jpg",
    ]  # fmt: skip


@pytest.mark.errors
def test_no_readable_training_file_is_an_error(tmp_path):
    bad = trees.truncate(trees.image(tmp_path / "a.png"))
    files = Files([str(bad)], torch.tensor([0]))
    parts = {"train": files, "val": files, "test": files}
    with (
        pytest.warns(UserWarning, match="cannot be read"),
        pytest.raises(ValueError, match=r"no file of the train split can be read"),
    ):
        assemble(parts, ClassTable(["a"]), where="here", verify=True)


# folders


@pytest.mark.errors
def test_a_part_without_class_folders_is_an_error(tmp_path):
    """As where test images have no labels."""
    trees.class_folders(tmp_path / "train", {"a": 3})
    trees.image(tmp_path / "test" / "1.jpg")
    with pytest.raises(ValueError, match=r"test holds 1 images outside the class folders"):
        image_folder(tmp_path)
    (tmp_path / "test" / "1.jpg").unlink()
    with pytest.raises(ValueError, match=r"test holds no images in class folders"):
        image_folder(tmp_path)


@pytest.mark.errors
def test_held_out_folders_alone_are_not_classes(tmp_path):
    for part in ("val", "test"):
        trees.class_folders(tmp_path / part, {"a": 3, "b": 3})
    with pytest.raises(FileNotFoundError, match=r"train is missing. There is val and test without it"):
        image_folder(tmp_path)
    trees.class_folders(tmp_path, {"exam": 3})  # then they are: one class is called test
    assert image_folder(tmp_path).class_table.names == ("exam", "test", "val")


def test_plantnet_as_unpacked(tmp_path):
    """The archive has the images in a folder of that name, beside the JSON files."""
    trees.plantnet(tmp_path)
    (tmp_path / "images").mkdir()
    for part in ("train", "val", "test"):
        (tmp_path / part).rename(tmp_path / "images" / part)
    splits = open_dataset(str(tmp_path), check_metadata=True)
    assert splits.class_table.ids == ("1355868", "1355870", "99")
    assert (len(splits.train), len(splits.val), len(splits.test)) == (12, 3, 3)


@pytest.mark.errors
def test_plantnet_errors_have_the_path(tmp_path):
    trees.plantnet(tmp_path)
    (tmp_path / "plantnet300K_metadata.json").write_text(json.dumps({"x": "leaf"}))
    with pytest.raises(ValueError, match=r"metadata.json must hold an object with a species_id per image"):
        plantnet_metadata(tmp_path)
    for path in (tmp_path / "val").rglob("*.jpg"):
        path.unlink()
    with pytest.raises(ValueError, match=r"val holds no images in class folders"):
        plantnet300k(tmp_path)


def test_imagenet_classes_that_training_lacks_are_not_lost(tmp_path):
    trees.class_folders(tmp_path / "train", {"n02": 3})
    trees.class_folders(tmp_path / "val", {"n01": 2, "n02": 1})
    with pytest.warns(UserWarning, match=r"1 of 2 classes have no image in the (train|val) split \(n01\)"):
        splits = imagenet(tmp_path)
    assert splits.class_table.ids == ("n01", "n02")
    assert splits.test.targets.tolist() == [0, 0, 1]


# lists


@pytest.mark.errors
def test_list_with_empty_fields(tmp_path):
    path = listed(tmp_path, ["oak", "", "ash"])
    with pytest.raises(ValueError, match=r"list.csv has 1 empty fields in column 'label'"):
        image_list(path)
    path = listed(tmp_path, ["1", "NA", "0"])  # as R writes it
    with pytest.raises(ValueError, match=r"list.csv has 1 empty fields in column 'label'"):
        image_list(path)
    pyarrow.parquet.write_table(pyarrow.table({"path": ["0.png"], "label": [""]}), tmp_path / "l.parquet")
    with pytest.raises(ValueError, match=r"l.parquet has 1 empty fields in column 'label'"):
        image_list(tmp_path / "l.parquet")


def test_columns_lose_nothing(tmp_path):
    text = "path,label,genus,author\r\n1.png,007,NA,5\r\n2.png,012,true,\r\n3.png,1,2020-01-01,NA\r\n"
    (tmp_path / "a.csv").write_text("\ufeff" + text, newline="", encoding="utf-8")
    found = read_columns(tmp_path / "a.csv", ["path", "label", "genus"], optional=["author"])
    assert {name: column.to_pylist() for name, column in found.items()} == {
        "path": ["1.png", "2.png", "3.png"],
        "label": ["007", "012", "1"],
        "genus": ["NA", "true", "2020-01-01"],
        "author": [5, None, None],
    }
    table = pyarrow.table({"path": ["1.png", "2.png"], "label": [1.0, 0.0], "size": [0.5, float("nan")]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    found = read_columns(tmp_path / "a.parquet", ["path", "label"], optional=["size"])
    assert found["label"].to_pylist() == [1, 0]
    assert found["size"].to_pylist() == [0.5, None]


@pytest.mark.errors
@pytest.mark.parametrize("highest", ["1355868", "99999999999999999999"])
def test_whole_numbers_that_are_ids_are_no_indices(tmp_path, highest):
    path = listed(tmp_path, ["7", highest] * 3)
    with pytest.raises(ValueError, match=rf"2 different ones go up to {highest}. If they are ids"):
        image_list(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes without images
        given = image_list(path, class_table=ClassTable(["seven", "many"], ids=["7", highest]))
        assert given.class_table.names == ("seven", "many")
        assert len(image_list(listed(tmp_path, ["7", "99999"] * 3)).class_table) == 100_000


@pytest.mark.errors
def test_lists_in_other_encodings(tmp_path):
    listed(tmp_path, ["x"] * 3)
    rows = "".join(f"{i}.png é\n" for i in range(3))
    (tmp_path / "list.txt").write_bytes(("\ufeff" + rows.replace("\n", "\r\n")).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert image_list(tmp_path / "list.txt").class_table.names == ("é",)
    (tmp_path / "list.txt").write_bytes(rows.encode("latin-1"))
    for read in (image_list, check_images):
        with pytest.raises(ValueError, match=r"list.txt .* UTF-8"):
            read(tmp_path / "list.txt")
    (tmp_path / "list.csv").write_bytes("path,label\n0.png,é\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"list.csv cannot be read as .csv: .*UTF8"):
        image_list(tmp_path / "list.csv")
    with pytest.raises(ValueError, match=r"0.png cannot be read as .png"):
        read_votes(tmp_path / "0.png")


def test_an_image_listed_for_training_and_test_is_reported(tmp_path):
    listed(tmp_path, ["a"] * 3)
    rows = [
        "path,label,split",
        "0.png,a,train",
        "1.png,a,train",
        "2.png,a,val",
        "1.png,a,test",
        "2.png,a,test",
    ]
    (tmp_path / "list.csv").write_text("\n".join(rows))
    message = rf"1 images of the test split are in the train split, too \({tmp_path}/1.png\)"
    with pytest.warns(UserWarning, match=message):
        image_list(tmp_path / "list.csv")


@given(st.lists(st.text(alphabet="'=+-@1e.ab \t\n\r,\"", max_size=6), min_size=1, max_size=20))
def test_cells_are_read_as_they_were_written(tmp_path_factory, texts):
    """No two texts become one, and none begins as a formula does, unless it is a number."""
    cells = [safe_cell(text) for text in texts]
    assert [plain_cell(cell) for cell in cells] == texts
    for cell in cells:
        if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")):
            float(cell)
    path = tmp_path_factory.mktemp("cells") / "cells.csv"
    write_columns(path, {"cell": [f"{text}x" for text in texts]})
    assert read_columns(path, ["cell"])["cell"].to_pylist() == [f"{text}x" for text in texts]


# votes


def users(**columns: Any) -> dict:
    """Return n_u of the published rule, which counts authors."""
    found = aggregate_votes(**columns, rule="adaptive", theta=1.0)
    return dict(zip(found.users.tolist(), found.user_counts.tolist(), strict=True))


VOTES = {"item": [1, 1, 2, 2], "user": [5, 6, 5, 6], "label": ["oak", "oak", "ash", "ash"]}


@pytest.mark.parametrize("kind", ["list", "floats", "objects", "parquet", "csv"])
def test_authors_with_gaps_are_still_the_users(tmp_path, kind):
    """In each form that a column of whole numbers with gaps may come in; user 5 made a valid item."""
    authors = {
        "list": [5, 5, None, None],
        "floats": np.array([5, 5, np.nan, np.nan]),
        "objects": np.array([5, 5, None, np.nan], dtype=object),
    }
    if kind in authors:
        found = users(**VOTES, author=authors[kind])
    elif kind == "parquet":  # as pandas writes it
        table = pyarrow.table(VOTES | {"author": pyarrow.array([5.0, 5.0, None, None])})
        pyarrow.parquet.write_table(table, tmp_path / "votes.parquet")
        found = users(**read_votes(tmp_path / "votes.parquet"))
    else:
        rows = ["item,user,label,author", "1,5,oak,5", "1,6,oak,", "2,5,ash,NA", "2,6,ash,"]
        (tmp_path / "votes.csv").write_text("\n".join(rows))
        found = users(**read_votes(tmp_path / "votes.csv"))
    assert found == {5: 3, 6: 2}


def test_gaps_among_named_authors_are_no_author(tmp_path):
    rows = ["item,user,label,author", "01,bob,oak,bob", "01,eve,oak,", "02,bob,ash,", "02,eve,ash,"]
    (tmp_path / "votes.csv").write_text("\n".join(rows))
    assert users(**read_votes(tmp_path / "votes.csv")) == {"bob": 3, "eve": 2}
    assert aggregate_votes(**read_votes(tmp_path / "votes.csv")).items.tolist() == ["01", "02"]


@pytest.mark.parametrize("column", ["item", "user", "label"])
def test_an_empty_vote_is_left_out_and_counted(tmp_path, column):
    row = {"item": "a", "user": "u", "label": "oak"}
    lines = [",".join(row), ",".join(row.values()), ",".join((row | {column: ""}).values())]
    (tmp_path / "votes.csv").write_text("\n".join(lines))
    found = aggregate_votes(**read_votes(tmp_path / "votes.csv"))
    assert (found.items.tolist(), found.labels.tolist(), found.empty_votes) == (["a"], ["oak"], 1)


# benchmarks


def test_an_image_listed_twice_is_in_one_part(tmp_path):
    path = listed(tmp_path, ["Acer a"] * 5)
    with path.open("a") as file:
        file.write("\n./0.png,Acer a\n1.png,Acer a\n")
    plan = plan_benchmark(path, genus_fraction=1)
    assert sorted(os.path.basename(image) for image, _, _ in plan.rows) == [f"{i}.png" for i in range(5)]
    assert plan.left_out["rows that list an image again"] == 2
    build_benchmark(path, tmp_path / "made", genus_fraction=1)
    assert check_images(tmp_path / "made", workers=0).across_parts == []


@pytest.mark.errors
def test_benchmark_lists_with_gaps_or_contradictions(tmp_path):
    path = listed(tmp_path, ["a,A", "a,A", "b,"], header="path,label,genus")
    with pytest.raises(ValueError, match=r"list.csv has 1 empty fields in column 'genus'"):
        plan_benchmark(path)
    path = listed(tmp_path, ["a", "a", "b", ""])
    with pytest.raises(ValueError, match=r"list.csv has 1 empty fields in column 'label'"):
        plan_benchmark(path)
    path.write_text("path,label,genus\n0.png,a,A\n0.png,b,A\n")
    with pytest.raises(ValueError, match=r"0.png is in two classes, 'a' and 'b'"):
        plan_benchmark(path)
    path.write_text("path,label\n1,a\n2,a\n3,a\n")  # names without suffix are text all the same
    assert plan_benchmark(path, min_images=3).sizes() == {"train": 1, "val": 1, "test": 1}
    with pytest.raises(ValueError, match=r"held_out must leave a training image of each class, got 0.4"):
        plan_benchmark(path, min_images=3, held_out=0.4)


@pytest.mark.errors
def test_a_folder_that_is_neither_class_nor_genus(tmp_path):
    trees.class_folders(tmp_path / "Acer", {"a": 5, "b": 5})
    trees.image(tmp_path / "Acer" / "1.jpg")
    with pytest.raises(ValueError, match=r"Acer holds both folders and 1 images: it is neither a class nor"):
        plan_benchmark(tmp_path)


def test_check_sees_two_parts_without_training_images(tmp_path):
    for part in ("val", "test"):
        trees.class_folders(tmp_path / part, {"a": 1}, suffix=".png")
    assert len(check_images(tmp_path, workers=0).across_parts) == 1


# embeddings, splits, glyphs, names


def test_a_tail_so_long_that_it_ends_is_reported(tmp_path):
    trees.cifar100(tmp_path, per_class=6)
    with pytest.warns(UserWarning, match=r"cifar-100: 2 of 10 classes have no image in the train split"):
        splits = cifar100_lt(tmp_path, rho=9)
    assert splits.class_table.counts == (6, 4, 3, 2, 2, 1, 1, 1, 0, 0)


def test_root_of_a_list_that_is_elsewhere(tmp_path):
    listed(tmp_path / "images", ["a", "b"] * 3)
    (tmp_path / "images" / "list.csv").rename(tmp_path / "list.csv")
    assert len(open_dataset(str(tmp_path / "list.csv"), root=tmp_path / "images").test) == 2
    with pytest.raises(ValueError, match=r"root is for the names of data sets and for lists"):
        open_dataset(str(tmp_path), root=tmp_path)


@pytest.mark.errors
def test_embeddings_that_do_not_fit(tmp_path):
    save_embeddings(tmp_path / "train.safetensors", torch.zeros(9, 4), torch.arange(9) % 3)
    with pytest.raises(ValueError, match=r"val_fraction must be < 0.5"):
        embeddings(tmp_path, val_fraction=0.6)
    save_embeddings(tmp_path / "test.safetensors", torch.zeros(3, 5), torch.arange(3))
    with pytest.raises(ValueError, match=r"test.safetensors: 'embeddings' must have rows of shape \(4,\)"):
        embeddings(tmp_path)
    save_embeddings(tmp_path / "test.safetensors", torch.zeros(0, 4), torch.arange(0))
    with pytest.raises(ValueError, match=r"test.safetensors has no rows"):
        embeddings(tmp_path)


@pytest.mark.errors
def test_a_part_of_a_row_is_no_size():
    with pytest.raises(ValueError, match=r"val_size must be a whole number, got 2.5"):
        balanced_split(torch.arange(8) % 2, val_size=2.5)  # type: ignore[arg-type]


def test_glyphs_without_a_cache_that_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.warns(UserWarning, match=r"not kept for the next time: .*file"):
        data = glyphs(characters="OQ", train_images=20, cache=tmp_path / "file")
    assert len(data.train) == 20


@pytest.mark.errors
def test_one_folder_of_fonts_need_not_be_in_a_list(tmp_path):
    for folders in (tmp_path, str(tmp_path)):
        with pytest.raises(ValueError, match=r"at least 3 designs, one for each split, got 0"):
            glyphs_full(folders)


@pytest.mark.errors
@pytest.mark.parametrize(("name", "lacks"), [("glyphs_full", "folders"), ("image_lists", "train")])
def test_sets_that_need_more_than_a_name(name, lacks):
    with pytest.raises(ValueError, match=f"{name} needs {lacks}: call it in Python"):
        open_dataset(name)


def test_pipes_among_images_are_named_and_not_waited_for(tmp_path):
    from shortlist.datasets.images import unreadable_files

    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(ValueError, match=r"pipe.png cannot be read as an image: it is no regular file"):
        read_image(tmp_path / "pipe.png")
    assert unreadable_files([str(tmp_path / "pipe.png")]) == {0: "it is no regular file"}
    (tmp_path / "list.csv").write_text("path,label\npipe.png,a\n")
    report = check_images(tmp_path / "list.csv", workers=0)  # opened it to look for near duplicates
    assert report.unreadable == {str(tmp_path / "pipe.png"): "it is no regular file"}


def test_special_files_in_a_folder_are_left_out_and_counted(tmp_path):
    for name in ("a/0.png", "a/1.png", "a/2.png", "b/0.png", "b/1.png", "b/2.png"):
        trees.image(tmp_path / "data" / name, seed=hash(name) % 100)
    os.mkfifo(tmp_path / "data" / "a" / "pipe.png")
    (tmp_path / "data" / "a" / "device.jpg").symlink_to("/dev/null")
    (tmp_path / "data" / "b" / "gone.png").symlink_to(tmp_path / "nothing")  # missing, and so unreadable
    with pytest.warns(UserWarning, match=r"2 pipes, devices or sockets are left out, such as .*device.jpg"):
        found = images_below(tmp_path / "data")
    assert [os.path.basename(path) for path in found] == [f"{i}.png" for i in (0, 1, 2, 0, 1, 2)] + [
        "gone.png"
    ]
    with pytest.warns(UserWarning, match="left out"):
        plan = plan_benchmark(tmp_path / "data", genus_fraction=1.0, min_images=3)
    assert sum(plan.sizes().values()) == 7


def test_links_in_a_circle_are_images_that_are_missing(tmp_path):
    trees.class_folders(tmp_path, {"a": 3, "b": 3})
    (tmp_path / "a" / "circle.png").symlink_to("circle.png")
    (tmp_path / "c").symlink_to("c")
    data = image_folder(tmp_path, val_fraction=0.1)
    assert data.class_table.names == ("a", "b")
    assert str(tmp_path / "a" / "circle.png") in images_below(tmp_path)
