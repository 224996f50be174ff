"""The first half of an exported file makes of a picture what Pillow makes of it."""

import numpy as np
import pytest
import torch
from PIL import Image

from shortlist.preprocessing import Preprocessing

onnxruntime = pytest.importorskip("onnxruntime")
SIZES = [(1, 1), (2, 3), (30, 30), (48, 33), (333, 500), (1, 700), (700, 1)]
RULES = {
    "crop": {"height": 56, "width": 56, "resize": 64},
    "stretch": {"height": 50, "width": 33, "resize": None},
    "gray": {"height": 32, "width": 32, "resize": None, "color": "L"},
    "gray crop": {"height": 20, "width": 40, "resize": 48, "color": "L"},
    "bicubic crop": {"height": 60, "width": 60, "resize": 64, "interpolation": "bicubic"},
    "one pixel": {"height": 1, "width": 1, "resize": 1},
}


def photo(height: int, width: int) -> np.ndarray:
    """A picture with smooth parts and edges, and some noise."""
    generator = np.random.default_rng(height + 7 * width)
    patches = Image.fromarray(generator.integers(0, 256, (7, 9, 3), dtype=np.uint8))
    smooth = np.asarray(patches.resize((width, height), Image.Resampling.BILINEAR)).astype(int)
    smooth[: height // 3, : width // 2] //= 3
    return (smooth + generator.integers(-9, 10, smooth.shape)).clip(0, 255).astype(np.uint8)


def session(preprocessing: Preprocessing):
    from shortlist.model.picture_graph import picture_graph

    made = picture_graph(preprocessing, opset=20, ir_version=10)
    return onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("rule", RULES)
def test_bytes_are_those_of_pillow(rule):
    preprocessing = Preprocessing(mean=(), std=(), pixels="bytes", **RULES[rule])
    run, differing, total = session(preprocessing), 0, 0
    for size in SIZES:
        picture = photo(*size)
        [[got]] = run.run(None, {"picture": picture})
        apart = np.abs(got.astype(int) - preprocessing.bytes_of(Image.fromarray(picture)).numpy())
        assert got.shape == preprocessing.shape and apart.max() <= 1, size
        differing, total = differing + (apart > 0).sum(), total + apart.size
    assert differing <= 0.002 * total


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
@pytest.mark.parametrize("resize", [None, 24])
def test_white_noise_of_many_sizes_is_resampled_in_the_order_of_pillow(kind, resize):
    """The other order of passes differs by up to 20 gray levels here."""
    rule = Preprocessing(
        height=20, width=24, resize=resize, mean=(), std=(), pixels="bytes", interpolation=kind
    )
    run, generator = session(rule), np.random.default_rng(11)
    sizes = [(20 + 2 * n, 24 + n) for n in (0, 1, 9)] + [(21 + 2 * n, 24 + n) for n in (-3, 0, 1, 9)]
    sizes += [tuple(size) for size in generator.integers(1, 99, (60, 2))]
    for height, width in sizes:
        picture = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        [[got]] = run.run(None, {"picture": picture})
        wanted = rule.bytes_of(Image.fromarray(picture)).numpy()
        assert np.abs(got.astype(int) - wanted).max() <= 1, (height, width)


@pytest.mark.parametrize("pixels", ["unit", "levels"])
def test_normalization_is_that_of_the_preprocessing(pixels):
    preprocessing = Preprocessing(
        height=9, width=9, resize=9, mean=(0.4, 0.5, 0.1), std=(0.2, 0.3, 0.25), pixels=pixels
    )
    picture = photo(9, 9)  # which nothing is resampled of
    [got] = session(preprocessing).run(None, {"picture": picture})
    torch.testing.assert_close(torch.from_numpy(got[0]), preprocessing(Image.fromarray(picture)))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["crop", "gray"])
def test_large_and_long_photos(rule):
    preprocessing = Preprocessing(mean=(), std=(), pixels="bytes", **RULES[rule])
    run = session(preprocessing)
    for size in [(4000, 4000), (1, 5000), (5000, 1), (3000, 4000)]:
        picture = photo(*size)
        [[got]] = run.run(None, {"picture": picture})
        wanted = preprocessing.bytes_of(Image.fromarray(picture)).numpy()
        assert np.abs(got.astype(int) - wanted).max() <= 1, size
