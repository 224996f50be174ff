"""The rows that can be scored: folders, lists, addresses, tar files and embeddings."""

import io
import json
import os
import pickle
import tarfile
from types import SimpleNamespace

import pytest

from shortlist import ClassTable
from shortlist._tables import write_columns
from shortlist.index.sources import source_of_images
from shortlist.inputs.labels import UNKNOWN
from shortlist.passes.planning import find_shards
from tests.datasets.trees import class_folders, image
from tests.index.small import SMALL
from tests.passes.scoring import make_embeddings

IDS = ClassTable(("ash", "oak"))


def rows_of(shards, ids=IDS):
    """Ids, classes and contents of all rows."""
    found = []
    for shard in shards:
        rows = shard.open(ids)
        for number, (name, target) in enumerate(zip(rows.ids, rows.targets, strict=True)):
            try:
                found.append((name, target, rows.content(number)))
            except ValueError as error:
                found.append((name, target, str(error)))
    return found


def test_class_folders_with_parts_or_without_and_a_folder_without_classes(tmp_path):
    class_folders(tmp_path / "plain", {"ash": 2, "oak": 1})
    shards = find_shards(tmp_path / "plain", IDS, shard_rows=2)
    assert [shard.name for shard in shards] == ["rows-00000", "rows-00001"]
    assert [row[:2] for row in rows_of(shards)] == [
        ("ash/image 0.jpg", 0),
        ("ash/image 1.jpg", 0),
        ("oak/image 0.jpg", 1),
    ]
    assert rows_of(shards)[2][2] == (tmp_path / "plain/oak/image 0.jpg").read_bytes()
    class_folders(tmp_path / "parts/train", {"ash": 1})
    class_folders(tmp_path / "parts/test", {"oak": 2})
    (only,) = find_shards(tmp_path / "parts", IDS, split="test")
    assert only.name == "test-00000" and [row[1] for row in rows_of([only])] == [1, 1]
    assert len(find_shards(tmp_path / "parts", IDS)) == 2
    image(tmp_path / "loose/a.jpg")
    assert [row[1] for row in rows_of(find_shards(tmp_path / "loose", IDS))] == [UNKNOWN]


def test_lists_with_paths_addresses_and_labels(tmp_path):
    first, second = image(tmp_path / "a.png"), image(tmp_path / "b.png", seed=1)
    (tmp_path / "rows.csv").write_text(f"path,label\na.png,oak\nfile://{second},ash\nnone.png,\n")
    found = rows_of(find_shards(tmp_path / "rows.csv", IDS))
    assert [row[1] for row in found] == [1, 0, UNKNOWN]
    assert [row[2] for row in found] == [first.read_bytes(), second.read_bytes(), "there is no such file"]
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://photos/c.png", "wb") as file:
        file.write(first.read_bytes())
    (tmp_path / "far.csv").write_text("path\nmemory://photos/c.png\n")
    assert rows_of(find_shards(tmp_path / "far.csv", IDS))[0][2] == first.read_bytes()


def write_tar(path, files):
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def test_tar_files_in_the_layout_of_webdataset(tmp_path):
    photo = image(tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").unlink()  # which would be beside the tar files
    write_tar(
        tmp_path / "0001.tar",
        {
            "x/one.png": photo,
            "x/one.cls": b"oak\n",
            "x/two.PNG": photo[:50],
            "x/two.json": json.dumps({"label": 0}).encode(),
            "three.cls": b"1",
            "four.png": photo,
        },
    )
    write_tar(tmp_path / "0002.tar", {"five.png": photo})
    shards = find_shards(tmp_path, IDS)
    assert [shard.name for shard in shards] == ["0001", "0002"]
    assert rows_of(shards) == [
        ("x/one", 1, photo),
        ("x/two", 0, photo[:50]),
        ("three", 1, "it has no image: after the first dot, the names of its files have cls"),
        ("four", UNKNOWN, photo),
        ("five", UNKNOWN, photo),
    ]
    (tmp_path / "0002.tar").write_bytes((tmp_path / "0001.tar").read_bytes()[:700])
    with pytest.raises(ValueError, match=r"0002.tar cannot be read"):
        shards[1].open(IDS)


def test_a_shard_of_a_tar_file_is_small_with_any_number_of_classes(tmp_path):
    """It is sent to a worker, as many others are."""
    write_tar(tmp_path / "rows.tar", {"a.png": b"", "a.cls": b"species 7"})
    classes = ClassTable([f"species {number}" for number in range(50_000)])
    (shard,) = find_shards(tmp_path / "rows.tar", classes)
    assert len(pickle.dumps(shard)) < 1000 and list(shard.open(classes).targets) == [7]
    with pytest.raises(ValueError, match=r"classes must be those that rows was made for, got 49999 others"):
        shard.open(ClassTable(classes.ids[1:]))


def test_odd_rows_of_tar_files_are_kept_with_the_reason(tmp_path):
    photo = image(tmp_path / "a.png").read_bytes()
    with tarfile.open(tmp_path / "rows.tar", "w", format=tarfile.GNU_FORMAT, encoding="latin-1") as archive:
        for name, content in [
            ("two.png", photo),
            ("two.jpg", photo),
            ("again.png", photo),
            ("a b/\xe9.png", photo),
            ("again.png", photo),
            ("dots.1.png", photo),
            ("._hidden.png", photo),
            ("blank.png", photo),
            ("blank.cls", b" \n"),
            ("list.png", photo),
            ("list.json", b"[1]"),
        ]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, kind, goal in [
            ("hard.png", tarfile.LNKTYPE, "blank.png"),
            ("soft.png", tarfile.SYMTYPE, "/etc/passwd"),
            ("lost.png", tarfile.LNKTYPE, "none.png"),
        ]:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, goal
            archive.addfile(member)
    (shard,) = find_shards(tmp_path / "rows.tar", IDS)
    assert {row[0]: row[1:] for row in rows_of([shard])} == {
        "two": (UNKNOWN, "it has 2 images (png, jpg) and must have one"),
        "again": (UNKNOWN, "it has 2 images (png, png) and must have one"),
        "a b/\\udce9": (UNKNOWN, photo),
        "dots": (UNKNOWN, "it has no image: after the first dot, the names of its files have 1.png"),
        "blank": (UNKNOWN, photo),
        "list": (UNKNOWN, photo),
        "hard": (UNKNOWN, photo),
        "soft": (UNKNOWN, "its image is a link to /etc/passwd, which is not followed"),
        "lost": (UNKNOWN, "its image is a link to none.png, which is not followed"),
    }


@pytest.mark.errors
def test_tar_files_that_cannot_be_read_say_where(tmp_path):
    pytest.importorskip("fsspec")
    for name, content in (("a.json", b"{"), ("a.cls", b"\xff")):
        write_tar(tmp_path / "rows.tar", {"a.png": b"", name: content})
        with pytest.raises(ValueError, match=rf"rows.tar cannot be read: {name}: "):
            rows_of(find_shards(tmp_path / "rows.tar", IDS))
    (tmp_path / "rows.tar").write_bytes(b"")
    with pytest.raises(ValueError, match=r"rows.tar cannot be read: empty file"):
        rows_of(find_shards(tmp_path / "rows.tar", IDS))
    with pytest.raises(ValueError, match=r"memory://none/rows.tar cannot be read: there is no such file"):
        rows_of(find_shards("memory://none/rows.tar", IDS))
    with pytest.raises(ValueError, match=r"memory://none/rows.csv cannot be read: there is no such file"):
        find_shards("memory://none/rows.csv", IDS)
    with pytest.raises(ValueError, match=r"nothing://none/rows.csv cannot be read: Protocol not known"):
        find_shards("nothing://none/rows.csv", IDS)


def test_a_name_that_is_no_text_can_be_written(tmp_path):
    """One that is no UTF-8 on the disk."""
    photo = image(tmp_path / "photos/ash/a.png").read_bytes()
    with open(os.fsencode(tmp_path / "photos/ash") + b"/b\xff.png", "wb") as file:
        file.write(photo)
    found = rows_of(find_shards(tmp_path / "photos", IDS))
    assert [row[0] for row in found] == ["ash/a.png", "ash/b\\udcff.png"]
    assert [row[2] for row in found] == [photo, photo] and "".join(row[0] for row in found).encode()


@pytest.mark.parametrize(
    ("ids", "labels", "expected"),
    [
        (sorted(map(str, range(12))), ["10", "2", "0"], [2, 4, 0]),  # as text: 0, 1, 10, 11, 2, ...
        (["1355868", "1355937"], ["1355937", "1355868", "1355937"], [1, 0, 1]),
        (["7", "100", "12"], ["12", "1", "7"], "1"),  # index 1 is another class, 100
        (["007", "012", "100"], ["100", "012", "007"], [2, 1, 0]),
        (["007", "012", "100"], ["7", "100", "100"], "7"),
        (["oak", "ash", "elm"], ["2", "0", "1"], [2, 0, 1]),
        (["oak", "ash", "elm"], ["oak", "1", "ash"], [0, 1, 1]),
        (["oak", "ash", "elm"], ["oak", "01", "ash"], "01"),
        (["oak", "ash", "elm"], ["2", "3", "0"], "3"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet", "cls", "json"])
def test_whole_numbers_are_ids_wherever_they_can_be(tmp_path, kind, ids, labels, expected):
    """And in the same way for score and index."""
    photo = image(tmp_path / "a.png").read_bytes()
    plain = all(one.isdecimal() and str(int(one)) == one for one in labels)
    typed = [int(one) for one in labels] if plain else labels
    rows = tmp_path / f"rows.{kind if kind in ('csv', 'parquet') else 'tar'}"
    if kind == "csv":
        rows.write_text("path,label\n" + "".join(f"a.png,{one}\n" for one in labels))
    elif kind == "parquet":
        write_columns(rows, {"path": ["a.png"] * 3, "label": typed})
    else:
        told = labels if kind == "cls" else [json.dumps({"label": one}) for one in typed]
        files = ((f"{n}.png", photo, f"{n}.{kind}", one.encode()) for n, one in enumerate(told))
        write_tar(rows, {name: content for row in files for name, content in (row[:2], row[2:])})
    classes = ClassTable(ids)
    known = SimpleNamespace(classes=classes, preprocessing=SMALL)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=rf"the class '?{expected}'? is none of the 3 classes"):
            rows_of(find_shards(rows, classes), classes)
        with pytest.raises(ValueError, match=rf"the class '?{expected}'? is none"):
            source_of_images(rows, known)
    else:
        assert [row[1] for row in rows_of(find_shards(rows, classes), classes)] == expected
        assert source_of_images(rows, known).classes.tolist() == expected


def test_embeddings_of_files_and_folders(tmp_path):
    make_embeddings(tmp_path)
    shards = find_shards(tmp_path, IDS, shard_rows=300, split="test")
    assert [(shard.name, shard.start, shard.stop) for shard in shards] == [
        ("test-00000", 0, 300),
        ("test-00001", 300, 600),
        ("test-00002", 600, 700),
    ]
    assert shards[1].open().ids[0] == "test:300" and shards[1].open().inputs.shape == (300, 12)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_one_split_of_a_list(tmp_path, suffix):
    rows = {"path": ["a", "b", "c", "d"], "label": ["oak", "elm", "ash", None]}
    write_columns(tmp_path / f"rows.{suffix}", {**rows, "split": ["test", "train", "val", "test"]})
    found = rows_of(find_shards(tmp_path / f"rows.{suffix}", IDS, split="test"))
    assert [row[:2] for row in found] == [("a", 1), ("d", UNKNOWN)]  # elm is no class, but of another split
    with pytest.raises(ValueError, match=r"--split must be one of test, train, val of .*, got 'tset'"):
        find_shards(tmp_path / f"rows.{suffix}", IDS, split="tset")


@pytest.mark.errors
def test_a_split_of_what_has_none_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("path,label\na.png,oak\n")
    (tmp_path / "tars").mkdir()
    for path in (tmp_path / "rows.tar", tmp_path / "tars/1.tar"):
        write_tar(path, {"a.png": b"", "a.cls": b"oak"})
    make_embeddings(tmp_path / "features")
    for rows in ("rows.csv", "rows.tar", "tars", "features/test.safetensors"):
        assert find_shards(tmp_path / rows, IDS)
        with pytest.raises(ValueError, match=rf"{rows} has no splits, got 'test'"):
            find_shards(tmp_path / rows, IDS, split="test")
    class_folders(tmp_path / "plain", {"ash": 1})
    with pytest.raises(ValueError, match=r"plain has no splits, got 'test'"):
        find_shards(tmp_path / "plain", IDS, split="test")


@pytest.mark.errors
def test_no_image_is_left_out_without_a_word(tmp_path):
    class_folders(tmp_path / "plants", {"ash": 1})
    image(tmp_path / "plants/b.png")
    image(tmp_path / "tars/x/a.png")
    write_tar(tmp_path / "tars/1.tar", {"a.png": b""})
    class_folders(tmp_path / "parts/train", {"ash": 1})
    class_folders(tmp_path / "parts", {"oak": 2})
    class_folders(tmp_path / "other", {"elm": 1, "fir": 1})
    for rows, words in [
        ("plants", r"holds 1 images beside its class folders, such as .*plants/b.png"),
        ("tars", r"holds 1 images beside its tar files, such as .*tars/x/a.png"),
        ("parts", r"holds 2 images beside its folders train, such as .*parts/oak/image 0.jpg"),
        ("other", r"other, row elm/image 0.jpg: the class 'elm' is none of the 2 classes \(ash, oak\)"),
    ]:
        with pytest.raises(ValueError, match=words):
            find_shards(tmp_path / rows, IDS)
    assert len(find_shards(tmp_path / "parts", IDS, split="train")) == 1


@pytest.mark.errors
def test_what_cannot_be_scored_is_said(tmp_path):
    class_folders(tmp_path / "plants", {"ash": 1, "elm": 1})
    (tmp_path / "rows.csv").write_text("path,label\na.png,elm\n")
    (tmp_path / "empty").mkdir()
    for rows, words in [
        (tmp_path / "plants", r"plants, row elm/image 0.jpg: the class 'elm' is none of the 2 classes"),
        (tmp_path / "rows.csv", "rows.csv, row 1: the class 'elm' is none of the 2 classes"),
        (tmp_path / "empty", "holds no images, no tar files and no embeddings"),
        (tmp_path / "nothing", "ROWS must be a folder, a list"),
    ]:
        with pytest.raises(ValueError, match=words):
            find_shards(rows, IDS)
