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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from shortlist._bounds import check_choice
from shortlist._row_facts import RowFacts
from shortlist.datasets.transforms import EvalTransform
from shortlist.preprocessing import read_image, reason_of, refuse_special_files, with_8_bits

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
        # in shared memory: what one worker finds, all know
        self._failed = torch.zeros(len(self.paths), dtype=torch.bool).share_memory_()
        self._warned = False

    def __repr__(self) -> str:
        first = f" such as {self.paths[0]}" if len(self) else ""
        return f"ImageFiles({len(self):,} images{first})"

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        index = range(len(self))[index]
        try:
            image = read_image(self.paths[index])
        except ValueError as error:
            if self.on_error == "raise":
                raise
            self._failed[index] = True
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"{error}. It is left out (class {IGNORED}). Others are left out too, without "
                    "a further warning: see .unreadable, or run `shortlist data check`",
                    stacklevel=2,
                )
            return self._blank(), IGNORED
        return self.transform(image), int(self.targets[index])

    def _blank(self) -> Tensor:
        from PIL import Image

        return torch.zeros_like(self.transform(Image.new("RGB", (64, 64))))

    @property
    def unreadable(self) -> list[str]:
        """Files that could not be read so far."""
        return [self.paths[int(i)] for i in self._failed.nonzero().squeeze(1)]
