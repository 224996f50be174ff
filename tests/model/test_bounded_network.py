"""A stranger's model that describes a larger network than its weights are of: no memory is taken for it."""

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from shortlist import ClassTable, Model
from shortlist._store.manifest import read_sealed, write_sealed
from shortlist.model import ModelError
from shortlist.models.bounds import FREE_BYTES, TIMES_WEIGHTS, build_within
from shortlist.models.spec import NetworkSpec, build_network
from tests.conftest import vision_library


def saved(folder: Path, **spec) -> Path:
    spec = {"name": "small_cnn", "num_classes": 3, "input_shape": (1, 16, 16), **spec}
    network = NetworkSpec(**spec)
    Model.from_parts(build_network(network), ClassTable(("a", "b", "c")), spec=network).save(folder)
    return folder


def describe(folder: Path, **changes) -> None:
    """Let the sealed description tell another network."""
    content = read_sealed(folder / "model.json")
    write_sealed(folder / "model.json", content | {"network": content["network"] | changes})


@pytest.fixture
def filled(monkeypatch) -> list[int]:
    """Bytes of all parameters that are filled with numbers."""
    counted = []

    def noting(module: nn.Module) -> None:
        counted.extend(one.nbytes for one in module.parameters() if one.device.type != "meta")

    for kind in (nn.Linear, nn.Conv2d, nn.modules.conv._ConvNd):
        monkeypatch.setattr(kind, "reset_parameters", noting)
    return counted


LIES = {
    "wide": {"options": {"width": 8000}},
    "of many layers": {"name": "resnet_cifar", "options": {"depth": 6 * 10**6 + 2}},
    "of many classes": {"num_classes": 10**9},
    "of large images": {"name": "linear", "input_shape": [3, 10**6, 10**6]},
}


@pytest.mark.errors
@pytest.mark.parametrize(
    "lie", [pytest.param(lie, marks=pytest.mark.slow) if lie == "of many layers" else lie for lie in LIES]
)
def test_a_network_that_is_larger_than_its_weights_is_refused_before_it_is_made(lie, filled, tmp_path):
    folder = saved(tmp_path / "model")
    filled.clear()
    describe(folder, **LIES[lie])
    with pytest.raises(ModelError, match=r"model.json alone.*too large for its weights: more than 269,") as e:
        Model.load(folder)
    assert len(str(e.value)) < 600
    most = TIMES_WEIGHTS * (folder / "network.safetensors").stat().st_size + FREE_BYTES
    assert sum(filled) <= most and most < 300e6


def test_what_is_left_open_is_compared_with_the_weights(tmp_path):
    """A network of another size within the bound: the message names the parameter."""
    folder = saved(tmp_path / "model")
    describe(folder, options={"width": 18})
    with pytest.raises(ModelError, match=r"head.weight has the shape \(3, 144\) in the network"):
        Model.load(folder)


@pytest.mark.parametrize("name", ["densenet40_40", "torchvision:resnet18", "torchvision:regnet_x_400mf"])
def test_networks_as_they_were_saved_are_opened(name, tmp_path):
    """Also in half precision, which halves the file, and if a network cannot be made without memory."""
    if name.startswith("torchvision:"):
        vision_library("torchvision")
    shape = (3, 32, 32)
    spec = NetworkSpec(name=name, num_classes=3, input_shape=shape)
    network = build_network(spec, pretrained=False).half()
    Model.from_parts(network, ClassTable(("a", "b", "c")), spec=spec).save(tmp_path / "model")
    state = torch.random.get_rng_state()
    again = Model.load(tmp_path / "model").network.state_dict()
    assert torch.equal(state, torch.random.get_rng_state())
    for key, value in network.state_dict().items():
        assert again[key].device.type == "cpu" and torch.equal(again[key], value.to(again[key].dtype))


def test_the_bound_is_for_the_thread_that_builds(tmp_path):
    (tmp_path / "weights").write_bytes(b"")
    made = []

    def build() -> nn.Module:
        other = threading.Thread(target=lambda: made.append(nn.Linear(10**4, 10**4, device="meta")))
        other.start()
        other.join()
        return nn.Linear(3, 2)

    assert build_within(tmp_path / "weights", build).weight.shape == (2, 3)
    assert len(made) == 2 and made[1].weight.nbytes > FREE_BYTES
    assert nn.Linear(10**4, 10**4, device="meta").weight.nbytes > FREE_BYTES  # no bound any more
