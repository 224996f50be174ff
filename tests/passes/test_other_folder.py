"""Workers may be in another working folder than the command, as those of a running cluster are."""

import os

import pytest

from shortlist.datasets import embeddings
from shortlist.index import ImageIndex, build_index, source_of_images
from shortlist.passes.embed import embed_images
from shortlist.passes.embedder import EmbedderSource
from shortlist.passes.local import run_local
from shortlist.passes.planning import find_shards
from shortlist.passes.reading import read_scores
from shortlist.passes.score import ModelSource, score_shards
from tests.datasets.trees import class_folders
from tests.index.small import projection_model
from tests.passes.scoring import ROWS, density_model, make_embeddings
from tests.passes.test_inputs import write_tar

NETWORK = "tests.index.networks:make_network"


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An engine whose worker is in another folder; the test is in ``here``."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def engine(work, shards, *, workers):
        shards = list(shards)
        os.chdir(tmp_path / "there")
        try:
            return iter(list(run_local(work, shards, workers=1)))
        finally:
            os.chdir(tmp_path / "here")

    yield engine
    assert not list((tmp_path / "there").iterdir())


def test_embeddings_by_relative_paths(tmp_path, elsewhere):
    model = density_model(tmp_path / "here" / "model")
    make_embeddings(tmp_path / "here" / "rows")
    score_shards(ModelSource("model"), find_shards("rows", model.classes), "out", keep=5, engine=elsewhere)
    assert read_scores("out")["rows"] == 2 * ROWS


@pytest.mark.parametrize("rows", ["images", "rows.csv", "rows.tar", "tars"])
def test_images_by_relative_paths(tmp_path, elsewhere, rows):
    here = tmp_path / "here"
    projection_model().save(here / "model")
    class_folders(here / "images", {"c0": 2, "c1": 1})
    photos = sorted(here.glob("images/*/*.jpg"))
    lines = "".join(f"{one.relative_to(here)},{one.parent.name}\n" for one in photos)
    (here / "rows.csv").write_text(f"path,label\n{lines}")
    (here / "tars").mkdir()
    files = {f"{n}.jpg": one.read_bytes() for n, one in enumerate(photos)}
    labels = {f"{n}.cls": one.parent.name.encode() for n, one in enumerate(photos)}
    for path in (here / "rows.tar", here / "tars/1.tar"):
        write_tar(path, files | labels)
    source = ModelSource("model", NETWORK)
    model = source.open()
    counts = score_shards(source, find_shards(rows, model.classes), "out", engine=elsewhere)
    assert (counts.rows, counts.errors) == (3, 0)
    build_index(model, source_of_images(rows, model), "index", engine=elsewhere)
    assert ImageIndex.open("index").classes.sum() == 3


def test_images_are_embedded_by_relative_paths(tmp_path, elsewhere):
    projection_model().save(tmp_path / "here" / "model")
    class_folders(tmp_path / "here" / "images", {"ash": 2, "oak": 1})
    source = EmbedderSource("model", network=NETWORK)
    counts = embed_images(source, "images", "out", workers=1, engine=elsewhere)
    assert counts.rows == {"train": 3} and counts.unreadable == 0
    assert embeddings("out", val_fraction=0).train.targets.tolist() == [0, 0, 1]
