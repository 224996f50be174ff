"""The images that an index is made from: lists here and at addresses, tar files, folders."""

import json

import pytest

from shortlist.index import ImageIndex, build_index
from shortlist.index.segment import ImageIndexError
from shortlist.index.sources import source_of_images
from tests.datasets.trees import class_folders, image, truncate
from tests.index.small import projection_model
from tests.passes.test_inputs import write_tar

pytestmark = pytest.mark.filterwarnings("ignore:.*cannot be read as an image")


def found_in(folder):
    """Class and author of each image of an index."""
    index = ImageIndex.open(folder)
    return sorted((number, one.author) for number in range(6) for one in index.examples(number, 99))


def test_a_list_at_an_address_with_images_at_addresses_and_beside_it(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    for number in range(3):
        with fsspec.open(f"memory://index/photos/{number}.png", "wb") as file:
            file.write(image(tmp_path / f"{number}.png", seed=number).read_bytes())
    with fsspec.open("memory://index/rows.csv", "wb") as file:
        file.write(
            b"path,label,author,split\nmemory://index/photos/0.png,c1,Ada,train\nphotos/1.png,c2,Bea,train\n"
            b"photos/2.png,c2,Cleo,test\nphotos/9.png,c2,Dora,train\n"
        )
    model = projection_model()
    source = source_of_images("memory://index/rows.csv", model)
    counts = build_index(model, source, tmp_path / "index")
    assert (counts.images, counts.unreadable) == (2, 1)
    assert found_in(tmp_path / "index") == [(1, "Ada"), (2, "Bea")]
    again = build_index(model, source_of_images("memory://index/rows.csv", model), tmp_path / "index")
    assert (again.added, again.images) == (0, 2)


def test_a_tar_file_at_an_address(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    photo = image(tmp_path / "a.png").read_bytes()
    write_tar(tmp_path / "a.tar", {"a.png": photo, "a.cls": b"c3"})
    with fsspec.open("memory://index/a.tar", "wb") as file:
        file.write((tmp_path / "a.tar").read_bytes())
    model = projection_model()
    counts = build_index(model, source_of_images("memory://index/a.tar", model), tmp_path / "index")
    assert counts.images == 1 and found_in(tmp_path / "index") == [(3, "")]


@pytest.mark.parametrize("name", ["{part}-1.tar", "{part}/1.tar"])
def test_of_tar_files_with_parts_those_for_training_are_taken(tmp_path, name):
    model = projection_model()
    for number, part in enumerate(("train", "val", "test")):
        path = tmp_path / "tars" / name.format(part=part)
        path.parent.mkdir(parents=True, exist_ok=True)
        photo = image(tmp_path / f"{part}.png", seed=number).read_bytes()
        write_tar(path, {"a.png": photo, "a.json": json.dumps({"label": f"c{number}"}).encode()})
    assert source_of_images(tmp_path / "tars", model).classes.tolist() == [0]
    (tmp_path / "tars" / name.format(part="train")).unlink()
    with pytest.raises(ImageIndexError, match=r"tars has no train images, but test and val"):
        source_of_images(tmp_path / "tars", model)


def test_rows_that_are_there_twice_and_tar_rows_with_two_images(tmp_path):
    model = projection_model()
    photo = image(tmp_path / "a.png").read_bytes()
    truncate(image(tmp_path / "bad.png"))
    (tmp_path / "rows.csv").write_text("path,label\na.png,c0\na.png,c0\na.png,c1\nbad.png,c1\nbad.png,c1\n")
    counts = build_index(model, source_of_images(tmp_path / "rows.csv", model), tmp_path / "lists")
    assert (counts.images, counts.added, counts.unreadable) == (2, 2, 2)
    write_tar(
        tmp_path / "a.tar", {"a.png": photo, "a.jpg": photo, "a.cls": b"c0", "b.png": photo, "b.cls": b"c0"}
    )
    counts = build_index(model, source_of_images(tmp_path / "a.tar", model), tmp_path / "tars")
    assert (counts.images, counts.unreadable) == (1, 1)


@pytest.mark.errors
def test_what_has_no_class_or_would_be_left_out_is_refused(tmp_path):
    class_folders(tmp_path / "loose", {"c0": 1})
    image(tmp_path / "loose/b.png")
    image(tmp_path / "a.png")
    (tmp_path / "part.csv").write_text("path,label\na.png,c0\na.png,\n")
    (tmp_path / "bare.csv").write_text("path\na.png\n")
    (tmp_path / "test.csv").write_text("path,label,split\na.png,c0,test\n")
    (tmp_path / "gone.csv").write_text("path,label\nb.png,c0\n")
    (tmp_path / "other.csv").write_text("path,label\na.png,elm\n")
    write_tar(tmp_path / "blank.tar", {})
    for images, words in [
        ("loose", r"holds 1 images beside its class folders, such as .*loose/b.png"),
        ("part.csv", r"part.csv must have a class for each image, got none for a.png"),
        ("bare.csv", r"bare.csv must have a class for each image, got none for a.png"),
        ("test.csv", r"test.csv has no train images, but test"),
        ("gone.csv", r"b.png, the first image of .*gone.csv, is missing"),
        ("other.csv", r"other.csv, row a.png: the class 'elm' is none of the 6 classes"),
        ("blank.tar", r"blank.tar holds no images"),
    ]:
        with pytest.raises(ValueError, match=words):
            source_of_images(tmp_path / images, projection_model())
