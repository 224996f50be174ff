"""``shortlist index`` and ``shortlist doctor`` of an index."""

import io
import json

import pytest
import torch
from PIL import Image

from shortlist import Model
from shortlist.index import ImageIndex
from shortlist.recipes.recipe import make_recipe
from shortlist.training.fit import train
from tests.commands import run
from tests.datasets.trees import class_folders, image
from tests.training.small import RECIPE, silent

pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = {
    "name": "small",
    "model": {"name": "small_cnn"},
    "loss": {"name": "cross_entropy"},
    "epochs": 1,
    "batch_size": 8,
    "predictors": {"top2": {"name": "topk", "k": 2}},
    "loggers": [],
}


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    """A run on a list of images that says who took them."""
    folder = tmp_path_factory.mktemp("trained")
    class_folders(folder / "images", {"ash": 8, "oak": 10, "yew": 12})
    lines = ["path,label,author"]
    for path in sorted((folder / "images").rglob("*.jpg")):
        lines.append(f"{path.relative_to(folder)},{path.parent.name},Ana {path.parent.name}")
    (folder / "list.csv").write_text("\n".join(lines))
    data = {"name": "image_list", "path": str(folder / "list.csv"), "val_fraction": 0.2, "image_size": 16}
    train(make_recipe(SMALL | {"data": data}), folder / "run", progress=silent)
    return folder


def test_an_index_of_the_training_images_of_a_run(listed, tmp_path):
    code, out, err = run("index", listed / "run", "--out", tmp_path / "index")
    assert code == 0 and out == f"{tmp_path / 'index'}: 16 images, 3 classes, 16 added\n", out + err
    assert "embedding: 100 %" in err
    model = Model.load(listed / "run")
    index = ImageIndex.open(tmp_path / "index", model=model)
    assert index.classes.tolist() == list(model.classes.counts)
    features = model.features(model.prepare(sorted((listed / "images" / "oak").glob("*.jpg"))))
    found = index.similar(features, [1], 100)[0]
    assert {one.author for one in found} == {"Ana oak"}
    assert sum(one.similarity > 0.999 for one in found) == len(found)  # each is one of these photos
    assert Image.open(io.BytesIO(index.thumbnail(found[0].id))).size == (24, 20)
    code, out, _ = run("index", listed / "run", "--out", tmp_path / "index", "--json")
    said = json.loads(out)
    assert code == 0 and (said["images"], said["added"], said["left_out"]) == (16, 0, 0)


def test_deleting_compacting_and_the_doctor(listed, tmp_path):
    place = ("--out", tmp_path / "index")
    run("index", listed / "run", *place)
    first, second = ImageIndex.open(tmp_path / "index").examples(2, 2)
    code, out, _ = run("index", listed / "run", *place, "--delete", first.id, "--delete", second.id)
    assert code == 0 and out == f"{tmp_path / 'index'}: 14 images, 2 deleted\n"
    assert run("index", listed / "run", *place, "--compact")[0] == 0
    index = ImageIndex.open(tmp_path / "index")
    assert len(index) == 14 and first.id not in {one.id for one in index.examples(2, 99)}
    assert run("index", listed / "run", *place, "--json")[1].count('"added": 0') == 1
    assert run("doctor", tmp_path / "index")[0] == 0
    (segment,) = (tmp_path / "index").glob("segment-*")
    content = bytearray(segment.read_bytes())
    content[-200] ^= 1
    segment.write_bytes(content)
    code, out, _ = run("doctor", tmp_path / "index")
    assert code == 1 and f"{segment.name}: is damaged or was changed" in out


def test_the_default_place_breaks_no_manifest(listed):
    assert run("index", listed / "run")[0] == 0
    model = listed / "model"
    Model.load(listed / "run").save(model)
    assert run("index", model, "--images", listed / "images")[0] == 0
    for folder in (listed / "run", model):
        assert len(ImageIndex.open(folder / "index", model=Model.load(folder))) > 0
        assert run("doctor", folder) == (0, f"{folder}: all files are as they were written\n", "")
    assert run("evaluate", listed / "run")[0] == 0
    (listed / "run" / "index" / "segment-000001").unlink()
    code, out, _ = run("doctor", listed / "run")
    assert code == 1 and "index/segment-000001: is missing" in out


def test_an_index_of_other_images(listed, tmp_path):
    class_folders(tmp_path / "more", {"oak": 3}, seed=70)
    code, out, err = run("index", listed / "run", "--images", tmp_path / "more", "--out", tmp_path / "index")
    assert code == 0 and "3 images, 1 classes, 3 added" in out, out + err
    features = torch.randn(ImageIndex.open(tmp_path / "index").dimension)
    assert [len(part) for part in ImageIndex.open(tmp_path / "index").similar(features, [0, 1, 2], 9)] == [
        0,
        3,
        0,
    ]


def test_a_run_on_images_in_memory_some_of_which_were_left_out(tmp_path):
    data = {"name": "glyphs", "characters": "abcdefghijkl", "train_images": 120, "max_per_class": 6}
    data["cache"] = str(tmp_path / "cache")
    train(make_recipe(SMALL | {"data": data}), tmp_path / "run", progress=silent)
    code, out, err = run("index", tmp_path / "run", "--json")
    assert code == 0, err
    model = Model.load(tmp_path / "run")
    index = ImageIndex.open(tmp_path / "run" / "index", model=model)
    assert len(index) == json.loads(out)["added"]
    # of an image that is there more than once, one is kept
    assert (index.classes <= torch.tensor(model.classes.counts)).all() and (index.classes > 2).all()
    for class_index in range(12):
        for one in index.examples(class_index, 3):
            picture = Image.open(io.BytesIO(index.thumbnail(one.id)))
            assert picture.size == (32, 32) and picture.mode == "L"
            features = model.features(model.prepare([picture]))[0]  # the JPEG is nearly the picture
            (best,) = index.similar(features, [class_index], 1)
            assert best[0].similarity > 0.98


@pytest.mark.errors
def test_a_run_on_vectors_has_nothing_to_show(tmp_path):
    train(make_recipe(RECIPE, ["epochs=1"]), tmp_path / "run", progress=silent)
    code, _, err = run("index", tmp_path / "run")
    assert code == 2 and "the training rows are not pictures: there is nothing to show of them" in err
    assert not (tmp_path / "run" / "index").exists()


@pytest.mark.errors
def test_what_cannot_be_indexed(listed, tmp_path):
    Model.load(listed / "run").save(tmp_path / "model")
    image(tmp_path / "fir" / "elm" / "a.jpg")
    cases = {
        ("index", tmp_path / "model"): "is a model without the data of a run: name its images with --images",
        (
            "index",
            tmp_path / "model",
            "--images",
            tmp_path / "fir",
        ): "row elm/a.jpg: the class 'elm' is none of the 3 classes",
        ("index", tmp_path / "nowhere"): "nowhere is not a folder with a saved model",
        ("index", tmp_path / "model", "--compact"): "index is not an index of images",
        (
            "index",
            tmp_path / "model",
            "--compact",
            "--images",
            tmp_path,
        ): "change the index alone: give no --images",
        ("index", listed / "run", "--out", tmp_path): "is not an index of images: it has no index.json, but",
    }
    for words, said in cases.items():
        code, _, err = run(*words)
        assert code == 2 and said in err and err.startswith("shortlist: "), err
    assert not (tmp_path / "model" / "index").exists()
