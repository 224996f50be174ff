"""Decode images that strangers send, within bounds of bytes, pixels and time."""

import asyncio
import io
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from shortlist.model import Model
from shortlist.model.images import pixels_for
from shortlist.serve.limits import Limits
from shortlist.serve.refusals import BadImage

__all__ = ["FORMATS", "Decoder", "decode"]

FORMATS = ("JPEG", "PNG", "WEBP")
_SOME = 8  # images that are decoded in one go: to change threads costs as much as to decode a small one
_SMALL_BYTES, _SMALL_PIXELS = 128 << 10, 1 << 16  # of a request that is decoded at once, in 3 ms or so


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
    """Return the bytes (1, channels, height, width) for the network of an image in memory, not normalized.

    The format is found by the content, whatever the name or the type that were sent. A rotation in the EXIF
    data is applied; of images with several frames the first is taken; nothing else of the file is looked at.

    Raises:
        BadImage: With 413 if it is too large, 415 if it is in another format, 422 if it is damaged.
    """
    with refusing(limits), opened(content, limits) as image:
        return pixels(image, model)


def opened(content: bytes, limits: Limits) -> Image.Image:
    """Open an image whose size is allowed; nothing is decoded yet."""
    if not content:
        raise BadImage(422, "empty_image", "The image is empty: it has no bytes.")
    if len(content) > limits.image_bytes:
        raise BadImage(413, "image_too_large", f"The image has more than {limits.image_bytes:,} bytes.")
    image = Image.open(_Timed(content, limits.decode_seconds), formats=FORMATS)
    if image.width * image.height > limits.pixels:
        image.close()
        raise _too_many_pixels(limits)
    return image


def pixels(image: Image.Image, model: Model) -> Tensor:
    """Decode an opened image, upright, to the bytes (1, ...) for a network."""
    assert model.preprocessing is not None  # by the service
    image.load()
    with suppress(Exception):  # damaged EXIF data say nothing
        ImageOps.exif_transpose(image, in_place=True)
    return pixels_for(image, model.preprocessing)[None]


@contextmanager
def refusing(limits: Limits) -> Iterator[None]:
    """Turn whatever decoders raise into a refusal."""
    try:
        yield
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
    """Decodes at once what is small, and the rest in a few threads; Pillow lets other threads run."""

    def __init__(self, model: Model, limits: Limits) -> None:
        self.model, self.limits = model, limits
        self._pool = ThreadPoolExecutor(limits.decoders, thread_name_prefix="decode")

    async def each(self, contents: Sequence[bytes]) -> list[Tensor | BadImage]:
        """Decode images, some at a time; for a bad one, what is wrong with it and its number."""
        results: list[Tensor | BadImage | None] = self._small(contents)
        rest = [number for number, result in enumerate(results) if result is None]
        loop, parts = asyncio.get_running_loop(), [rest[i : i + _SOME] for i in range(0, len(rest), _SOME)]
        jobs = [loop.run_in_executor(self._pool, self._decode_some, contents, part) for part in parts]
        for part, found in zip(parts, await asyncio.gather(*jobs) if jobs else (), strict=True):
            for number, result in zip(part, found, strict=True):
                results[number] = result
        return [result for result in results if result is not None]

    def _small(self, contents: Sequence[bytes]) -> list[Tensor | BadImage | None]:
        """Decode a request that is small in all, where it is: another thread costs more than that."""
        results: list[Tensor | BadImage | None] = [None] * len(contents)
        if sum(map(len, contents)) > _SMALL_BYTES:
            return results
        left = _SMALL_PIXELS
        for number, content in enumerate(contents):
            try:
                with refusing(self.limits), opened(content, self.limits) as image:
                    left -= image.width * image.height
                    if left < 0:
                        break
                    results[number] = pixels(image, self.model)
            except BadImage as bad:
                bad.image = number
                results[number] = bad
        return results

    def _decode_some(self, contents: Sequence[bytes], numbers: Sequence[int]) -> list[Tensor | BadImage]:
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
        images = [result for result in results if isinstance(result, Tensor)]
        return images[0] if len(images) == 1 else torch.cat(images)

    def close(self) -> None:
        """End the threads when they have finished."""
        self._pool.shutdown()
