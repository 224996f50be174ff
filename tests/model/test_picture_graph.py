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


def rows_first(preprocessing: Preprocessing, picture: np.ndarray) -> np.ndarray:
    """What Pillow makes of a picture by two calls: rows, then columns, which Pillow 13 may swap in one."""
    image = Image.fromarray(picture).convert(preprocessing.color)
    size, box = (preprocessing.width, preprocessing.height), (0, 0, *image.size)
    if preprocessing.resize is not None:
        width, height = (min(image.size) * side / preprocessing.resize for side in size)
        left, top = (image.width - width) / 2, (image.height - height) / 2
        box = (left, top, left + width, top + height)
    kind = preprocessing.interpolation or ("bicubic" if preprocessing.resize is None else "bilinear")
    method = Image.Resampling[kind.upper()]
    middle = image.resize((size[0], image.height), method, box=(box[0], 0, box[2], image.height))
    made = np.asarray(middle.resize(size, method, box=(0, box[1], size[0], box[3])))
    return np.moveaxis(made[..., None] if made.ndim == 2 else made, 2, 0)


@pytest.mark.parametrize("rule", RULES)
def test_bytes_are_those_of_pillow(rule):
    preprocessing = Preprocessing(mean=(), std=(), pixels="bytes", **RULES[rule])
    run, differing, total = session(preprocessing), 0, 0
    for size in SIZES:
        picture = photo(*size)
        [[got]] = run.run(None, {"picture": picture})
        apart = np.abs(got.astype(int) - rows_first(preprocessing, picture))
        assert got.shape == preprocessing.shape and apart.max() <= 1, size
        differing, total = differing + (apart > 0).sum(), total + apart.size
        usual = preprocessing.bytes_of(Image.fromarray(picture)).numpy()
        assert np.abs(got.astype(int) - usual).max() <= 2, size
    assert differing <= 0.002 * total


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
        assert np.abs(got.astype(int) - rows_first(preprocessing, picture)).max() <= 1, size
