"""One process, two, and Ray with one, two and three workers: the same parts to the byte."""

import numpy as np
import pytest
import torch

from shortlist.datasets import embeddings
from shortlist.passes.embed import embed_images
from shortlist.passes.embedder import EmbedderSource
from shortlist.passes.local import run_local
from shortlist.passes.on_ray import run_on_ray
from shortlist.passes.planning import find_shards
from shortlist.passes.reading import calibrate_from_scores, evaluate_scores, read_scores
from shortlist.passes.score import score_shards
from shortlist.predictors import AverageK, Conformal
from tests.datasets.trees import class_folders, truncate
from tests.index.small import SMALL
from tests.passes.scoring import ROWS, density_model, make_embeddings, source_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    model = density_model(folder / "model")
    make_embeddings(folder / "rows")
    shards = find_shards(folder / "rows", model.classes, shard_rows=101)
    score_shards(source_of(folder / "model"), shards, folder / "one", keep=16, workers=1)
    return folder, model, shards


def contents(folder):
    return {
        path.name: path.read_bytes() for path in folder.glob("*.*") if path.suffix in (".parquet", ".json")
    }


def numbers(folder, model):
    """Thresholds and metrics from parts."""
    made = {"average2": AverageK(2), "conformal": Conformal(coverage=0.6)}
    calibrate_from_scores(folder, made)
    results = evaluate_scores(folder, model.predictors | made, model.classes, num_resamples=20)
    return [float(one.threshold) for one in made.values()], results


def test_two_processes(world, tmp_path):
    folder, model, shards = world
    score_shards(source_of(folder / "model"), shards, tmp_path, keep=16, workers=2, engine=run_local)
    assert contents(tmp_path) == contents(folder / "one") and len(contents(tmp_path)) == 15
    assert numbers(tmp_path, model) == numbers(folder / "one", model)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_ray_with_any_number_of_workers(world, tmp_path, ray_here, workers):
    folder, model, shards = world
    order = np.random.default_rng(workers).permutation(len(shards))
    mixed = [shards[i] for i in order]
    score_shards(source_of(folder / "model"), mixed, tmp_path, keep=16, workers=workers, engine=run_on_ray)
    assert contents(tmp_path) == contents(folder / "one")
    assert numbers(tmp_path, model) == numbers(folder / "one", model)
    assert not list(tmp_path.glob(".tmp-*")) and read_scores(tmp_path)["rows"] == 2 * ROWS


def test_an_error_in_an_actor_is_the_error_of_the_call(world, tmp_path, ray_here):
    folder, _, shards = world
    broken = [*shards[:2], type(shards[0])("broken", str(tmp_path / "gone.safetensors"), 0, 5)]
    with pytest.raises(ValueError, match=r"gone.safetensors cannot be read"):
        score_shards(
            source_of(folder / "model"), broken, tmp_path / "out", keep=16, workers=2, engine=run_on_ray
        )
    assert not (tmp_path / "out" / "scores.json").exists()
    score_shards(
        source_of(folder / "model"), shards[:2], tmp_path / "out", keep=16, workers=2, engine=run_on_ray
    )


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Images in two parts, one of which cannot be read, and what one process makes of them."""
    folder = tmp_path_factory.mktemp("photos")
    class_folders(folder / "images/train", {"ash": 40, "oak": 7})
    class_folders(folder / "images/test", {"ash": 3, "oak": 5}, seed=100)
    truncate(folder / "images/train/ash/image 3.jpg")
    source = EmbedderSource("tests.passes.small:make_projection", SMALL, allow_code=True)
    embed_images(source, folder / "images", folder / "one", workers=1, shard_rows=9)
    return folder, source


def embedded(folder):
    names = ("embeddings.json", "class_table.json")
    return {
        path.name: path.read_bytes() for path in (*folder.glob("*.safetensors"), *map(folder.joinpath, names))
    }


@pytest.mark.parametrize(
    ("engine", "workers"), [(run_local, 2), (run_on_ray, 1), (run_on_ray, 2), (run_on_ray, 3)]
)
def test_embeddings_of_any_engine_and_number_of_workers(photos, tmp_path, request, engine, workers):
    folder, source = photos
    if engine is run_on_ray:
        request.getfixturevalue("ray_here")
    counts = embed_images(source, folder / "images", tmp_path, workers=workers, shard_rows=9, engine=engine)
    assert counts.rows == {"train": 46, "test": 8} and counts.unreadable == 1
    assert embedded(tmp_path) == embedded(folder / "one") and len(embedded(tmp_path)) == 6 + 1 + 2
    assert not list(tmp_path.glob(".tmp-*"))


def test_embeddings_of_any_size_of_shards(photos, tmp_path):
    folder, source = photos
    embed_images(source, folder / "images", tmp_path, workers=1, shard_rows=1000)
    for part in ("train", "test"):
        one, other = (
            getattr(embeddings(place, val_fraction=0), part) for place in (tmp_path, folder / "one")
        )
        assert torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)


def test_a_row_scores_the_same_bits_at_any_place_of_a_block(world):
    """What the parts rest on: a product of 256 rows gives a row the same bits wherever it stands."""
    _, model, _ = world
    inputs = torch.randn(256, 12)
    whole = model.scores(inputs)
    for shift in (1, 31, 128):
        assert torch.equal(model.scores(inputs.roll(shift, 0)).roll(-shift, 0), whole)
