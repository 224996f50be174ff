"""Indexes of real image files and of data sets in memory."""

import csv
import io
import json
import os

import numpy as np
import pytest
import torch
from PIL import Image

from shortlist.index import (
    ImageIndex,
    ImageIndexError,
    IndexWriter,
    TensorSource,
    add_images,
    build_index,
    embedding,
    source_of_images,
)
from shortlist.index.thumbnails import thumbnail
from tests.datasets.trees import class_folders, truncate
from tests.index.small import CLASSES, jpeg, projection_model


def folder_of_images(tmp_path, counts=(4, 3, 5)):
    class_folders(tmp_path / "images", {f"c{c}": count for c, count in enumerate(counts)})
    return tmp_path / "images"


def test_each_image_is_nearest_to_itself(tmp_path):
    model, images = projection_model(), folder_of_images(tmp_path)
    told = []
    counts = build_index(
        model, source_of_images(images, model), tmp_path / "index", progress=lambda *n: told.append(n)
    )
    assert (counts.images, counts.classes, counts.added, counts.unreadable) == (12, 3, 12, 0)
    assert told[0] == (0, 12) and told[-1] == (12, 12)
    index = ImageIndex.open(tmp_path / "index", model=model)
    assert index.classes.tolist() == [4, 3, 5, 0, 0, 0]
    for path in images.rglob("*.jpg"):
        class_index = int(path.parent.name[1:])
        features = model.features(model.prepare([path]))[0]
        best = index.similar(features, [class_index], 1)[0][0]
        assert best.similarity > 0.999
        shown = np.asarray(Image.open(io.BytesIO(index.thumbnail(best.id))).resize((24, 20)), dtype=float)
        assert np.abs(shown - np.asarray(Image.open(path), dtype=float)).mean() < 8


def test_only_what_is_new_is_embedded(tmp_path, monkeypatch):
    model, images = projection_model(), folder_of_images(tmp_path)
    build_index(model, source_of_images(images, model), tmp_path / "index", segment_rows=4)
    embedded = []
    original = embedding._halves
    monkeypatch.setattr(
        embedding,
        "_halves",
        lambda vectors, rows: (embedded.append(len(rows)) if rows else None, original(vectors, rows))[1],
    )
    assert build_index(model, source_of_images(images, model), tmp_path / "index").added == 0
    (images / "c1" / "new.jpg").write_bytes(jpeg(77))
    (images / "c1" / "copy.jpg").write_bytes((images / "c1" / "image 0.jpg").read_bytes())
    os.utime(images / "c0" / "image 0.jpg")
    assert build_index(model, source_of_images(images, model), tmp_path / "index").added == 1
    assert embedded == [1]
    index = ImageIndex.open(tmp_path / "index")
    (first,) = index.examples(0, 1)
    with IndexWriter.open(tmp_path / "index") as writer:
        writer.delete([first.id])
        writer.compact()
    (tmp_path / "elsewhere").mkdir()
    images.rename(tmp_path / "elsewhere" / "images")
    source = source_of_images(tmp_path / "elsewhere" / "images", model)
    assert build_index(model, source, tmp_path / "index").added == 0  # deleted ones do not come back


def test_unreadable_files_are_counted_and_tried_again(tmp_path):
    model, images = projection_model(), folder_of_images(tmp_path)
    broken = truncate(images / "c0" / "image 1.jpg")
    whole = jpeg(99)
    (images / "c2" / "image 2.jpg").write_bytes(b"")
    with pytest.warns(UserWarning, match="image 1.jpg cannot be read as an image"):
        counts = build_index(model, source_of_images(images, model), tmp_path / "index")
    assert (counts.images, counts.unreadable) == (10, 2)
    broken.write_bytes(whole)
    with pytest.warns(UserWarning, match="image 2.jpg cannot be read"):
        counts = build_index(model, source_of_images(images, model), tmp_path / "index")
    assert (counts.images, counts.added, counts.unreadable) == (11, 1, 1)


def test_large_classes_keep_spread_images(tmp_path):
    model, images = projection_model(), folder_of_images(tmp_path, (4, 30, 2))
    source = source_of_images(images, model)
    counts = build_index(model, source, tmp_path / "index", max_per_class=5, segment_rows=8)
    assert (counts.images, counts.left_out) == (11, 25)
    assert ImageIndex.open(tmp_path / "index").classes.tolist() == [4, 5, 2, 0, 0, 0]
    assert build_index(model, source, tmp_path / "index", max_per_class=5).added == 0


def test_images_in_memory(tmp_path):
    model = projection_model()
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8, generator=generator)
    source = TensorSource(inputs, torch.arange(20) % CLASSES, lambda rows: rows.float() / 255)
    build_index(model, source, tmp_path / "index", segment_rows=7)
    assert build_index(model, source, tmp_path / "index", segment_rows=7).added == 0
    index = ImageIndex.open(tmp_path / "index")
    features = model.features(inputs.float() / 255)
    for row in range(20):
        (best,) = index.similar(features[row], [row % CLASSES], 1)
        assert best[0].similarity > 0.999
        assert Image.open(io.BytesIO(index.thumbnail(best[0].id))).size == (8, 8)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_lists_say_about_images(tmp_path, suffix):
    model, images = projection_model(), folder_of_images(tmp_path)
    lines = [("path", "label", "split", "author", "licence", "url", "observed_on", "organ", "obs_id")]
    for path in sorted(images.rglob("*.jpg")):
        author = f"Ana {path.parent.name}" if path.stem != "image 1" else ""
        name = str(path.relative_to(tmp_path))
        part = "test" if path.stem == "image 2" else "train"
        lines.append((name, path.parent.name, part, author, "cc-by", "https://x/1", "2024-05-01", "leaf", 7))
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    if suffix == ".parquet":
        from pyarrow import csv as arrow_csv, parquet

        parquet.write_table(arrow_csv.read_csv(tmp_path / "list.csv"), tmp_path / "list.parquet")
    source = source_of_images(tmp_path / f"list{suffix}", model)
    build_index(model, source, tmp_path / "index")
    index = ImageIndex.open(tmp_path / "index")
    assert index.classes.tolist() == [3, 2, 4, 0, 0, 0]  # without the test rows
    found = index.similar(torch.randn(5), [1], 9)[0]
    assert sorted(one.author for one in found) == ["", "Ana c1"]
    for one in found:
        assert (one.license, one.source, one.organ) == ("cc-by", "https://x/1", "leaf")
        assert one.date.startswith("2024-05-01") and one.observation == "7"


def test_images_that_are_added_one_by_one(tmp_path):
    model, images = projection_model(), folder_of_images(tmp_path)
    build_index(model, source_of_images(images, model), tmp_path / "index")
    index = ImageIndex.open(tmp_path / "index")
    about = [{"author": "Ben", "secret": "no"}, {"date": None}]
    (tmp_path / "one.jpg").write_bytes(jpeg(51))
    ids = add_images(model, tmp_path / "index", [jpeg(50), tmp_path / "one.jpg"], [5, 5], about=about)
    assert index.classes.tolist() == [4, 3, 5, 0, 0, 0]
    assert index.refresh() and index.classes.tolist() == [4, 3, 5, 0, 0, 2]
    assert sorted(one.author for one in index.similar(torch.randn(5), [5], 3)[0]) == ["", "Ben"]
    assert all(index.thumbnail(one)[:2] == b"\xff\xd8" for one in ids)
    assert add_images(model, tmp_path / "index", [jpeg(50)], [5]) == ids[:1]
    assert not index.refresh() and len(index) == 14


@pytest.mark.errors
def test_bad_images_and_folders(tmp_path):
    model, images = projection_model(), folder_of_images(tmp_path)
    build_index(model, source_of_images(images, model), tmp_path / "index")
    with pytest.raises(
        ValueError, match=r"1 of 2 images cannot be used, the first is 1: image 1 cannot be read"
    ):
        add_images(model, tmp_path / "index", [jpeg(1), b"GIF89a"], [0, 0])
    with pytest.raises(ValueError, match="classes must be >= 0 and < 6, got 6"):
        add_images(model, tmp_path / "index", [jpeg(1)], [6])
    with pytest.raises(ValueError, match="classes and about must have one entry per image"):
        add_images(model, tmp_path / "index", [jpeg(1)], [])
    with pytest.raises(ImageIndexError, match="another model"):
        add_images(projection_model(1), tmp_path / "index", [jpeg(1)], [0])
    (images / "stranger").mkdir()
    (images / "stranger/a.jpg").write_bytes(jpeg(1))
    with pytest.raises(ImageIndexError, match=r"row stranger/a.jpg: the class 'stranger' is none"):
        source_of_images(images, model)
    assert len(ImageIndex.open(tmp_path / "index")) == 12


def test_thumbnails_are_small_upright_and_without_metadata():
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a camera"  # turned by 90 degrees
    wide = Image.open(io.BytesIO(jpeg(0, size=(640, 320), exif=exif, comment=b"a secret")))
    made = thumbnail(wide)
    opened = Image.open(io.BytesIO(made))
    assert opened.size == (160, 320) and opened.format == "JPEG"
    assert not opened.getexif() and b"secret" not in made and b"camera" not in made
    assert Image.open(io.BytesIO(thumbnail(Image.new("L", (12, 20))))).size == (12, 20)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_a_thumbnail_in_spite_of_damaged_exif():
    odd = jpeg(0, exif=b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01\x09\x09 nonsense")
    assert Image.open(io.BytesIO(thumbnail(Image.open(io.BytesIO(odd))))).size == (40, 30)


def test_the_upright_thumbnail_of_an_indexed_file(tmp_path):
    model, images = projection_model(), tmp_path / "images"
    exif = Image.Exif()
    exif[0x0112] = 6
    (images / "c0").mkdir(parents=True)
    (images / "c0" / "a.jpg").write_bytes(jpeg(0, size=(40, 20), exif=exif))
    build_index(model, source_of_images(images, model), tmp_path / "index")
    index = ImageIndex.open(tmp_path / "index")
    (one,) = index.examples(0, 1)
    assert Image.open(io.BytesIO(index.thumbnail(one.id))).size == (20, 40)


def test_nothing_of_paths_is_kept(tmp_path):
    model, images = projection_model(), folder_of_images(tmp_path)
    build_index(model, source_of_images(images, model), tmp_path / "index")
    for path in (tmp_path / "index").iterdir():
        assert b"image 0" not in path.read_bytes() and b"images" not in path.read_bytes()
    json.loads((tmp_path / "index" / "index.json").read_text())
