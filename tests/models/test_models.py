"""What holds for every entry of ``MODELS``."""

import copy
import inspect
import pickle
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from shortlist import models
from shortlist.models import MODELS, OF_FIXED_SIZE
from shortlist.models.classifiers import freeze_features, replace_classifier
from shortlist.models.heads import CosineHead, TwoHead

N, C, CHANNELS, SIZE = 6, 5, 2, 16
# small where the model can be
OPTIONS: dict[str, dict] = {
    "linear": {"image_size": (SIZE, SIZE)},
    "mlp": {"image_size": (SIZE, SIZE), "hidden": (24, 12), "norm": True},
    "small_cnn": {"width": 4},
    "deep_cnn": {"width": 4},
    "resnet_cifar": {"depth": 8, "width": 3},  # an odd number of channels beside the shortcut
    "densenet_cifar": {"depth": 10, "growth_rate": 6},
}
FEATURES = {"linear": CHANNELS * SIZE**2, "mlp": 12, "small_cnn": 32, "deep_cnn": 32, "resnet_cifar": 12}
FEATURES |= dict.fromkeys(["resnet20_cifar", "resnet32_cifar", "resnet44_cifar", "resnet56_cifar"], 64)
# 12 + 6 = 18, halved 9, + 6 = 15, halved 7, + 6
FEATURES |= {"densenet_cifar": 13, "densenet40_40": 440}
each = pytest.mark.parametrize("name", MODELS)
each_small = pytest.mark.parametrize("name", OPTIONS)


def build(name: str) -> nn.Module:
    return MODELS[name](C, in_channels=CHANNELS, **OPTIONS.get(name, {}))


def images(n: int = N) -> torch.Tensor:
    return torch.randn(n, CHANNELS, SIZE, SIZE)


def equal_states(a: nn.Module, b: nn.Module) -> bool:
    states = a.state_dict(), b.state_dict()
    return states[0].keys() == states[1].keys() and all(states[0][k].equal(states[1][k]) for k in states[0])


@each
def test_signature(name):
    num_classes, in_channels, *options = inspect.signature(MODELS[name]).parameters.values()
    assert (name in OF_FIXED_SIZE) == ("image_size" in [option.name for option in options])
    assert num_classes.name == "num_classes" and in_channels.name == "in_channels"
    assert in_channels.default == 3
    assert all(option.kind is option.KEYWORD_ONLY for option in [in_channels, *options])
    assert MODELS[name] is getattr(models, name) and name in models.__all__


@pytest.mark.parametrize("name", [name for name in models.__all__ if not name.isupper() or name == "MLP"])
def test_every_public_name_is_documented(name):
    assert (getattr(models, name).__doc__ or "").strip()


@each
def test_scores_are_the_heads_of_the_features(name):
    model, x = build(name).eval(), images()
    features = model.features(x)
    assert features.shape == (N, FEATURES[name])
    assert isinstance(model.head, nn.Linear) and model.num_classes == C
    assert model(x).shape == (N, C)
    torch.testing.assert_close(model(x), features @ model.head.weight.T + model.head.bias)


@each
def test_every_parameter_gets_a_gradient(name):
    model = build(name).train()
    cross_entropy(model(images()), torch.arange(N) % C).backward()
    for parameter, tensor in model.named_parameters():
        assert tensor.grad is not None and tensor.grad.abs().sum() > 0, parameter


@each
def test_training_fits_a_few_images(name):
    model, x, target = build(name).train(), images(), torch.arange(N) % C
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(12):
        losses.append(cross_entropy(model(x), target))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]


@each
def test_evaluation_treats_rows_alone_and_training_updates_statistics(name):
    model, x = build(name), images()
    before = copy.deepcopy(dict(model.named_buffers()))
    model.eval()
    alone = torch.cat([model(row[None]) for row in x])
    torch.testing.assert_close(model(x), alone, rtol=1e-3, atol=1e-4)
    assert all(buffer.equal(before[key]) for key, buffer in model.named_buffers())
    model.train()(x)
    means = [key for key in before if key.endswith("running_mean")]
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)]
    assert len(means) == len(norms)
    assert not any(model.get_buffer(key).equal(before[key]) for key in means)


@each
def test_the_seed_decides_the_first_values(name):
    torch.manual_seed(4)
    first = build(name)
    torch.manual_seed(4)
    assert equal_states(first, build(name))
    assert not equal_states(first, build(name))
    restored = pickle.loads(pickle.dumps(first))
    assert equal_states(first, restored)


@each
def test_the_classifier_is_found_and_replaced(name):
    model, x = build(name), images()
    length = FEATURES[name]
    replace_classifier(model, lambda d: CosineHead(d, C + 1, scale=3.0))
    assert isinstance(model.head, CosineHead) and model.head.in_features == length
    assert model(x).shape == (N, C + 1) and model.num_classes == C + 1
    replace_classifier(model, lambda d: TwoHead(d, C))
    scores = model(x)
    assert scores.set_logits.shape == scores.proposal_logits.shape == (N, C)
    freeze_features(model)
    trained = {key for key, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {key for key, _ in model.named_parameters() if key.startswith("head.")}


@pytest.mark.parametrize("name", ["small_cnn", "deep_cnn", "resnet_cifar", "densenet_cifar"])
def test_channels_last_is_kept_to_the_end(name):
    model, x = build(name).eval(), images()
    want = model(x)
    model = model.to(memory_format=torch.channels_last)
    layouts = []
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.BatchNorm2d):
            module.register_forward_hook(lambda _, __, out: layouts.append(out))
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), want, rtol=1e-4, atol=1e-5)
    assert layouts and all(out.is_contiguous(memory_format=torch.channels_last) for out in layouts)


@each_small
def test_half_precision(name):
    model, x = build(name).eval(), images()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = model(x)
    assert scores.dtype == torch.bfloat16
    torch.testing.assert_close(scores.float(), model(x), rtol=0.1, atol=0.1)


@each_small
def test_export_with_any_number_of_rows(name):
    model = build(name).eval()
    program = torch.export.export(model, (images(4),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for rows in (1, 7):
        x = images(rows)
        torch.testing.assert_close(program.module()(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.compiled
@pytest.mark.parametrize("name", ["mlp", "small_cnn", "resnet_cifar", "densenet_cifar"])
def test_compile(name):
    model, x = build(name).train(), images()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), twin(x), rtol=1e-4, atol=1e-5)
    compiled(x).square().sum().backward()
    twin(x).square().sum().backward()
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, other.grad, rtol=1e-3, atol=1e-3)
    torch._dynamo.reset()


BAD = [
    ("num_classes must be an integer >= 1, got 0", {"num_classes": 0}),
    ("num_classes must be an integer >= 1, got 2.0", {"num_classes": 2.0}),
    ("in_channels must be an integer >= 1, got 0", {"in_channels": 0}),
]


@pytest.mark.errors
@each
@pytest.mark.parametrize(("message", "changes"), BAD)
def test_bad_sizes(name, message, changes):
    arguments = {"num_classes": C, "in_channels": CHANNELS} | OPTIONS.get(name, {}) | changes
    with pytest.raises(ValueError, match=re.escape(message)):
        MODELS[name](**arguments)


BAD_OPTIONS = [
    ("mlp", {"hidden": (8, 0)}, "hidden must be an integer >= 1, got 0"),
    ("mlp", {"hidden": 8}, "hidden must be a sequence of lengths, got 8"),
    ("mlp", {"dropout_rate": 1.0}, "dropout_rate must be < 1, got 1.0"),
    ("mlp", {"image_size": (4,)}, "image_size must be a height and a width, got (4,)"),
    ("linear", {"image_size": 4}, "image_size must be a height and a width, got 4"),
    ("linear", {"image_size": (4, -1)}, "image_size must be an integer >= 1, got -1"),
    ("small_cnn", {"width": 7}, "width must be even, got 7"),
    ("deep_cnn", {"width": 0}, "width must be an integer >= 1, got 0"),
    ("resnet_cifar", {"depth": 30}, "depth must be 2 + 6 n with n >= 1, got 30"),
    ("resnet_cifar", {"depth": 2}, "depth must be 2 + 6 n with n >= 1, got 2"),
    ("resnet32_cifar", {"width": 0}, "width must be an integer >= 1, got 0"),
    ("densenet_cifar", {"depth": 41}, "depth must be 4 + 6 n with n >= 1, got 41"),
    ("densenet_cifar", {"depth": 12, "bottleneck": False}, "depth must be 4 + 3 n with n >= 1, got 12"),
    ("densenet_cifar", {"depth": 4}, "depth must be 4 + 6 n with n >= 1, got 4"),
    ("densenet_cifar", {"growth_rate": 0}, "growth_rate must be an integer >= 1, got 0"),
    ("densenet_cifar", {"compression": 0}, "compression must be > 0, got 0"),
    ("densenet_cifar", {"compression": 1.5}, "compression must be <= 1, got 1.5"),
    ("densenet40_40", {"dropout_rate": -0.1}, "dropout_rate must be >= 0, got -0.1"),
]


@pytest.mark.errors
@pytest.mark.parametrize(("name", "options", "message"), BAD_OPTIONS)
def test_bad_options(name, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        MODELS[name](C, **options)


BAD_IMAGES = [
    ("small_cnn", (2, 3, 32, 32), "(n, 2, height, width) with height and width >= 16, got (2, 3, 32, 32)"),
    ("small_cnn", (2, 2, 32, 15), "height and width >= 16, got (2, 2, 32, 15)"),
    ("deep_cnn", (2, 2, 7, 32), "height and width >= 8, got (2, 2, 7, 32)"),
    ("resnet_cifar", (2, 32, 32), "images must be (n, 2, height, width)"),
    ("densenet_cifar", (2, 2, 3, 3), "height and width >= 4, got (2, 2, 3, 3)"),
    ("linear", (2, 2, 16, 15), "input must be (n, ...) with 512 values in a row, got (2, 2, 16, 15)"),
    ("mlp", (512,), "input must be (n, ...) with 512 values in a row, got (512,)"),
]


@pytest.mark.errors
@pytest.mark.parametrize(("name", "shape", "message"), BAD_IMAGES)
def test_bad_images(name, shape, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        build(name)(torch.zeros(shape))


@pytest.mark.parametrize(
    ("name", "size"), [("small_cnn", 16), ("deep_cnn", 8), ("resnet_cifar", 1), ("densenet_cifar", 4)]
)
def test_smallest_images(name, size):
    assert build(name).eval()(torch.randn(2, CHANNELS, size, size)).isfinite().all()


def test_the_page_names_every_model_and_its_code_runs():
    page = (Path(__file__).parents[2] / "docs/guides/models.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, flags=re.M)) == set(MODELS)
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    exec(code, {})
