"""Draw one picture of a data set: groups of look-alike classes, with examples of each class."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist.class_table import ClassTable
from shortlist.datasets import Split, TensorSplit
from shortlist.preprocessing import to_pixels

if TYPE_CHECKING:
    from PIL.Image import Image


GAP = 3  # pixels between images of a class; classes are four times as far apart
LABEL_HEIGHT = 14
BACKGROUND, TEXT = (255, 255, 255), (60, 60, 60)


def contact_sheet(
    split: Split,
    class_table: ClassTable,
    *,
    level: str | None = "genus",
    groups: Sequence[str] | None = None,
    num_groups: int = 8,
    num_classes: int = 8,
    num_images: int = 3,
    side: int = 32,
    seed: int = 0,
) -> "Image":
    """Draw groups of classes as rows, with some images of each class and its id above them.

    Args:
        split: Images, gray (1, h, w) or color (3, h, w), uint8 or floating; floating ones are stretched to
            the full range of gray levels.
        class_table: Names and parents of the classes.
        level: Level of the parents that make the groups. With ``None`` there are no groups: the classes
            stand in rows, the most frequent first.
        groups: Names of the groups; those with most classes by default.
        num_groups: Largest number of groups.
        num_classes: Largest number of classes of a group, the most frequent in the split first.
        num_images: Largest number of images of a class.
        side: Width and height at which an image is shown, in pixels.
        seed: Seed of the choice of images.

    Returns:
        A Pillow image in RGB.

    Raises:
        ValueError: If a group does not exist or has no images, or an option is out of range.
    """
    from PIL import Image, ImageDraw, ImageFont

    for name, value in (("num_groups", num_groups), ("num_classes", num_classes), ("side", side)):
        check_count(name, value)
    check_count("num_images", num_images)
    rows = _rows(split.targets, class_table, level, groups, num_groups, num_classes)
    block = num_images * (side + GAP) + 3 * GAP
    row_height = side + 2 * LABEL_HEIGHT + 3 * GAP
    width = max(len(classes) for _, classes in rows) * block + GAP
    sheet = Image.new("RGB", (max(width, 240), row_height * len(rows)), BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(11)
    generator = torch.Generator().manual_seed(seed)
    for i, (group, classes) in enumerate(rows):
        top = i * row_height + GAP
        draw.text((GAP, top), group, fill=TEXT, font=font)
        for j, index in enumerate(classes):
            left = GAP + j * block
            draw.text((left, top + LABEL_HEIGHT), class_table.ids[index], fill=TEXT, font=font)
            class_rows = (split.targets == index).nonzero().flatten()
            chosen = class_rows[torch.randperm(len(class_rows), generator=generator)[:num_images]].tolist()
            for n, row in enumerate(chosen):
                picture = Image.fromarray(_pixels(split, row).numpy()).resize((side, side))
                sheet.paste(picture, (left + n * (side + GAP), top + 2 * LABEL_HEIGHT))
    return sheet


def _rows(
    targets: Tensor,
    class_table: ClassTable,
    level: str | None,
    groups: Sequence[str] | None,
    num_groups: int,
    num_classes: int,
) -> list[tuple[str, list[int]]]:
    """Return the groups to show and the classes to show of each."""
    sizes = targets.bincount(minlength=len(class_table)).tolist()
    if level is None:
        return _rows_without_groups(sizes, num_groups, num_classes)
    class_table.parent_index(level)  # refuses an unknown level
    members: dict[str, list[int]] = defaultdict(list)
    for index, parent in enumerate(class_table.parents[level]):
        if sizes[index] and parent:
            members[parent].append(index)
    if groups is None:
        groups = sorted(members, key=lambda group: -len(members[group]))
    for group in groups:
        if group not in members:
            raise ValueError(f"groups must be parents of classes that have images, got {group!r}")
    if not groups:
        raise ValueError("split must have at least one image")
    return [
        (group, sorted(members[group], key=lambda index: -sizes[index])[:num_classes])
        for group in groups[:num_groups]
    ]


def _rows_without_groups(sizes: list[int], num_rows: int, num_classes: int) -> list[tuple[str, list[int]]]:
    """Return rows of the classes that have images, the most frequent first, with a title for each."""
    present = sorted((index for index, size in enumerate(sizes) if size), key=lambda index: -sizes[index])
    if not present:
        raise ValueError("split must have at least one image")
    rows = []
    for start in range(0, min(len(present), num_rows * num_classes), num_classes):
        some = present[start : start + num_classes]
        rows.append((f"classes {start + 1} to {start + len(some)} of {len(present)}, by their images", some))
    return rows


def _pixels(split: Split, row: int) -> Tensor:
    """Return an image as uint8 (h, w, 3)."""
    return to_pixels(split.inputs[row] if isinstance(split, TensorSplit) else split[row][0])
