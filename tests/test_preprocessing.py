import json
import re

import numpy as np
import pytest
import torch
from PIL import Image

from shortlist import Preprocessing
from shortlist.datasets import ChangedSplit, TensorSplit
from shortlist.datasets.glyphs import standardize
from shortlist.datasets.images import ImageFiles
from shortlist.datasets.noise import NoisyTensorSplit
from shortlist.datasets.preparation import preprocessing_of
from shortlist.datasets.transforms import IMAGENET_MEAN, IMAGENET_STD, BatchTransform, EvalTransform
from shortlist.model.images import prepare_images
from shortlist.preprocessing import as_rgb, read_image

PLAIN = {"height": 4, "width": 4, "resize": None, "mean": (0.0,) * 3, "std": (1.0,) * 3}
TARGETS = torch.tensor([2, 0, 1])


def picture(width: int = 60, height: int = 40, mode: str = "RGB") -> Image.Image:
    shape = (height, width) if mode == "L" else (height, width, 3)
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


def as_array(image: Image.Image) -> np.ndarray:
    pixels = np.asarray(image, dtype=np.float64)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


@pytest.mark.parametrize(("width", "height"), [(60, 40), (40, 60), (33, 33)])
def test_center_cut_is_the_one_of_a_resized_picture(width, height):
    """A smooth picture, so that cutting before or after the resampling makes no difference but rounding."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    image = Image.fromarray(np.stack([across, down, (across + down) / 2], 2).astype(np.uint8))
    prepare = Preprocessing(height=16, width=16, resize=20, mean=(0.0,) * 3, std=(1.0,) * 3)
    size = (round(20 * width / min(width, height)), round(20 * height / min(width, height)))
    left, top = (size[0] - 16) // 2, (size[1] - 16) // 2
    whole = image.resize(size, Image.Resampling.BILINEAR).crop((left, top, left + 16, top + 16))
    assert np.abs(prepare(image).numpy() * 255 - as_array(whole)).max() < 3


def test_a_cut_need_not_be_square():
    image = picture(64, 32)
    prepare = Preprocessing(height=8, width=16, resize=32, mean=(0.0,) * 3, std=(1.0,) * 3)
    wanted = as_array(image)[:, 12:20, 24:40] / 255  # the shorter side is 32 already: nothing is resampled
    np.testing.assert_allclose(prepare(image).numpy(), wanted, atol=1e-6)


@pytest.mark.parametrize(("method", "resize"), [("bilinear", None), ("bicubic", None), ("bicubic", 20)])
def test_the_way_of_resampling_can_be_chosen_and_is_saved(method, resize):
    image = picture(40, 20)  # the cut of 20 x 20 is the middle, which is then resampled to 10 x 10
    options = PLAIN | {"height": 10, "width": 10, "resize": None if resize is None else 10}
    prepare = Preprocessing.from_dict(Preprocessing(**options, interpolation=method).to_dict())
    box = None if resize is None else (10, 0, 30, 20)
    wanted = as_array(image.resize((10, 10), Image.Resampling[method.upper()], box=box)) / 255
    np.testing.assert_allclose(prepare(image).numpy(), wanted, atol=1e-6)


@pytest.mark.parametrize("color", ["RGB", "L"])
@pytest.mark.parametrize(("pixels", "divisor"), [("unit", 255), ("levels", 1)])
def test_stretched_pictures_and_their_units(color, pixels, divisor):
    image, channels = picture(), 3 if color == "RGB" else 1
    mean, std = (0.1, 0.2, 0.3)[:channels], (0.5, 0.25, 2.0)[:channels]
    prepare = Preprocessing(height=12, width=20, resize=None, mean=mean, std=std, color=color, pixels=pixels)
    stretched = as_array(image.convert(color).resize((20, 12))) / divisor
    wanted = (stretched - np.array(mean)[:, None, None]) / np.array(std)[:, None, None]
    got = prepare(image)
    assert prepare.shape == tuple(got.shape) == (channels, 12, 20) and got.dtype == torch.float32
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-5)


def test_bytes_stay_bytes():
    image = picture(mode="L")
    prepare = Preprocessing(height=40, width=60, resize=None, mean=(), std=(), color="L", pixels="bytes")
    assert prepare(image).dtype == torch.uint8
    assert torch.equal(prepare(image), torch.from_numpy(np.array(image))[None])


def test_eval_transform_is_its_preprocessing():
    transform = EvalTransform(24, resize=30, mean=[0.5] * 3, std=[0.25] * 3)
    wanted = Preprocessing(height=24, width=24, resize=30, mean=(0.5,) * 3, std=(0.25,) * 3)
    assert transform.preprocessing == wanted
    assert torch.equal(transform(picture()), wanted(picture()))
    assert EvalTransform().preprocessing == Preprocessing(
        height=224, width=224, resize=256, mean=IMAGENET_MEAN, std=IMAGENET_STD
    )


@pytest.mark.parametrize("resize", [None, 6])
def test_it_goes_through_json(resize):
    prepare = Preprocessing(height=5, width=6, resize=resize, mean=(1 / 3,), std=[0.1], color="L")
    again = Preprocessing.from_dict(json.loads(json.dumps(prepare.to_dict())))
    assert again == prepare and again.mean == (1 / 3,)
    assert torch.equal(again(picture()), prepare(picture()))


BAD = [
    ({"height": 0}, "height must be an integer >= 1, got 0"),
    ({"width": 2.5}, "width must be an integer >= 1, got 2.5"),
    ({"height": 60000, "width": 60000}, "height times width must be <= 16,777,216, got 60000 and 60000"),
    ({"resize": 0}, "resize must be an integer >= 1, got 0"),
    ({"resize": 3}, "resize must be >= height and width (4, 4), got 3"),
    ({"width": 8, "resize": 6}, "resize must be >= height and width (4, 8), got 6"),
    ({"mean": (0.5,)}, "mean must have 3 entries for RGB pixels as 'unit', got 1"),
    ({"std": (1, 1)}, "std must have 3 entries for RGB pixels as 'unit', got 2"),
    ({"std": (1, 1, 0)}, "std must be > 0, got 0"),
    ({"mean": (0, 0, float("nan"))}, "mean must be a finite number, got nan"),
    ({"color": "CMYK"}, "color must be one of RGB, L, got 'CMYK'"),
    ({"pixels": "half"}, "pixels must be one of unit, levels, bytes, got 'half'"),
    ({"pixels": "bytes"}, "mean must have 0 entries for RGB pixels as 'bytes', got 3"),
]


@pytest.mark.errors
@pytest.mark.parametrize(("changes", "message"), BAD)
def test_bad_values(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Preprocessing(**(PLAIN | changes))


@pytest.mark.errors
def test_bad_files():
    content = Preprocessing(**PLAIN).to_dict()
    for changed, message in [
        ({**content, "hight": 3}, "preprocessing must have exactly color, height, mean"),
        ({k: v for k, v in content.items() if k != "resize"}, "preprocessing must have exactly"),
        ([1], "got list"),
        (content | {"mean": 0.5}, "mean must be a sequence of numbers, got 0.5"),
        (content | {"std": "1.0"}, "std must be a sequence of numbers, got '1.0'"),
    ]:
        with pytest.raises(ValueError, match=message):
            Preprocessing.from_dict(changed)


# a picture that is a row of a data set is prepared as the data set prepares its row


def pictures(channels: int) -> torch.Tensor:
    return torch.randint(0, 256, (3, channels, 10, 12), dtype=torch.uint8)


def as_pictures(images: torch.Tensor) -> list[Image.Image]:
    return [Image.fromarray(image.permute(1, 2, 0).squeeze(2).numpy()) for image in images]


TENSORS = {
    "cifar": (3, lambda images: images, BatchTransform(mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))),
    "mnist": (1, lambda images: images, BatchTransform(mean=(0.2860,), std=(0.3530,))),
    "glyphs": (1, lambda images: images, standardize),
    "raw bytes": (1, lambda images: images, None),
    "raw color bytes": (3, lambda images: images, None),
    "floating": (3, lambda images: images / 255, None),
    "floating, normalized": (1, lambda images: images / 255, BatchTransform(mean=(0.5,), std=(0.2,))),
}


@pytest.mark.parametrize("name", TENSORS)
def test_pictures_become_what_rows_in_memory_are(name):
    channels, stored, transform = TENSORS[name]
    images = pictures(channels)
    split = TensorSplit(stored(images), TARGETS, transform=transform)
    prepare = preprocessing_of(split)
    assert prepare is not None and prepare.shape == (channels, 10, 12)
    for row, image in enumerate(as_pictures(images)):
        wanted = split[row][0]
        for shown in (image, image.convert("RGB")):
            got = prepare(shown)
            assert got.dtype == wanted.dtype and torch.equal(got, wanted)
    noisy = NoisyTensorSplit(stored(images), TARGETS, clean_targets=TARGETS, transform=transform)
    changed = ChangedSplit(
        ChangedSplit(noisy, torch.tensor([2, 0]), TARGETS[:2]), torch.tensor([1]), TARGETS[:1]
    )
    assert preprocessing_of(changed) == prepare


def test_pictures_become_what_rows_of_files_are(tmp_path):
    picture().save(tmp_path / "a.png")
    target = torch.tensor([0])
    for transform in (EvalTransform(20, resize=22), Preprocessing(**PLAIN), None):
        split = ImageFiles([tmp_path / "a.png"], target, transform=transform)
        prepare = preprocessing_of(split)
        assert prepare is not None
        assert torch.equal(prepare(read_image(tmp_path / "a.png")), split[0][0])


def test_other_rows_have_none(tmp_path):
    images = pictures(3)
    augmented = BatchTransform(mean=(0.5,) * 3, std=(0.2,) * 3, augment=True)
    for split in [
        TensorSplit(torch.randn(3, 8), TARGETS),
        TensorSplit(images, TARGETS, transform=augmented),
        TensorSplit(images, TARGETS, transform=lambda rows: rows / 2),
        TensorSplit(images.long(), TARGETS),
        TensorSplit(images[:, :2], TARGETS),
        TensorSplit(images / 255, TARGETS, transform=standardize),
        ImageFiles([tmp_path / "a.png"] * 3, TARGETS, transform=lambda image: torch.zeros(3)),
        [1, 2, 3],
    ]:
        assert preprocessing_of(split) is None


@pytest.mark.parametrize("color", ["L", "RGB"])
@pytest.mark.parametrize("pixels", ["unit", "levels", "bytes"])
def test_many_pictures_at_once_are_each_prepared_as_alone(color, pixels):
    numbers = () if pixels == "bytes" else (0.3,) * (1 if color == "L" else 3)
    rule = Preprocessing(
        height=5, width=4, resize=None, mean=numbers, std=numbers, color=color, pixels=pixels
    )
    clear = picture(mode="L").convert("P")
    clear.info["transparency"] = 7
    pictures = [picture(mode="L"), picture(), picture().convert("RGBA"), clear, picture().convert("CMYK")]
    alone = torch.stack([rule(as_rgb(one)) for one in pictures])
    assert torch.equal(prepare_images(pictures, rule), alone)
    assert torch.equal(prepare_images([*pictures, alone[0]], rule), torch.cat([alone, alone[:1]]))
