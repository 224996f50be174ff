"""The images that an index is made from: files, bytes, or the rows of a data set in memory."""

import hashlib
import io
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from shortlist._files import check_regular
from shortlist._messages import one_line
from shortlist.class_table import ClassTable
from shortlist.datasets import ChangedSplit, Splits, TensorSplit, image_list
from shortlist.datasets.assembly import examples
from shortlist.datasets.embeddings import SUFFIXES as EMBEDDING_SUFFIXES
from shortlist.datasets.embeddings import embedding_files
from shortlist.datasets.folders import files_by_class, folders_by_class
from shortlist.datasets.images import ImageFiles
from shortlist.engine.files import absolute, full_path, is_address, read_bytes
from shortlist.engine.inputs import check_nothing_beside_classes
from shortlist.engine.lists import folder_of, is_list, read_list
from shortlist.engine.shards import class_indices
from shortlist.engine.tars import TarRow, tar_files, tar_rows
from shortlist.index.about import About, about_of_data, about_of_list, plain_about
from shortlist.index.segment import ImageIndexError
from shortlist.model import Model
from shortlist.preprocessing import Preprocessing, as_rgb, reason_of, to_pixels

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["FileSource", "Source", "TensorSource", "given_images", "source_of_images", "source_of_run"]

_MOST_BYTES = 1 << 28  # of one file


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
    """Image files, or the bytes of such.

    Args:
        images: Path or bytes of each, or its row of a tar file.
        classes: Class index of each (n,), int64.
        prepare: Function from an RGB Pillow image to an input of the network.
        known: Function from a row to what is known about it.
    """

    images: Sequence[str | bytes | TarRow]
    classes: Tensor
    prepare: Callable[["Image.Image"], Tensor]
    known: Callable[[int], Mapping[str, str]] = lambda _: {}

    def key(self, row: int) -> int:
        """Return a number from path, size and time of change."""
        image, class_index = self.images[row], str(int(self.classes[row])).encode()
        if isinstance(image, bytes):
            return _key(b"bytes", class_index, image)
        path, inside = (image.path, image.name.encode()) if isinstance(image, TarRow) else (image, b"")
        where = os.fsencode(absolute(path))
        try:
            state = os.stat(path)
        except OSError:  # one of its own still: parts have their names from keys
            return _key(b"missing", class_index, where, inside)
        return _key(b"file", class_index, where, f"{state.st_size} {state.st_mtime_ns}".encode(), inside)

    def content(self, row: int) -> bytes:
        """Return the bytes of a file."""
        image = self.images[row]
        if isinstance(image, bytes):
            return image
        try:
            if isinstance(image, TarRow):
                return image.content()
            if is_address(image):
                return read_bytes(image)
            check_regular(image)
            if os.path.getsize(image) > _MOST_BYTES:
                raise ValueError(f"it has more than {_MOST_BYTES:,} bytes")
            return Path(image).read_bytes()
        except (OSError, ValueError) as error:
            raise self._unreadable(row, error) from error

    def picture(self, row: int, content: bytes) -> tuple["Image.Image", Tensor]:
        """Return the image as it is in the file, and as an input."""
        from PIL import Image

        try:
            with Image.open(io.BytesIO(content)) as opened:
                image = as_rgb(opened)
        except Exception as error:  # decoders fail in many ways on broken files
            raise self._unreadable(row, error) from error
        return image, self.prepare(image)

    def _unreadable(self, row: int, error: Exception) -> ValueError:
        image = self.images[row]
        name = f"image {row}" if isinstance(image, bytes) else image
        name = f"{image.name} of {image.path}" if isinstance(image, TarRow) else name
        return ValueError(f"{name} cannot be read as an image: {reason_of(error)}")

    def about(self, row: int) -> Mapping[str, str]:
        """Return what is known about an image."""
        return self.known(row)

    def take(self, rows: Sequence[int]) -> "FileSource":
        """Return some rows, with absolute paths and what is known about them."""
        images = tuple(_absolute(self.images[row]) for row in rows)
        known = _Listed(tuple(dict(self.known(row)) for row in rows))
        return FileSource(images, self.classes[list(rows)], self.prepare, known)


@dataclass(frozen=True)
class _Listed:
    """What is known about rows, by their number."""

    entries: tuple[Mapping[str, str], ...]

    def __call__(self, row: int) -> Mapping[str, str]:
        return self.entries[row]


def _absolute(image: str | bytes | TarRow) -> str | bytes | TarRow:
    if isinstance(image, TarRow):
        return image._replace(path=absolute(image.path))
    return image if isinstance(image, bytes) else absolute(image)


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
    """Open images that the caller names: a folder with one folder per class id, a list, or tar files.

    Args:
        path: ``DIR/CLASS_ID/*.jpg``, or the same below ``DIR/train``, or a list (``.csv``, ``.parquet``,
            text) as for :func:`~shortlist.datasets.lists.image_list`, whose labels are class ids, or class
            indices if no id is a whole number. Of a list with several parts, the training split is taken.
            Or a ``.tar`` file or a folder of such, in the layout of WebDataset, with a class for each row; of
            those whose names or folders tell a part of the data, those for training. Lists, their images and
            tar files may be at addresses that Arrow or fsspec know.
        model: Model that prepares them.
    """
    text, table = absolute(path), model.classes  # workers may work in another folder
    path = Path(text)
    prepare = _preprocessing(model)
    if path.suffix in EMBEDDING_SUFFIXES or (path.is_dir() and embedding_files(path)):
        raise ImageIndexError(f"{path} holds embeddings: an index shows images, and embeddings have none")
    if tars := _training_tars(text):
        return _of_tars(tars, table, prepare)
    if is_list(text):
        return _of_list(text, table, prepare)
    if not path.is_dir():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # not every class needs to have images
            ids = ClassTable(table.names, table.ids)
            found = image_list(path, class_table=ids, val_fraction=0.0).train
        assert isinstance(found, ImageFiles)
        return _files(found.paths, found.targets, prepare, about_of_list(path))
    folder = path / "train" if (path / "train").is_dir() and "train" not in table.ids else path
    if unknown := sorted(folders_by_class(folder).keys() - set(table.ids)):
        raise ImageIndexError(
            f"{folder} must have folders that are called as the ids of the model's classes "
            f"({examples(table.ids)}), got {examples(unknown)}"
        )
    files = files_by_class(folder, table.ids)
    if not files.paths:
        raise ImageIndexError(f"{folder} holds no images in folders of classes")
    check_nothing_beside_classes(folder)
    return FileSource(files.paths, files.targets, prepare)


def _training_tars(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path] if path.endswith(".tar") else []
    found = tar_files(path)
    if found and not {"", "train"} & set(found):
        raise ImageIndexError(f"{path} holds tar files of {', '.join(found)}, but none for training")
    return found.get("train") or found.get("") or []


def _of_list(path: str, table: ClassTable, prepare: Preprocessing) -> FileSource:
    found = read_list(path)
    splits = found.splits or ["train"] * len(found.files)
    chosen = [row for row, split in enumerate(splits) if split == "train"]
    if not chosen:
        raise ImageIndexError(f"{path} lists no training images")
    files, labels = [found.files[row] for row in chosen], [found.labels[row] for row in chosen]
    if None in labels:
        raise ImageIndexError(
            f"{path} must have a class for each image, got none for {files[labels.index(None)]}"
        )
    paths = [full_path(found.root, file) for file in files]
    if not is_address(paths[0]) and not os.path.exists(paths[0]):  # a wrong folder is wrong in the first row
        raise ImageIndexError(f"{paths[0]}, the first image of {path}, is missing")
    try:
        classes = class_indices(labels, table.ids)
    except ValueError as error:
        raise ImageIndexError(f"{path}: {error}") from error
    return _files(paths, torch.tensor(classes), prepare, about_of_list(path))


def _of_tars(paths: Sequence[str], table: ClassTable, prepare: Preprocessing) -> FileSource:
    rows = [row for path in paths for row in tar_rows(path)]
    try:
        classes = class_indices((row.label for row in rows), table.ids)
    except ValueError as error:
        raise ImageIndexError(f"{folder_of(paths[0])}: {error}") from error
    if unknown := [row for row, one in zip(rows, classes, strict=True) if one < 0]:
        path, name = unknown[0][:2]
        raise ImageIndexError(f"{path} must have a class for each image, got none for {name}")
    if not rows:
        raise ImageIndexError(f"{folder_of(paths[0])} holds no images in its tar files")
    return FileSource(rows, torch.tensor(classes), prepare)


def source_of_run(
    path: str | Path, model: Model, *, data: str | Path | None = None, progress: Callable | None = None
) -> Source:
    """Open the training images of a run, as its recipe says. No code that the recipe names is run.

    ``data`` is where they lie now, if they were moved.
    """
    from shortlist.recipes.build import build_data
    from shortlist.recipes.places import moved
    from shortlist.runs.run import Run

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


def _files(paths: Sequence[str], classes: Tensor, prepare: Callable, about: About) -> FileSource:
    return FileSource(paths, classes, prepare, lambda row: about(paths[row]))


def _source(data: Splits, about: About) -> Source:
    split, rows, held_out = data.train, torch.arange(len(data.train)), data.val
    while isinstance(split, ChangedSplit):
        rows, split = split.rows[rows], split.split
    while isinstance(held_out, ChangedSplit):
        held_out = held_out.split
    classes = data.train.targets
    # inputs are made as for validation: without random changes
    if isinstance(split, ImageFiles) and isinstance(held_out, ImageFiles):
        paths = split.paths if len(rows) == len(split) else [split.paths[row] for row in rows.tolist()]
        return _files(paths, classes, held_out.transform, about)
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
    entries = [plain_about(entry) for entry in about or [{}] * len(given)]
    targets = torch.as_tensor(list(classes), dtype=torch.int64)
    return FileSource(given, targets, _preprocessing(model), lambda row: entries[row])
