"""Font faces found in folders, each either taken or skipped for a stated reason."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from shortlist.datasets.glyphs.faces import Face, read_face

FEWEST_LETTERS = 20  # a face with fewer is a symbol font
MOST_STYLES = 4  # of one family, so that none outweighs the others
PREFERRED_STYLES = ("regular", "book", "roman", "bold", "italic", "oblique", "bold italic", "bold oblique")
NO_LETTERS = re.compile(
    r"math|symbol|emoji|dingbat|icon|ornament|braille|music|last.?resort|barcode|awesome|phonetic keys", re.I
)
OPEN_LICENSE = re.compile(
    r"open font licen[cs]e|\bOFL\b|\bapache licen[cs]e|bitstream vera fonts? copyright|dejavu"
    r"|\b(?:L?GPL|GNU)\b|general public licen[cs]e|ubuntu font licen[cs]e|liberation fonts? licen[cs]e"
    r"|stixfonts|gust font licen[cs]e|\bMIT licen[cs]e|\bBSD\b|permission is hereby granted, free of charge"
    r"|redistribution and use in source and|public domain|creative ?commons|\bCC0\b|\bCC[- ]BY\b"
    r"|paratype ltd grants you the right to use, copy, modify|aladdin free|bakoma",
    re.I,
)


def is_open_license(license: str) -> bool:
    """Return whether the text of a license is that of one that lets anybody use and share the font.

    >>> is_open_license("Licensed under the SIL Open Font License, Version 1.1"), is_open_license("(c) X")
    (True, False)
    """
    return OPEN_LICENSE.search(license) is not None


def faces_in(
    folders: Iterable[str | Path], *, require_open_license: bool = True
) -> tuple[list[Face], list[tuple[str, str]]]:
    """Return all faces in some folders and their subfolders, and what was skipped: (file, reason).

    Symbolic links are passed over. The order is that of family, style and checksum, wherever the files are.

    Raises:
        ValueError: If a folder does not exist.
    """
    skipped: list[tuple[str, str]] = []
    families: dict[str, list[Face]] = defaultdict(list)
    seen: set[str] = set()
    for path in _font_files(folders):
        try:
            face = read_face(path)
        except ValueError as error:
            skipped.append((str(path), f"unreadable: {str(error)[-120:]}"))
            continue
        reason = _reason_to_skip(face, require_open_license=require_open_license)
        if face.checksum in seen:
            reason = "same file as another"
        seen.add(face.checksum)
        if reason:
            skipped.append((str(path), reason))
        else:
            families[face.family].append(face)
    taken = []
    for _, faces in sorted(families.items()):
        styles: dict[str, Face] = {}
        for face in sorted(faces, key=_style_order):
            if face.style in styles:
                skipped.append((str(face.path), "same family and style as another"))
            elif len(styles) == MOST_STYLES:
                skipped.append((str(face.path), f"more than {MOST_STYLES} styles"))
            else:
                styles[face.style] = face
        taken += styles.values()
    return taken, skipped


def _font_files(folders: Iterable[str | Path]) -> Iterator[Path]:
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise ValueError(f"folders must be existing folders, got {str(folder)!r}")
        for path in sorted(folder.rglob("*")):
            if path.suffix.lower() in (".ttf", ".otf") and not path.is_symlink() and path.is_file():
                yield path


def _reason_to_skip(face: Face, *, require_open_license: bool) -> str:
    if require_open_license and not is_open_license(face.license):
        return f"no open license: {face.license[:80]!r}"
    if NO_LETTERS.search(f"{face.family} {face.path.stem}"):
        return "a family of symbols"
    if len(face.characters) < FEWEST_LETTERS:
        return f"fewer than {FEWEST_LETTERS} letters and digits"
    return ""


def _style_order(face: Face) -> tuple[int, str, str]:
    """Return a sort key that puts the common styles first."""
    style = face.style.lower()
    place = PREFERRED_STYLES.index(style) if style in PREFERRED_STYLES else len(PREFERRED_STYLES)
    return place, style, face.checksum


def deal_lineages(faces: Sequence[Face], *, most_per_split: Sequence[int] = (3, 1, 1)) -> list[int]:
    """Assign each face to a part (0 train, 1 val, 2 test), the same for all faces of one lineage.

    Lineages are dealt in rounds, those that hold most characters first, so that each split gets some of the
    fonts with wide coverage; ``most_per_split`` lineages go to each split in a round.
    """
    coverage: dict[str, set[int]] = defaultdict(set)
    for face in faces:
        coverage[face.lineage] |= face.characters
    order = sorted(coverage, key=lambda name: (-len(coverage[name]), name))
    part_of, dealt, room = {}, Counter(), list(most_per_split)
    for name in order:
        if not any(room):
            room = list(most_per_split)
        # the part that has least of its share of what was dealt so far
        part = min((p for p in range(3) if room[p]), key=lambda p: (dealt[p] / most_per_split[p], p))
        part_of[name] = part
        dealt[part] += 1
        room[part] -= 1
    return [part_of[face.lineage] for face in faces]
