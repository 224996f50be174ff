"""Copies of photos have no metadata, and the same pixels, colors and orientation."""

import hashlib
import io
import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps, PngImagePlugin
from starlette.testclient import TestClient

from shortlist.feedback import Event, FeedbackStore
from shortlist.feedback._metadata import without_metadata
from shortlist.feedback.doctor import examine_store
from shortlist.feedback.export import write_photos
from shortlist.feedback.votes import collect_votes
from shortlist.serve.app import make_app
from shortlist.serve.service import Service
from tests.serve.parts import encoded, files, tree_model

SECRET = "52.5163N 13.3777E"
XMP = f'<x:xmpmeta><a exif:GPSLatitude="{SECRET}" tiff:Orientation="6"/></x:xmpmeta>'.encode()
PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def photo(size: tuple[int, int] = (48, 32), mode: str = "RGB") -> Image.Image:
    """A picture of which no turn is like another."""
    x, y = np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(0, 255, size[1]))
    return Image.fromarray(np.stack([x, y, 255 - x], -1).astype(np.uint8)).convert(mode)


def exif(orientation: int | None = 6) -> Image.Exif:
    made = Image.Exif()
    if orientation is not None:
        made[0x0112] = orientation
    made[0x010F], made[0x010E] = f"camera {SECRET}", SECRET
    made[0x8825] = {1: "N", 2: (52.0, 30.0, 59.0), 3: "E", 4: (13.0, 22.0, 40.0), 29: SECRET}
    return made


def segment(code: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, code, len(content) + 2) + content


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def jpeg(mode: str = "RGB", extra: bytes = b"", end: bytes = b"", **options) -> bytes:
    made = encoded(photo(mode=mode), "JPEG", quality=90, **options)
    return made[:2] + extra + made[2:] + end


def png(*chunks: bytes, image: Image.Image | None = None, end: bytes = b"", **options) -> bytes:
    made = encoded(image or photo(), "PNG", **options)
    return made[:33] + b"".join(chunks) + made[33:] + end


def between_scans(content: bytes) -> bytes:
    """Put a comment before the last scan of a progressive JPEG."""
    place = content.rindex(b"\xff\xda")
    return content[:place] + segment(0xFE, SECRET.encode()) + content[place:]


def with_text(key: str, text: str) -> PngImagePlugin.PngInfo:
    made = PngImagePlugin.PngInfo()
    made.add_text(key, text, zip=True)
    return made


hidden = SECRET.encode()
raw_profile = exif().tobytes()
JFIF = b"JFIF\0\1\1\0\0\1\0\1"
PHOTOS = {
    "JPEG of a camera": jpeg(exif=exif(), xmp=XMP, icc_profile=PROFILE, comment=SECRET),
    "JPEG that is upright": jpeg(exif=exif(1)),
    "JPEG without orientation": jpeg(exif=exif(None)),
    "JPEG with the orientation in XMP alone": jpeg(xmp=XMP),
    "JPEG with damaged EXIF": jpeg(extra=segment(0xE1, b"Exif\0\0II*\0\xff\xff\xff\xff" + hidden)),
    "JPEG with IPTC": jpeg(extra=segment(0xED, b"Photoshop 3.0\0" + hidden)),
    "JPEG with several pictures": encoded(
        photo(), "MPO", save_all=True, append_images=[photo((64, 64))], exif=exif()
    ),
    "JPEG with a film behind it": jpeg(end=b"ftypmp42" + hidden),
    "JPEG with a thumbnail": jpeg(extra=segment(0xE0, JFIF + b"\3\2" + hidden.ljust(18))),
    "JPEG with fill bytes": jpeg(extra=b"\xff\xff\xff" + segment(0xFE, hidden)),
    "progressive JPEG": between_scans(jpeg(progressive=True, exif=exif(3))),
    "JPEG with restarts": jpeg(exif=exif(8), restart_marker_blocks=1),
    "gray JPEG": jpeg("L", exif=exif(5)),
    "CMYK JPEG": jpeg("CMYK", exif=exif(7)),
    "PNG of a camera": png(exif=exif(), icc_profile=PROFILE, pnginfo=with_text("Comment", SECRET)),
    "PNG with plain text": png(chunk(b"tEXt", b"Comment\0" + hidden), chunk(b"tIME", b"\x07\xea\1\1\1\1\1")),
    "PNG with XMP": png(chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP)),
    "PNG with EXIF as text": png(
        pnginfo=with_text("Raw profile type exif", f"\nexif\n{len(raw_profile)}\n{raw_profile.hex()}")
    ),
    "PNG with EXIF behind the pixels": png()[:-12] + chunk(b"eXIf", exif().tobytes()[6:]) + png()[-12:],
    "PNG with a chunk of its own": png(chunk(b"prVt", hidden), end=hidden),
    "PNG with a palette": png(image=photo().quantize(16), exif=exif(4), transparency=0),
    "PNG of 16 bits": png(
        image=Image.fromarray(np.arange(1200, dtype=np.uint16).reshape(30, 40)), exif=exif(2)
    ),
    "animated PNG": png(save_all=True, append_images=[photo().rotate(180)], exif=exif()),
    "WebP of a camera": encoded(photo(), "WEBP", exif=exif(), xmp=XMP, icc_profile=PROFILE),
    "WebP with the orientation in XMP alone": encoded(photo(), "WEBP", xmp=XMP),
    "WebP that is upright": encoded(photo(), "WEBP", exif=exif(1)),
    "WebP without losses": encoded(photo(mode="RGBA"), "WEBP", lossless=True, exif=exif(8)),
    "animated WebP": encoded(
        photo(), "WEBP", save_all=True, append_images=[photo().rotate(180)], exif=exif(3), xmp=XMP
    ),
    "WebP with something behind it": encoded(photo(), "WEBP") + hidden,
}


def upright(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        image.load()
        return np.asarray(ImageOps.exif_transpose(image))


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.parametrize("name", PHOTOS)
def test_pixels_are_the_same_and_nothing_else_is_left(name):
    content = PHOTOS[name]
    copy = without_metadata(content)
    assert len(copy) < len(content) and hidden not in copy and b"GPS" not in copy and b"camera" not in copy
    np.testing.assert_array_equal(upright(copy), upright(content))
    with Image.open(io.BytesIO(content)) as before, Image.open(io.BytesIO(copy)) as after:
        before.load(), after.load()
        assert (after.mode, after.size) == (before.mode, before.size)
        assert after.info.get("icc_profile") == before.info.get("icc_profile")
        assert not set(after.info) & {"xmp", "comment", "Comment", "XML:com.adobe.xmp", "mp", "photoshop"}
        assert set(after.getexif()) <= {0x0112} and not after.getexif().get_ifd(0x8825)
    assert without_metadata(copy) == copy


@pytest.mark.parametrize("content", [encoded(photo(), kind) for kind in ("JPEG", "PNG", "WEBP")])
def test_a_photo_without_metadata_is_kept_to_the_byte(content):
    assert without_metadata(content) == content


@pytest.mark.errors
def test_cut_off_and_odd_files_end_in_bytes_or_words():
    for content in PHOTOS.values():
        for size in (*range(0, 60), *range(60, len(content), 97)):
            try:
                assert hidden not in without_metadata(content[:size])
            except ValueError as error:
                assert "JPEG, PNG or WebP" in str(error)
    long_run = b"\xff\xd8\xff\xda\x00\x02" + b"\xff" * 3_000_000 + b"\x00"  # is looked through once
    assert len(without_metadata(long_run)) == len(long_run)


def test_a_store_keeps_no_place_and_its_doctor_knows_the_copies(tmp_path):
    sent = PHOTOS["JPEG of a camera"]
    image = hashlib.sha256(sent).hexdigest()
    with FeedbackStore(tmp_path / "store") as store:
        said = Event("confirm", "r", person="p", label="oak", images=(image,), consent=True)
        store.add(said, [sent])
        assert store.copy_of(image) == without_metadata(sent)
        found = collect_votes(store.events())
        assert [(one.image, one.item) for one in found.photos] == [(image, image)]
        write_photos(tmp_path / "photos.csv", found.photos, tmp_path / "store")
    copy = tmp_path / "store" / "images" / image[:2] / image
    assert str(copy) in (tmp_path / "photos.csv").read_text()
    assert examine_store(tmp_path / "store") == []
    assert all(hidden not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    whole = copy.read_bytes()
    for damaged in (whole[:-1], sent, b""):
        copy.write_bytes(damaged)
        (finding,) = examine_store(tmp_path / "store")
        assert "is damaged or was changed" in finding.what
    copy.unlink()
    (finding,) = examine_store(tmp_path / "store")
    assert "is missing" in finding.what


def test_the_server_keeps_no_place(tmp_path):
    sent = PHOTOS["JPEG of a camera"]
    service = Service(tree_model(), feedback=tmp_path / "store")
    with TestClient(make_app(service)) as client:
        receipt = client.post("/v1/identify?receipt=true", files=files(sent)).json()["receipt"]
        said = json.dumps({"verb": "do_not_know", "receipt": receipt, "consent": True}).encode()
        form = [("event", ("event", said, "application/json")), *files(sent)]
        assert client.post("/v1/feedback", files=form).status_code == 201
        copy = service.feedback.store.copy_of(hashlib.sha256(sent).hexdigest())
        assert copy == without_metadata(sent)
