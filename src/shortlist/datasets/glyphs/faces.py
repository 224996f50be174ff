"""Font faces for the glyph sets: their files, characters, designs and licenses."""

import hashlib
import logging
import re
import unicodedata
import warnings
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path

LETTERS_AND_DIGITS = ("Lu", "Ll", "Lt", "Lo", "Nd")

# text faces that come with matplotlib; those of the second list are seen in validation and test only
MATPLOTLIB_TRAIN = tuple(
    """DejaVuSans DejaVuSans-Bold DejaVuSans-Oblique DejaVuSansMono DejaVuSansMono-Bold
    DejaVuSansMono-Oblique DejaVuSerif DejaVuSerif-Bold DejaVuSerif-Italic STIXGeneral
    STIXGeneralBol STIXGeneralItalic cmr10 cmb10 cmss10 cmti10""".split()
)
MATPLOTLIB_HELD_OUT = tuple(
    """DejaVuSans-BoldOblique DejaVuSansMono-BoldOblique DejaVuSerif-BoldItalic STIXGeneralBolIta
    cmtt10""".split()
)

NEW_IN_MATPLOTLIB_3_11 = ("cmti10",)

# words of a family name that say how it is drawn, not whose design it is
STYLE_WORDS = frozenset(
    """thin hairline extralight ultralight light book regular roman medium normal text demi semibold demibold
    bold extrabold ultrabold black heavy ultra italic oblique slanted condensed cond semicondensed
    extracondensed narrow expanded extended wide sans serif mono monospace monospaced code typewriter display
    caption small caps smallcaps sc osf lf tf slab math ui unicode std pro otf ttf nf basic compact literacy
    plus extra new titling inline initials shaded swash subset web nova alternates schoolbook term
    propo""".split()
)
# words that tell one design under different names
LINEAGES = {
    # Times, Helvetica and Courier, drawn again and again
    "classics": "urw nimbus tex gyre freesans freeserif freemono c059 p052 z003 uralic induni courier"
    " stix stixgeneral xits liberation arimo tinos cousine doulos",
    "dejavu": "dejavu bitstream vera hack arev bpg",
    "lato": "lato carlito",
    "noto": "noto open droid",
    "garamond": "eb ebgaramond",
    "computer modern": "cmu lm latin cmr10 cmb10 cmss10 cmti10 cmtt10",
    "gentium": "gentium gentiumplus gentiumalt",
    "cambria": "caladea cambo",
    "ethiopic": "ethiopic ethiopia",
    "monoid": "monoid monoisome",
    "opendyslexic": "opendyslexic opendyslexicalta opendyslexicmono",
    "yrsa": "yrsa rasa",
}
LINEAGE_OF = {word: name for name, words in LINEAGES.items() for word in words.split()}
FOUNDRIES = ("gfs", "adf", "sil")  # one house, many designs
# the files themselves only say "BaKoMa Fonts Collection"
BAKOMA = "BaKoMa Fonts Licence: free to use, distribute and modify, with its notice in copies of the fonts"


@dataclass(frozen=True)
class Face:
    """One face of a font file.

    Args:
        path: The font file.
        family: Family name.
        style: Style name ("Bold Italic").
        lineage: Name of the design; related families under other names share it.
        license: Text of the file about its license and copyright; empty if there is none.
        checksum: SHA-256 of the file.
        characters: Letters and digits that the face has.
    """

    path: Path
    family: str
    style: str
    lineage: str
    license: str
    checksum: str
    characters: frozenset[int]

    @property
    def name(self) -> str:
        """Family and style."""
        return f"{self.family} {self.style}"


@cache
def wanted(character: int) -> bool:
    """Return whether a character is a letter or digit, and not only another form of one (NFKC keeps it)."""
    text = chr(character)
    return unicodedata.category(text) in LETTERS_AND_DIGITS and unicodedata.normalize("NFKC", text) == text


def lineage(family: str) -> str:
    """Return the design that a family belongs to: the first characteristic word of its name, or an alias.

    >>> lineage("DejaVu Sans Mono"), lineage("Carlito"), lineage("TeX Gyre Heros"), lineage("Noto Serif")
    ('dejavu', 'lato', 'classics', 'noto')
    """
    words = re.findall(r"[a-z0-9]+", family.lower())
    for word in ("".join(words), *words):
        if word in LINEAGE_OF:
            return LINEAGE_OF[word]
    telling = [word for word in words if word not in STYLE_WORDS] or words
    return " ".join(telling[: 2 if telling[0] in FOUNDRIES else 1])


def read_face(path: Path) -> Face:
    """Read the needed facts of a font file.

    Raises:
        ValueError: If it is no font that can be read, or has no Unicode character map.
    """
    from fontTools.ttLib import TTFont, TTLibError

    logging.getLogger("fontTools").setLevel(logging.ERROR)  # odd tables do not matter here
    content = path.read_bytes()
    try:
        with TTFont(BytesIO(content), lazy=True, fontNumber=0) as font:
            if not any(table in font for table in ("glyf", "CFF ", "CFF2")):
                raise ValueError("it has no outlines")
            characters = font.getBestCmap()
            names = {number: font["name"].getDebugName(number) or "" for number in (0, 1, 2, 13, 14, 16, 17)}
    except (TTLibError, KeyError, AssertionError, ValueError, OSError) as error:
        raise ValueError(f"{path} is no font that can be read: {error!r}") from error
    if not characters:
        raise ValueError(f"{path} has no Unicode character map")
    family, style = names[16] or names[1] or path.stem, names[17] or names[2] or "Regular"
    license = " ".join(f"{names[13]} {names[14]} {names[0]}".split())
    return Face(
        path=path,
        family=family,
        style=style,
        lineage=lineage(family),
        license=license,
        checksum=hashlib.sha256(content).hexdigest(),
        characters=frozenset(filter(wanted, characters)),
    )


def matplotlib_faces() -> tuple[list[Face], list[bool]]:
    """Return the text faces that come with matplotlib, and whether each is held out from training.

    ``cmti10`` is left out, with a warning, where matplotlib is older than 3.11, which needs Python 3.11.

    Raises:
        ValueError: If matplotlib's folder lacks another one of them.
    """
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    faces, held_out = [], []
    for name in (*MATPLOTLIB_TRAIN, *MATPLOTLIB_HELD_OUT):
        if not (folder / f"{name}.ttf").is_file():
            if name in NEW_IN_MATPLOTLIB_3_11:
                warnings.warn(
                    f"matplotlib {matplotlib.__version__} lacks the font {name}: glyphs are drawn without it "
                    "and numbers differ a little from those with matplotlib 3.11",
                    stacklevel=2,
                )
                continue
            raise ValueError(f"the glyph set needs {name}.ttf among matplotlib's fonts, {folder} lacks it")
        face = read_face(folder / f"{name}.ttf")
        if name.startswith("cm"):  # beyond ASCII, these keep Greek letters and accents in others' places
            ascii_only = frozenset(character for character in face.characters if character < 128)
            face = replace(face, characters=ascii_only, license=BAKOMA)
        faces.append(face)
        held_out.append(name in MATPLOTLIB_HELD_OUT)
    return faces, held_out
