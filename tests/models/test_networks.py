"""The published networks: layers, parameters and values against counts by hand and other code."""

import importlib
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import batch_norm, conv2d

from shortlist.models import (
    deep_cnn,
    densenet40_40,
    densenet_cifar,
    linear,
    mlp,
    resnet32_cifar,
    resnet_cifar,
    small_cnn,
)
from tests.conftest import vision_library


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def convolutions(model: nn.Module) -> list[nn.Conv2d]:
    return [module for module in model.modules() if isinstance(module, nn.Conv2d)]


def unusual_statistics(model: nn.Module) -> None:
    """Give normalization layers values that show if one is left out."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight.data, module.running_var):
                tensor.uniform_(0.5, 1.5)
            for tensor in (module.bias.data, module.running_mean):
                tensor.normal_(0, 0.3)


def test_parameters_of_densenet40_40():
    # A layer that sees c channels: norm 2 c, 1 x 1 to 160, norm 320, 3 x 3 from 160 to 40.
    # 6 layers in each block; the blocks start with 80, (80 + 240) / 2 = 160 and (160 + 240) / 2 = 200.
    stem = 27 * 80
    first = 162 * (80 + 120 + 160 + 200 + 240 + 280) + 6 * (320 + 9 * 160 * 40)
    second = 162 * (160 + 200 + 240 + 280 + 320 + 360) + 6 * (320 + 9 * 160 * 40)
    third = 162 * (200 + 240 + 280 + 320 + 360 + 400) + 6 * (320 + 9 * 160 * 40)
    transitions = 2 * 320 + 320 * 160 + 2 * 400 + 400 * 200
    last = 2 * 440 + 440 * 100 + 100
    count = stem + first + second + third + transitions + last
    assert count == 1_941_620
    model = densenet40_40(100)
    assert parameters(model) == count
    assert len(convolutions(model)) == 1 + 18 * 2 + 2  # and the classifier: 40


def test_parameters_of_the_plain_densenet_40_40():
    # 12 layers in each block, which start with 16, 16 + 480 = 496 and 496 + 480 = 976 channels; a layer that
    # sees c channels: norm 2 c, 3 x 3 from c to 40. The sum of 0, 40, ..., 440 is 2640.
    layers = (2 + 360) * (12 * (16 + 496 + 976) + 3 * 2640)
    count = 27 * 16 + layers + 2 * 496 + 496**2 + 2 * 976 + 976**2 + 2 * 1456 + 1456 * 100 + 100
    assert count == 10_681_492
    model = densenet_cifar(100, bottleneck=False, compression=1.0)
    assert parameters(model) == count
    assert len(convolutions(model)) == 1 + 36 + 2


# millions, from table 2 of the paper, to one decimal
@pytest.mark.parametrize(
    ("depth", "growth_rate", "bottleneck", "millions"),
    [
        (40, 12, False, 1.0),
        (100, 12, False, 7.0),
        (100, 24, False, 27.2),
        (100, 12, True, 0.8),
        (250, 24, True, 15.3),
        (190, 40, True, 25.6),
    ],
)
def test_densenet_has_the_papers_size(depth, growth_rate, bottleneck, millions):
    options = {} if bottleneck else {"bottleneck": False, "compression": 1.0}
    with torch.device("meta"):
        model = densenet_cifar(10, depth=depth, growth_rate=growth_rate, **options)
    assert round(parameters(model) / 1e6, 1) == millions
    assert len(convolutions(model)) == depth - 1


@pytest.mark.parametrize("training", [True, False])
def test_densenet_has_torchvisions_values(training):
    vision_library("torchvision")
    oracle = importlib.import_module("torchvision.models").DenseNet(
        6, (2, 2, 2), 12, bn_size=4, num_classes=7
    )
    oracle.features.conv0 = nn.Conv2d(3, 12, 3, padding=1, bias=False)
    for part in ("norm0", "relu0", "pool0"):
        setattr(oracle.features, part, nn.Identity())
    model = densenet_cifar(7, depth=16, growth_rate=6)
    unusual_statistics(model)
    ours = {key: value for key, value in model.state_dict().items() if not key.startswith("head.")}
    values = [*ours.values(), model.head.weight, model.head.bias]
    oracle.load_state_dict(dict(zip(oracle.state_dict(), values, strict=True)))
    x = torch.randn(4, 3, 20, 20)
    torch.testing.assert_close(model.train(training)(x), oracle.train(training)(x), rtol=1e-4, atol=1e-5)


def test_dropout_of_densenet():
    x = torch.randn(2, 3, 16, 16)
    model = densenet_cifar(4, depth=10, growth_rate=4, dropout_rate=0.5)
    assert not model.train()(x).equal(model(x))
    assert model.eval()(x).equal(model(x))
    model = densenet_cifar(4, depth=10, growth_rate=4).train()
    assert model(x).equal(model(x))


def test_parameters_of_resnet32():
    # A block of w channels: 2 convolutions 9 w w, 2 norms 2 w. The first of a stage has 9 w w / 2 fewer.
    stem = 27 * 16 + 2 * 16
    stages = sum(5 * (2 * 9 * w * w + 4 * w) - (9 * w * w // 2 if w > 16 else 0) for w in (16, 32, 64))
    assert stem + stages + 64 * 10 + 10 == 464_154
    model = resnet32_cifar(10)
    assert parameters(model) == 464_154
    assert len(convolutions(model)) == 31
    assert parameters(resnet32_cifar(100)) == 464_154 + 90 * 65


# millions, from table 6 of the paper
@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85)])
def test_resnet_has_the_papers_size(depth, millions):
    model = resnet_cifar(10, depth=depth)
    assert round(parameters(model) / 1e6, 2) == millions
    # 12 layers deeper: 2 blocks more in each stage
    more = 2 * sum(2 * 9 * w * w + 4 * w for w in (16, 32, 64))
    assert parameters(model) == 464_154 + (depth - 32) // 12 * more
    assert len(convolutions(model)) == depth - 1


def resnet_by_hand(state: dict, x: torch.Tensor, *, blocks: int) -> torch.Tensor:
    def step(x, conv, norm, stride=1):
        x = conv2d(x, state[f"{conv}.weight"], stride=stride, padding=1)
        values = (state[f"{norm}.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return batch_norm(x, *values)

    x = step(x, "stem", "norm").clamp_min(0)
    for i in range(3 * blocks):
        stride = 2 if i in (blocks, 2 * blocks) else 1
        new = step(x, f"blocks.{i}.conv1", f"blocks.{i}.norm1", stride).clamp_min(0)
        new = step(new, f"blocks.{i}.conv2", f"blocks.{i}.norm2")
        quarter = new.shape[1] // 4 if stride == 2 else 0
        for row in range(new.shape[2]):
            for column in range(new.shape[3]):
                new[:, quarter : quarter + x.shape[1], row, column] += x[:, :, stride * row, stride * column]
        x = new.clamp_min(0)
    return x.flatten(2).mean(2) @ state["head.weight"].T + state["head.bias"]


@pytest.mark.parametrize("size", [8, 9])
def test_resnet_is_a_loop(size):
    model = resnet_cifar(5, depth=14, width=4).double().eval()
    unusual_statistics(model)
    x = torch.randn(3, 3, size, size, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(x), resnet_by_hand(model.state_dict(), x, blocks=2))


def test_parameters_of_the_plain_networks():
    assert parameters(linear(10, in_channels=64)) == 65 * 10
    assert parameters(linear(10, in_channels=1, image_size=[8, 6])) == 49 * 10
    assert parameters(mlp(10, in_channels=64)) == 65 * 256 + 257 * 10
    assert parameters(mlp(10, in_channels=64, hidden=[32, 16], norm=True)) == 66 * 32 + 34 * 16 + 17 * 10
    small = 9 * (1 * 8 + 8 * 32 + 32 * 64 + 64 * 128) + 2 * (8 + 32 + 64 + 128) + 129 * 100
    assert parameters(small_cnn(100, in_channels=1)) == small == 107_900
    deep = 9 * (3 * 8 + 8 * 32 + 32 * 32 + 32 * 64 + 64 * 64 + 64 * 128 + 2 * 128 * 128)
    deep += 2 * (8 + 2 * 32 + 2 * 64 + 3 * 128) + 129 * 100
    assert parameters(deep_cnn(100)) == deep == 449_740


def test_layers_of_the_plain_networks():
    maps = []
    for model in (small_cnn(4), deep_cnn(4)):
        for module in convolutions(model):
            module.register_forward_hook(lambda _, x, __: maps.append(x[0].shape[-1]))
        model(torch.randn(2, 3, 32, 32))
    assert maps == [32, 16, 8, 4, 32, 16, 16, 8, 8, 4, 4, 4]
    assert linear(4).features(torch.arange(6.0).view(2, 3)).equal(torch.arange(6.0).view(2, 3))


def test_mlp_is_a_chain_of_matrices():
    model, x = mlp(4, in_channels=3, image_size=(2, 5), hidden=(8, 6)), torch.randn(7, 3, 2, 5)
    weights = [parameter for key, parameter in model.named_parameters() if key.startswith("layers.")]
    first, zero, second, _ = weights
    assert zero.equal(torch.zeros(8))
    want = ((x.reshape(7, 30) @ first.T).clamp_min(0) @ second.T).clamp_min(0)
    torch.testing.assert_close(model.features(x), want)
    dropped = mlp(4, hidden=(50,), dropout_rate=0.5).train().features(torch.ones(1, 3))
    kept = mlp(4, hidden=(50,)).features(torch.ones(1, 3))
    assert (dropped == 0).sum() > (kept == 0).sum()


@pytest.mark.parametrize(
    ("model", "fan"),
    [
        (densenet40_40, lambda conv: conv.out_channels),
        (resnet32_cifar, lambda conv: conv.in_channels),
        (small_cnn, lambda conv: conv.in_channels),
        (deep_cnn, lambda conv: conv.in_channels),
    ],
)
def test_convolutions_start_as_he_et_al(model, fan):
    for conv in convolutions(model(10)):
        want = math.sqrt(2 / (fan(conv) * conv.kernel_size[0] ** 2))
        count = conv.weight.numel()  # the deviation of a sample of a normal is known to 1 / sqrt(2 count)
        assert abs(conv.weight.std().item() / want - 1) < 5 / math.sqrt(2 * count)
        assert abs(conv.weight.mean().item()) < 5 * want / math.sqrt(count)
        assert conv.bias is None


def test_heads_start_as_in_the_published_code():
    assert densenet40_40(100).head.bias.equal(torch.zeros(100))
    head = resnet32_cifar(100).head
    assert abs(head.weight.std().item() / math.sqrt(2 / 64) - 1) < 5 / math.sqrt(2 * 6400)
