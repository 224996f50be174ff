"""Draw each character with each face, without jitter, to find blank, repeated and wrong drawings."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SIDE = 32  # of an image, in pixels
BASELINE = 23  # row of the baseline
SIZES = (18, 19, 20, 21, 22)  # in which images are drawn, pixels per em
SIZE = 20  # of a trace
UNLIKE = 0.67  # cosine to the median of the other faces below which a trace is another character
MOST_UNLIKE = 0.3  # share of such traces above which a face has another encoding altogether

Features = NDArray[np.uint8]


@dataclass(frozen=True)
class Traces:
    """One row per pair of a face and a character.

    Args:
        face: Index of the face (p,).
        character: Code point (p,).
        raster: Hash of the image (p,), 0 for a blank one.
        placed: Image at half the resolution (p, 256), at its place on the line.
        centered: Blurred image with the ink in the middle (p, 256).
        stretched: Blurred image with the ink stretched to the whole image (p, 256).
    """

    face: NDArray[np.int64]
    character: NDArray[np.int64]
    raster: NDArray[np.uint64]
    placed: Features
    centered: Features
    stretched: Features

    def __len__(self) -> int:
        return len(self.face)

    def select(self, rows: NDArray) -> "Traces":
        """Return the rows of a mask, or of indices."""
        return Traces(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))

    @staticmethod
    def cat(parts: Sequence["Traces"]) -> "Traces":
        """Concatenate several tables."""
        return Traces(*(np.concatenate([getattr(part, name) for part in parts]) for name in NAMES))


NAMES = tuple(Traces.__dataclass_fields__)


@lru_cache(maxsize=64)
def load_font(path: str, size: int):
    """Return a font at a size in pixels; the last ones stay open."""
    from PIL import ImageFont

    return ImageFont.truetype(path, size, layout_engine=ImageFont.Layout.BASIC)


def trace_face(face: int, path: str, characters: Sequence[int]) -> Traces:
    """Draw these characters with one face; a font that cannot be drawn gives no rows."""
    from PIL import Image, ImageFilter

    n = len(characters)
    raster = np.zeros(n, np.uint64)
    placed, centered, stretched = (np.zeros((n, 256), np.uint8) for _ in range(3))
    try:
        for size in SIZES:  # a font of bitmaps has some of them only
            load_font(path, size)
        font = load_font(path, SIZE)
        missing = _draw(font, 0x10FFFF).tobytes()
        for i, character in enumerate(characters):
            image = _draw(font, character)
            box = image.getbbox()
            if box is None or image.tobytes() == missing:
                continue
            digest = hashlib.blake2b(image.tobytes(), digest_size=8).digest()
            raster[i] = max(int.from_bytes(digest, "little"), 1)
            placed[i] = np.asarray(image.reduce(2)).ravel()
            width, height = box[2] - box[0], box[3] - box[1]
            middle = Image.new("L", (SIDE, SIDE))
            middle.paste(image.crop(box), ((SIDE - width) // 2, (SIDE - height) // 2))
            centered[i] = np.asarray(middle.filter(ImageFilter.BoxBlur(2)).reduce(2)).ravel()
            wide = Image.new("L", (16, 16))
            wide.paste(image.resize((12, 12), Image.Resampling.BOX, box=box), (2, 2))
            stretched[i] = np.asarray(wide.filter(ImageFilter.BoxBlur(1))).ravel()
    except (OSError, ValueError):  # FreeType refuses the file or one of its glyphs
        n, characters = 0, ()
    rows = slice(0, n)
    codes = np.array(characters, np.int64)
    return Traces(np.full(n, face), codes, raster[rows], placed[rows], centered[rows], stretched[rows])


def _draw(font, character: int):
    from PIL import Image, ImageDraw

    image = Image.new("L", (SIDE, SIDE))
    ImageDraw.Draw(image).text((SIDE // 2, BASELINE), chr(character), fill=255, font=font, anchor="ms")
    return image


def find_bad(traces: Traces) -> dict[str, NDArray[np.bool_]]:
    """Return masks (p,) of the rows to drop, by reason; no row has two reasons.

    - ``blank``: no ink, or the face's sign for characters that it lacks.
    - ``repeated``: pixel for pixel what an earlier face has for this character.
    - ``outlier``: unlike what the other faces have for this character.
    - ``other encoding``: all else of a face with many outliers.
    """
    blank = traces.raster == 0
    _, first = np.unique(
        np.stack([traces.character.astype(np.uint64), traces.raster]), axis=1, return_index=True
    )
    repeated = np.ones(len(traces), bool)
    repeated[first] = False
    repeated &= ~blank
    outlier = _typical_likeness(traces, ~blank & ~repeated) < UNLIKE
    num_faces = int(traces.face.max(initial=-1)) + 1
    drawn = np.bincount(traces.face[~blank], minlength=num_faces)
    unlike = np.bincount(traces.face[outlier], minlength=num_faces)
    foreign = (unlike > MOST_UNLIKE * np.maximum(drawn, 1))[traces.face]
    return {
        "blank": blank,
        "repeated": repeated,
        "outlier": outlier & ~foreign,
        "other encoding": foreign & ~blank & ~repeated,
    }


def _typical_likeness(traces: Traces, rows: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return how similar a drawing is to those of other faces, as a median (p,); 1 if there is no other."""
    likeness = np.ones(len(traces), np.float32)
    order = np.flatnonzero(rows)
    order = order[np.argsort(traces.character[order], kind="stable")]
    cuts = np.flatnonzero(np.diff(traces.character[order])) + 1
    for same in np.split(order, cuts):
        if len(same) < 3:  # of two, neither is the odd one
            continue
        cosines = np.maximum(*(_cosines(feature[same]) for feature in (traces.centered, traces.stretched)))
        np.fill_diagonal(cosines, np.nan)
        likeness[same] = np.nanmedian(cosines, axis=1)
    return likeness


def _cosines(features: Features) -> NDArray[np.float32]:
    vectors = features.astype(np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
    return vectors @ vectors.T
