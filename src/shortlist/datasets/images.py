"""Parts of data sets that are image files: paths and class indices, decoded when fetched.

What happens to a file that cannot be read (missing, empty, truncated, no image) is the caller's choice:

- ``on_error="skip"``: fetching it gives an image of zeros and the class index -100, which every loss leaves
  out (``ignore_index``); the first such file of a process is named in a warning, and ``unreadable`` lists
  those met so far, in all workers. An epoch never stops for it.
- ``on_error="raise"``: fetching it raises a ``ValueError`` with its path.

:func:`unreadable_files` finds them beforehand, and ``verify=True`` of the data sets leaves them out from the
start. Of images of 16 bits the upper 8 are read; those of 32 bits, whose range nothing tells, are unreadable.
"""

import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from shortlist._bounds import check_choice
from shortlist._row_facts import RowFacts
from shortlist.datasets.prepared import PreparedImages
from shortlist.datasets.transforms import EvalTransform
from shortlist.preprocessing import (
    Preprocessing,
    read_decoded,
    reason_of,
    refuse_special_files,
    with_8_bits,
)

if TYPE_CHECKING:
    from PIL import Image


IGNORED = -100
"""Target of a row that could not be read: the ``ignore_index`` of the losses."""

OnError = Literal["skip", "raise"]
"""What to do about an image that cannot be read."""


class PathList(Sequence[str]):
    """A list of many paths in two arrays, whose memory worker processes share.

    Example:
        >>> list(PathList(["a.png", "été/b.png"]))
        ['a.png', 'été/b.png']
    """

    def __init__(self, paths: Iterable[str | Path]) -> None:
        encoded = [os.fsencode(path) for path in paths]
        self._bytes = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._ends = np.cumsum([len(path) for path in encoded], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Return the path at an index, or the list of those in a slice."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        start = int(self._ends[index - 1]) if index else 0
        return os.fsdecode(self._bytes[start : int(self._ends[index])].tobytes())


def why_unreadable(path: str | Path) -> str | None:
    """Say why a file cannot be read as an image, or return ``None`` if it can.

    The whole file is read, but JPEG files are decoded at an eighth of their size, which finds truncated ones
    at a fraction of the time.
    """
    from PIL import Image

    try:
        refuse_special_files(path)
        if not os.path.getsize(path):
            return "it is empty"
        with Image.open(path) as image:
            image.draft("RGB", (max(1, image.width // 8), max(1, image.height // 8)))
            image.load()
            with_8_bits(image)
    except Exception as error:  # as in read_image
        return reason_of(error)
    return None


def unreadable_files(paths: Sequence[str], *, threads: int | None = None) -> dict[int, str]:
    """Return index and reason of each file that cannot be read as an image (see :func:`why_unreadable`)."""
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:  # decoders let other threads run
        reasons = pool.map(why_unreadable, paths)
        return {i: reason for i, reason in enumerate(reasons) if reason is not None}


class ImageFiles(Dataset):
    """A part of a data set whose inputs are image files, decoded in the process that fetches them.

    Args:
        paths: Path of the file of each row.
        targets: Class index of each row (n,), int64.
        transform: Function from an RGB Pillow image to a tensor; a center crop of 224 pixels if left out. It
            must be picklable where workers are started by "spawn".
        on_error: What to do with a file that cannot be read: ``"skip"`` or ``"raise"`` (see the module).
        facts: What is known about the rows beside their class.
    """

    def __init__(
        self,
        paths: Iterable[str | Path],
        targets: Tensor,
        *,
        transform: Callable[["Image.Image"], Tensor] | None = None,
        on_error: OnError = "skip",
        facts: RowFacts | None = None,
    ) -> None:
        check_choice("on_error", on_error, ("skip", "raise"))
        self.paths = paths if isinstance(paths, PathList) else PathList(paths)
        if targets.dtype != torch.int64 or targets.shape != (len(self.paths),):
            raise ValueError(
                f"targets must be int64 of shape ({len(self.paths)},), "
                f"got {targets.dtype} {tuple(targets.shape)}"
            )
        self.targets, self.facts = targets, facts
        self.on_error: OnError = on_error
        self.transform = EvalTransform() if transform is None else transform
        self._prepared: PreparedImages | None = None
        # in shared memory: what one worker finds, all know
        self._failed = torch.zeros(len(self.paths), dtype=torch.bool).share_memory_()
        self._warned = False

    def __repr__(self) -> str:
        first = f" such as {self.paths[0]}" if len(self) else ""
        return f"ImageFiles({len(self):,} images{first})"

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        inputs, targets = self.batch(torch.tensor([range(len(self))[index]]))
        return inputs[0], int(targets[0])

    def keep_prepared(self, folder: str | Path | None = None) -> None:
        """Keep photos on the disk at the size that the transform needs, for the next epochs.

        Random parts are then taken of photos whose shorter side is at most twice the ``needed_side``.

        Raises:
            ValueError: The transform does not say what it needs.
        """
        side, rule = self._side, self._rule
        if side is None and rule is None:
            raise ValueError(
                "train_transform and eval_transform must have a needed_side to keep photos at that size"
            )
        kept = {"shorter side": 2 * side} if side else rule.to_dict() | {"mean": 0, "std": 0} if rule else {}
        self._prepared = PreparedImages(str(kept), folder)

    @property
    def _rule(self) -> Preprocessing | None:
        """The preprocessing that is all of the transform, if there is one."""
        transform: Any = self.transform
        if type(transform) is EvalTransform:  # a subclass may do more
            return transform.preprocessing
        return transform if type(transform) is Preprocessing else None

    @property
    def _side(self) -> int | None:
        """The side that the transform needs, if it says so and takes a part of a decoded photo."""
        kind: Any = type(self.transform)
        return vars(self.transform)["needed_side"] if "takes_box" in vars(kind) else None

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows with these indices and their classes; all cores decode, unless this is a worker."""
        from PIL import Image

        rows = indices.tolist()
        rule, inputs, targets, failed = self._rule, [], self.targets[indices], []
        for place, start in enumerate(_in_threads(self._start, rows)):
            if isinstance(start, ValueError):
                self._note(rows[place], start)
                failed.append(place)
                blank = Image.new("RGB", (64, 64))
                start = (blank,) if rule is None else rule.bytes_of(blank)
            # in the order of the rows, as random draws are made here
            inputs.append(start if isinstance(start, Tensor) else self.transform(*start))
        stacked = torch.stack(inputs) if rule is None else rule.normalized(torch.stack(inputs))
        stacked[failed], targets[failed] = 0, IGNORED
        return stacked, targets

    def _start(self, row: int) -> "Tensor | tuple[Any, ...] | ValueError":
        """Return the bytes of a row, or what its transform takes, or why there is nothing."""
        path, rule, side = self.paths[row], self._rule, self._side
        try:
            if rule is not None:
                if self._prepared is None:
                    return rule.bytes_of_file(path)
                made = self._prepared.pixels(path, lambda: rule.bytes_of_file(path).permute(1, 2, 0).numpy())
                return torch.from_numpy(made).permute(2, 0, 1)
            if side is None:  # somebody's own transform
                return (read_decoded(path).image,)
            if self._prepared is None:
                return read_decoded(path, side)
            return (_image_of(self._prepared.pixels(path, lambda: _smaller(path, 2 * side))),)
        except ValueError as error:
            return error

    def _note(self, row: int, error: ValueError) -> None:
        """Remember a row that cannot be read; the first one is named."""
        if self.on_error == "raise":
            raise error
        self._failed[row] = True
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{error}. It is left out (class {IGNORED}). Others are left out too, without "
                "a further warning: see .unreadable, or run `shortlist data check`",
                stacklevel=4,
            )

    @property
    def unreadable(self) -> list[str]:
        """Files that could not be read so far."""
        return [self.paths[int(i)] for i in self._failed.nonzero().squeeze(1)]


def _in_threads(function: Callable[[int], Any], rows: Sequence[int]) -> Iterator[Any]:
    """Apply a function to rows, in their order; some ahead, so that few large photos are held at a time."""
    if len(rows) == 1 or get_worker_info() is not None:  # there is a worker for each core already
        yield from map(function, rows)
        return
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:  # decoders let other threads run
        waiting = deque(pool.submit(function, row) for row in rows[: 2 * cores])
        for row in [*rows[2 * cores :], *[None] * len(waiting)]:
            made = waiting.popleft().result()
            if row is not None:
                waiting.append(pool.submit(function, row))
            yield made


def _smaller(path: str, side: int) -> np.ndarray:
    """Return the pixels of a photo, made smaller if its shorter side is longer than this."""
    from PIL import Image

    image, box = read_decoded(path, side)
    width, height = box[2] - box[0], box[3] - box[1]
    factor = min(1.0, side / min(width, height))
    size = max(1, round(factor * width)), max(1, round(factor * height))
    return np.asarray(image if size == image.size else image.resize(size, Image.Resampling.BILINEAR, box=box))


def _image_of(pixels: np.ndarray) -> "Image.Image":
    from PIL import Image

    return Image.fromarray(pixels)
