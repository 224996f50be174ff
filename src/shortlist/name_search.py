"""Find names by how they begin, and with mistakes in them, among hundreds of thousands."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shortlist._names import split_author
from shortlist._text import folded

_LEFT_OUT = re.compile(r"\b(?:x|subsp\.?|ssp\.?|var\.|subvar\.|f\.|fo\.|forma)(?= )")
_MOST = 60  # letters of what is searched: as many as a machine word has, less the mistakes
_WIDTH = 64  # letters of a name that are compared
_SCANNED = 2000  # names that begin alike and are looked at
_WIDTHS = (10, 20, _WIDTH)  # letters from which pairs are taken, for short and for long texts
_KINDS = 256  # of pairs of letters
_BLOCK = 1 << 16


class Match(NamedTuple):
    """A name that was found.

    Attributes:
        owner: What the name belongs to.
        name: The name as it is written.
        mistakes: Letters that must be added, left out, changed or swapped to get how the name begins.
    """

    owner: int
    name: str
    mistakes: int


def search_key(text: str) -> str:
    """Return a name as it is compared: small letters, no accents, no sign of a hybrid, no words for ranks.

    Example:
        >>> search_key("Mentha x Piperita"), search_key("Pinus nigra subsp. laricio")
        ('mentha piperita', 'pinus nigra laricio')
    """
    return " ".join(_LEFT_OUT.sub("", folded(text)).split())


def mistakes_allowed(letters: int) -> int:
    """Return how many mistakes are looked for in a text of so many letters."""
    return 0 if letters < 4 else 1 if letters < 8 else 2


class NameSearch:
    """Finds owners by their names.

    Args:
        names: The names. Of two that fit equally well, the one that comes first here is found first.
        owners: What each name belongs to.

    Example:
        >>> search = NameSearch(["Quercus robur", "Quercus rubra", "chêne rouge"], [0, 1, 1])
        >>> [match.name for match in search.find("quer")], search.find("QERCUS RUBRA")[0].mistakes
        (['Quercus robur', 'Quercus rubra'], 1)
    """

    def __init__(self, names: Sequence[str], owners: Sequence[int]) -> None:
        keys = list(map(search_key, names))
        order = sorted(range(len(keys)), key=keys.__getitem__)
        self._keys = [keys[place] for place in order]
        self._names, self._owners = [names[place] for place in order], [owners[place] for place in order]
        self._first = np.asarray(order, np.int64)  # place in the given order
        starts = sorted((key[b + 1 :], place) for place, key in enumerate(self._keys) for b in _blanks(key))
        self._inner, self._inner_places = [text for text, _ in starts], [place for _, place in starts]
        self._letters = _Letters(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, text: str, limit: int = 10) -> list[Match]:
        """Return the owners of names that begin with a text, then of others, the best first.

        First are names that begin with the text, in the order of the alphabet; then those of which a word
        does, or each word with one of the text ("q rob"); then those that begin with it if mistakes are
        taken back. An author in the text is left out. Each owner is found once.
        """
        key = search_key(split_author(text.strip())[0])[:_MOST]
        found: dict[int, Match] = {}
        if key:
            for place, mistakes in self._places(key):
                owner = self._owners[place]
                if owner not in found:
                    found[owner] = Match(owner, self._names[place], mistakes)
                    if len(found) == limit:
                        break
        return list(found.values())

    def _places(self, key: str) -> Iterator[tuple[int, int]]:
        yield from ((place, 0) for place in self._beginning(key))
        yield from ((place, 0) for place in self._with_words(key.split()))
        yield from self.near(key)

    def _beginning(self, key: str) -> Sequence[int]:
        start, end = _range(self._keys, key)
        return range(start, min(end, start + _SCANNED))

    def _with_words(self, words: Sequence[str]) -> list[int]:
        """Return names whose words begin with these, in the same order, among those of the rarest word."""
        bare = [word.rstrip(".") for word in words]
        ranges = [_range(self._inner, word) for word in bare[1:] or bare]
        start, end = min(ranges, key=lambda ends: ends[1] - ends[0])
        if end - start > 5 * _SCANNED:
            return []
        places = sorted(set(self._inner_places[start:end]))
        pattern = re.compile(r"(?:.* )?" + r".* ".join(map(re.escape, bare)))
        return [place for place in places if pattern.match(self._keys[place])][:_SCANNED]

    def near(self, key: str) -> list[tuple[int, int]]:
        """Return the place and the mistakes of each name that begins with a key but for a few mistakes."""
        allowed = mistakes_allowed(len(key))
        if not allowed:
            return []
        places, mistakes, whole = self._letters.near(key, allowed)
        order = np.lexsort((self._first[places], whole, mistakes))
        return list(zip(places[order].tolist(), mistakes[order].tolist(), strict=True))

    def name(self, place: int) -> str:
        """Return the name at a place of the alphabet."""
        return self._names[place]


def _blanks(key: str) -> Iterator[int]:
    place = key.find(" ")
    while place >= 0:
        yield place
        place = key.find(" ", place + 1)


def _range(keys: Sequence[str], start: str) -> tuple[int, int]:
    """Return the places of sorted keys that begin with a text."""
    low = bisect_left(keys, start)
    return low, bisect_left(keys, start + "\U0010ffff", low)


class _Letters:
    """The letters of names as arrays, and which pairs of neighbors the beginning of each name has.

    A name that begins like a key shares most pairs of letters with it: a mistake takes away three at most.
    What is left is compared letter by letter, all names at once, by the bits of a machine word (Hyyrö 2003,
    with swapped neighbors as one mistake).
    """

    def __init__(self, keys: Sequence[str]) -> None:
        letters = sorted(set().union(*map(set, keys))) if keys else []
        self._code = {letter: code for code, letter in enumerate(letters, start=1)}  # 0 is after the end
        table = np.zeros(ord(letters[-1]) + 1 if letters else 1, np.uint32)
        table[[ord(letter) for letter in letters]] = range(1, len(letters) + 1)
        kind = np.uint16 if len(letters) < 1 << 16 else np.uint32
        self._codes = np.zeros((_WIDTH, len(keys)), kind)  # a row for each place in a name
        packed = -(-len(keys) // 8)
        self._pairs = {width: np.zeros((_KINDS, packed), np.uint8) for width in _WIDTHS}  # one bit a name
        for start in range(0, len(keys), _BLOCK):
            rows, part = slice(start, start + _BLOCK), slice(start // 8, (start + _BLOCK) // 8)
            texts = np.array(keys[rows], dtype=f"<U{_WIDTH}")
            codes = table[texts.view(np.uint32).reshape(len(texts), _WIDTH)].T
            self._codes[:, rows], kinds = codes, _kinds_of_pairs(codes)
            has_kind = np.zeros((_KINDS + 1, len(texts)), bool)
            for column, row in enumerate(kinds, start=1):
                has_kind[row, range(len(texts))] = True
                if column in self._pairs:
                    self._pairs[column][:, part] = np.packbits(has_kind[:_KINDS], axis=1)
        self._lengths = (self._codes > 0).sum(0)

    def near(self, key: str, allowed: int) -> tuple[NDArray[Any], ...]:
        """Return names that begin with a key but for mistakes, the mistakes, and how much longer they are."""
        codes = np.asarray([self._code.get(letter, 0) for letter in key], np.uint32)
        wanted = set(_kinds_of_pairs(codes[:, None])[:, 0].tolist()) - {_KINDS}
        pairs = self._pairs[next(width for width in _WIDTHS if width >= min(len(key) + allowed, _WIDTH))]
        shared = np.zeros(self._codes.shape[1], np.uint8)
        for kind in wanted:
            shared += np.unpackbits(pairs[kind], count=len(shared))
        rows = np.flatnonzero(shared >= max(len(wanted) - 3 * allowed, 0))
        mistakes = self._mistakes(codes, rows, allowed)
        kept = mistakes <= allowed
        return rows[kept], mistakes[kept], np.abs(self._lengths[rows[kept]] - len(key))

    def _mistakes(self, key: NDArray[np.uint32], rows: NDArray[np.int64], allowed: int) -> NDArray[np.int8]:
        """Return the number of mistakes from a key to the beginning of each name that is most like it."""
        size = len(key)
        kind = np.uint16 if size <= 16 else np.uint32 if size <= 32 else np.uint64
        first, last = kind(1), kind(size - 1)
        bits = np.zeros(len(self._code) + 1, kind)
        for place, code in enumerate(key.tolist()):
            bits[code] |= kind(1 << place)
        bits[0] = 0  # letters that no name has, and the end
        plus = np.full(len(rows), (1 << size) - 1, kind)
        minus, zeros, before = (np.zeros(len(rows), kind) for _ in range(3))
        now = np.full(len(rows), size, np.int8)
        best = now.copy()
        for column in range(min(size + allowed, _WIDTH)):
            match = bits[self._codes[column, rows]]
            swapped = ((~zeros & match) << first) & before
            zeros = (((match & plus) + plus) ^ plus) | match | minus | swapped
            up, down = minus | ~(zeros | plus), zeros & plus
            now += ((up >> last) & first).astype(np.int8)
            now -= ((down >> last) & first).astype(np.int8)
            np.minimum(best, now, out=best)
            up, down = (up << first) | first, down << first
            plus, minus, before = down | ~(zeros | up), up & zeros, match
        return best


def _kinds_of_pairs(codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the kind of pair that each letter (w, n) makes with the one before it; none after the end."""
    before = np.concatenate([np.zeros_like(codes[:1]), codes[:-1]])
    return np.where(codes > 0, (before * np.uint32(37) + codes) % np.uint32(_KINDS), np.uint32(_KINDS))
