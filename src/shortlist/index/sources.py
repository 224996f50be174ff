"""The images that an index is made from: files, bytes, or the rows of a data set in memory."""

import hashlib
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from shortlist._messages import one_line
from shortlist._progress import Progress
from shortlist.datasets import (
    SUFFIXES as EMBEDDING_SUFFIXES,
    About,
    ImageFiles,
    Splits,
    TensorSplit,
    about_of_data,
    embedding_files,
    preprocessing_of,
    unchanged,
)
from shortlist.index.segment import ImageIndexError
from shortlist.index.thumbnails import LONGEST_SIDE
from shortlist.inputs import (
    ABOUT,
    Rows,
    TarImage,
    absolute,
    class_indices,
    content_of,
    is_address,
    read_rows,
    readable,
)
from shortlist.model import Model
from shortlist.preprocessing import Preprocessing, decoded, reason_of, to_pixels

if TYPE_CHECKING:
    from PIL import Image


class Source(Protocol):
    """Images with their classes, each of which is read when it is its turn."""

    @property
    def classes(self) -> Tensor:
        """Class index of each image (n,), int64."""
        ...

    def key(self, row: int) -> int:
        """Return a number that tells whether a row was seen before, without reading it if possible."""
        ...

    def content(self, row: int) -> bytes:
        """Return the bytes of a row; a ``ValueError`` says why it cannot be read."""
        ...

    def picture(self, row: int, content: bytes) -> tuple["Image.Image", Tensor]:
        """Return a row as a picture for people, and as an input of the network."""
        ...

    def about(self, row: int) -> Mapping[str, str]:
        """Return what is known about a row."""
        ...

    def take(self, rows: Sequence[int]) -> "Source":
        """Return some rows as a source of its own, which can be sent to another process."""
        ...


def _key(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha256(b"\0".join(parts)).digest()[:8], "little")


@dataclass(frozen=True)
class FileSource:
    """Images that are read when it is their turn.

    Args:
        rows: The images, and what is known about them.
        classes: Class index of each (n,), int64.
        prepare: Function from an RGB Pillow image to an input of the network.
        describe: Function from the path of an image to what is known about it, if the rows do not say it.
    """

    rows: Rows
    classes: Tensor
    prepare: Callable[["Image.Image"], Tensor]
    describe: About | None = None

    def key(self, row: int) -> int:
        """Return a number from path, size and time of change."""
        image, class_index = self.rows.address(row), str(int(self.classes[row])).encode()
        if isinstance(image, bytes):
            return _key(b"bytes", class_index, image)
        path, inside = (image.path, image.name.encode()) if isinstance(image, TarImage) else (image, b"")
        where = os.fsencode(absolute(path))
        try:
            state = os.stat(path)
        except OSError:  # one of its own still: parts have their names from keys
            return _key(b"missing", class_index, where, inside)
        return _key(b"file", class_index, where, f"{state.st_size} {state.st_mtime_ns}".encode(), inside)

    def content(self, row: int) -> bytes:
        """Return the bytes of a file."""
        try:
            return content_of(self.rows.address(row))
        except ValueError as error:
            raise self._unreadable(row, error) from error

    def picture(self, row: int, content: bytes) -> tuple["Image.Image", Tensor]:
        """Return the image, at a size that is enough for a thumbnail, and as an input."""
        from PIL import Image

        rule = self.prepare if isinstance(self.prepare, Preprocessing) else None
        try:
            with Image.open(io.BytesIO(content)) as opened:
                image, box = decoded(opened, None if rule is None else max(rule.side, LONGEST_SIDE))
        except Exception as error:  # decoders fail in many ways on broken files
            raise self._unreadable(row, error) from error
        return image, self.prepare(image) if rule is None else rule(image, box)

    def _unreadable(self, row: int, error: Exception) -> ValueError:
        image = self.rows.address(row)
        name = f"image {row}" if isinstance(image, bytes) else image
        name = f"{image.name} of {image.path}" if isinstance(image, TarImage) else name
        return ValueError(f"{name} cannot be read as an image: {reason_of(error)}")

    def about(self, row: int) -> Mapping[str, str]:
        """Return what is known about an image."""
        return (
            self.rows.about_row(row) if self.describe is None else self.describe(str(self.rows.address(row)))
        )

    def take(self, rows: Sequence[int]) -> "FileSource":
        """Return some rows, with absolute paths and what is known about them."""
        about = [self.about(row) for row in rows]
        columns = {name: [entry.get(name) for entry in about] for name in ABOUT}
        some = replace(self.rows.take(rows), root=absolute(self.rows.root), about=columns)
        return FileSource(some, self.classes[list(rows)], self.prepare)


@dataclass(frozen=True)
class TensorSource:
    """Pictures in memory.

    Args:
        inputs: The rows (n, 1 or 3, h, w), before the transform.
        classes: Class index of each (n,), int64.
        transform: Function from a batch of rows to inputs of the network; ``None`` if they are such.
    """

    inputs: Tensor
    classes: Tensor
    transform: Callable[[Tensor], Tensor] | None

    def key(self, row: int) -> int:
        """Return a number from the content."""
        return _key(b"row", str(int(self.classes[row])).encode(), self.content(row))

    def content(self, row: int) -> bytes:
        """Return the bytes of a row."""
        return self.inputs[row].contiguous().numpy().tobytes()

    def picture(self, row: int, content: bytes) -> tuple["Image.Image", Tensor]:
        """Return a row as a picture, and as an input."""
        from PIL import Image

        batch = self.inputs[row : row + 1]
        image = Image.fromarray(to_pixels(batch[0]).numpy())
        image = image.convert("L") if batch.shape[1] == 1 else image
        return image, (batch if self.transform is None else self.transform(batch))[0]

    def about(self, row: int) -> Mapping[str, str]:
        """Return nothing."""
        return {}

    def take(self, rows: Sequence[int]) -> "TensorSource":
        """Return some rows."""
        return TensorSource(self.inputs[list(rows)], self.classes[list(rows)], self.transform)


def source_of_images(path: str | Path, model: Model) -> FileSource:
    """Open images that the caller names, each with a class.

    Args:
        path: What :func:`~shortlist.inputs.read.read_rows` takes. Of several splits, that for training is
            taken.
        model: Model that prepares them.
    """
    text, table = absolute(path), model.classes  # workers may work in another folder
    prepare = _preprocessing(model)
    if text.endswith(EMBEDDING_SUFFIXES) or (os.path.isdir(text) and embedding_files(text)):
        raise ImageIndexError(f"{path} holds embeddings: an index shows images, and embeddings have none")
    try:
        rows = read_rows(text, default="train", classes=table, about=ABOUT)
        names = [readable(str(getattr(file, "name", file))) for file in rows.files]
        if not names:
            raise ValueError(f"{text} holds no images")
        if None in rows.labels:
            unknown = names[list(rows.labels).index(None)]
            raise ValueError(f"{text} must have a class for each image, got none for {unknown}")
        classes = class_indices(rows.labels, table, where=text, rows=names)
        first = rows.address(0)  # a wrong folder is wrong in the first row
        if isinstance(first, str) and not is_address(first) and not os.path.exists(first):
            raise ValueError(f"{first}, the first image of {text}, is missing")
    except ValueError as error:
        raise ImageIndexError(str(error)) from error
    return FileSource(rows, torch.tensor(classes), prepare)


def source_of_run(
    path: str | Path, model: Model, *, data: str | Path | None = None, progress: Progress | None = None
) -> Source:
    """Open the training images of a run, as its recipe says. No code that the recipe names is run.

    ``data`` is where they lie now, if they were moved.
    """
    from shortlist.recipes import build_data, moved
    from shortlist.runs import Run

    run = Run.open(path)
    recipe = moved(run.recipe, data)
    try:
        splits = build_data(recipe, progress=progress)
    except (ValueError, OSError) as error:
        raise ImageIndexError(f"the data of {run.path} cannot be opened: {one_line(error)}") from error
    if tuple(splits.class_table.ids) != tuple(model.classes.ids):
        raise ImageIndexError(f"the data of {run.path} have other classes than its model: they were changed")
    return _source(splits, about_of_data(recipe.data.name, recipe.data.options))


def _preprocessing(model: Model) -> Preprocessing:
    if model.preprocessing is None:
        raise ImageIndexError(
            "the model has no preprocessing: it does not say how a picture becomes an input"
        )
    return model.preprocessing


def _source(data: Splits, about: About) -> Source:
    (split, rows), (held_out, _) = unchanged(data.train), unchanged(data.val)
    classes = data.train.targets
    # inputs are made as for validation: without random changes
    if isinstance(split, ImageFiles) and isinstance(held_out, ImageFiles):
        paths = split.paths if len(rows) == len(split) else [split.paths[row] for row in rows.tolist()]
        rows_of_files = Rows("", paths, [None] * len(paths))
        prepare = preprocessing_of(held_out) or held_out.transform
        return FileSource(rows_of_files, classes, prepare, about)
    if isinstance(split, TensorSplit) and isinstance(held_out, TensorSplit):
        inputs: Any = split.inputs
        if inputs.ndim == 4 and inputs.shape[1] in (1, 3):
            return TensorSource(inputs[rows], classes, held_out.transform)
    raise ImageIndexError("the training rows are not pictures: there is nothing to show of them")


def given_images(
    images: Sequence[str | Path | bytes],
    classes: Sequence[int],
    about: Sequence[Mapping[str, Any]] | None,
    model: Model,
) -> FileSource:
    """Return images that a caller gives one by one, as a source."""
    given = [image if isinstance(image, bytes) else str(image) for image in images]
    if len(classes) != len(given) or (about is not None and len(about) != len(given)):
        raise ValueError(f"classes and about must have one entry per image ({len(given)})")
    entries = about or [{}] * len(given)
    columns = {name: [entry.get(name) for entry in entries] for name in ABOUT}
    targets = torch.as_tensor(list(classes), dtype=torch.int64)
    return FileSource(Rows("", given, [None] * len(given), about=columns), targets, _preprocessing(model))
