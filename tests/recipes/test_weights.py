import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from shortlist.models import small_cnn
from shortlist.models.weights import load_weights, read_weights
from shortlist.recipes.build import build_model
from shortlist.recipes.recipe import make_recipe
from tests.conftest import vision_library

IMAGE = torch.zeros(3, 32, 32)


def drawn(classes: int = 7) -> nn.Module:
    torch.manual_seed(classes)
    return small_cnn(classes)


def assert_same(model: nn.Module, state: dict, *, but: tuple[str, ...] = ()) -> None:
    for name, value in model.state_dict().items():
        assert value.equal(state[name]) == (name not in but), name


@pytest.mark.parametrize("form", ["safetensors", "plain", "wrapped", "lightning", "parallel"])
def test_weights_are_read_from_every_usual_form(form, tmp_path):
    state = drawn().state_dict()
    path = tmp_path / ("weights.safetensors" if form == "safetensors" else "weights.pth")
    content = {
        "plain": state,
        "wrapped": {"model": state, "optimizer": {"lr": 0.1}, "epoch": 3},
        "lightning": {
            "state_dict": {f"model.{k}": v for k, v in state.items()} | {"loss.weight": torch.ones(7)},
            "epoch": 3,
        },
        "parallel": {"state_dict": {f"module.{k}": v for k, v in state.items()}},
    }
    save_file(state, path) if form == "safetensors" else torch.save(content[form], path)
    torch.manual_seed(1)
    model = small_cnn(7)
    assert load_weights(model, path) == []
    assert_same(model, state)


def test_a_classifier_of_other_classes_is_left_out_and_reported(tmp_path):
    state = drawn(7).state_dict()
    save_file(state, tmp_path / "weights.safetensors")
    model = drawn(5)
    head = {name: value.clone() for name, value in model.state_dict().items() if name.startswith("head.")}
    with pytest.warns(UserWarning, match=r"left as drawn: head.weight \(\(7, \d+\) in the file, \(5, \d+\)"):
        assert (
            load_weights(model, tmp_path / "weights.safetensors")
            == list(head)
            == ["head.weight", "head.bias"]
        )
    assert_same(model, state | head)


def test_old_files_lack_counters_and_may_have_more(tmp_path):
    state = {k: v for k, v in drawn().state_dict().items() if not k.endswith("num_batches_tracked")}
    torch.save(state | {"aux.weight": torch.ones(2)}, tmp_path / "old.pth")
    model = small_cnn(7)
    with pytest.warns(UserWarning, match=r"left as drawn: nothing; 1 tensors .* not used \(aux.weight"):
        load_weights(model, tmp_path / "old.pth")
    for name, value in state.items():
        assert model.state_dict()[name].equal(value)


@pytest.mark.errors
def test_weights_of_another_model_change_nothing(tmp_path):
    state = drawn().state_dict()
    first = next(name for name in state if not name.startswith("head."))
    torch.save(state | {first: torch.zeros(2, 2)}, tmp_path / "other.pt")
    model = small_cnn(7)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(
        ValueError, match=rf"another model: 1 of {len(state)} .* {first} \(\(2, 2\) in the file"
    ):
        load_weights(model, tmp_path / "other.pt")
    assert_same(model, before)


class Opens:
    def __reduce__(self):
        return (open, ("made by a pickle", "w"))


@pytest.mark.errors
def test_files_that_are_no_weights(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"none.pt is missing: model.weights_file"):
        read_weights("none.pt")
    (tmp_path / "text.safetensors").write_text("no")
    with pytest.raises(ValueError, match=r"text.safetensors cannot be read as a file of weights"):
        read_weights("text.safetensors")
    torch.save({"epoch": 3}, "empty.pt")
    with pytest.raises(ValueError, match=r"empty.pt holds no named tensors"):
        read_weights("empty.pt")
    torch.save({"a": Opens()}, "code.pt")
    with pytest.raises(ValueError, match=r"code.pt cannot be read"):
        read_weights("code.pt")
    assert not (tmp_path / "made by a pickle").exists()


def test_a_recipe_starts_from_a_file_or_not_at_all(tmp_path):
    state = drawn(7).state_dict()
    save_file(state, tmp_path / "weights.safetensors")
    recipe = make_recipe(
        {"model": {"name": "small_cnn", "weights_file": str(tmp_path / "weights.safetensors")}}
    )
    assert_same(build_model(recipe, 7, IMAGE), state)
    torch.manual_seed(1)
    model = build_model(recipe, 7, IMAGE, pretrained=False)
    assert not model.state_dict()["head.weight"].equal(state["head.weight"])


def test_torchvision_loads_its_own_file(tmp_path, monkeypatch):
    """The published file's name, in torch's folder for downloads: nothing is fetched, the rest is theirs."""
    models = vision_library("torchvision.models")
    state = models.resnet18().state_dict()
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save(state, folder / "resnet18-f37072fd.pth")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    options = {"name": "torchvision:resnet18", "weights": "IMAGENET1K_V1"}
    model = build_model(make_recipe({"model": options}), 12, IMAGE)
    assert model.fc.num_classes == 12 and model.conv1.weight.equal(state["conv1.weight"])
    assert model.layer4[1].bn2.running_var.equal(state["layer4.1.bn2.running_var"])
    (folder / "resnet18-f37072fd.pth").unlink()
    fresh = build_model(make_recipe({"model": options}), 12, IMAGE, pretrained=False)  # needs no file
    assert not fresh.conv1.weight.equal(state["conv1.weight"])


def test_timm_loads_a_file_of_its_format(tmp_path):
    timm = vision_library("timm")
    state = timm.create_model("resnet18").state_dict()
    save_file(state, tmp_path / "model.safetensors")
    overlay = {"file": str(tmp_path / "model.safetensors")}
    options = {"name": "timm:resnet18", "pretrained": True, "pretrained_cfg_overlay": overlay}
    model = build_model(make_recipe({"model": options}), 12, IMAGE, allow_code=True)
    assert model.fc.num_classes == 12 and model.conv1.weight.equal(state["conv1.weight"])


def test_torchvision_files_load_by_path_too(tmp_path):
    models = vision_library("torchvision.models")
    state = models.squeezenet1_0().state_dict()
    torch.save(state, tmp_path / "squeezenet1_0.pth")
    options = {"name": "torchvision:squeezenet1_0", "weights_file": str(tmp_path / "squeezenet1_0.pth")}
    with pytest.warns(
        UserWarning, match=r"left as drawn: classifier.3.weight \(missing in the file, \(12, 512\)"
    ):
        model = build_model(make_recipe({"model": options}), 12, IMAGE)
    assert model.features[0].weight.equal(state["features.0.weight"])
    assert model(torch.randn(2, 3, 64, 64)).shape == (2, 12)


def test_small_stem_takes_every_pixel():
    vision_library("torchvision.models")
    recipe = make_recipe({"model": {"name": "torchvision:resnet18", "small_stem": True}})
    model = build_model(recipe, 100, IMAGE)
    # ResNet-18 of 1,000 classes has 11,689,512; the stem 64 * 3 * (49 - 9) fewer, the head 513 * 900 fewer
    assert sum(p.numel() for p in model.parameters()) == 11_689_512 - 64 * 3 * 40 - 513 * 900
    assert model.conv1(torch.zeros(1, 3, 32, 32)).shape == (1, 64, 32, 32)
    std = (2 / (64 * 9)) ** 0.5  # variance 2 / fan-out
    assert model.conv1.weight.std().item() == pytest.approx(std, rel=0.05)


@pytest.mark.errors
def test_small_stem_is_for_networks_with_one():
    with pytest.raises(ValueError, match=r"model.small_stem must be false for small_cnn"):
        build_model(make_recipe({"model": {"name": "small_cnn", "small_stem": True}}), 5, IMAGE)
