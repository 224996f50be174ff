"""The form of data whose rows have several labels, and pictures of several glyphs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from shortlist._checks import check_count, check_k, check_label_sets
from shortlist._progress import Progress
from shortlist.datasets.glyphs import glyphs, standardize
from shortlist.datasets.splits import ChangedSplit, Split, Splits, TensorSplit, fetch_rows

SIDE, GLYPH = 56, 32  # pixels of a picture, and of the image of one glyph
MOST_JITTER = 4  # pixels from a corner of the picture
NOISE_FLOOR = 20  # gray levels: most of what an image has above its background by noise alone
BACKGROUND, MOST_NOISE = 70, 25  # as of a single glyph

Transform = Callable[[Tensor], Tensor]


class LabelSets(Dataset):
    """The photos of a part, each with all of its labels, to learn from.

    Args:
        split: The photos.
        labels: Labels of each photo (n, c), bool.
    """

    def __init__(self, split: Split, labels: Tensor) -> None:
        self.split, self.labels = split, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.split[index][0], self.labels[index]

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the photos with these indices and their labels (m, c)."""
        return fetch_rows(self.split, indices)[0], self.labels[indices]


class LabelPairs(ChangedSplit):
    """The pairs of a photo and one of its labels, as rows with one class each.

    What is calibrated and measured on them is about labels: a coverage is the share of the labels that are in
    the sets of their photos. Pairs of a photo follow each other.

    Args:
        split: The photos; their own classes do not count.
        labels: Labels of each photo (n, c), each 0 or 1, with at least one 1 in each row; kept as bool.

    Example:
        >>> photos = TensorSplit(torch.zeros(2, 5), torch.zeros(2, dtype=torch.int64))
        >>> pairs = LabelPairs(photos, torch.tensor([[1, 0, 1], [0, 1, 0]]))
        >>> pairs.rows.tolist(), pairs.targets.tolist(), pairs.label_sets[0][1].tolist()
        ([0, 0, 1], [0, 2, 1], [True, False, True])
    """

    def __init__(self, split: Split, labels: Tensor) -> None:
        if labels.ndim != 2 or len(labels) != len(split):
            raise ValueError(f"labels must be of shape ({len(split)}, c), got {tuple(labels.shape)}")
        check_label_sets(labels, labels)
        super().__init__(split, *labels.bool().nonzero(as_tuple=True))
        self.label_sets = LabelSets(split, labels.bool())


def training_rows(split: Split) -> Any:
    """Return what a network learns from: of photos with several labels, the photos with all of them."""
    return split.label_sets if isinstance(split, LabelPairs) else split


def several_glyphs(
    *,
    seed: int = 0,
    cache: str | Path | None = None,
    max_classes: int | None = 100,
    characters: str | None = None,
    train_images: int = 10_000,
    pictures: int = 8_000,
    max_size: int = 4,
    transform: Transform | None = standardize,
    progress: Progress | None = None,
) -> Splits:
    """Make pictures of 56 x 56 pixels with one to four glyphs, whose characters are the labels.

    Each glyph is an image of :func:`~shortlist.datasets.glyphs.glyphs` without its background, near another
    corner of the picture, where it may touch its neighbors. All lie on one new background with noise, so that
    nothing but the ink tells how many there are. The numbers of glyphs are equally frequent; a character that
    is there twice is one label. Validation and test have a quarter as many pictures each, of images that were
    not seen in training.

    Args:
        seed: Seed of the glyphs, and of what is put together.
        cache: Folder for the glyphs; see :func:`~shortlist.datasets.glyphs.glyphs`.
        max_classes: Largest number of characters, in whole groups of look-alikes; None for all.
        characters: Characters to use, if enough fonts have them; all by default.
        train_images: Number of images of single glyphs from which the training pictures are made.
        pictures: Number of training pictures, at least 4.
        max_size: Largest number of glyphs in a picture, 1 to 4.
        transform: Function applied to batches of pictures when they are fetched; None leaves them uint8.
        progress: Called with the name of a stage, steps done and steps in all.
    """
    check_count("pictures", pictures, low=4)
    check_k(max_size, 4, name="max_size", up_to=True)
    singles = glyphs(
        seed=seed,
        cache=cache,
        max_classes=max_classes,
        characters=characters,
        train_images=train_images,
        transform=None,
        progress=progress,
    )
    generator = torch.Generator().manual_seed(seed)
    parts = {}
    for name in ("train", "val", "test"):
        count = pictures if name == "train" else pictures // 4
        part: TensorSplit = getattr(singles, name)
        inputs, labels = _put_together(part, len(singles.class_table), count, max_size, generator)
        photos = TensorSplit(inputs, labels.int().argmax(1), transform=transform)
        parts[name] = LabelPairs(photos, labels)
    table = singles.class_table.with_counts(parts["train"].label_sets.labels.sum(0))
    return Splits(**parts, class_table=table)


def _put_together(
    part: TensorSplit, num_classes: int, count: int, max_size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return pictures (n, 1, 56, 56), uint8, and their labels (n, c)."""

    def draw(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=generator)

    chosen, sizes = draw(len(part), count, max_size), 1 + draw(max_size, count)
    corners = torch.rand(count, 4, generator=generator).argsort(1)
    ink = torch.zeros(count, SIDE, SIDE)
    labels = torch.zeros(count, num_classes, dtype=torch.bool)
    across = torch.arange(GLYPH)
    for place in range(max_size):
        rows = (sizes > place).nonzero().squeeze(1)
        images = part.inputs[chosen[rows, place], 0].float()
        drawn = (images - images.flatten(1).median(1).values[:, None, None] - NOISE_FLOOR).clamp_min_(0)
        corner = corners[rows, place]
        top, left = (_edge(side, draw(MOST_JITTER + 1, len(rows))) for side in (corner // 2, corner % 2))
        window = (rows[:, None, None], (top[:, None] + across)[:, :, None], (left[:, None] + across)[:, None])
        ink[window] = ink[window].maximum(drawn)
        labels[rows, part.targets[chosen[rows, place]]] = True
    light = torch.rand(2, count, 1, 1, generator=generator)
    noise = torch.randn(ink.shape, generator=generator) * MOST_NOISE * light[1]
    pictures = ink.add_(BACKGROUND * light[0]).add_(noise).round_().clamp_(0, 255)
    return pictures.to(torch.uint8)[:, None], labels


def _edge(far: Tensor, jitter: Tensor) -> Tensor:
    """Return the first pixel of a glyph at the near or the far edge."""
    return torch.where(far > 0, SIDE - GLYPH - jitter, jitter)
