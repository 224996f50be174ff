"""Decode images that strangers send, within bounds of bytes, pixels and time."""

import asyncio
import io
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import torch
from torch import Tensor

from shortlist.model import Model
from shortlist.serve.limits import Limits
from shortlist.serve.refusals import BadImage

__all__ = ["FORMATS", "Decoder", "decode"]

FORMATS = ("JPEG", "PNG", "WEBP")
_SOME = 8  # images that are decoded in one go: to change threads costs as much as to decode a small one


class _Timed(io.BytesIO):
    """Bytes that end with an error when the time is over; decoders come back for more every 64 kB or so."""

    def __init__(self, content: bytes, seconds: float) -> None:
        super().__init__(content)
        self._stop = time.monotonic() + seconds

    def read(self, size: int | None = -1, /) -> bytes:
        if time.monotonic() > self._stop:
            raise TimeoutError
        return super().read(size)


def decode(content: bytes, model: Model, limits: Limits) -> Tensor:
    """Return the input (1, ...) for the network of an image in memory.

    The format is found by the content, whatever the name or the type that were sent. A rotation in the EXIF
    data is applied; of images with several frames the first is taken; nothing else of the file is looked at.

    Raises:
        BadImage: With 413 if it is too large, 415 if it is in another format, 422 if it is damaged.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    if not content:
        raise BadImage(422, "empty_image", "The image is empty: it has no bytes.")
    if len(content) > limits.image_bytes:
        raise BadImage(413, "image_too_large", f"The image has more than {limits.image_bytes:,} bytes.")
    try:
        with Image.open(_Timed(content, limits.decode_seconds), formats=FORMATS) as image:
            if image.width * image.height > limits.pixels:
                raise _too_many_pixels(limits)
            image.load()
            with suppress(Exception):  # damaged EXIF data say nothing
                ImageOps.exif_transpose(image, in_place=True)
            return model.prepare([image])
    except BadImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many_pixels(limits) from None
    except UnidentifiedImageError:
        raise BadImage(415, "unknown_format", "The file is no image in JPEG, PNG or WebP format.") from None
    except TimeoutError:
        raise BadImage(
            422, "too_slow", f"Decoding the image takes over {limits.decode_seconds:g} s."
        ) from None
    except Exception:  # decoders fail in many ways on broken files, SyntaxError among them
        raise BadImage(
            422, "damaged_image", "The image cannot be decoded: it is cut off or damaged."
        ) from None


def _too_many_pixels(limits: Limits) -> BadImage:
    return BadImage(413, "too_many_pixels", f"The image has more than {limits.pixels:,} pixels.")


class Decoder:
    """A pool of a few threads that decode; the decoders of Pillow let other threads run."""

    def __init__(self, model: Model, limits: Limits) -> None:
        self.model, self.limits = model, limits
        self._pool = ThreadPoolExecutor(limits.decoders, thread_name_prefix="decode")

    async def each(self, contents: Sequence[bytes]) -> list[Tensor | BadImage]:
        """Decode images, some at a time; for a bad one, what is wrong with it and its number."""
        loop = asyncio.get_running_loop()
        parts = [range(start, min(start + _SOME, len(contents))) for start in range(0, len(contents), _SOME)]
        jobs = [loop.run_in_executor(self._pool, self._decode_some, contents, part) for part in parts]
        return [result for part in await asyncio.gather(*jobs) for result in part]

    def _decode_some(self, contents: Sequence[bytes], numbers: range) -> list[Tensor | BadImage]:
        results: list[Tensor | BadImage] = []
        for number in numbers:
            try:
                results.append(decode(contents[number], self.model, self.limits))
            except BadImage as bad:
                bad.image = number
                results.append(bad)
        return results

    async def object(self, contents: Sequence[bytes]) -> Tensor:
        """Decode all images of one object (n, ...), or raise what is wrong with the first bad one."""
        results = await self.each(contents)
        for result in results:
            if isinstance(result, BadImage):
                raise result
        return torch.cat([result for result in results if isinstance(result, Tensor)])

    def close(self) -> None:
        """End the threads when they have finished."""
        self._pool.shutdown()
