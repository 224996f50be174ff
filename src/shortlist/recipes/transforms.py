"""The transforms of images that a recipe can name."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist.datasets import IMAGENET_MEAN, IMAGENET_STD, EvalTransform, TrainTransform, image_to_tensor
from shortlist.preprocessing import Box

if TYPE_CHECKING:
    from PIL import Image


class RandomCrop:
    """A transform that resizes a Pillow image, takes a random square and returns a normalized float tensor.

    Unlike :class:`~shortlist.datasets.transforms.TrainTransform` it keeps the scale and the shape of things.
    Draws from torch's own generator, which a ``DataLoader`` seeds differently in each worker.

    Args:
        size: Side of the square that is returned (3, size, size).
        resize: Length to which the shorter side is resized first; ``size / 0.875`` if left out.
        flip: Whether to flip left and right with probability 1/2.
        mean: Mean that is subtracted from each channel.
        std: Standard deviation by which each channel is divided.
    """

    takes_box = True

    def __init__(
        self,
        size: int = 224,
        *,
        resize: int | None = None,
        flip: bool = False,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
    ) -> None:
        check_count("size", size)
        self.size, self.resize, self.flip = size, resize or round(size / 0.875), flip
        if self.resize < size:
            raise ValueError(f"resize must be >= size ({size}), got {resize}")
        self.mean, self.std = tuple(mean), tuple(std)
        self.needed_side = self.resize  # of a photo's shorter side that is needed

    def __call__(self, image: "Image.Image", box: Box | None = None) -> Tensor:
        """Transform one RGB image; ``box`` is what of it is taken, as of a decoded photo."""
        from PIL import Image

        # the wanted square in the image's own pixels: one resampling does both the scaling and the crop
        start, upper, right, lower = box or (0, 0, *image.size)
        width, height = right - start, lower - upper
        side = min(width, height) * self.size / self.resize
        across, down = torch.rand(2, dtype=torch.float64).tolist()
        left, top = start + across * (width - side), upper + down * (height - side)
        box = (left, top, left + side, top + side)
        crop = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        if self.flip and torch.rand(()) < 0.5:
            crop = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return image_to_tensor(crop, self.mean, self.std)


TRANSFORMS: dict[str, Callable[..., Callable]] = {
    "random_resized_crop": TrainTransform,
    "random_crop": RandomCrop,
    "center_crop": EvalTransform,
}
