"""Groups of characters that look alike: accented forms, and letters of several scripts drawn the same."""

import hashlib
import unicodedata
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from shortlist._components import lowest_of_component
from shortlist.datasets.glyphs.trace import Traces

ALIKE = 0.98  # mean cosine over the shared faces from which two characters are look-alikes
FEWEST_SHARED = 3  # faces that must hold both


def character_name(character: int) -> str:
    """Return the Unicode name of a character."""
    return unicodedata.name(chr(character), f"U+{character:04X}")


def base_name(character: int) -> str:
    """Return the Unicode name of a character without WITH and what follows it.

    >>> base_name(0xD6)
    'LATIN CAPITAL LETTER O'
    """
    return character_name(character).split(" WITH ")[0]


def script(character: int) -> str:
    """Return the name of the script; digits that several scripts share have the script "Digits".

    >>> script(0x39F), script(0x30)
    ('Greek', 'Digits')
    """
    from fontTools import unicodedata as scripts

    name = scripts.script_name(scripts.script(chr(character)))
    return "Digits" if name == "Common" else name.replace("_", " ")


def look_alike_groups(traces: Traces) -> dict[int, str]:
    """Return the group of each character, named after the base letter of the group's first character.

    Characters with one base name are in one group; so are those whose drawings agree on average over the
    faces that hold both. A group can be a chain: its ends need not look alike.
    """
    characters = np.unique(traces.character)
    number = np.searchsorted(characters, traces.character)
    total = np.zeros((len(characters), len(characters)), np.float32)
    shared = np.zeros_like(total, np.int16)
    for face in np.unique(traces.face):
        rows = np.flatnonzero(traces.face == face)
        vectors = traces.placed[rows].astype(np.float32)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
        square = np.ix_(number[rows], number[rows])
        total[square] += vectors @ vectors.T
        shared[square] += 1
    alike = np.triu((total >= ALIKE * shared) & (shared >= FEWEST_SHARED), 1)
    first: dict[str, int] = {}
    links = [(first.setdefault(base_name(c), i), i) for i, c in enumerate(characters.tolist())]
    links += list(zip(*(axis.tolist() for axis in np.nonzero(alike)), strict=True))
    lowest = lowest_of_component(len(characters), links)
    return {c: base_name(int(characters[lowest[i]])) for i, c in enumerate(characters.tolist())}


def choose_classes(groups: dict[int, str], *, max_classes: int | None) -> list[int]:
    """Choose whole groups up to a number of classes, in code point order.

    Groups of several scripts (those of most scripts first) and groups of one script (in a fixed mixed order)
    take turns, one to six: a set of the first kind alone would be hopeless, of the second too easy. A group
    that does not fit any more is passed over.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for character, group in sorted(groups.items()):
        members[group].append(character)
    num_scripts = {group: len({script(c) for c in characters}) for group, characters in members.items()}
    order = sorted(members, key=lambda group: (-num_scripts[group], hashlib.sha256(group.encode()).digest()))
    several = [group for group in order if num_scripts[group] > 1]
    turn = {group: 7 * i for i, group in enumerate(several)}
    single = [group for group in order if num_scripts[group] == 1]
    turn |= {group: 7 * (i // 6) + 1 + i % 6 for i, group in enumerate(single)}
    chosen: list[int] = []
    for group in sorted(members, key=turn.__getitem__):
        if max_classes is None or len(chosen) + len(members[group]) <= max_classes:
            chosen += members[group]
    return sorted(chosen)


def shared_drawings(traces: Traces) -> NDArray[np.bool_]:
    """Return whether each drawing (p,) equals that of another character in the same face, pixel for pixel."""
    pairs = np.stack([traces.face.astype(np.uint64), traces.raster])
    _, inverse, counts = np.unique(pairs, axis=1, return_inverse=True, return_counts=True)
    return counts[inverse.ravel()] > 1
