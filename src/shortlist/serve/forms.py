"""Read a multipart form into memory while its bytes are counted; nothing is ever written to disk."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.requests import ClientDisconnect, Request

from shortlist.serve.limits import Held, Limits
from shortlist.serve.refusals import BadImage, Refusal

__all__ = ["Form", "Upload", "read_body", "read_form"]

_FIELD_BYTES = 4096
_NAME = 255  # characters of a file's name that are kept


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
    kind, options = parse_options_header(request.headers.get("content-type"))
    if kind != b"multipart/form-data":
        raise Refusal(415, "not_multipart", "The body must be multipart/form-data with a file as 'images'.")
    boundary = options.get(b"boundary")
    if not boundary:
        raise Refusal(400, "bad_form", "The form is not well formed: its type has no boundary.")
    reader = _Reader(limits, max_files)
    try:
        parser = MultipartParser(boundary, reader.callbacks())
        async for piece in _pieces(request, limits, held):
            parser.write(piece)
        parser.finalize()
    except FormParserError:
        raise Refusal(400, "bad_form", "The form is not well formed: it cannot be read to its end.") from None
    if not reader.ended:
        raise Refusal(400, "bad_form", "The form is not well formed: it ends too early.")
    return reader.form


async def read_body(request: Request, limits: Limits, held: Held, *, most: int) -> bytes:
    """Read a small body, such as JSON, of ``most`` bytes."""
    parts, size = [], 0
    async for piece in _pieces(request, limits, held):
        size += len(piece)
        if size > most:
            raise Refusal(413, "too_large", f"The body has more than {most:,} bytes.")
        parts.append(piece)
    return b"".join(parts)


async def _pieces(request: Request, limits: Limits, held: Held) -> AsyncIterator[bytes]:
    """Give the body piece by piece; what it says of its length is checked before, and counted on the way."""
    too_large = Refusal(413, "too_large", f"The request has more than {limits.request_bytes:,} bytes.")
    said = request.headers.get("content-length", "0")
    expected = int(said) if said.isdecimal() else 0
    if expected > limits.request_bytes:
        raise too_large
    held.hold(expected)
    size, stream = 0, request.stream()
    stop = asyncio.get_running_loop().time() + limits.body_seconds
    try:
        while True:
            left = stop - asyncio.get_running_loop().time()
            piece = await asyncio.wait_for(anext(stream, None), left)
            if piece is None:
                return
            size += len(piece)
            if size > limits.request_bytes:
                raise too_large
            if size > expected:
                held.hold(size - expected)
                expected = size
            if piece:
                yield piece
    except asyncio.TimeoutError:  # another class than TimeoutError before Python 3.11
        raise Refusal(408, "too_slow", f"The body was not there in {limits.body_seconds:g} s.") from None
    except ClientDisconnect:
        raise Refusal(400, "gone", "The client went away.") from None


class _Reader:
    """The callbacks of the parser, which collect the parts of a form."""

    def __init__(self, limits: Limits, max_files: int) -> None:
        self.form, self.ended = Form(), False
        self._limits, self._max_files = limits, max_files
        self._files = self._fields = 0
        self._header, self._value = bytearray(), bytearray()
        self._begin()

    def callbacks(self) -> Any:
        """Return the callbacks by the parser's names."""
        return {
            "on_part_begin": self._begin,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_end": self._all_read,
        }

    def _begin(self) -> None:
        self._disposition, self._content = b"", bytearray()
        self._name, self._filename = "", None

    def _header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._header, self._value = bytearray(), bytearray()

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        if b"name" not in options:
            raise Refusal(400, "bad_form", "The form is not well formed: a part of it has no name.")
        self._name = options[b"name"].decode("utf-8", "replace")[:_NAME]
        if b"filename" in options:
            self._filename = options[b"filename"].decode("utf-8", "replace")[:_NAME]
            self._files += 1
            if self._files > self._max_files:
                raise Refusal(
                    413, "too_many_images", f"At most {self._max_files} images can be sent at once."
                )
        else:
            self._fields += 1
            if self._fields > 2 * self._max_files:
                raise Refusal(413, "too_many_fields", f"The form has more than {2 * self._max_files} fields.")

    def _data(self, data: bytes, start: int, end: int) -> None:
        of_file = self._filename is not None
        if len(self._content) + end - start > (self._limits.image_bytes if of_file else _FIELD_BYTES):
            if of_file:
                most = self._limits.image_bytes
                raise BadImage(413, "image_too_large", f"An image has more than {most:,} bytes.")
            raise Refusal(413, "too_large", f"A field of the form has more than {_FIELD_BYTES:,} bytes.")
        self._content += data[start:end]

    def _end(self) -> None:
        if self._filename is not None:
            upload = Upload(self._filename, bytes(self._content))
            self.form.files.setdefault(self._name, []).append(upload)
        else:
            text = self._content.decode("utf-8", "replace")
            self.form.fields.setdefault(self._name, []).append(text)
        self._content = bytearray()

    def _all_read(self) -> None:
        self.ended = True
