"""Decode images that strangers send, within bounds of bytes, pixels and time."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from shortlist._timed_bytes import TimedBytes
from shortlist.curation import opened_quality, quality_bounds
from shortlist.model import Model
from shortlist.preprocessing import decoded
from shortlist.serve.limits import Held, Limits
from shortlist.serve.refusals import BadImage, Refusal
from shortlist.serve.turns import Turns

FORMATS = ("JPEG", "PNG", "WEBP")
# images and pixels that a thread decodes at a time: a change of threads costs as much as a small image
_SOME, _SOME_PIXELS = 8, 1 << 20
_LARGE = 4  # an image is large if it has more than this part of the pixels that are allowed
_SMALL_BYTES, _SMALL_PIXELS = 128 << 10, 1 << 16  # of a request that is decoded at once, in 3 ms or so
_SLOW_SECONDS = 0.02  # of the processor, for a small request: a few kB can be inflated to many MB
# after a slow request, the next 1000 of its client are decoded in threads; 1024 such clients are remembered
_SLOW_REQUESTS, _SLOW_CLIENTS = 1000, 1024


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
    image = Image.open(TimedBytes(content, limits.decode_seconds), formats=FORMATS)
    if image.width * image.height > limits.pixels:
        image.close()
        raise _too_many_pixels(limits)
    return image


def pixels(image: Image.Image, model: Model) -> Tensor:
    """Decode an opened image, upright, to the bytes (1, ...) for a network."""
    assert model.preprocessing is not None  # the service has checked it
    return model.preprocessing.bytes_of(*decoded(image, model.preprocessing.side))[None]


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


class _Job(NamedTuple):
    """A function to call in a thread, and the future of its result."""

    work: Callable[[], Any]
    large: bool
    result: asyncio.Future[Any]


class Decoder:
    """Decodes small requests at once, and others in a few threads; Pillow lets other threads run.

    Clients take turns in the threads, some images at a time, so that many images of one client do not delay
    the others. Large images take seconds and much memory: only one is decoded at a time.
    """

    def __init__(self, model: Model, limits: Limits) -> None:
        self.model, self.limits = model, limits
        self._bounds = quality_bounds(model.about)
        self._threads = ThreadPoolExecutor(limits.decoders, thread_name_prefix="decode")
        self._waiting: Turns[_Job] = Turns()
        self._running = self._large = 0  # jobs in threads, and large ones among them
        self._slow: OrderedDict[str, int] = OrderedDict()  # requests of a client that are not decoded at once

    async def each(self, contents: Sequence[bytes], held: Held) -> list[Tensor | BadImage]:
        """Decode images, some at a time; a bad image gives its :class:`BadImage`.

        Raises:
            Refusal: With 413 or 503, if all images of the request, or of the client, have too many pixels.
        """
        results: list[Tensor | BadImage | None] = self._small(contents, held.client)
        rest = [number for number, result in enumerate(results) if result is None]
        parts = [rest[i : i + _SOME] for i in range(0, len(rest), _SOME)]
        sizes: dict[int, int] = {}
        for number, size in await self._by_parts(contents, parts, held, self._size):
            if isinstance(size, BadImage):
                results[number] = size
            else:
                sizes[number] = size
        self._count(sum(sizes.values()), held)
        for number, result in await self._by_parts(contents, _grouped(sizes), held, self._decode, sizes):
            results[number] = result
        return [result for result in results if result is not None]

    def _size(self, content: bytes) -> int:
        """Return the number of pixels that an image says to have."""
        with refusing(self.limits), opened(content, self.limits) as image:
            return image.width * image.height

    def _decode(self, content: bytes) -> Tensor:
        return decode(content, self.model, self.limits)

    def _count(self, pixels: int, held: Held) -> None:
        """Count the pixels of a request before they are decoded."""
        most = self.limits.request_pixels
        if pixels > most:
            words = f"The images have more than {most:,} pixels together. Send fewer at a time."
            raise Refusal(413, "too_many_pixels", words)
        held.take(held.admission.pixels, pixels)

    async def _by_parts(
        self,
        contents: Sequence[bytes],
        parts: Sequence[Sequence[int]],
        held: Held,
        action: Callable[[bytes], Any],
        sizes: Mapping[int, int] | None = None,
    ) -> list[tuple[int, Any]]:
        """Apply a function to each image in a thread, part by part, in turn with other clients."""
        futures = []
        for part in parts:
            large = sizes is not None and sizes[part[0]] > self.limits.pixels // _LARGE
            job = _Job(partial(_done_with, contents, part, action), large, _loop().create_future())
            self._waiting.put(held.client, job)
            futures.append(job.result)
        held.awaits(futures)
        self._start()
        return [pair for done in await asyncio.gather(*futures) for pair in done]

    def _start(self) -> None:
        """Give the next jobs to free threads."""
        while self._running < self.limits.decoders:
            job = self._waiting.take(lambda job: not (job.large and self._large) or job.result.done())
            if job is None:
                return
            if job.result.done():  # the client is gone
                continue
            self._running += 1
            self._large += job.large
            _loop().run_in_executor(self._threads, job.work).add_done_callback(partial(self._end, job))

    def _end(self, job: _Job, done: asyncio.Future[Any]) -> None:
        self._running -= 1
        self._large -= job.large
        error = done.exception()
        if job.result.done():  # the client is gone
            pass
        elif error is not None:
            job.result.set_exception(error)
        else:
            job.result.set_result(done.result())
        self._start()

    def _small(self, contents: Sequence[bytes], client: str) -> list[Tensor | BadImage | None]:
        """Decode a small request in the event loop, which costs less than a change of threads.

        All other requests wait meanwhile. If it took long, the next requests of its client go to the threads.
        """
        results: list[Tensor | BadImage | None] = [None] * len(contents)
        if sum(map(len, contents)) > _SMALL_BYTES or self._is_slow(client):
            return results
        left, stop = _SMALL_PIXELS, time.thread_time() + _SLOW_SECONDS
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
            if time.thread_time() > stop:
                self._slow[client] = _SLOW_REQUESTS
                break
        return results

    def _is_slow(self, client: str) -> bool:
        """Whether a request of a client must wait its turn since an earlier one took long."""
        left = self._slow.pop(client, 0)
        if left > 1:
            self._slow[client] = left - 1
        if len(self._slow) > _SLOW_CLIENTS:
            self._slow.popitem(last=False)
        return left > 0

    async def flags(self, contents: Sequence[bytes], held: Held) -> list[str]:
        """Say what may be wrong with photos, ``blurred`` or ``small``, by the bounds of the model.

        The photos have been decoded before, so that their pixels are counted.
        """
        if self._bounds is None:
            return []
        parts = [[number] for number in range(len(contents))]
        sizes = dict(await self._by_parts(contents, parts, held, self._size))
        found = await self._by_parts(contents, parts, held, self._flags, sizes)
        return sorted({flag for _, flags in found if not isinstance(flags, BadImage) for flag in flags})

    def _flags(self, content: bytes) -> list[str]:
        assert self._bounds is not None
        with refusing(self.limits), opened(content, self.limits) as image:
            return self._bounds.flags(opened_quality(image))

    async def object(self, contents: Sequence[bytes], held: Held) -> Tensor:
        """Decode all images of one object (n, ...), or raise what is wrong with the first bad one."""
        results = await self.each(contents, held)
        for result in results:
            if isinstance(result, BadImage):
                raise result
        images = [result for result in results if isinstance(result, Tensor)]
        return images[0] if len(images) == 1 else torch.cat(images)

    def close(self) -> None:
        """End the threads when they have finished."""
        self._threads.shutdown()


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def _grouped(sizes: Mapping[int, int]) -> list[list[int]]:
    """Put images together that are decoded in one go: a few small ones, or a single one."""
    groups: list[list[int]] = []
    pixels = 0
    for number, size in sizes.items():
        pixels += size
        if not groups or len(groups[-1]) == _SOME or pixels > _SOME_PIXELS:
            groups.append([])
            pixels = size
        groups[-1].append(number)
    return groups


def _done_with(
    contents: Sequence[bytes], numbers: Sequence[int], action: Callable[[bytes], Any]
) -> list[tuple[int, Any]]:
    """Apply a function to some images; the result of a bad image is its :class:`BadImage`."""
    results: list[tuple[int, Any]] = []
    for number in numbers:
        try:
            results.append((number, action(contents[number])))
        except BadImage as bad:
            bad.image = number
            results.append((number, bad))
    return results
