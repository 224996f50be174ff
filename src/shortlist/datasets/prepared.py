"""Pixels of photos at the size that a training needs, kept on the disk: the second epoch decodes nothing.

A photo has one file, named by the path, size and time of the photo, in a folder for each rule. The file holds
width, height and a checksum, then the pixels: a file that is damaged, or of which a killed process wrote a
part, is made anew. So processes need not wait for each other, and anything here may be deleted at any time.
"""

import hashlib
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

_HEAD = struct.Struct("<III")  # width, height, checksum
_LEFT_FREE = 1 << 30  # bytes of the disk that are left for everybody else


class PreparedImages:
    """Pixels by photo, of one rule.

    Args:
        folder: Folder of the pixels of all rules; ``$SHORTLIST_CACHE``, or ``~/.cache/shortlist``, with
            ``prepared`` behind it if left out.
        rule: What the pixels depend on beside the photo.
    """

    def __init__(self, rule: str, folder: str | Path | None = None) -> None:
        import PIL

        cache = os.environ.get("SHORTLIST_CACHE") or Path.home() / ".cache" / "shortlist"
        self.folder = Path(folder or Path(cache) / "prepared") / _name(f"{PIL.__version__} {rule}")

    def pixels(self, path: str, make: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the pixels (height, width, channels) of a photo, uint8, from the disk or made now."""
        try:
            facts = os.stat(path)
        except OSError:  # the maker has the words for it
            return make()
        name = _name(f"{os.path.abspath(path)} {facts.st_size} {facts.st_mtime_ns}")
        file = self.folder / name[:2] / name[2:]
        kept = _read(file)
        if kept is not None:
            return kept
        made = make()
        with suppress(OSError):  # a full disk, or one that cannot be written to: photos are decoded each time
            file.parent.mkdir(parents=True, exist_ok=True)
            if shutil.disk_usage(file.parent).free > _LEFT_FREE:
                content = made.tobytes()
                height, width, _ = made.shape
                file.write_bytes(_HEAD.pack(width, height, zlib.crc32(content)) + content)
        return made


def _name(text: str) -> str:
    return hashlib.blake2b(os.fsencode(text), digest_size=16).hexdigest()


def _read(file: Path) -> np.ndarray | None:
    """Return the pixels in a file; ``None`` if there are none, or not all of them."""
    try:
        content = bytearray(file.read_bytes())
    except OSError:
        return None
    if len(content) < _HEAD.size:
        return None
    width, height, checksum = _HEAD.unpack_from(content)
    pixels = memoryview(content)[_HEAD.size :]
    if not len(pixels) or zlib.crc32(pixels) != checksum:
        return None
    return np.frombuffer(pixels, np.uint8).reshape(height, width, -1)
