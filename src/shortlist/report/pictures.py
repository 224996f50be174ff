"""Make small pictures of rows that are embedded in the page, with what is known about each."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist._messages import one_line
from shortlist._progress import Progress
from shortlist.datasets import (
    About,
    ImageFiles,
    Split,
    Splits,
    TensorSplit,
    about_of_data,
    data_uri,
    row_image,
    unchanged,
)
from shortlist.inputs import is_table
from shortlist.passes import embedded_images
from shortlist.recipes import build_data, moved
from shortlist.runs import Run

BUDGET = 6_000_000  # bytes of pictures on a page


@dataclass(frozen=True)
class Picture:
    """A picture as the page shows it.

    Args:
        source: Picture as a data URI.
        alt: Text for people who cannot see the picture.
        side: Length of its sides on the page, in pixels.
        is_small: Whether it has so few pixels that each should be visible.
        about: Organ or view, author, license and date, as far as they are known, in a line.
        file: Name of the file, if the picture is of one.
    """

    source: str
    alt: str
    side: int
    is_small: bool
    about: str = ""
    file: str = ""


class Pictures:
    """A maker of pictures of a data set, as long as the page has room for them.

    Args:
        data: The data set.
        budget: Largest number of bytes for all pictures.
        about: By part (train, test), what is known about an image, given its file.
    """

    def __init__(
        self, data: Splits, *, budget: int = BUDGET, about: Mapping[str, About] | None = None
    ) -> None:
        self.data, self.left, self.refused = data, budget, 0
        self._about = about or {}
        self._made: dict[tuple[str, int, int], tuple[str, bool] | None] = {}
        self._rows: dict[int, int] = {}
        for row, index in reversed(list(enumerate(data.train.targets.tolist()))):
            self._rows[index] = row

    def test(self, row: int, *, alt: str, side: int = 96) -> Picture | None:
        """Make the picture of a test row; None if it cannot be made."""
        return self._picture("test", row, alt, side)

    def of_class(self, index: int, *, alt: str, side: int = 32) -> Picture | None:
        """Make the picture of the first training row of a class; None if there is none."""
        return self._picture("train", self._rows[index], alt, side) if index in self._rows else None

    def about(self, part: str, row: int) -> Mapping[str, str]:
        """Return what is known about a row of a part: author, license, source, date, organ, observation."""
        split = getattr(self.data, part)
        if part not in self._about or not isinstance(split, ImageFiles):
            return {}
        return self._about[part](split.paths[row])

    def _picture(self, part: str, row: int, alt: str, side: int) -> Picture | None:
        key = (part, row, side)
        if key not in self._made:
            try:
                self._made[key] = data_uri(row_image(getattr(self.data, part), row), side)
            except (ValueError, OSError):
                self._made[key] = None
        made = self._made[key]
        if made is None:
            return None
        if len(made[0]) > self.left:
            self.refused += 1
            return None
        self.left -= len(made[0])
        split = getattr(self.data, part)
        file = one_line(Path(split.paths[row]).name) if isinstance(split, ImageFiles) else ""
        return Picture(made[0], alt, side, made[1], _credit(self.about(part, row)), file)


def open_pictures(
    run: Run,
    target: Tensor,
    *,
    budget: int = BUDGET,
    place: str | Path | None = None,
    progress: Progress | None = None,
) -> tuple[Pictures | None, str | None]:
    """Open the pictures of a run's data set; return None and the reason if there are none.

    Args:
        run: A run on the data set.
        target: Classes of its test rows (n,), as they were when it was scored.
        budget: Largest number of bytes for all pictures.
        place: Place where the data lie now, if they were moved.
        progress: Function that is called with (what, done, of how many) while a data set is built.
    """
    try:
        recipe = moved(run.recipe, place)
        name, options = recipe.data.name, recipe.data.options
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = build_data(recipe, progress=progress)
    except Exception as error:  # the data may be gone in any way; the page is worth having without pictures
        reason = " ".join(str(error).split()) or type(error).__name__
        return None, f"the data set of {run.name} could not be opened: {reason}"
    if not torch.equal(data.test.targets, target):
        return None, f"the test rows of {run.name} are no longer those that were scored"
    try:
        if name == "embeddings":
            images, paths = embedded_images(options["root"])
            data = replace(data, train=_images(data.train, paths), test=_images(data.test, paths))
            name, options = _data_of_images(images)
    except (ValueError, OSError) as error:
        return None, str(error)
    if isinstance(data.test, TensorSplit) and data.test.inputs.ndim == 2:
        return None, f"the rows of {name} are not pictures"
    try:
        row_image(data.test, 0)
    except (ValueError, OSError) as error:
        return None, f"the rows of {name} are not pictures: {error}"
    return Pictures(data, budget=budget, about=_about_parts(name, options)), None


def _images(split: Split, paths: Sequence[str]) -> ImageFiles:
    """Return the images of embeddings as a split, with the same targets."""
    embedded: Any
    embedded, rows = unchanged(split)
    return ImageFiles([paths[int(row)] for row in embedded.rows[rows]], split.targets)


def _data_of_images(place: str) -> tuple[str, Mapping[str, Any]]:
    """Return name and options of the data set that reads images from a place."""
    return ("image_list", {"path": place}) if is_table(place) else ("image_folder", {"root": place})


def _about_parts(name: str, options: Mapping[str, Any]) -> dict[str, About]:
    """Return what the data set knows about its images, by part; nothing if it cannot be read."""
    try:
        return {part: about_of_data(name, options, part=part) for part in ("train", "test")}
    except (ValueError, OSError, KeyError):
        return {}


def _credit(about: Mapping[str, str]) -> str:
    """Say what is known about a picture in a line, as credits are given."""
    author = f"by {about['author']}" if "author" in about else ""
    parts = (about.get("organ"), author, about.get("license"), about.get("date"))
    return ", ".join(part for part in parts if part)
