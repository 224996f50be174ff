"""A large JPEG is decoded at a fraction of its size: the pixels that a network gets are as before."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from shortlist import ClassTable, Preprocessing
from shortlist.index.sources import FileSource
from shortlist.inputs import Rows
from shortlist.model import Model
from shortlist.preprocessing import decoded, read_decoded
from shortlist.serve.decoding import decode
from shortlist.serve.limits import Limits
from tests.test_upright import AS_SHOWN

LEVELS = {"mean": (0.0,) * 3, "std": (1.0,) * 3, "pixels": "levels"}


def photo(width: int, height: int) -> np.ndarray:
    """Clouds of all sizes, an edge and fine stripes: more detail near the pixel than in most photos."""
    draw = np.random.default_rng(5)
    pixels = np.full((height, width, 3), 110.0)
    for cells in (4, 16, 64, 256):
        for channel in range(3):
            coarse = Image.fromarray(draw.normal(size=(cells, cells)).astype(np.float32))
            resized = coarse.resize((width, height), Image.Resampling.BICUBIC)
            pixels[..., channel] += 70 / cells**0.3 * np.asarray(resized)
    pixels[height // 3 :, width // 3 :] += 40
    pixels += 6 * np.sin(np.arange(width) * 0.9)[None, :, None]
    return pixels.clip(0, 255).astype(np.uint8)


def jpeg(pixels: np.ndarray, orientation: int = 1, subsampling: int = 2) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "JPEG", quality=90, subsampling=subsampling, exif=exif)
    return written.getvalue()


def decoded_whole(content: bytes, orientation: int) -> Image.Image:
    """Decode all pixels, and turn them by the standard."""
    with Image.open(io.BytesIO(content)) as opened:
        return Image.fromarray(np.ascontiguousarray(AS_SHOWN[orientation](np.asarray(opened))))


def check_close(got: torch.Tensor, wanted: torch.Tensor, *, mean: float = 0.3, share: float = 0.98) -> None:
    apart = (got.float() - wanted.float()).abs()
    assert apart.mean() < mean and apart.max() <= 4 and (apart <= 1).float().mean() > share


@pytest.mark.parametrize("orientation", AS_SHOWN)
@pytest.mark.parametrize("size", [(701, 907), (1001, 666)])
@pytest.mark.parametrize("resize", [None, 24])
def test_a_photo_decoded_smaller_is_prepared_as_the_whole_one(orientation, size, resize):
    content = jpeg(photo(*size), orientation)
    rule = Preprocessing(height=18, width=20, resize=resize, **LEVELS)
    image, _ = read_decoded(content, rule.side)
    factor = 8 if resize is None else 4  # 4 times 20 pixels are left of an eighth, 4 times 24 are not
    assert min(image.size) == -(-min(size) // factor)
    check_close(rule.bytes_of_file(content), rule.bytes_of(decoded_whole(content, orientation)))


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_all_kinds_of_jpeg(subsampling, mode):
    written = io.BytesIO()
    Image.fromarray(photo(800, 640)).convert(mode).save(written, "JPEG", subsampling=subsampling)
    content, rule = written.getvalue(), Preprocessing(height=32, width=32, resize=36, **LEVELS)
    with Image.open(io.BytesIO(content)) as opened:
        wanted = rule.bytes_of(opened.convert("RGB"))
    assert min(read_decoded(content, rule.side).image.size) == 160
    check_close(
        rule.bytes_of_file(content), wanted, mean=0.6, share=0.9
    )  # some have half of the colors across


@pytest.mark.parametrize(
    ("side", "shorter"), [(None, 640), (81, 640), (80, 320), (41, 320), (40, 160), (20, 80)]
)
def test_four_times_the_needed_side_is_decoded(side, shorter):
    assert min(read_decoded(jpeg(photo(800, 640)), side).image.size) == shorter


def test_other_formats_are_decoded_whole():
    written = io.BytesIO()
    Image.fromarray(photo(800, 640)).save(written, "PNG")
    image, box = read_decoded(written.getvalue(), 20)
    assert image.size == (800, 640) and box == (0, 0, 800, 640)


@pytest.mark.parametrize("orientation", [1, 6])
def test_every_reader_of_files_takes_the_same_way(orientation, tmp_path):
    rule = Preprocessing(height=18, width=20, resize=24, **LEVELS)
    model = Model.from_parts(torch.nn.Flatten(), ClassTable([*map(str, range(1080))]), preprocessing=rule)
    content = jpeg(photo(701, 907), orientation)
    path = Path(tmp_path / "photo.jpg")
    path.write_bytes(content)
    right = rule.normalized(rule.bytes_of_file(path))
    assert torch.equal(model.prepare([path])[0], right)
    assert torch.equal(model.prepare([content])[0], right)
    assert torch.equal(rule.normalized(decode(content, model, Limits()))[0], right)
    source = FileSource(Rows("", [str(path)], [None]), torch.tensor([0]), rule)
    image, inputs = source.picture(0, content)
    check_close(inputs, right)
    assert min(image.size) == 701  # for a thumbnail of 320 pixels


def test_a_cut_off_photo_is_an_error_at_any_size(tmp_path):
    path = tmp_path / "cut.jpg"
    path.write_bytes(jpeg(photo(800, 640))[:-4000])
    with pytest.raises(ValueError, match="cannot be read as an image"):
        read_decoded(path, 20)


def test_an_image_of_the_caller_is_left_as_it_is():
    rule = Preprocessing(height=18, width=20, resize=24, **LEVELS)
    opened = Image.open(io.BytesIO(jpeg(photo(800, 640))))
    assert torch.equal(rule.bytes_of(opened), rule.bytes_of(decoded(opened).image))
    assert opened.size == (800, 640)
