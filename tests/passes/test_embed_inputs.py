"""What ``shortlist embed`` takes: folders, lists, addresses and tar files, with their classes and parts."""

import json
import os
import warnings

import numpy as np
import pytest
import torch
from safetensors import safe_open

from shortlist import ClassTable
from shortlist._tables import write_columns
from shortlist.datasets import embeddings
from shortlist.datasets.embeddings import embedding_files, read_manifest
from shortlist.passes.embed import embed_images
from shortlist.passes.embedder import EmbedderSource
from shortlist.passes.planning import find_shards
from tests.commands import run
from tests.datasets.trees import class_folders, image, truncate
from tests.index.small import SMALL
from tests.passes.scoring import make_embeddings
from tests.passes.test_embed import expected
from tests.passes.test_inputs import write_tar

SOURCE = EmbedderSource("tests.passes.small:make_backbone", SMALL, allow_code=True)
COUNTS = {"train": {"ash": 3, "oak": 2}, "val": {"oak": 1}, "test": {"ash": 1, "élan 树": 2}}
IDS = ["ash", "oak", "élan 树"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for number, (part, counts) in enumerate(COUNTS.items()):
        class_folders(root / part, counts, suffix=".png", seed=10 * number)
    return root


def rows_of(photos):
    """Path, class and part of each image."""
    return [
        (path, path.parent.name, part) for part in COUNTS for path in sorted((photos / part).rglob("*.png"))
    ]


def as_list(photos, path):
    found = [(os.path.relpath(one, path.parent), label, part) for one, label, part in rows_of(photos)]
    names, labels, parts = zip(*found[::-1], strict=True)  # parts in any order
    write_columns(path, {"path": names, "label": labels, "split": parts})
    return path


def members(rows):
    content = {}
    for number, (path, label, _) in enumerate(rows):
        content |= {f"x/{number:03d}.png": path.read_bytes(), f"x/{number:03d}.cls": label.encode()}
    return content


def as_tars(photos, folder, name):
    for part in COUNTS:
        path = folder / name.format(part=part)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tar(path, members([row for row in rows_of(photos) if row[2] == part]))
    return folder


def as_addresses(photos, tmp_path):
    """A list at an address, with images at addresses and beside it."""
    fsspec = pytest.importorskip("fsspec")
    lines = ["path,label,split"]
    for number, (path, label, part) in enumerate(rows_of(photos)):
        with fsspec.open(f"memory://embed/photos/{number}.png", "wb") as file:
            file.write(path.read_bytes())
        place = f"photos/{number}.png" if number % 2 else f"memory://embed/photos/{number}.png"
        lines.append(f"{place},{label},{part}")
    with fsspec.open("memory://embed/rows.csv", "wb") as file:
        file.write("\n".join(lines).encode())
    return "memory://embed/rows.csv"


KINDS = {
    "folder": lambda photos, tmp_path: photos,
    "csv": lambda photos, tmp_path: as_list(photos, tmp_path / "rows.csv"),
    "parquet": lambda photos, tmp_path: as_list(photos, tmp_path / "rows.parquet"),
    "addresses": as_addresses,
    "named tars": lambda photos, tmp_path: as_tars(photos, tmp_path / "tars", "birds-{part}-0001.tar"),
    "tars in folders": lambda photos, tmp_path: as_tars(photos, tmp_path / "tars", "{part}/0001.tar"),
}


def rows_in(folder, part):
    """The embeddings of a part as they are on the disk, with classes and ids."""
    found = []
    for path in embedding_files(folder)[part]:
        with safe_open(path, "pt") as file:
            ids = json.loads(file.metadata()["shortlist"])["ids"]
            found += zip(
                file.get_tensor("embeddings").tolist(), file.get_tensor("targets").tolist(), ids, strict=True
            )
    return found


@pytest.mark.filterwarnings("ignore:.*classes have no image")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_input_keeps_classes_and_parts(photos, tmp_path, kind):
    data = KINDS[kind](photos, tmp_path)
    counts = embed_images(SOURCE, data, tmp_path / "out", workers=1, shard_rows=2)
    assert counts.rows == {"train": 5, "val": 1, "test": 3} and counts.classes == 3
    assert (counts.unreadable, counts.without_class, counts.kept) == (0, 0, 0)
    splits = embeddings(tmp_path / "out")
    assert list(splits.class_table.ids) == IDS and splits.class_table.counts == (3, 2, 0)
    for part in COUNTS:
        wanted = sorted(
            (IDS.index(label), *expected(path, SMALL)) for path, label, p in rows_of(photos) if p == part
        )
        found = sorted((target, *row) for row, target, _ in rows_in(tmp_path / "out", part))
        np.testing.assert_allclose(found, wanted, atol=2e-3)
        assert sorted(getattr(splits, part).targets.tolist()) == [row[0] for row in wanted]
    assert embed_images(SOURCE, data, tmp_path / "out", workers=1, shard_rows=2).kept > 0


def test_rows_without_a_part_are_for_training_and_numbers_are_class_indices(tmp_path):
    paths = [image(tmp_path / f"{number}.png", seed=number) for number in range(3)]
    write_columns(tmp_path / "rows.parquet", {"path": ["0.png", "1.png", "2.png"], "label": [2, 0, 2]})
    (tmp_path / "tars").mkdir()
    write_tar(
        tmp_path / "tars/1.tar",
        {
            f"{n}.{kind}": content
            for n, one in enumerate(paths)
            for kind, content in (("png", one.read_bytes()), ("cls", b"202"[n : n + 1]))
        },
    )
    for data in ("rows.parquet", "tars", "tars/1.tar"):
        out = tmp_path / f"out {data.replace('/', ' ')}"
        counts = embed_images(SOURCE, tmp_path / data, out, workers=1)
        assert counts.rows == {"train": 3} and counts.classes == 3
        assert [row[1] for row in rows_in(out, "train")] == [2, 0, 2]
        assert ClassTable.load(out / "class_table.json").ids == ("0", "1", "2")


def test_a_class_table_beside_the_rows_says_their_order(tmp_path):
    table = ClassTable(["Oak tree", "Ash tree", "Elm tree"], ["oak", "ash", "elm"])
    photo = image(tmp_path / "a.png").read_bytes()
    (tmp_path / "tars").mkdir()
    write_tar(tmp_path / "tars/1.tar", {"a.png": photo, "a.cls": b"ash", "b.png": photo, "b.cls": b"oak"})
    (tmp_path / "rows.csv").write_text("path,label\na.png,ash\na.png,oak\n")
    class_folders(tmp_path / "folders", {"ash": 1, "oak": 1})
    for folder in (tmp_path, tmp_path / "tars", tmp_path / "folders"):
        table.save(folder / "class_table.json")
    for data in ("rows.csv", "tars", "folders"):
        embed_images(SOURCE, tmp_path / data, tmp_path / f"out {data}", workers=1)
        assert [row[1] for row in rows_in(tmp_path / f"out {data}", "train")] == [1, 0]
        assert ClassTable.load(tmp_path / f"out {data}" / "class_table.json") == table
    (tmp_path / "rows.csv").write_text("path,label\na.png,fir\n")
    class_folders(tmp_path / "folders", {"fir": 1})
    for data, words in (("rows.csv", r"rows.csv, row 1: .*'fir'"), ("folders", r"folders, row fir/.*'fir'")):
        with pytest.raises(ValueError, match=words):
            embed_images(SOURCE, tmp_path / data, tmp_path / "other", workers=1)


def test_rows_without_a_class_are_kept_and_not_trained_on(tmp_path):
    """A nullable label; score takes such rows, a data set leaves them out and says so."""
    for number in range(4):
        image(tmp_path / f"{number}.png", seed=number)
    names = [f"{number}.png" for number in range(4)]
    write_columns(tmp_path / "rows.parquet", {"path": names, "label": [1, None, 0, None]})
    counts = embed_images(SOURCE, tmp_path / "rows.parquet", tmp_path / "out", workers=1)
    assert counts.rows == {"train": 4} and (counts.without_class, counts.classes) == (2, 2)
    assert [row[1] for row in rows_in(tmp_path / "out", "train")] == [1, -100, 0, -100]
    with pytest.warns(UserWarning, match=r"out: 2 rows of the train split have no class, and are left out"):
        splits = embeddings(tmp_path / "out", val_fraction=0)
    assert splits.train.targets.tolist() == [1, 0]
    (shard,) = find_shards(tmp_path / "out", ClassTable(["a", "b"]))
    assert list(shard.open().targets) == [1, -100, 0, -100]
    write_columns(tmp_path / "bare.csv", {"path": names})
    assert embed_images(SOURCE, tmp_path / "bare.csv", tmp_path / "bare", workers=1).without_class == 4
    with (
        warnings.catch_warnings(),
        pytest.raises(ValueError, match=r"train-00000.safetensors has no rows with a class"),
    ):
        warnings.simplefilter("ignore")
        embeddings(tmp_path / "bare")


def test_rows_that_are_there_twice_are_rows_each(tmp_path):
    image(tmp_path / "good.png")
    truncate(image(tmp_path / "bad.png"))
    names = ["good.png", "bad.png", "good.png", "bad.png", "gone.png"]
    write_columns(tmp_path / "rows.csv", {"path": names, "label": ["a", "a", "b", "b", "a"]})
    for shard_rows in (1, 5):
        out = tmp_path / f"out {shard_rows}"
        counts = embed_images(SOURCE, tmp_path / "rows.csv", out, workers=1, shard_rows=shard_rows)
        assert counts.rows == {"train": 2} and counts.unreadable == 3
        assert [(row[1], row[2]) for row in rows_in(out, "train")] == [(0, "good.png"), (1, "good.png")]
        assert read_manifest(out)["examples"]["gone.png"] == "there is no such file"


def test_a_list_that_has_changed_is_not_taken_for_what_was_embedded(tmp_path):
    for number in range(3):
        image(tmp_path / f"{number}.png", seed=number)
    write_columns(tmp_path / "rows.csv", {"path": ["0.png", "1.png"], "label": ["a", "b"]})
    embed_images(SOURCE, tmp_path / "rows.csv", tmp_path / "out", workers=1, shard_rows=2)
    write_columns(tmp_path / "rows.csv", {"path": ["0.png", "1.png", "2.png"], "label": ["a", "b", "a"]})
    counts = embed_images(SOURCE, tmp_path / "rows.csv", tmp_path / "out", workers=1, shard_rows=2)
    assert counts.kept == 1 and counts.rows == {"train": 3}
    for names, labels in ((["1.png", "0.png"], ["a", "b"]), (["0.png", "1.png"], ["b", "a"])):
        write_columns(tmp_path / "rows.csv", {"path": names, "label": labels})
        with pytest.raises(ValueError, match=r"train-00000.safetensors was made of other rows"):
            embed_images(SOURCE, tmp_path / "rows.csv", tmp_path / "out", workers=1, shard_rows=2)


@pytest.mark.errors
def test_what_cannot_be_embedded_is_said(tmp_path):
    make_embeddings(tmp_path / "features")
    class_folders(tmp_path / "loose", {"ash": 1})
    image(tmp_path / "loose/b.png")
    class_folders(tmp_path / "parts/train", {"ash": 1})
    class_folders(tmp_path / "parts", {"oak": 2})
    (tmp_path / "odd.csv").write_text("path,split\na.png,train\nb.png,\n")
    (tmp_path / "none.csv").write_text("path,label\n")
    write_columns(tmp_path / "half.parquet", {"path": ["a.png"], "label": [1.5]})
    write_columns(tmp_path / "bool.parquet", {"path": ["a.png"], "label": [True]})
    write_tar(tmp_path / "list.tar", {"a.png": b"", "a.json": b'{"label": [1]}'})
    (tmp_path / "empty").mkdir()
    (tmp_path / "tars").mkdir()
    for name in ("train-1.tar", "other.tar"):
        write_tar(tmp_path / "tars" / name, {})
    (tmp_path / "blank").mkdir()
    write_tar(tmp_path / "blank/1.tar", {})
    for data, words in [
        ("features", r"DATA must be images, got embeddings: .*features"),
        ("features/test.safetensors", r"got embeddings"),
        ("loose", r"holds 1 images beside its class folders, such as .*loose/b.png"),
        ("parts", r"holds 2 images beside its folders train, such as .*parts/oak/image 0.jpg"),
        ("odd.csv", r"odd.csv, row 2: column 'split' must hold train, val or test, got ''"),
        ("none.csv", r"none.csv lists no images"),
        ("half.parquet", r"half.parquet: a class must be text or a whole number, got 1.5"),
        ("bool.parquet", r"bool.parquet: a class must be text or a whole number, got True"),
        ("list.tar", r"list.tar: a class must be text or a whole number, got \[1\]"),
        ("empty", r"holds no images, no tar files and no embeddings"),
        (
            "nothing",
            r"a list \(.csv or .parquet\) or tar files, got .*nothing",
        ),
        ("tars", r"a split \(train\), .*other.tar"),
        ("blank", r"none of the images could be read, there are none"),
    ]:
        with pytest.raises(ValueError, match=words):
            embed_images(SOURCE, tmp_path / data, tmp_path / "out", workers=1)
        assert not (tmp_path / "out/embeddings.json").exists()


@pytest.mark.errors
def test_the_result_is_no_class_of_the_images(tmp_path):
    class_folders(tmp_path / "photos", {"ash": 1})
    for out in ("photos", "photos/out", "photos/ash/../out"):
        with pytest.raises(
            ValueError, match=r"--out must not be inside the images \(.*photos\), got .*photos"
        ):
            embed_images(SOURCE, tmp_path / "photos", tmp_path / out, workers=1)
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["ash"]


def test_embeddings_of_a_list_are_scored_by_parts(photos, tmp_path):
    """From a list to scores: what embed wrote, score takes, with its parts and classes."""
    as_list(photos, tmp_path / "rows.csv")
    embed_images(SOURCE, tmp_path / "rows.csv", tmp_path / "out", workers=1)
    (shard,) = find_shards(tmp_path / "out", ClassTable(IDS), split="test")
    rows = shard.open()
    assert sorted(rows.targets) == [0, 2, 2] and torch.isfinite(rows.inputs).all()


def test_the_command_takes_lists_and_tells_rows_without_a_class(tmp_path):
    image(tmp_path / "a.png")
    (tmp_path / "rows.csv").write_text("path,label\na.png,oak\na.png,\n")
    given = ("embed", "tests.passes.small:make_backbone", tmp_path / "rows.csv", "--workers", 1, "--size", 8)
    code, said, err = run(*given, "-o", tmp_path / "out", "--allow-code")
    words = "2 train, 6 features, 1 classes, 1 without a class"
    assert code == 0 and said == f"{tmp_path / 'out'}: {words}\n", err


def test_score_takes_one_part_of_tar_files(photos, tmp_path):
    for name in ("{part}-1.tar", "{part}/1.tar"):
        folder = as_tars(photos, tmp_path / name[:7].replace("/", "_"), name)
        shards = find_shards(folder, ClassTable(IDS))
        assert sorted(shard.name for shard in shards) == ["test-1", "train-1", "val-1"]
        (only,) = find_shards(folder, ClassTable(IDS), split="val")
        assert only.name == "val-1" and list(only.open(ClassTable(IDS)).targets) == [1]
        (folder / "deeper").mkdir()
        write_tar(folder / "deeper/2.tar", {})
        with pytest.raises(ValueError, match=r"holds 1 tar files beside .*deeper/2.tar"):
            find_shards(folder, ClassTable(IDS))
