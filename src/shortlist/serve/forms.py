"""Read a body into memory while its bytes are counted, and take a form apart; nothing goes to disk.

Starlette's parser takes 28 us for a photo of 1 kB, this one 3. At 64 clients with one photo each, a list took
1.28 times as much of the processor with Starlette's (the load of ``benchmarks/serve_load.py``).
"""

import asyncio
import re
import sys
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from shortlist.serve.limits import Held, Limits
from shortlist.serve.refusals import BadImage, Refusal

Result = TypeVar("Result")
_FIELD_BYTES = 4096
_HEAD_BYTES = 4096  # of one part
_NAME = 255  # characters of a file's name that are kept
_FORM = re.compile(r"multipart/form-data; ?boundary=([A-Za-z0-9_-]+)")  # as most clients write it
_ORDINARY = re.compile(rb'\s*form-data; ?name="([^"\\]*)"(?:; ?filename="([^"\\]*)")?\s*')


@dataclass(frozen=True)
class Upload:
    """A file of a form. Its name is what the client says: it is shown back, and never opened."""

    name: str
    content: bytes


@dataclass
class Form:
    """The files and the other fields of a form, by field."""

    files: dict[str, list[Upload]] = field(default_factory=dict)
    fields: dict[str, list[str]] = field(default_factory=dict)


async def read_form(request: Request, limits: Limits, held: Held, *, max_files: int) -> Form:
    """Read a multipart form.

    Raises:
        Refusal: With 400 if it is not well formed, 413 if it is too large, 415 if it is no form, 408 if it
            takes too long, 503 if all requests together hold too much.
    """
    boundary = _boundary(request.headers.get("content-type", ""))
    body = await read_body(request, limits, held, most=limits.request_bytes)
    return parse_form(body, boundary, limits, max_files=max_files)


def distinct(uploads: Sequence[Upload]) -> list[Upload]:
    """Return photos without those that are there already: one photo, sent twice, tells no more."""
    return list({upload.content: upload for upload in reversed(uploads)}.values())[::-1]


def _boundary(kind: str) -> bytes:
    """Return what parts a form, from the type of its body."""
    if found := _FORM.fullmatch(kind):
        return found[1].encode()
    named, options = parse_options_header(kind)
    if named != b"multipart/form-data":
        raise Refusal(415, "not_multipart", "The body must be multipart/form-data with a file as 'images'.")
    if not options.get(b"boundary"):
        raise _bad_form("its type has no boundary")
    return options[b"boundary"]


async def read_body(request: Request, limits: Limits, held: Held, *, most: int) -> bytes:
    """Read a body of at most so many bytes; then its request counts as one that is worked on.

    What is said of its length is checked before it is read. What a client holds is what has arrived: to
    announce much costs it nothing, and must not cost others anything.

    Raises:
        Refusal: With 413 if it is too large, 408 if it takes too long, 503 if all requests together hold too
            much.
    """
    said = request.headers.get("content-length", "")
    if said.isdecimal() and int(said) > most:
        raise _too_large(most)
    try:
        body = await in_time(_pieces(request, held, most), limits.body_seconds)
    except TimeoutError:
        raise Refusal(408, "too_slow", f"The body was not there in {limits.body_seconds:g} s.") from None
    held.begin()
    return body


async def in_time(work: Coroutine[Any, Any, Result], seconds: float) -> Result:
    """Do some work in this task, or raise a ``TimeoutError``; another task would cost ten times more."""
    task, expired = asyncio.current_task(), False
    assert task is not None

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, expire)
    try:
        return await work
    except asyncio.CancelledError:
        if not expired:
            raise
        if sys.version_info >= (3, 11):
            task.uncancel()
        raise TimeoutError from None
    finally:
        timer.cancel()


async def _pieces(request: Request, held: Held, most: int) -> bytes:
    pieces, size, more = [], 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "gone", "The client went away.")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        more = message.get("more_body", False)
        if size > most:
            raise _too_large(most)
        held.take(held.admission.bytes, len(pieces[-1]))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(most: int) -> Refusal:
    return Refusal(413, "too_large", f"The body has more than {most:,} bytes.")


def _bad_form(why: str) -> Refusal:
    return Refusal(400, "bad_form", f"The form is not well formed: {why}.")


def parse_form(body: bytes, boundary: bytes, limits: Limits, *, max_files: int) -> Form:
    """Take the body of a form apart.

    Raises:
        Refusal: With 400 if it is not well formed, 413 if it has too much of something.
    """
    form, files, fields = Form(), 0, 0
    delimiter = b"\r\n--" + boundary
    if not body.startswith(delimiter[2:]):
        raise _bad_form("it does not start with its boundary")
    place = len(delimiter) - 2
    while not body.startswith(b"--", place):
        head_end = body.find(b"\r\n\r\n", place, place + _HEAD_BYTES)
        if not body.startswith(b"\r\n", place) or head_end < 0:
            raise _bad_form("it cannot be read to its end")
        name, filename = _names(body[place + 2 : head_end])
        files, fields = files + (filename is not None), fields + (filename is None)
        if files > max_files:
            raise Refusal(413, "too_many_images", f"At most {max_files} images can be sent at once.")
        if fields > 2 * max_files:
            raise Refusal(413, "too_many_fields", f"The form has more than {2 * max_files} fields.")
        start, end = head_end + 4, body.find(delimiter, head_end + 4)
        if end < 0:
            raise _bad_form("it ends too early")
        _keep(form, name, filename, body[start:end], limits)
        place = end + len(delimiter)
    return form


def _keep(form: Form, name: str, filename: str | None, content: bytes, limits: Limits) -> None:
    if filename is None:
        if len(content) > _FIELD_BYTES:
            raise Refusal(413, "too_large", f"A field of the form has more than {_FIELD_BYTES:,} bytes.")
        form.fields.setdefault(name, []).append(content.decode("utf-8", "replace"))
        return
    if len(content) > limits.image_bytes:
        raise BadImage(413, "image_too_large", f"An image has more than {limits.image_bytes:,} bytes.")
    form.files.setdefault(name, []).append(Upload(filename, content))


def _names(head: bytes) -> tuple[str, str | None]:
    """Return the name of a field and, if it is a file, the name that the client gave it."""
    disposition = b""
    for line in head.split(b"\r\n"):
        key, _, value = line.partition(b":")
        if key.lower() == b"content-disposition":
            disposition = value
    if found := _ORDINARY.fullmatch(disposition):
        name, filename = found.groups()
    else:
        _, options = parse_options_header(disposition)
        name, filename = options.get(b"name"), options.get(b"filename")
    if name is None:
        raise _bad_form("a part of it has no name")
    return _text(name), None if filename is None else _text(filename)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")[:_NAME]
