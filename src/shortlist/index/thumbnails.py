"""Thumbnails: small JPEG copies of images, without anything but pixels in them."""

import io
from typing import TYPE_CHECKING

from shortlist.preprocessing import upright

if TYPE_CHECKING:
    from PIL import Image


LONGEST_SIDE = 320
_SMALL = 64  # of such small pictures every pixel counts


def thumbnail(image: "Image.Image") -> bytes:
    """Return a JPEG whose longest side is at most 320 pixels, turned upright, without any metadata.

    Smaller images keep their size.
    """
    from PIL import Image

    image = upright(image)
    image = image.convert("L" if image.mode == "L" else "RGB")
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Image.Resampling.LANCZOS, reducing_gap=3.0)
    image.info = {}  # else comments and color profiles would be written too
    written = io.BytesIO()
    small = max(image.size) <= _SMALL
    image.save(written, "JPEG", quality=95 if small else 85, subsampling=0 if small else 2, optimize=True)
    return written.getvalue()
