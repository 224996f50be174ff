"""Photos without their metadata: no place, time, device, comment or second picture; pixels are untouched.

Nothing is decoded and encoded again: of the parts of a file those are copied that its pixels and colors need.
A photo that is to be turned keeps its orientation, and nothing else, as EXIF data.
"""

import io
import re
import struct
import zlib
from contextlib import suppress

from PIL import Image

_ORIENTATION = 0x0112
_MARKER = re.compile(rb"\xff([^\x00\xff])")  # of JPEG, before a segment
_SCAN_END = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")  # the first marker that is no part of a scan
_PNG_CHUNKS = frozenset(
    b"IHDR PLTE IDAT IEND tRNS gAMA cHRM sRGB iCCP cICP sBIT bKGD pHYs acTL fcTL fdAT".split()
)
_WEBP_CHUNKS = frozenset((b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM", b"ANMF", b"ICCP"))
_WEBP_EXIF, _WEBP_XMP = 0x08, 0x04  # flags of the chunk VP8X


def without_metadata(content: bytes) -> bytes:
    """Return a photo with the same pixels, colors and orientation, and nothing else that it had.

    Raises:
        ValueError: If it is no photo in JPEG, PNG or WebP format.
    """
    for start, strip in ((b"\xff\xd8\xff", _jpeg), (b"\x89PNG\r\n\x1a\n", _png), (b"RIFF", _webp)):
        if content.startswith(start):
            return strip(content, _exif(content))
    raise ValueError("a copy must be a photo in JPEG, PNG or WebP format, got other bytes")


def _exif(content: bytes) -> bytes:
    """Return EXIF data that have the orientation alone, or nothing for a photo that is upright.

    Pillow finds the orientation, which XMP data can have too: it also turns the photo when it is read.
    """
    turned = 1
    with suppress(Exception):  # damaged data say nothing
        with Image.open(io.BytesIO(content), formats=("JPEG", "PNG", "WEBP")) as image:
            turned = image.getexif().get(_ORIENTATION, 1)
    if turned not in range(2, 9):
        return b""
    return b"II*\0\x08\0\0\0" + struct.pack("<HHHIHHI", 1, _ORIENTATION, 3, 1, turned, 0, 0)


def _jpeg(content: bytes, exif: bytes) -> bytes:
    parts, place = [b"\xff\xd8"], 2
    if exif:
        parts.append(_segment(0xE1, b"Exif\0\0" + exif))
    while found := _MARKER.search(content, place):
        code, place = found[1][0], found.end()
        if code == 0xD9:  # what follows the end may be anything, such as a film
            parts.append(b"\xff\xd9")
            break
        if code == 0x01 or 0xD0 <= code <= 0xD8:  # without a length
            continue
        end = place + max(2, int.from_bytes(content[place : place + 2], "big"))
        kept = _kept(code, content[place + 2 : end])
        if kept is not None:
            parts.append(_segment(code, kept))
        place = end
        if code == 0xDA:  # pixels follow
            scan_end = _SCAN_END.search(content, end)
            place = scan_end.start() if scan_end else len(content)
            parts.append(content[end:place])
    return b"".join(parts)


def _segment(code: int, content: bytes) -> bytes:
    return bytes((0xFF, code)) + (len(content) + 2).to_bytes(2, "big") + content


def _kept(code: int, content: bytes) -> bytes | None:
    """Return what is kept of a segment of JPEG: tables, and of the applications' what says how colors are."""
    if code == 0xE0 and content.startswith(b"JFIF\0") and len(content) >= 14:
        return content[:12] + b"\0\0"  # without its thumbnail
    if code == 0xEE and content.startswith(b"Adobe"):
        return content[:12]
    if 0xC0 <= code <= 0xDF or (code == 0xE2 and content.startswith(b"ICC_PROFILE\0")):
        return content
    return None


def _png(content: bytes, exif: bytes) -> bytes:
    parts, place, kind = [content[:8]], 8, b""
    while place + 8 <= len(content) and kind != b"IEND":
        kind = content[place + 4 : place + 8]
        end = place + 12 + int.from_bytes(content[place : place + 4], "big")
        if kind in _PNG_CHUNKS:
            parts.append(content[place:end])
        if kind == b"IHDR" and exif:
            checksum = zlib.crc32(b"eXIf" + exif).to_bytes(4, "big")
            parts.append(len(exif).to_bytes(4, "big") + b"eXIf" + exif + checksum)
        place = end
    return b"".join(parts)


def _webp(content: bytes, exif: bytes) -> bytes:
    parts, place = [b"WEBP"], 12
    last = min(len(content), 8 + int.from_bytes(content[4:8], "little"))
    while place + 8 <= last:
        kind, size = content[place : place + 4], int.from_bytes(content[place + 4 : place + 8], "little")
        chunk = content[place + 8 : place + 8 + size]
        if kind == b"VP8X" and chunk:
            flags = chunk[0] & ~(_WEBP_EXIF | _WEBP_XMP) | (_WEBP_EXIF if exif else 0)
            chunk = bytes((flags,)) + chunk[1:]
        if kind in _WEBP_CHUNKS:
            parts.append(_chunk(kind, chunk))
        place += 8 + size + size % 2
    if exif:
        parts.append(_chunk(b"EXIF", exif))
    return _chunk(b"RIFF", b"".join(parts))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(4, "little") + content + b"\0" * (len(content) % 2)
