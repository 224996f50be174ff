"""An index is built by one process, two, or Ray with one to three workers: the same files to the byte."""

import io
import json
import tarfile
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from shortlist.datasets.embeddings import save_embeddings
from shortlist.index import (
    FileSource,
    ImageIndex,
    ImageIndexError,
    IndexWriter,
    add_images,
    build_index,
    source_of_images,
)
from shortlist.index.doctor import examine_index
from shortlist.index.manifest import PARTS
from shortlist.inputs.rows import Rows
from shortlist.passes.local import run_local
from shortlist.passes.score import ModelSource
from tests.commands import run
from tests.datasets.trees import class_folders, truncate
from tests.index.small import jpeg, projection_model
from tests.passes.scoring import Disturbed

COUNTS = {"c0": 21, "c1": 90, "c2": 40, "c4": 33}
KEPT = 21 + 30 + 30 + 30
NETWORK = "tests.index.networks:make_network"

# one of the images cannot be read, of which each build warns
pytestmark = pytest.mark.filterwarnings("ignore:.*cannot be read as an image")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A model on disk, a folder of images one of which cannot be read, and the index from one process."""
    folder = tmp_path_factory.mktemp("world")
    projection_model().save(folder / "model")
    class_folders(folder / "images", COUNTS)
    truncate(folder / "images" / "c2" / "image 7.jpg")
    build(folder, folder / "one")
    return folder


def source_of(folder):
    return ModelSource(str(folder / "model"), NETWORK)


def build(folder, out, *, images="images", **options):
    model = source_of(folder).open()
    sizes = {"max_per_class": 30, "segment_rows": 60, "load": source_of(folder).open}
    return build_index(model, source_of_images(folder / images, model), out, **{**sizes, **options})


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_the_index_has_all_images_once(world):
    index = ImageIndex.open(world / "one", model=source_of(world).open())
    assert index.classes.tolist() == [21, 30, 30, 0, 30, 0] and len(index) == KEPT
    assert len(contents(world / "one")) == 5 and examine_index(world / "one") == []


@pytest.mark.parametrize("shard_rows", [5, 32, 1000])
def test_any_size_of_the_shards(world, tmp_path, shard_rows):
    counts = build(world, tmp_path / "out", shard_rows=shard_rows)
    assert (counts.images, counts.unreadable, counts.left_out) == (KEPT, 1, 60 + 9 + 3)
    assert contents(tmp_path / "out") == contents(world / "one")


def test_any_order_of_the_shards(world, tmp_path):
    def mixed(work, shards, *, workers):
        shards = list(shards)
        order = np.random.default_rng(0).permutation(len(shards))
        return run_local(work, [shards[place] for place in order], workers=workers)

    build(world, tmp_path / "out", shard_rows=7, engine=mixed)
    assert contents(tmp_path / "out") == contents(world / "one")


@pytest.mark.slow
def test_two_processes(world, tmp_path):
    build(world, tmp_path / "out", shard_rows=16, workers=2)
    assert contents(tmp_path / "out") == contents(world / "one")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_ray_with_any_number_of_workers(world, tmp_path, ray_here, workers):
    from shortlist.passes.on_ray import run_on_ray

    build(world, tmp_path / "out", shard_rows=10 + workers, workers=workers, engine=run_on_ray)
    assert contents(tmp_path / "out") == contents(world / "one")


@dataclass(frozen=True)
class Disturbing:
    """An engine in which something happens once."""

    mark: str
    what: str

    def __call__(self, work, shards, *, workers):
        return run_local(Disturbed(work, self.mark, self.what), shards, workers=workers)


@dataclass(frozen=True)
class Stopping:
    """An engine that is stopped when so many shards are taken over; others are done."""

    most: int

    def __call__(self, work, shards, *, workers):
        yield from list(run_local(work, shards, workers=workers))[: self.most]
        raise KeyboardInterrupt


def test_a_build_that_is_stopped_goes_on(world, tmp_path):
    for most in (1, 6):  # in the first chunk, and after it
        with pytest.raises(KeyboardInterrupt):
            build(world, tmp_path / "out", shard_rows=10, engine=Stopping(most))
        assert list((tmp_path / "out" / PARTS).iterdir())
        with pytest.raises(ImageIndexError, match="is not finished"):
            ImageIndex.open(tmp_path / "out")
    counts = build(world, tmp_path / "out", shard_rows=10)
    assert counts.images == KEPT and contents(tmp_path / "out") == contents(world / "one")


@pytest.mark.slow
def test_a_worker_that_is_killed_and_a_full_disk(world, tmp_path):
    with pytest.raises(RuntimeError, match="a worker process ended before its work was done"):
        build(
            world, tmp_path / "a", shard_rows=20, workers=2, engine=Disturbing(str(tmp_path / "1"), "killed")
        )
    with pytest.raises(OSError, match="No space left"):
        build(world, tmp_path / "a", shard_rows=20, engine=Disturbing(str(tmp_path / "2"), "full disk"))
    build(world, tmp_path / "a", shard_rows=20)
    assert contents(tmp_path / "a") == contents(world / "one")


@pytest.mark.slow
def test_a_killed_actor_of_ray(world, tmp_path, ray_here):
    from shortlist.passes.on_ray import run_on_ray

    def engine(work, shards, *, workers):
        return run_on_ray(Disturbed(work, str(tmp_path / "mark"), "killed"), shards, workers=workers)

    build(world, tmp_path / "out", shard_rows=20, workers=3, engine=engine)
    assert (tmp_path / "mark").exists() and contents(tmp_path / "out") == contents(world / "one")


def all_first(work, shards, *, workers):
    """An engine that finishes all shards before the first is taken over."""
    yield from list(run_local(work, shards, workers=workers))


def test_missing_files_of_several_chunks_have_parts_of_their_own(world, tmp_path):
    model = source_of(world).open()
    here = [str(world / "images" / name / "image 0.jpg") for name in ("c0", "c4")]
    gone = [str(tmp_path / f"{number}.jpg") for number in range(20)]
    classes = torch.tensor([0] * 11 + [1] * 10 + [4])
    source = FileSource(Rows("", [here[0], *gone, here[1]], [None] * 22), classes, model.preprocessing)
    counts = build_index(
        model, source, tmp_path / "out", segment_rows=11, shard_rows=5, workers=1, engine=all_first
    )
    assert (counts.images, counts.unreadable) == (2, 20)


def test_parts_of_a_stopped_build_that_are_damaged_are_made_again(world, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        build(world, tmp_path / "out", shard_rows=20, engine=Stopping(0))
    parts = sorted((tmp_path / "out" / PARTS).iterdir())
    content = bytearray(parts[0].read_bytes())
    content[len(content) // 2] ^= 1
    parts[0].write_bytes(content)
    parts[1].write_bytes(parts[1].read_bytes()[:200])
    build(world, tmp_path / "out", shard_rows=20)
    assert contents(tmp_path / "out") == contents(world / "one")


@pytest.mark.errors
def test_a_worker_with_another_model_writes_nothing(world, tmp_path):
    with pytest.raises(ValueError, match="a worker has another model than the command"):
        build(world, tmp_path / "out", load=lambda: projection_model(1))
    assert not (tmp_path / "out" / PARTS).exists()


def test_what_was_deleted_after_a_stopped_addition_stays_away(world, tmp_path):
    model = projection_model()
    class_folders(tmp_path / "images", {"c0": 3})
    build_index(model, source_of_images(tmp_path / "images", model), tmp_path / "out")
    new = tmp_path / "images" / "c0" / "new.jpg"
    new.write_bytes(jpeg(5))

    with pytest.raises(KeyboardInterrupt):
        build_index(model, source_of_images(tmp_path / "images", model), tmp_path / "out", engine=Stopping(0))
    assert [one.file for one in examine_index(tmp_path / "out")] == [PARTS]
    (added,) = add_images(model, tmp_path / "out", [new], [0])
    with IndexWriter.open(tmp_path / "out") as writer:
        assert writer.delete([added]) == 1
    counts = build_index(model, source_of_images(tmp_path / "images", model), tmp_path / "out")
    assert (counts.images, counts.added) == (3, 0) and examine_index(tmp_path / "out") == []


def write_tar(path, images, label):
    with tarfile.open(path, "w") as archive:
        for number, image in enumerate(images):
            name, content = label(image.parent.name)
            for ending, data in (("jpg", image.read_bytes()), (name, content)):
                member = tarfile.TarInfo(f"{number:04d}.{ending}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def test_tar_files_give_the_same_images(world, tmp_path):
    (tmp_path / "tars").mkdir()
    images = sorted((world / "images").rglob("*.jpg"))
    write_tar(tmp_path / "tars" / "a.tar", images[::2], lambda name: ("cls", name.encode()))
    write_tar(
        tmp_path / "tars" / "b.tar", images[1::2], lambda name: ("json", json.dumps({"label": name}).encode())
    )
    model = source_of(world).open()
    counts = {}
    for name, source in (("tars", tmp_path / "tars"), ("folder", world / "images")):
        counts[name] = build_index(model, source_of_images(source, model), tmp_path / name / "index")
    assert counts["tars"] == counts["folder"] and counts["tars"].images == sum(COUNTS.values()) - 1
    found = [ImageIndex.open(tmp_path / name / "index") for name in counts]
    means = [index.class_means().nan_to_num() for index in found]
    assert means[0].equal(means[1]) and len(found[0].examples(1, 999)) == 90
    assert [one.id for one in found[0].examples(2, 99)] == [one.id for one in found[1].examples(2, 99)]
    again = build_index(model, source_of_images(tmp_path / "tars", model), tmp_path / "tars" / "index")
    assert (again.added, again.unreadable) == (0, 1)


@pytest.mark.errors
def test_what_has_no_images_or_no_classes_is_refused(world, tmp_path):
    model = source_of(world).open()
    image = world / "images" / "c0" / "image 0.jpg"
    save_embeddings(tmp_path / "rows" / "train.safetensors", torch.randn(3, 4), torch.tensor([0, 1, 2]))
    for path in (tmp_path / "rows", tmp_path / "rows" / "train.safetensors"):
        with pytest.raises(
            ImageIndexError, match="holds embeddings: an index shows images, and embeddings have"
        ):
            source_of_images(path, model)
    write_tar(tmp_path / "a.tar", [image], lambda _: ("txt", b"no class"))
    with pytest.raises(ImageIndexError, match=r"a.tar must have a class for each image, got none for 0000"):
        source_of_images(tmp_path / "a.tar", model)
    write_tar(tmp_path / "a.tar", [image], lambda _: ("cls", b"stranger"))
    with pytest.raises(ImageIndexError, match=r"the class 'stranger' is none of the 6 classes"):
        source_of_images(tmp_path / "a.tar", model)
    with pytest.raises(ValueError, match="workers must be an integer >= 1, got 0"):
        build(world, tmp_path / "out", workers=0)


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--workers", 2), ("--engine", "ray", "--workers", 2)])
def test_the_command(world, tmp_path, request, options):
    if "ray" in options:
        request.getfixturevalue("ray_alone")
    words = ("index", world / "model", "--network", NETWORK, "--images", world / "images", "--out")
    assert run(*words, tmp_path / "out", *options)[0] == 0
    build_index(
        source_of(world).open(), source_of_images(world / "images", source_of(world).open()), tmp_path / "one"
    )
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
