"""A part is taken for that of a shard only if it was made of the same files."""

import os
import shutil

import pytest
import torch

from shortlist.class_table import ClassTable
from shortlist.datasets.embeddings import save_embeddings
from shortlist.passes.embed import embed_images
from shortlist.passes.embedder import EmbedderSource
from shortlist.passes.planning import find_shards
from shortlist.passes.score import score_shards
from tests.datasets.trees import class_folders
from tests.index.small import SMALL
from tests.passes.scoring import density_model, make_rows, source_of
from tests.passes.test_inputs import write_tar

IDS = ClassTable(("ash", "oak"))


def make(kind, root):
    """Rows of a kind; the path of them, and a file of them."""
    class_folders(root / "images", {"ash": 1, "oak": 2})
    if kind == "folder":
        return root / "images", root / "images/oak/image 1.jpg"
    if kind == "list":
        (root / "rows.csv").write_text("path,label\nimages/oak/image 1.jpg,oak\n")
        return root / "rows.csv", root / "images/oak/image 1.jpg"
    if kind == "tar":
        write_tar(root / "rows.tar", {"a.jpg": b"no image", "a.cls": b"oak"})
        return root / "rows.tar", root / "rows.tar"
    save_embeddings(root / "rows.safetensors", torch.ones(5, 3), torch.arange(5))
    return root / "rows.safetensors", root / "rows.safetensors"


def digests(rows, ids=IDS):
    return [shard.digest() for shard in find_shards(rows, ids, shard_rows=2)]


@pytest.mark.parametrize("kind", ["folder", "list", "tar", "embeddings"])
def test_shards_have_another_hash_elsewhere_and_after_a_change(tmp_path, monkeypatch, kind):
    (tmp_path / "a").mkdir()
    rows, file = make(kind, tmp_path / "a")
    before = digests(rows)
    assert digests(rows) == before
    monkeypatch.chdir(tmp_path)
    assert digests(rows.relative_to(tmp_path)) == before
    shutil.copytree(tmp_path / "a", tmp_path / "b")  # which keeps the times of change
    assert not set(digests(tmp_path / "b" / rows.relative_to(tmp_path / "a"))) & set(before)
    state = file.stat()
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert digests(rows) != before


def test_classes_are_part_of_the_hash(tmp_path):
    rows, file = make("tar", tmp_path)
    assert digests(rows) != digests(rows, ClassTable(IDS.ids[::-1]))
    rows, file = make("embeddings", tmp_path)
    before, state = digests(rows), file.stat()
    save_embeddings(file, torch.ones(5, 3), torch.tensor([0, 1, 2, 3, 9]))
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert file.stat().st_size == state.st_size
    assert [a == b for a, b in zip(digests(rows), before, strict=True)] == [True, True, False]


def test_addresses_are_part_of_the_hash():
    (one,), (other,) = (find_shards(f"s3://{bucket}/rows.tar", IDS) for bucket in ("a", "b"))
    assert one.digest() != other.digest()


def test_parts_of_other_rows_with_the_same_names_and_sizes_are_refused(tmp_path):
    model = density_model(tmp_path / "model")
    for seed, name in enumerate("ab"):
        save_embeddings(tmp_path / name / "rows.safetensors", *make_rows(50, seed))
    shards = {name: find_shards(tmp_path / name / "rows.safetensors", model.classes) for name in "ab"}
    given = {"folder": tmp_path / "out", "keep": 5, "workers": 1}
    score_shards(source_of(tmp_path / "model"), shards["a"], **given)
    assert score_shards(source_of(tmp_path / "model"), shards["a"], **given).kept == 1
    with pytest.raises(ValueError, match=r"rows-00000.parquet was made of other rows, or their files have"):
        score_shards(source_of(tmp_path / "model"), shards["b"], **given)


def test_embeddings_of_other_images_with_the_same_names_are_refused(tmp_path):
    source = EmbedderSource("tests.passes.small:make_backbone", SMALL, allow_code=True)
    for name in "ab":
        class_folders(tmp_path / name, {"ash": 2})
    embed_images(source, tmp_path / "a", tmp_path / "out", workers=1)
    assert embed_images(source, tmp_path / "a", tmp_path / "out", workers=1).kept == 1
    with pytest.raises(ValueError, match=r"train-00000.safetensors was made of other rows"):
        embed_images(source, tmp_path / "b", tmp_path / "out", workers=1)
