"""A photo with a rotation in its EXIF data is the same photo for every reader."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from shortlist import ClassTable, Preprocessing
from shortlist.curation.check import difference_hash
from shortlist.datasets.images import ImageFiles
from shortlist.index.sources import FileSource
from shortlist.index.thumbnails import thumbnail
from shortlist.inputs import Rows
from shortlist.model import Model
from shortlist.preprocessing import read_image, upright
from shortlist.serve.decoding import decode
from shortlist.serve.limits import Limits

PREPARE = Preprocessing(height=4, width=4, resize=4, mean=(0.5,) * 3, std=(0.25,) * 3)
# by the standard: what of (height, width) a viewer shows at each place, given what is stored
AS_SHOWN = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.transpose(1, 0, 2),
    6: lambda stored: stored.transpose(1, 0, 2)[:, ::-1],
    7: lambda stored: stored.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda stored: stored.transpose(1, 0, 2)[::-1],
}


def stored() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (5, 8, 3), dtype=np.uint8)


def written(path: Path, orientation: int, pixels: np.ndarray | None = None) -> Path:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(stored() if pixels is None else pixels).save(path, exif=exif)
    return path


@pytest.mark.parametrize("suffix", [".png", ".tif"])
@pytest.mark.parametrize("orientation", AS_SHOWN)
def test_a_file_is_read_upright(orientation, suffix, tmp_path):
    path = written(tmp_path / f"photo{suffix}", orientation)
    image = read_image(path)
    assert np.array_equal(np.asarray(image), AS_SHOWN[orientation](stored()))
    assert np.array_equal(np.asarray(upright(image)), np.asarray(image))  # once, not twice


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "I;16"])
def test_other_modes_are_turned_too(mode, tmp_path):
    if mode == "I;16":
        image = Image.fromarray(stored()[..., 0].astype(np.uint16) * 256)
    else:
        image = Image.fromarray(stored()).convert(mode)
    paths = [tmp_path / name for name in ("plain.tif", "turned.tif", "plain.png", "turned.png")]
    exif = Image.Exif()
    exif[0x0112] = 6
    for path in paths[: 2 if mode == "CMYK" else 4]:
        packed = "tiff_lzw" if path.suffix == ".tif" else None  # Pillow 13 misreads plain ones
        image.save(path, compression=packed, exif=exif if path.stem == "turned" else Image.Exif())
    for plain, turned in zip(paths[::2], paths[1::2], strict=True):
        if plain.exists():
            shown = AS_SHOWN[6](np.asarray(read_image(plain)))
            assert np.array_equal(np.asarray(read_image(turned)), shown)


@pytest.mark.parametrize("orientation", [1, 5, 6, 8])
def test_every_reader_sees_the_same_photo(orientation, tmp_path):
    path = written(tmp_path / "photo.png", orientation)
    shown, target = AS_SHOWN[orientation](stored()), torch.tensor([0])
    right = PREPARE(Image.fromarray(np.ascontiguousarray(shown)))
    model = Model.from_parts(
        torch.nn.Flatten(), ClassTable(tuple(map(str, range(48)))), preprocessing=PREPARE
    )
    content = path.read_bytes()
    with Image.open(path) as opened:
        assert torch.equal(model.prepare([opened])[0], right)  # as predict and notebooks give it
        assert torch.equal(PREPARE(opened), right)
        assert opened.getexif().get(0x0112) == orientation  # the caller's image is as it was
    assert torch.equal(model.prepare([path])[0], right)
    assert torch.equal(ImageFiles([path], target, transform=PREPARE)[0][0], right)  # training
    assert torch.equal(PREPARE.normalized(PREPARE.bytes_of_file(content)), right)  # passes
    assert torch.equal(PREPARE.normalized(decode(content, model, Limits()))[0], right)  # the server
    source = FileSource(Rows("", [str(path)], [None]), target, PREPARE)
    image, inputs = source.picture(0, content)
    assert torch.equal(inputs, right) and np.array_equal(np.asarray(image), shown)
    assert Image.open(io.BytesIO(thumbnail(image))).size == shown.shape[1::-1]


def test_a_turned_copy_is_a_copy(tmp_path):
    across, down = np.meshgrid(np.linspace(0, 200, 90), np.linspace(0, 55, 72))
    smooth = np.repeat((across + down)[..., None].astype(np.uint8), 3, 2)
    turned = written(tmp_path / "turned.png", 6, smooth)
    plain = written(tmp_path / "plain.png", 1, np.ascontiguousarray(AS_SHOWN[6](smooth)))
    assert difference_hash(turned) == difference_hash(plain) is not None


def test_damaged_exif_says_nothing(tmp_path):
    image = Image.fromarray(stored())
    image.save(tmp_path / "photo.png", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert np.array_equal(np.asarray(read_image(tmp_path / "photo.png")), stored())
