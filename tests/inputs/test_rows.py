"""The row type and its readers: the same rows from every form, with what is known about the images."""

import hashlib
import json
import os
import pickle

import pytest
from PIL import Image

from shortlist import ClassTable
from shortlist._tables import write_columns
from shortlist.compare.frozen import look_at, read_frozen_images
from shortlist.compare.gate import judge_release
from shortlist.curation.build import apply_plan, plan_benchmark
from shortlist.curation.grow import plan_growth
from shortlist.datasets.about import about_of_data
from shortlist.index.sources import source_of_images
from shortlist.inputs.benchmarks import is_benchmark, read_benchmark
from shortlist.inputs.folders import read_folder, split_folders
from shortlist.inputs.labels import class_indices
from shortlist.inputs.lists import read_list
from shortlist.inputs.read import read_rows
from shortlist.inputs.rows import ABOUT, Row, Rows
from tests.compare.pixels import pixel_model
from tests.compare.test_gate import frozen as frozen
from tests.datasets.trees import class_folders, image
from tests.index.small import projection_model
from tests.passes.test_inputs import write_tar

KNOWN = {
    "observation": "o1", "organ": "leaf", "author": "Ada", "license": "CC0", "date": "2026-05-01",
    "place": "Jena", "source": "https://example.org/1",
}  # fmt: skip
PHOTO_COLUMNS = {"observation_id": "o1", "view": "leaf", "creator": "Ada", "licence": "CC0",
                 "event_date": "2026-05-01", "locality": "Jena", "url": "https://example.org/1"}  # fmt: skip


@pytest.mark.parametrize("names", [KNOWN, PHOTO_COLUMNS])
@pytest.mark.parametrize("form", ["csv", "parquet", "tar"])
def test_a_row_has_all_that_its_source_says(tmp_path, form, names):
    photo = image(tmp_path / "a.png").read_bytes()
    path = tmp_path / f"rows.{form}"
    if form == "tar":
        said = json.dumps({"label": "c1", **names}).encode()
        write_tar(path, {"a.png": photo, "a.json": said, "b.png": photo, "b.cls": b"c2"})
    else:
        columns = {name: [value, None] for name, value in names.items()}
        write_columns(path, {"path": ["a.png", "a.png"], "label": ["c1", "c2"], **columns})
    rows = read_rows(path, about=ABOUT)
    assert set(KNOWN) == set(ABOUT) and rows[0].about == KNOWN and rows[1].about == {}
    assert [row.label for row in rows] == ["c1", "c2"] and rows[0] == Row(rows.address(0), "c1", "", **KNOWN)
    source = source_of_images(path, projection_model())
    assert [source.about(row) for row in (0, 1)] == [KNOWN, {}]
    part = pickle.loads(pickle.dumps(source.take([1, 0])))  # as a worker gets it
    assert [part.about(row) for row in (0, 1)] == [{}, KNOWN] and part.content(1) == photo


def test_what_is_known_travels_through_two_benchmarks(tmp_path):
    for number in range(12):
        image(tmp_path / f"{number}.png", seed=number)
    columns = {name: [f"{value} {n % 6}" for n in range(12)] for name, value in KNOWN.items()}
    paths = {"path": [f"{n}.png" for n in range(12)], "label": ["oak"] * 12}
    write_columns(tmp_path / "rows.csv", paths | columns)
    options = {"split": "hash", "held_out": 0.2, "seed": 3}
    write_columns(tmp_path / "votes.csv", {"item": ["other"], "user": ["ann"], "label": ["oak"]})
    write_columns(tmp_path / "photos.csv", {"path": ["0.png"], "item": ["none"]})
    files = {"votes": tmp_path / "votes.csv", "images": tmp_path / "photos.csv"}
    plans = {
        "first": lambda: plan_benchmark(tmp_path / "rows.csv", **options),
        "second": lambda: plan_growth(tmp_path / "first", **files),
    }
    for name, plan in plans.items():
        apply_plan(plan(), tmp_path / name)
        images = read_benchmark(tmp_path / name).images
        assert is_benchmark(tmp_path / name) and len(images) == 12
        about = about_of_data("image_folder", {"root": str(tmp_path / name)})
        for inside, made in images.items():
            number = int(os.path.basename(inside).partition(".")[0])
            wanted = {key: f"{value} {number % 6}" for key, value in KNOWN.items()}
            assert made.row == Row(str(tmp_path / name / inside), "oak", inside.split("/")[0], **wanted)
            assert made.original == str(tmp_path / f"{number}.png")
            assert about(str(tmp_path / name / inside)) == wanted
            assert made.sha256 == hashlib.sha256((tmp_path / f"{number}.png").read_bytes()).hexdigest()


def test_rows_by_column():
    rows = Rows(
        "/data", ["a.png", "/b.png", b"bytes", "s3://c.png"], ["x", 1, None, "y"], ["train", "val", "", "val"]
    )
    assert rows.addresses() == ["/data/a.png", "/b.png", b"bytes", "s3://c.png"]
    assert rows[1] == Row("/b.png", 1, "val") and rows[1].class_label == "1" and rows[2].class_label == ""
    assert rows.of_split("val").labels == [1, "y"] and rows[2:].addresses() == [b"bytes", "s3://c.png"]
    assert len(rows[:0]) == 0 and Rows("", ["a"], [None])[0].split == ""


def test_folders_lists_and_tars_give_the_same_rows(tmp_path):
    for split in ("train", "test"):
        class_folders(tmp_path / "photos" / split, {"ash": 2, "oak": 1})
    rows = read_rows(tmp_path / "photos")
    lines = [
        f"photos/{file},{label},{split}"
        for file, label, split in zip(rows.files, rows.labels, rows.splits, strict=True)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(["path,label,split", *lines]))
    for split in ("train", "test"):
        found = rows.of_split(split)
        (tmp_path / "rows.txt").write_text(
            "".join(f"photos/{f} {n}\n" for f, n in zip(found.files, found.labels, strict=True))
        )
        (tmp_path / "tars").mkdir(exist_ok=True)
        members = {}
        for number, row in enumerate(found):
            with open(row.path, "rb") as file:
                members |= {f"{number}.jpg": file.read(), f"{number}.cls": row.class_label.encode()}
        write_tar(tmp_path / f"tars/{split}.tar", members)
        assert read_rows(tmp_path / "rows.txt").addresses() == found.addresses()
        for path in ("photos", "rows.csv", "tars"):
            assert read_rows(tmp_path / path, split=split).labels == ["ash", "ash", "oak"]
            assert read_rows(tmp_path / path, default=split).labels == ["ash", "ash", "oak"]
    assert read_rows(tmp_path / "rows.csv", split="test").addresses() == rows.of_split("test").addresses()
    assert (
        read_rows(tmp_path / "rows.csv")[3] == rows[3] and read_rows(tmp_path / "tars").splits == rows.splits
    )


@pytest.mark.errors
def test_a_class_may_be_called_like_a_split(tmp_path):
    class_folders(tmp_path / "vehicles", {"bus": 1, "train": 1, "tram": 1})
    class_folders(tmp_path / "words", {"exam": 1, "test": 2})
    assert split_folders(tmp_path / "words") == {}
    assert read_folder(tmp_path / "words").labels == ["exam", "test", "test"]
    classes = ClassTable(["bus", "train", "tram"])
    rows = read_rows(tmp_path / "vehicles", classes=classes)
    assert class_indices(rows.labels, classes, where="") == [0, 1, 2]
    with pytest.raises(ValueError, match=r"vehicles holds 2 images beside its folders train"):
        read_rows(tmp_path / "vehicles")


def test_the_gate_takes_tar_files_and_addresses(frozen, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    model, images = pixel_model(), read_frozen_images(frozen)
    expected, lines, members = look_at(model, images).values, ["path,label,split"], {}
    for number, row in enumerate(images):
        with open(row.path, "rb") as file, fsspec.open(f"memory://gate/{number}.png", "wb") as copy:
            content = file.read()
            copy.write(content)
        members |= {f"{number}.png": content, f"{number}.cls": row.class_label.encode()}
        lines.append(f"memory://gate/{number}.png,{row.label},test")
    write_tar(tmp_path / "test-1.tar", members)
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    for path in (tmp_path / "test-1.tar", tmp_path / "rows.csv"):
        values = look_at(model, read_frozen_images(path)).values
        assert {name: column.tolist() for name, column in values.items()} == {
            name: column.tolist() for name, column in expected.items()
        }
        assert judge_release(model, model, path).passed


def test_ids_and_indices_of_one_class_are_one_class_to_the_gate(frozen, tmp_path):
    """The mean over classes is that of the class folders, however the labels are written."""
    model, worse = pixel_model(), pixel_model(wrong=(0, 9))
    images = read_frozen_images(frozen)
    lines = [f"{row.path},{int(row.class_label[1:]) if n % 2 else row.label}" for n, row in enumerate(images)]
    (tmp_path / "rows.csv").write_text("\n".join(["path,label", *lines]))
    metrics = ["top1.macro", "top1.rare", "top1.micro"]
    checks = [
        judge_release(worse, model, data, metrics=metrics).checks for data in (frozen, tmp_path / "rows.csv")
    ]
    assert checks[0] == checks[1] and not checks[0][-1].passed


@pytest.mark.errors
def test_an_empty_field_is_named_by_its_row(tmp_path):
    (tmp_path / "rows.csv").write_text("path,label\na.png,oak\nb.png,\n,oak\n")
    with pytest.raises(ValueError, match=r"1 empty fields in column 'path', the first in row 3"):
        read_list(tmp_path / "rows.csv")
    (tmp_path / "rows.csv").write_text("path,label\na.png,oak\nb.png,\n")
    assert read_list(tmp_path / "rows.csv").labels == ["oak", None]
    with pytest.raises(ValueError, match=r"1 empty fields in column 'label', the first in row 2"):
        read_list(tmp_path / "rows.csv", need_labels=True)


def test_odd_names_are_read(tmp_path):
    folder = tmp_path / "photos/ash"
    image(folder / "\u00e9 b.png")
    Image.new("RGB", (4, 4)).save(folder / ".hidden.png")
    with open(os.fsencode(folder) + b"/b\xff.png", "wb") as file:
        file.write((folder / "\u00e9 b.png").read_bytes())
    (folder / "gone.png").symlink_to(tmp_path / "nothing")
    rows = read_rows(tmp_path / "photos")
    assert [os.fsencode(str(file)) for file in rows.files] == [
        b"ash/b\xff.png", b"ash/gone.png", "ash/\u00e9 b.png".encode(),
    ]  # fmt: skip
