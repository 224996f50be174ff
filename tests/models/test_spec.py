import json
import re
import sys
from contextlib import suppress

import pytest
import torch
from torch import nn

from shortlist.models import MODELS, mlp, small_cnn
from shortlist.models.classifiers import replace_classifier
from shortlist.models.heads import CosineHead, LinearHead, ScaledHead, TwoHead, TwoHeadScores
from shortlist.models.spec import NetworkSpec, build_network, in_channels_last
from tests.conftest import vision_library
from tests.models.test_models import equal_states

CNN = {"name": "small_cnn", "num_classes": 5, "input_shape": (2, 16, 16), "options": {"width": 4}}
SMALL = {"resnet_cifar": {"depth": 8}, "densenet_cifar": {"depth": 10, "growth_rate": 6}}
HEADS = {
    "linear": (NetworkSpec(**CNN, bias=False), lambda d: LinearHead(d, 5, bias=False)),
    "cosine": (NetworkSpec(**CNN, head="cosine", scale=7.5), lambda d: CosineHead(d, 5, scale=7.5)),
    "learned scale": (
        NetworkSpec(**CNN, head="cosine", scale=3.0, learn_scale=True),
        lambda d: CosineHead(d, 5, scale=3.0, learn_scale=True),
    ),
    "two_head": (NetworkSpec(**CNN, head="two_head"), lambda d: TwoHead(d, 5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_built_for_its_inputs(name):
    spec = NetworkSpec(name=name, num_classes=5, input_shape=(2, 16, 16), options=SMALL.get(name, {}))
    network = build_network(spec, allow_code=False).eval()
    assert network(torch.randn(3, 2, 16, 16)).shape == (3, 5)
    assert isinstance(network.head, LinearHead)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            assert module.weight.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", HEADS)
def test_heads_are_those_made_by_hand(name):
    spec, make_head = HEADS[name]
    torch.manual_seed(3)
    built = build_network(spec)
    torch.manual_seed(3)
    by_hand = replace_classifier(small_cnn(5, in_channels=2, width=4), make_head)
    assert equal_states(built, by_hand)
    images = in_channels_last(torch.randn(4, 2, 16, 16))
    got, wanted = built.eval()(images), by_hand.eval()(images)
    assert isinstance(got, TwoHeadScores) == (name == "two_head")
    for each, other in zip(got, wanted, strict=True) if name == "two_head" else [(got, wanted)]:
        torch.testing.assert_close(each, other)


def test_vectors_and_options():
    spec = NetworkSpec(name="mlp", num_classes=4, input_shape=(9,), options={"hidden": (7, 6)})
    torch.manual_seed(3)
    built = build_network(spec)
    torch.manual_seed(3)
    by_hand = replace_classifier(mlp(4, in_channels=9, hidden=(7, 6)), lambda d: LinearHead(d, 4))
    assert equal_states(built, by_hand)


def test_a_scaled_head_scales_the_weights_of_the_head_inside():
    network = build_network(NetworkSpec(**CNN, scaled_head=True)).eval()
    assert isinstance(network.head, ScaledHead) and isinstance(network.head.head, LinearHead)
    plain = build_network(NetworkSpec(**CNN)).eval()
    state = {key.replace("head.head.", "head."): value for key, value in network.state_dict().items()}
    del state["head.log_scale"]
    plain.load_state_dict(state)
    images, scale = torch.randn(4, 2, 16, 16), torch.tensor([1.0, 2.0, 0.5, 3.0, 1.5])
    with torch.no_grad():
        network.head.log_scale.copy_(scale.log())
        wanted = (plain(images) - plain.head.bias) * scale + plain.head.bias
        torch.testing.assert_close(network(images), wanted)


def test_named_classifiers_and_small_stems_of_other_libraries():
    vision_library("torchvision.models")
    spec = NetworkSpec(
        name="torchvision:resnet18", num_classes=7, input_shape=(3, 32, 32), small_stem=True, classifier="fc"
    )
    network = build_network(spec, pretrained=False, allow_code=False).eval()
    assert network.conv1.kernel_size == (3, 3) and network.conv1.stride == (1, 1)
    assert isinstance(network.fc, LinearHead) and network(torch.randn(2, 3, 32, 32)).shape == (2, 7)


def test_timm_reads_no_weights_that_a_file_names(tmp_path):
    vision_library("timm")
    options = {"pretrained": True, "checkpoint_path": str(tmp_path / "stranger.pt")}
    spec = NetworkSpec(name="timm:resnet18", num_classes=7, input_shape=(3, 32, 32), options=options)
    network = build_network(spec, pretrained=False, allow_code=False).eval()
    assert network(torch.randn(2, 3, 32, 32)).shape == (2, 7)


@pytest.mark.parametrize("name", [*HEADS, "mlp"])
def test_it_goes_through_json(name):
    values = {
        "name": "mlp",
        "num_classes": 4,
        "input_shape": (9,),
        "options": {"hidden": (7, 6), "norm": True},
    }
    spec = NetworkSpec(**values, classifier="head", scaled_head=True) if name == "mlp" else HEADS[name][0]
    again = NetworkSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    assert again.options == ({"hidden": [7, 6], "norm": True} if name == "mlp" else {"width": 4})
    assert isinstance(again.input_shape, tuple)


CODE = """
from pathlib import Path
from torch import nn
Path(__file__).with_name("imported").touch()
def make(num_classes, **options):
    Path(__file__).with_name("called").write_text(repr(options))
    return nn.Sequential(nn.Flatten(), nn.Linear(8, 3), nn.Linear(3, num_classes))
"""


@pytest.fixture
def somebodys_code(tmp_path, monkeypatch):
    (tmp_path / "somebodys_network.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield NetworkSpec(
        name="somebodys_network:make",
        num_classes=4,
        input_shape=(8,),
        classifier="2",
        options={"depth": 2, "pretrained": True, "weights": "a", "checkpoint_path": "b"},
    )
    sys.modules.pop("somebodys_network", None)


def test_somebodys_function_is_not_run_unless_it_may_be(somebodys_code, tmp_path):
    with pytest.raises(ValueError, match="opening a model never runs code") as error:
        build_network(somebodys_code)
    assert "somebodys_network:make" in str(error.value)
    assert "Model.load(folder, network=...)" in str(error.value)
    assert not (tmp_path / "imported").exists() and "somebodys_network" not in sys.modules
    network = build_network(somebodys_code, allow_code=True)
    assert network(torch.randn(2, 8)).shape == (2, 4) and isinstance(network[2], LinearHead)
    assert eval((tmp_path / "called").read_text()) == somebodys_code.options
    build_network(somebodys_code, pretrained=False, allow_code=True)
    assert (tmp_path / "called").read_text() == "{'depth': 2}"


BAD = [
    ({"name": "smal_cnn"}, "name must be one of linear, mlp, small_cnn"),
    ({"name": 3}, "name must be text, got 3"),
    ({"classifier": 3}, "classifier must be text, got 3"),
    ({"bias": 1}, "bias must be true or false, got 1"),
    ({"num_classes": 0}, "num_classes must be an integer >= 1, got 0"),
    ({"head": "three_head"}, "head must be one of linear, cosine, two_head, label_set, got 'three_head'"),
    ({"scale": 0.0}, "scale must be > 0, got 0.0"),
    ({"input_shape": (3, 0, 8)}, "input_shape must be an integer >= 1, got 0"),
    ({"options": [1]}, "options must be a mapping of names to values, got list"),
    ({"options": {"width": nn.ReLU}}, "options['width'] must be a plain value for JSON"),
]


@pytest.mark.errors
@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_values(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        NetworkSpec(**(CNN | changes))


@pytest.mark.errors
def test_bad_files():
    content = NetworkSpec(**CNN).to_dict()
    for changed, message in [
        ({**content, "extra": 3}, "a network must have exactly bias, classifier"),
        ({k: v for k, v in content.items() if k != "head"}, "a network must have exactly"),
        (None, "got NoneType"),
        (content | {"input_shape": 3}, "input_shape must be a list of lengths, got 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            NetworkSpec.from_dict(changed)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"options": {"widht": 4}}, "model: small_cnn with the options {'widht': 4} cannot be made"),
        ({"small_stem": True}, "model.small_stem must be false for small_cnn"),
        ({"classifier": "fc"}, "name must be that of a module of the model, got 'fc'"),
        ({"name": "no_such_package:make"}, "model.name needs no_such_package, which cannot be imported"),
        ({"name": "builtins:str", "options": {}}, "builtins:str must make a network, an nn.Module, got str"),
        ({"name": "json:nothing"}, "model.name must be package.module:function, got 'json:nothing'"),
        ({"head": "two_head", "scaled_head": True}, "head must be an nn.Linear, LinearHead or CosineHead"),
    ],
)
def test_what_cannot_be_built(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build_network(NetworkSpec(**(CNN | changes)), allow_code=True)


@pytest.mark.parametrize("name", ["fcn_resnet50", "resnet18"])
def test_a_network_that_is_filled_next_downloads_nothing(name, monkeypatch):
    """Networks of segmentation get weights for a part of them unless they are told not to."""
    models = vision_library("torchvision.models")
    asked = []
    monkeypatch.setattr(models._api.WeightsEnum, "get_state_dict", lambda *_, **__: asked.append(name) or {})
    options = {"weights": "DEFAULT", "weights_backbone": "DEFAULT"} if name == "fcn_resnet50" else {}
    spec = NetworkSpec(
        name=f"torchvision:{name}", num_classes=7, input_shape=(3, 64, 64), classifier="fc", options=options
    )
    with suppress(ValueError):  # a segmentation has no classifier of that name
        build_network(spec, pretrained=False)
    assert asked == []


@pytest.mark.errors
@pytest.mark.parametrize("name", ["timm:hf-hub:stranger/model", "timm:local-dir:/somewhere"])
def test_a_model_from_a_hub_is_not_opened(name):
    spec = NetworkSpec(name=name, num_classes=7, input_shape=(3, 64, 64))
    with pytest.raises(ValueError, match="opening a model never runs code"):
        build_network(spec, pretrained=False)
