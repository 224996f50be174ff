"""Augment and normalize batches of small images (in torch) and single image files (in Pillow).

Nothing here needs torchvision; any callable may stand in for these.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shortlist._checks import check_count, check_number
from shortlist.preprocessing import Box, Preprocessing, normalize, pixels_of

if TYPE_CHECKING:
    from PIL import Image


IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of ImageNet's red, green and blue."""
IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of ImageNet's red, green and blue."""


def random_crop_and_flip(
    images: Tensor, *, padding: int = 4, flip: bool = True, generator: torch.Generator | None = None
) -> Tensor:
    """Pad each image with zeros, crop it at random to its old size, and flip half of them.

    Args:
        images: A batch (n, channels, height, width) of any type.
        padding: Pixels added on each side before cropping.
        flip: Whether to flip left and right.
        generator: Random generator of the places.

    Returns:
        A batch of the same shape and type.

    Example:
        >>> random_crop_and_flip(torch.ones(2, 3, 8, 8), padding=0).sum()
        tensor(384.)
    """
    check_number("padding", padding, low=0)
    n, channels, height, width = images.shape
    padded = torch.nn.functional.pad(images, [padding] * 4)
    top, left = torch.randint(2 * padding + 1, (2, n), generator=generator)
    columns = torch.arange(width).expand(n, width)
    if flip:
        flipped = torch.rand(n, generator=generator) < 0.5
        columns = torch.where(flipped[:, None], columns.flip(1), columns)
    rows = (top[:, None] + torch.arange(height))[:, None, :, None]
    columns = (left[:, None] + columns)[:, None, None, :]
    return padded[torch.arange(n)[:, None, None, None], torch.arange(channels)[:, None, None], rows, columns]


class BatchTransform:
    """A transform of images in memory: :func:`random_crop_and_flip` if ``augment``, then :func:`normalize`.

    Draws from torch's own generator, which a ``DataLoader`` seeds differently in each worker.
    """

    def __init__(
        self,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        augment: bool = False,
        padding: int = 4,
        flip: bool = True,
    ) -> None:
        self.mean, self.std = tuple(mean), tuple(std)
        self.augment, self.padding, self.flip = augment, padding, flip

    def __call__(self, images: Tensor) -> Tensor:
        """Transform a batch (n, channels, height, width)."""
        if self.augment:
            images = random_crop_and_flip(images, padding=self.padding, flip=self.flip)
        return normalize(images, mean=self.mean, std=self.std)


def image_to_tensor(image: "Image.Image", mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return the normalized pixels of a Pillow image."""
    return normalize(pixels_of(image), mean=mean, std=std)


class EvalTransform:
    """A transform that resizes a Pillow image, crops its center and returns a normalized float tensor.

    Args:
        size: Side of the square that is returned (3, size, size).
        resize: Length to which the shorter side is resized first; ``size / 0.875`` if left out.
        mean: Mean that is subtracted from each channel.
        std: Standard deviation by which each channel is divided.

    Attributes:
        preprocessing: The same rule, as a value that is saved with a model.
    """

    def __init__(
        self,
        size: int = 224,
        *,
        resize: int | None = None,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
    ) -> None:
        check_count("size", size)
        resize = resize or round(size / 0.875)
        if resize < size:
            raise ValueError(f"resize must be >= size ({size}), got {resize}")
        self.preprocessing = Preprocessing(height=size, width=size, resize=resize, mean=mean, std=std)

    def __call__(self, image: "Image.Image") -> Tensor:
        """Transform one RGB image."""
        return self.preprocessing(image)


class TrainTransform:
    """A transform that takes a random part of a Pillow image, resizes and flips it, and normalizes it.

    The part has a random share of the area and a random shape, as is usual for training on photographs; if
    ten draws do not fit into the image, it is the largest centered part of allowed shape. Draws from torch's
    own generator, which a ``DataLoader`` seeds differently in each worker.

    Args:
        size: Side of the square that is returned (3, size, size).
        area: Smallest and largest share of the image's area that is taken.
        ratio: Smallest and largest ratio of width to height of that part.
        flip: Whether to flip left and right with probability 1/2.
        mean: Mean that is subtracted from each channel.
        std: Standard deviation by which each channel is divided.
    """

    takes_box = True

    def __init__(
        self,
        size: int = 224,
        *,
        area: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: bool = True,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
    ) -> None:
        check_count("size", size)
        if not 0 < area[0] <= area[1] <= 1:
            raise ValueError(f"area must be two shares in (0, 1], ascending, got {area}")
        if not 0 < ratio[0] <= ratio[1]:
            raise ValueError(f"ratio must be two numbers > 0, ascending, got {ratio}")
        self.size, self.area, self.ratio, self.flip = size, area, ratio, flip
        self.needed_side = size
        self.mean, self.std = tuple(mean), tuple(std)

    def _part(self, width: float, height: float) -> tuple[float, float, float, float]:
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for share, shape, across, down in torch.rand(10, 4, dtype=torch.float64).tolist():
            area = width * height * (self.area[0] + share * (self.area[1] - self.area[0]))
            shape = math.exp(low + shape * (high - low))
            w, h = math.sqrt(area * shape), math.sqrt(area / shape)
            if w <= width and h <= height:
                left, top = across * (width - w), down * (height - h)
                return left, top, left + w, top + h
        shape = min(max(width / height, self.ratio[0]), self.ratio[1])
        w, h = min(width, height * shape), min(height, width / shape)
        left, top = (width - w) / 2, (height - h) / 2
        return left, top, left + w, top + h

    def __call__(self, image: "Image.Image", box: Box | None = None) -> Tensor:
        """Transform one RGB image; ``box`` is what of it is taken, as of a decoded photo."""
        from PIL import Image

        left, upper, right, lower = box or (0, 0, *image.size)
        part = self._part(right - left, lower - upper)
        part = left + part[0], upper + part[1], left + part[2], upper + part[3]
        crop = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=part)
        if self.flip and torch.rand(()) < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return image_to_tensor(crop, self.mean, self.std)
