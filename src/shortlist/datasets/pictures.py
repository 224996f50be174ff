"""Rows of data sets as pictures: an image of a row, and its bytes for a page."""

import base64
import io
from typing import TYPE_CHECKING

import torch

from shortlist.datasets.images import ImageFiles
from shortlist.datasets.splits import Split, TensorSplit
from shortlist.preprocessing import read_image, to_pixels

if TYPE_CHECKING:
    from PIL.Image import Image


_PIXELATED = 48  # pictures of up to so many pixels a side are kept as they are and shown with their pixels


def row_image(split: Split, row: int) -> "Image":
    """Return a row as an image."""
    from PIL import Image

    if isinstance(split, ImageFiles):  # the file itself has its true colors
        return read_image(split.paths[row])
    inputs = split.inputs[row] if isinstance(split, TensorSplit) else split[row][0]
    return Image.fromarray(to_pixels(inputs).numpy())


def data_uri(image: "Image", side: int) -> tuple[str, bool]:
    """Write an image as a data URI, and tell whether it is to be shown with its pixels."""
    small = max(image.size) <= _PIXELATED
    buffer = io.BytesIO()
    if small:
        image = image.convert("L") if _is_gray(image) else image
        image.save(buffer, "PNG", optimize=True)
    else:
        image.thumbnail((side, side))
        image.convert("RGB").save(buffer, "JPEG", quality=80)
    kind = "png" if small else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}", small


def _is_gray(image: "Image") -> bool:
    colors = torch.frombuffer(bytearray(image.convert("RGB").tobytes()), dtype=torch.uint8).view(-1, 3)
    return bool((colors == colors[:, :1]).all())
