"""Read and prepare images for a model, some at a time."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, repeat
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from shortlist.preprocessing import Preprocessing, as_rgb

if TYPE_CHECKING:
    from PIL import Image


def in_parts(images: Iterable[Any], size: int) -> Iterator[Any]:
    """Give at most so many images at a time; a batch (n, ...) is cut, an iterable is read as needed."""
    if isinstance(images, Tensor):
        yield from images.split(size) if len(images) else ()
        return
    if isinstance(images, np.ndarray):
        yield from (images[start : start + size] for start in range(0, len(images), size))
        return
    rest = iter(_several(images))
    while part := list(islice(rest, size)):
        yield part


def prepare_images(images: Iterable[Any], preprocessing: Preprocessing | None) -> Tensor:
    """Make inputs (n, ...) from paths, pictures, or tensors and arrays that are already prepared."""
    if isinstance(images, Tensor):
        return images
    if isinstance(images, np.ndarray) and (preprocessing is None or images.shape[1:] == preprocessing.shape):
        return tensor_as_it_is(images)
    several = list(_several(images))
    if len(several) > 1 and all(isinstance(image, str | PathLike | bytes) for image in several):
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoders let other threads run
            parts = list(pool.map(_pixels_or_input, several, repeat(preprocessing)))
    else:
        parts = [_pixels_or_input(image, preprocessing) for image in several]
    if not parts:
        raise ValueError("images must be at least one, got none")
    return _inputs(parts, preprocessing)


def _inputs(parts: Sequence[tuple[Tensor, bool]], preprocessing: Preprocessing | None) -> Tensor:
    """Stack inputs; pixels, which are marked, become inputs all at once if there is nothing else."""
    tensors, is_pixels = zip(*parts, strict=True)
    if preprocessing is not None and all(is_pixels):
        return preprocessing.normalized(torch.stack(tensors))
    return torch.stack(
        [preprocessing.normalized(one) if pixels and preprocessing else one for one, pixels in parts]
    )


def _several(images: Any) -> Iterable[Any]:
    if isinstance(images, str | PathLike) or not isinstance(images, Iterable):
        raise ValueError(f"images must be a sequence of images, got one {type(images).__name__}")
    return images


def _pixels_or_input(image: Any, preprocessing: Preprocessing | None) -> tuple[Tensor, bool]:
    """Return a prepared tensor as it is, or the pixels of an image; and whether it is pixels."""
    if isinstance(image, Tensor):
        if preprocessing is not None and tuple(image.shape) != preprocessing.shape:
            want = f"prepared, of shape {preprocessing.shape}"
            raise ValueError(f"a tensor among images must be {want}, got {tuple(image.shape)}")
        return image, False
    if isinstance(image, np.ndarray):
        return _pixels_of_array(image, preprocessing)
    if preprocessing is None:
        raise ValueError(
            f"images must be tensors that are prepared already, got a {type(image).__name__}: the model has "
            "no preprocessing, which would say how a picture becomes an input"
        )
    from PIL import Image

    if isinstance(image, Image.Image):
        return _pixels_of_image(image, preprocessing), True
    if isinstance(image, str | PathLike | bytes):
        return preprocessing.bytes_of_file(image if isinstance(image, bytes) else Path(image)), True
    raise ValueError(f"images must be paths, Pillow images, arrays or tensors, got a {type(image).__name__}")


def _pixels_of_image(image: "Image.Image", preprocessing: Preprocessing) -> Tensor:
    plain = image.mode == preprocessing.color and "transparency" not in image.info
    return preprocessing.bytes_of(image if plain else as_rgb(image))


def _pixels_of_array(array: np.ndarray, preprocessing: Preprocessing | None) -> tuple[Tensor, bool]:
    """Make pixels from an array that is a picture, or an input from one that is prepared already."""
    if preprocessing is None or array.shape == preprocessing.shape:
        return tensor_as_it_is(array), False
    gray, color = array.ndim == 2, array.ndim == 3 and array.shape[-1] in (3, 4)
    if array.dtype != np.uint8 or not (gray or color):
        raise ValueError(
            "an array among images must be a picture, uint8 of shape (h, w) or (h, w, 3), or prepared, of "
            f"shape {preprocessing.shape}, got {array.dtype} {array.shape}"
        )
    from PIL import Image

    return _pixels_of_image(Image.fromarray(array), preprocessing), True


def tensor_as_it_is(array: np.ndarray) -> Tensor:
    """Return an array of inputs as a tensor of the same type."""
    if array.dtype.kind not in "fiub":
        raise ValueError(f"an array among images must hold numbers, got {array.dtype}")
    return torch.from_numpy(array.copy())  # arrays may be read-only, or run backwards
