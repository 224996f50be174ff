"""A corpus of bad and odd uploads: each has its documented answer."""

import io
import struct
import zipfile
import zlib

import numpy as np
import pytest
from PIL import Image

from shortlist.serve.decoding import decode
from shortlist.serve.limits import Limits
from shortlist.serve.refusals import BadImage
from tests.serve.parts import encoded, files, picture, png


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of_size(width: int, height: int) -> bytes:
    """A small file that says it is large: rows of zeros pack well."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(200_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("photo.png", bytes(10_000_000))
    return file.getvalue()


def text_bomb() -> bytes:
    """A PNG with a compressed comment of 100 MB."""
    whole = png(1, (8, 8))
    start = whole.index(b"IDAT") - 4
    comment = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(100_000_000), 9))
    return whole[:start] + comment + whole[start:]


def large_jpeg() -> bytes:
    return encoded(picture(1, (640, 480)).convert("RGB"), "JPEG")


REFUSED = {
    "zero bytes": (b"", 422, "empty_image"),
    "text": (b"<html><script>alert(1)</script></html>", 415, "unknown_format"),
    "a GIF": (encoded(picture(1, (8, 8)), "GIF"), 415, "unknown_format"),
    "a TIFF": (encoded(picture(1, (8, 8)), "TIFF"), 415, "unknown_format"),
    "an SVG": (b'<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>', 415, "unknown_format"),
    "a zip bomb": (zipped(), 415, "unknown_format"),
    "truncated PNG": (png(1, (64, 64))[:-600], 422, "damaged_image"),
    "truncated JPEG": (large_jpeg()[:5000], 422, "damaged_image"),
    "head of a JPEG alone": (b"\xff\xd8\xff\xe0", 415, "unknown_format"),
    "50,000 x 50,000 pixels": (png_of_size(50_000, 50_000), 413, "too_many_pixels"),
    "10,000 x 10,000 pixels": (png_of_size(10_000, 10_000), 413, "too_many_pixels"),
    "fewer pixels than it says": (png_of_size(5_000, 5_000), 422, "damaged_image"),
    "a comment of 100 MB": (text_bomb(), 422, "damaged_image"),
}


@pytest.mark.errors
@pytest.mark.parametrize("name", REFUSED)
def test_refused(client, name):
    content, status, code = REFUSED[name]
    response = client.post("/v1/identify", files=files(content))
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert response.json()["status"] == "bad_image" and response.json()["image"] == 0
    plantnet = client.post("/v2/identify/all", files=files(content))
    assert plantnet.status_code == (400 if status == 422 else status)
    assert set(plantnet.json()) == {"statusCode", "error", "message"}


def answered(client, content: bytes, **options) -> list:
    response = client.post("/v1/identify", files=files(content, **options))
    assert response.status_code == 200, response.text
    return [(c["id"], round(c["probability"], 4)) for c in response.json()["candidates"]]


def test_a_rotation_in_exif_is_applied(client):
    image = picture(4).convert("RGB")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    exif[0x010F] = "a camera"
    turned = encoded(image.rotate(90), "PNG", exif=exif)
    assert answered(client, turned) == answered(client, encoded(image))
    assert "camera" not in client.post("/v1/identify", files=files(turned)).text


def test_damaged_exif_is_no_matter(client):
    image = picture(4).convert("RGB")
    assert answered(client, encoded(image, "PNG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")) == answered(
        client, encoded(image)
    )


@pytest.mark.parametrize("kind", ["CMYK", "16 bits", "palette", "alpha", "animated PNG", "animated WebP"])
def test_odd_pixels_are_read_as_the_model_reads_files(client, model, tmp_path, kind):
    image = picture(5, (8, 6))
    made = {
        "CMYK": lambda: encoded(image.convert("CMYK"), "JPEG"),
        "16 bits": lambda: encoded(Image.fromarray(257 * np.asarray(image).astype(np.uint16)), "PNG"),
        "palette": lambda: encoded(image.convert("P"), "PNG", transparency=0),
        "alpha": lambda: encoded(image.convert("RGBA"), "PNG"),
        "animated PNG": lambda: encoded(image, "PNG", save_all=True, append_images=[picture(6, (8, 6))]),
        "animated WebP": lambda: encoded(
            image.convert("RGB"), "WEBP", save_all=True, append_images=[picture(6, (8, 6)).convert("RGB")]
        ),
    }[kind]()
    path = tmp_path / "image"
    path.write_bytes(made)
    [expected] = model.short_lists([path], at_least=6)
    assert answered(client, made) == [(c.id, round(c.probability, 4)) for c in expected]


def test_what_follows_an_image_is_not_read(client):
    """Files that are an image and something else too are taken for the image, and nothing of them is kept."""
    image = png(5)
    assert answered(client, image + zipped()) == answered(client, image)
    assert answered(client, image + b"<script>alert(1)</script>") == answered(client, image)


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "C:\\x.png", "a" * 5000, "\x00.png", "é.exe", "x.svg", ""]
)
def test_names_of_files_are_never_used(client, name):
    content = png(5)
    body = (
        b'--b\r\nContent-Disposition: form-data; name="images"; filename="'
        + name.encode()
        + b'"\r\nContent-Type: application/x-sh\r\n\r\n'
        + content
        + b"\r\n--b--\r\n"
    )
    kind = {"content-type": "multipart/form-data; boundary=b"}
    response = client.post("/v1/identify", content=body, headers=kind)
    if len(name) > 4096:  # more than a header may have
        assert response.status_code == 400
        return
    assert response.status_code == 200
    assert name[:20] not in response.text or not name
    plantnet = client.post("/v2/identify/all", content=body, headers=kind).json()
    assert len(plantnet["query"]["images"][0]) <= 255  # shown back, as text


def test_the_time_to_decode_is_bounded(model):
    content = encoded(picture(1, (1500, 1500)), "PNG")  # read in many pieces
    assert decode(content, model, Limits()).shape == (1, 1, 2, 2)
    with pytest.raises(BadImage) as bad:
        decode(content, model, Limits(decode_seconds=1e-3))
    assert bad.value.code == "too_slow"
