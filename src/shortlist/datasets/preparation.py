"""Find how a data set prepares its images, so that a model can prepare other images in the same way."""

from typing import Any

import torch

from shortlist.datasets.glyphs.dataset import MEAN, STD, standardize
from shortlist.datasets.images import ImageFiles
from shortlist.datasets.splits import TensorSplit, unchanged
from shortlist.datasets.transforms import BatchTransform, EvalTransform
from shortlist.preprocessing import Preprocessing

_COLORS = {1: "L", 3: "RGB"}


def preprocessing_of(split: Any) -> Preprocessing | None:
    """Return the preprocessing that a validation or test split applies to its images.

    Args:
        split: A part of a data set without augmentation. Image files have a preprocessing if they go through
            :class:`~shortlist.datasets.transforms.EvalTransform`. Images in memory, of bytes or of floating
            numbers from 0 to 1, have one if they go through
            :class:`~shortlist.datasets.transforms.BatchTransform`, through the glyphs' own
            :func:`~shortlist.datasets.glyphs.dataset.standardize`, or through nothing.

    Returns:
        The preprocessing; ``None`` if the rows are not images or go through something else.

    Example:
        >>> images, targets = torch.zeros(2, 1, 8, 6), torch.tensor([0, 1])
        >>> preprocessing_of(TensorSplit(images, targets)).shape
        (1, 8, 6)
        >>> preprocessing_of(TensorSplit(images.flatten(1), targets)) is None
        True
    """
    split, _ = unchanged(split)
    if isinstance(split, ImageFiles):
        transform: Any = split.transform
        if isinstance(transform, EvalTransform):
            return transform.preprocessing
        return transform if isinstance(transform, Preprocessing) else None
    return _of_tensors(split) if isinstance(split, TensorSplit) else None


def _of_tensors(split: TensorSplit) -> Preprocessing | None:
    inputs, transform = split.inputs, split.transform
    of_bytes = inputs.dtype == torch.uint8
    if inputs.ndim != 4 or inputs.shape[1] not in _COLORS or not (of_bytes or inputs.is_floating_point()):
        return None
    channels, height, width = inputs.shape[1:]
    values: dict[str, Any] = {"height": height, "width": width, "resize": None, "color": _COLORS[channels]}
    if transform is None and of_bytes:
        return Preprocessing(**values, mean=(), std=(), pixels="bytes")
    if transform is None:  # as they are
        return Preprocessing(**values, mean=(0.0,) * channels, std=(1.0,) * channels)
    if isinstance(transform, BatchTransform) and not transform.augment:
        return Preprocessing(**values, mean=transform.mean, std=transform.std)
    if transform is standardize and of_bytes:
        return Preprocessing(**values, mean=(MEAN,) * channels, std=(STD,) * channels, pixels="levels")
    return None
