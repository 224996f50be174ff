"""Preprocessing: how an image file becomes the tensor that a network takes. It is saved with the model."""

import io
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import check_count, check_keys, check_number

if TYPE_CHECKING:
    from PIL import Image


_CHANNELS = {"RGB": 3, "L": 1}
_ORIENTATION = 0x0112  # tag of EXIF
_MOST_PIXELS = 1 << 24  # of a result: a stranger's model must not take all memory
_KEPT_SIDE = 4  # a JPEG is decoded with at least so many times the pixels of a side that are needed
# of what EXIF data say: which turns mirror what is then across, and what is then down; from 5 on, both swap
_MIRROR_ACROSS, _MIRROR_DOWN = (2, 3, 6, 7), (3, 4, 7, 8)

Box = tuple[float, float, float, float]
"""A part of an image: (left, upper, right, lower)."""


class Decoded(NamedTuple):
    """A photo in RGB, upright, perhaps smaller than its file says."""

    image: "Image.Image"
    box: Box  # the part of the pixels that is the photo: of 7 pixels decoded at a half, 3.5 of 4


def read_image(path: str | Path) -> "Image.Image":
    """Read a file as an RGB image, decoded and upright; any error becomes a ``ValueError`` with the path."""
    return read_decoded(path).image


def read_decoded(file: str | Path | bytes, side: int | None = None) -> Decoded:
    """Read a file, or the bytes of one, at the size that is needed; see :func:`decoded`.

    Raises:
        ValueError: It cannot be read; the message has the path and why.
    """
    from PIL import Image

    try:
        if not isinstance(file, bytes):
            refuse_special_files(file)
        with Image.open(io.BytesIO(file) if isinstance(file, bytes) else file) as opened:
            return decoded(opened, side)
    except Exception as error:  # decoders fail in many ways on broken files, SyntaxError among them
        name = "it" if isinstance(file, bytes) else file
        raise ValueError(f"{name} cannot be read as an image: {reason_of(error)}") from error


def decoded(opened: "Image.Image", side: int | None = None) -> Decoded:
    """Decode an image that was opened, to RGB and upright.

    A JPEG that is much larger than needed is decoded at a half, a quarter or an eighth of its size, which is
    several times faster. At least four times the needed side is left: pixels that are then resized to it
    differ from those of the whole photo by at most one gray level, in 99 of 100 values (docs/speed.md).

    Args:
        opened: The image, which is changed: it is decoded here.
        side: Length of the shorter side that is needed; ``None`` for all pixels.
    """
    reduced = None
    if side is not None:
        shorter = min(opened.size)
        factor = next((k for k in (8, 4, 2) if k * _KEPT_SIDE * side <= shorter), 1)
        if factor > 1:  # formats other than JPEG return nothing
            reduced = opened.draft(None, (opened.width // factor, opened.height // factor))
    orientation = _orientation(opened)
    image = as_rgb(opened)
    if reduced is None:
        return Decoded(image, (0, 0, *image.size))
    width, height = reduced[1][2:]
    if orientation >= 5:
        width, height = height, width
    left = image.width - width if orientation in _MIRROR_ACROSS else 0
    upper = image.height - height if orientation in _MIRROR_DOWN else 0
    return Decoded(image, (left, upper, left + width, upper + height))


def as_rgb(image: "Image.Image") -> "Image.Image":
    """Return an opened image in RGB, as :func:`read_image` gives it; itself if it is RGB and upright."""
    image = with_8_bits(upright(image))
    if "transparency" in image.info:  # a palette with transparent colors has to pass through RGBA
        return image.convert("RGBA").convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")  # a copy of a large photo takes long


def upright(image: "Image.Image") -> "Image.Image":
    """Return an image as people see it: turned as its EXIF data say, which then say nothing more about it.

    Every reader of photos turns them here, so that training, lists, servers and indexes see the same pixels.
    """
    from PIL import ImageOps

    image.load()
    with suppress(Exception):  # as in _orientation
        if _orientation(image) != 1:
            turned = ImageOps.exif_transpose(image)
            turned.format = image.format
            return turned
    return image


def _orientation(image: "Image.Image") -> int:
    """Return what the EXIF data of an image say, 1 to 8."""
    with suppress(Exception):  # damaged EXIF data say nothing
        said = image.getexif().get(_ORIENTATION, 1)
        return said if said in range(1, 9) else 1
    return 1


def with_8_bits(image: "Image.Image") -> "Image.Image":
    """Return an image with 8 bits; of one with 16 bits, the upper 8 (Pillow would make all above 255 white).

    Raises:
        ValueError: Its pixels have 32 bits, of which none can say what is black and what is white.
    """
    import numpy as np
    from PIL import Image

    deep = image.mode == "I" and image.format == "PNG"  # how older versions of Pillow open those of 16 bits
    if image.mode.startswith("I;16") or deep:
        return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        kind = "floating" if image.mode == "F" else "whole"
        raise ValueError(f"its pixels are {kind} numbers of 32 bits and unknown range, not of 8 or 16 bits")
    return image


def refuse_special_files(path: str | Path) -> None:
    """Refuse pipes, devices and sockets, since opening them may wait forever."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it is no regular file")


def reason_of(error: Exception) -> str:
    """Say in a few words why a file could not be read."""
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if type(error).__name__ == "UnidentifiedImageError":
        return "it is in no known image format"
    return " ".join(str(error).split()) or type(error).__name__


def normalize(images: Tensor, *, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Convert bytes (..., channels, height, width) to float32, subtract the mean and divide by the deviation.

    Bytes are divided by 255 first; floating images are taken as they are.

    Example:
        >>> normalize(torch.full((1, 1, 1), 255, dtype=torch.uint8), mean=[0.5], std=[0.25]).item()
        2.0
    """
    scaled = images.float()
    center, width = (scaled.new_tensor(values)[:, None, None] for values in (mean, std))
    if images.dtype == torch.uint8:  # a copy, which can be written to: large batches take half of the time
        return scaled.div_(255).sub_(center).div_(width)
    return (scaled - center) / width


def pixels_of(image: "Image.Image") -> Tensor:
    """Return the bytes of a Pillow image of one byte per channel, as uint8 (channels, height, width)."""
    data = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return data.view(image.height, image.width, -1).permute(2, 0, 1)


def to_pixels(inputs: Tensor) -> Tensor:
    """Turn an input (1 or 3, h, w) into uint8 (h, w, 3); floating ones are stretched to the whole range.

    Example:
        >>> to_pixels(torch.tensor([[[-1.0, 1.0]]]))[..., 0]
        tensor([[  0, 255]], dtype=torch.uint8)
    """
    if inputs.ndim != 3 or inputs.shape[0] not in (1, 3):
        raise ValueError(f"inputs must be a picture of shape (1 or 3, h, w), got {tuple(inputs.shape)}")
    if inputs.dtype != torch.uint8:
        values = inputs.float()
        low, high = values.aminmax()
        inputs = (255 * (values - low) / (high - low).clamp_min(1e-12)).round().to(torch.uint8)
    return inputs.expand(3, -1, -1).permute(1, 2, 0).contiguous()


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """A rule that makes the tensor (channels, height, width) for a network from one image.

    Args:
        height: Height of the result.
        width: Width of the result; at most 16,777,216 pixels with the height.
        resize: Length to which the shorter side of the image is resized before the center is cropped, at
            least ``height`` and ``width``; one resampling does both. With ``None``, the whole image is
            stretched to ``width`` x ``height``.
        mean: Mean that is subtracted from each channel, one entry per channel.
        std: Standard deviation by which each channel is then divided, one entry per channel, > 0.
        color: Color mode to which the image is converted: ``"RGB"``, 3 channels, or ``"L"``, 1 channel of
            gray levels.
        pixels: Unit of ``mean`` and ``std``: ``"unit"`` for bytes divided by 255, ``"levels"`` for bytes from
            0 to 255. With ``"bytes"`` the result is the bytes themselves, uint8, and ``mean`` and ``std`` are
            empty.
        interpolation: How pixels are resampled, ``"bilinear"`` or ``"bicubic"``. With ``None``, by the first
            if ``resize`` is given, by the second if the whole image is stretched.

    Example:
        >>> from PIL import Image
        >>> prepare = Preprocessing(height=2, width=2, resize=4, mean=(0.5,), std=(0.25,), color="L")
        >>> prepare(Image.new("RGB", (8, 6), "white"))
        tensor([[[2., 2.],
                 [2., 2.]]])
    """

    height: int
    width: int
    resize: int | None
    mean: Sequence[float]
    std: Sequence[float]
    color: Literal["RGB", "L"] = "RGB"
    pixels: Literal["unit", "levels", "bytes"] = "unit"
    interpolation: Literal["bilinear", "bicubic"] | None = None

    def __post_init__(self) -> None:
        check_count("height", self.height)
        check_count("width", self.width)
        if self.height * self.width > _MOST_PIXELS:
            sizes = f"{self.height} and {self.width}"
            raise ValueError(f"height times width must be <= {_MOST_PIXELS:,}, got {sizes}")
        check_choice("color", self.color, tuple(_CHANNELS))
        check_choice("pixels", self.pixels, ("unit", "levels", "bytes"))
        if self.interpolation is not None:
            check_choice("interpolation", self.interpolation, ("bilinear", "bicubic"))
        if self.resize is not None:
            check_count("resize", self.resize)
            if self.resize < max(self.height, self.width):
                size = f"height and width ({self.height}, {self.width})"
                raise ValueError(f"resize must be >= {size}, got {self.resize}")
        channels = 0 if self.pixels == "bytes" else _CHANNELS[self.color]
        for name in ("mean", "std"):
            values = tuple(getattr(self, name))
            if len(values) != channels:
                raise ValueError(
                    f"{name} must have {channels} entries for {self.color} pixels as {self.pixels!r}, "
                    f"got {len(values)}"
                )
            for value in values:
                check_number(name, value, **({"above": 0.0} if name == "std" else {}))
            object.__setattr__(self, name, tuple(map(float, values)))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the result: (channels, height, width)."""
        return _CHANNELS[self.color], self.height, self.width

    def __call__(self, image: "Image.Image", box: Box | None = None) -> Tensor:
        """Return the tensor of a Pillow image; ``box`` is what of it is taken, as of :class:`Decoded`."""
        return self.normalized(self.bytes_of(image, box))

    @property
    def side(self) -> int:
        """Length of the shorter side of a photo that is needed; see :func:`decoded`."""
        return self.resize or max(self.height, self.width)

    def bytes_of_file(self, file: str | Path | bytes) -> Tensor:
        """Return the bytes (channels, height, width) of a file, or of the content of one.

        Raises:
            ValueError: It cannot be read; the message has the path and why.
        """
        return self.bytes_of(*read_decoded(file, self.side))

    def bytes_of(self, image: "Image.Image", box: Box | None = None) -> Tensor:
        """Return the bytes (channels, height, width) of a Pillow image: the first half of the rule.

        A photo is turned as its EXIF data say. ``box`` is what of it is taken, as of :class:`Decoded`.
        """
        image = upright(image)
        image = image if image.mode == self.color else image.convert(self.color)
        return pixels_of(self._resized(image, box or (0, 0, *image.size)))

    def normalized(self, pixels: Tensor) -> Tensor:
        """Return the inputs of some bytes (..., channels, height, width): the second half of the rule.

        Many images at once take much less time than one after the other.
        """
        if self.pixels == "bytes":
            return pixels
        pixels = pixels.float() if self.pixels == "levels" else pixels
        return normalize(pixels, mean=self.mean, std=self.std)

    def _resized(self, image: "Image.Image", box: Box) -> "Image.Image":
        from PIL import Image

        size = (self.width, self.height)
        usual = "bicubic" if self.resize is None else "bilinear"
        method = Image.Resampling[(self.interpolation or usual).upper()]
        if self.resize is None:
            return image.resize(size, method, box=box)
        # the wanted part in the image's own pixels: one resampling does both the scaling and the crop
        left, upper, right, lower = box
        shorter = min(right - left, lower - upper)
        width, height = (shorter * side / self.resize for side in size)
        left, top = (left + right - width) / 2, (upper + lower - height) / 2
        return image.resize(size, method, box=(left, top, left + width, top + height))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        content = asdict(self) | {"mean": list(self.mean), "std": list(self.std)}
        if self.interpolation is None:  # left out, so that the hash of a model does not depend on it
            del content["interpolation"]
        return content

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> "Preprocessing":
        """Make a preprocessing from the values that :meth:`to_dict` returned.

        Raises:
            ValueError: If a value is missing, unknown or out of its bounds.
        """
        names = [field.name for field in fields(Preprocessing)]
        if "interpolation" not in content:
            names.remove("interpolation")
        check_keys("preprocessing", content, names)
        for name in ("mean", "std"):
            if not isinstance(content[name], Sequence) or isinstance(content[name], str):
                raise ValueError(f"{name} must be a sequence of numbers, got {content[name]!r}")
        return Preprocessing(**content)
