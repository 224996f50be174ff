"""``shortlist join``: a head on features and the network that made them are one model of images."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from shortlist import ClassTable, Model, Preprocessing
from shortlist.models.spec import NetworkSpec, build_network
from shortlist.passes.embed import embed_images
from shortlist.passes.embedder import EmbedderSource
from shortlist.passes.join import join_head
from shortlist.recipes.recipe import make_recipe
from shortlist.training.fit import train
from tests.commands import run
from tests.conftest import vision_library
from tests.datasets.trees import image
from tests.index.small import SMALL
from tests.passes.small import Backbone
from tests.training.small import silent

TOP1 = {"top1": {"name": "topk", "k": 1}}
BACKBONE = "tests.passes.small:make_backbone"


def two_names():
    """The network of the joined model, as somebody makes it who opens the model elsewhere."""
    return nn.Sequential(Backbone(), nn.Linear(6, 2))


def make_whole():
    """A network of one's own with a classifier of other classes."""
    torch.manual_seed(5)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 6), nn.Linear(6, 5))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    for part, count in {"train": 12, "val": 6, "test": 6}.items():
        for kind, name in enumerate(("ash", "oak")):
            for i in range(count):
                image(root / part / name / f"{i}.png", seed=1000 * kind + i + len(part), size=(30, 20))
    return root


def train_on(features, out, **changes):
    recipe = {
        "data": {"name": "embeddings", "root": str(features)},
        "model": {"name": "linear"},
        "epochs": 2,
        "predictors": TOP1 | {"half": {"name": "conformal", "coverage": 0.5}},
    }
    train(make_recipe(recipe | changes), out, progress=silent)
    return out


@pytest.fixture(scope="module")
def of_own_code(photos, tmp_path_factory):
    root = tmp_path_factory.mktemp("own")
    embed_images(EmbedderSource(BACKBONE, SMALL, allow_code=True), photos, root / "features", workers=1)
    return train_on(root / "features", root / "run")


def features_by_hand(path):
    with Image.open(path) as opened:
        pixels = np.asarray(opened.resize((SMALL.width, SMALL.height), Image.Resampling.BICUBIC))
    values = (pixels.astype(np.float64) / 255 - 0.5) / 0.25
    return np.concatenate([values.mean((0, 1)), values.max((0, 1))])


def test_scores_of_photos_are_those_of_their_features(of_own_code, photos, tmp_path):
    head, files = Model.load(of_own_code), sorted((photos / "test").rglob("*.png"))
    wanted = head.scores(np.stack([features_by_hand(path) for path in files]).astype(np.float32))
    joined = join_head(of_own_code, allow_code=True)
    found = joined.scores(joined.prepare(files))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert found.std() > 0 and joined.promises == head.promises and joined.classes == head.classes
    joined.save(tmp_path / "model")
    again = Model.load(tmp_path / "model", network=two_names())
    assert torch.equal(again.scores(again.prepare(files)), found)
    assert torch.equal(again.sets(found, "half"), head.sets(found, "half"))


def test_the_command(of_own_code, photos, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, _, err = run("join", of_own_code, "-o", tmp_path / "model")
    assert code == 2 and "--allow-code" in err and not (tmp_path / "model").exists()
    code, said, err = run("join", of_own_code, "-o", tmp_path / "model", "--allow-code")
    assert code == 0 and f"Model({BACKBONE}, 2 classes, predictors: top1, half)" in said, err
    assert err.endswith(f"photo.jpg --network {BACKBONE}\n")
    photo = photos / "test" / "oak" / "0.png"
    code, said, err = run("predict", tmp_path / "model", photo, "--predictor", "top1", "--network", BACKBONE)
    [wanted] = join_head(of_own_code, allow_code=True).short_lists([photo], "top1")
    assert code == 0 and wanted[0].name in said and f"{100 * wanted[0].probability:.1f} %" in said, err
    code, _, err = run("join", of_own_code, "-o", tmp_path / "model", "--allow-code")
    assert code == 2 and "--out must not exist yet" in err


@pytest.mark.parametrize("head", [{}, {"name": "cosine", "scale": 8.0}])
def test_the_function_that_embed_took_opens_the_joined_model(photos, tmp_path, head):
    """Of a function of features, and of a function of a whole network whose classifier is replaced."""
    table = ClassTable(names=[f"class {c}" for c in range(5)])
    Model.from_parts(make_whole(), table, preprocessing=SMALL, classifier="2").save(tmp_path / "whole")
    whole = "tests.passes.test_join:make_whole"
    sources = {
        "features": (EmbedderSource(BACKBONE, SMALL, allow_code=True), BACKBONE),
        "whole": (EmbedderSource(str(tmp_path / "whole"), network=whole), whole),
    }
    files = sorted((photos / "test").rglob("*.png"))
    for name, (source, function) in sources.items():
        embed_images(source, photos, tmp_path / f"{name}-features", workers=1)
        trained = Model.load(train_on(tmp_path / f"{name}-features", tmp_path / f"{name}-run", head=head))
        network = None if name == "features" else function
        join_head(tmp_path / f"{name}-run", network=network, allow_code=True).save(tmp_path / f"{name}-model")
        joined = Model.load(tmp_path / f"{name}-model", network=function)
        wanted = trained.scores(source.open().features(joined.prepare(files)))
        torch.testing.assert_close(joined.scores(joined.prepare(files)), wanted, rtol=1e-4, atol=1e-4)
        with pytest.raises(ValueError, match=f"made by '{function}'.*--network"):
            Model.load(tmp_path / f"{name}-model")


def test_features_of_a_saved_model_need_no_code(photos, tmp_path):
    spec = NetworkSpec(name="small_cnn", num_classes=5, input_shape=(3, 32, 32))
    prepare = Preprocessing(height=32, width=32, resize=36, mean=(0.5,) * 3, std=(0.5,) * 3)
    five = Model.load(of_spec(spec, prepare, tmp_path / "five"))
    embed_images(EmbedderSource(str(tmp_path / "five")), photos, tmp_path / "features", workers=1)
    head = {"head": {"name": "cosine", "scale": 8.0}}
    trained = Model.load(train_on(tmp_path / "features", tmp_path / "run", **head))
    join_head(tmp_path / "run").save(tmp_path / "joined")
    joined = Model.load(tmp_path / "joined")
    files = sorted((photos / "test").rglob("*.png"))
    wanted = trained.scores(five.features(five.prepare(files)))
    torch.testing.assert_close(joined.scores(joined.prepare(files)), wanted, rtol=1e-4, atol=1e-4)
    assert joined.spec == NetworkSpec(**{**spec.to_dict(), "num_classes": 2, "head": "cosine", "scale": 8.0})


def of_spec(spec, prepare, folder):
    table = ClassTable(names=[f"class {c}" for c in range(spec.num_classes)])
    Model.from_parts(build_network(spec), table, preprocessing=prepare, spec=spec).save(folder)
    return folder


@pytest.mark.slow
def test_features_of_timm_need_no_code(photos, tmp_path, monkeypatch):
    timm = vision_library("timm")
    make = timm.create_model
    weights = make("resnet10t", num_classes=5).state_dict()  # in place of those that timm would download

    def with_weights(name, *, pretrained=False, **options):
        network = make(name, **options)
        if pretrained:
            kept = {key: value for key, value in weights.items() if not key.startswith("fc.")}
            network.load_state_dict(kept, strict=False)
        return network

    monkeypatch.setattr(timm, "create_model", with_weights)
    embed_images(EmbedderSource("timm:resnet10t"), photos, tmp_path / "features", workers=1)
    trained = Model.load(train_on(tmp_path / "features", tmp_path / "run"))
    join_head(tmp_path / "run").save(tmp_path / "joined")
    joined, files = Model.load(tmp_path / "joined"), sorted((photos / "test").rglob("*.png"))
    inputs = joined.prepare(files)
    features = with_weights("resnet10t", pretrained=True, num_classes=0).eval()(inputs)
    wanted = trained.scores(features.detach())
    torch.testing.assert_close(joined.scores(inputs), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.errors
def test_what_cannot_be_joined_is_told(of_own_code, photos, tmp_path):
    features = of_own_code.parent / "features"
    train_on(features, tmp_path / "mlp", model={"name": "mlp"}, predictors=TOP1)
    with pytest.raises(ValueError, match=r"only a linear model can be joined .*, got mlp"):
        join_head(tmp_path / "mlp", allow_code=True)
    images = {"name": "image_folder", "root": str(photos), "image_size": 16}
    train_on(features, tmp_path / "images", data=images, model={"name": "small_cnn"}, predictors=TOP1)
    with pytest.raises(ValueError, match="must be a run on embeddings, got one on image_folder"):
        join_head(tmp_path / "images")
    (tmp_path / "plain").mkdir()
    rows = {"embeddings": torch.randn(40, 6), "targets": torch.arange(40) % 2}
    save_file(rows, tmp_path / "plain" / "train.safetensors")
    train_on(tmp_path / "plain", tmp_path / "run", predictors=TOP1)
    with pytest.raises(ValueError, match=r"plain has no embeddings.json, which shortlist embed writes"):
        join_head(tmp_path / "run")


@pytest.mark.errors
def test_another_network_than_that_of_the_features_is_refused(photos, tmp_path):
    spec = NetworkSpec(name="small_cnn", num_classes=5, input_shape=(3, 32, 32))
    prepare = Preprocessing(height=32, width=32, resize=36, mean=(0.5,) * 3, std=(0.5,) * 3)
    of_spec(spec, prepare, tmp_path / "five")
    embed_images(EmbedderSource(str(tmp_path / "five")), photos, tmp_path / "features", workers=1)
    train_on(tmp_path / "features", tmp_path / "run", predictors=TOP1)
    (tmp_path / "five").rename(tmp_path / "before")
    of_spec(spec, prepare, tmp_path / "five")  # with other weights
    with pytest.raises(ValueError, match=r"five is not the network that made .*features"):
        join_head(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_a_joined_model_of_own_code_is_exported(of_own_code, photos, tmp_path, weights):
    onnxruntime = pytest.importorskip("onnxruntime")
    join_head(of_own_code, allow_code=True).save(tmp_path / "model")
    out, network = tmp_path / "lists", ("--network", BACKBONE)
    code, said, err = run("export", tmp_path / "model", "-o", out, "--weights", weights, *network)
    if weights == "int8":  # without the rows of a run nothing can be calibrated again
        assert code == 2 and "run" in err and not out.exists()
        return
    assert code == 0, said + err
    session = onnxruntime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])
    files = sorted((photos / "test").rglob("*.png"))
    got = [session.run(None, {"picture": np.asarray(Image.open(path).convert("RGB"))}) for path in files]
    values = {each.name: i for i, each in enumerate(session.get_outputs())}
    model = Model.load(tmp_path / "model", network=two_names())
    scores = torch.from_numpy(np.concatenate([each[values["scores"]] for each in got]))
    torch.testing.assert_close(scores, model.scores(model.prepare(files)), rtol=0, atol=0.05)
    content = json.loads((out / "lists.json").read_text())
    for predictor in content["predictors"]:
        sets = np.concatenate([each[values[predictor["output"]]] for each in got])
        assert np.array_equal(sets, model.sets(scores, predictor["name"]))
    assert content["classes"]["names"] == ["ash", "oak"]
