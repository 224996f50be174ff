"""Scientific names: the name itself, and the author who described it."""

import re
from collections.abc import Sequence

_HYBRID = ("×", "x", "X", "+")
_RANKS = frozenset(
    "subsp. subsp ssp. ssp var. var subvar. f. fo. forma subf. convar. subg. sect. subsect. ser. "
    "nothosubsp. nothovar. nothof. cf. aff.".split()
)
_ENDS = frozenset("sp. spp. agg. aggr. s.l. s.str.".split())  # of a name, without an epithet
# small words between the names of authors; none of them is an epithet
_BETWEEN = frozenset(
    "& et and ex in f. fil. al. : non nec sensu hort. auct. emend. nom. cons. illeg. nud. comb. ined. "
    "de da del della den der des di do dos du la le van von zu zur ter ten y af 't ’t".split()
)
# cultivars and groups: 'Fastigiata', cv. Bloodgood, Capitata Group
_CULTIVAR = re.compile(r"""\s(?:['‘"“].+['’"”]|cv\.?\s[A-Z].*|\(?[A-Z][a-z-]+\s(?:Group|Gp)\)?)$""")
# endings of a genus, or of an epithet: the English words of "Red winged Blackbird" have none of them
_LATIN_GENUS = re.compile(r"(?:a|is|us|um)$")
_LATIN = re.compile(
    r"(?:a|ae|i|is|us|um|ens|ans|oides|odes|ipes|ale|are|ense|ile|une|estre|color|jor|nor|plex|ax)$"
)
_YEAR = re.compile(r"1[78]\d\d|19\d\d|20\d\d")


def split_author(text: str) -> tuple[str, str]:
    """Return a scientific name without its author, and the author.

    A text that does not look like a scientific name with an author stays whole, with the author ``""``. A
    subspecies or variety loses the author of its species too. Underscores count as blanks in a text
    without blanks.

    Example:
        >>> split_author("Picea abies (L.) H.Karst."), split_author("Red winged Blackbird")
        (('Picea abies', '(L.) H.Karst.'), ('Red winged Blackbird', ''))
        >>> split_author("Pinus nigra J.F.Arnold subsp. laricio (Poir.) Maire")
        ('Pinus nigra subsp. laricio', '(Poir.) Maire')
    """
    plain = text.strip() if re.search(r"\s", text.strip()) else text.strip().replace("_", " ")
    cultivar = _CULTIVAR.search(plain)
    words = (plain[: cultivar.start()] if cultivar else plain).split()
    parsed = _parse(words)
    if parsed is None:
        return text, ""
    name, author = parsed
    return " ".join(name + ([cultivar[0].strip()] if cultivar else [])), " ".join(author)


def _parse(words: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """Return the words of a name and those of its author; ``None`` if it is no such name."""
    start = 1 if words and words[0] in _HYBRID else 0
    if len(words) <= start or not _is_genus(words[start].lstrip("×+")):
        return None
    name, author, species = list(words[: start + 1]), [], []
    place = start + 1
    while place < len(words):
        word, following = words[place], words[place + 1] if place + 1 < len(words) else ""
        if word in _RANKS and (_is_epithet(following) or word in ("subg.", "sect.", "subsect.", "ser.")):
            species = author or species
            name, author, place = [*name, word], [], place + 1
            word = following
            name.append(word)
        elif not author and word in _HYBRID and (_is_epithet(following) or _is_genus(following)):
            name += [word, following]
            place += 1
        elif word in _ENDS or (not author and _is_epithet(word.lstrip("×"))):
            name.append(word)
        else:
            author.append(word)
        place += 1
    epithets = [word for word in name[start + 1 :] if _is_epithet(word.lstrip("×"))]
    if not author and len(epithets) > 1 and epithets[-1] == epithets[0]:
        author = species  # an autonym has no author of its own
    if author and not _is_author(author, words[start], epithets):
        return None
    return (name, author) if len(epithets) <= 3 else None


def _is_genus(word: str) -> bool:
    return len(word) > 1 and word[0].isupper() and _is_small(word[1:])


def _is_epithet(word: str) -> bool:
    return len(word) > 2 and _is_small(word) and word not in _BETWEEN


def _is_small(word: str) -> bool:
    letters = word.replace("-", "")
    return letters.isalpha() and letters.islower()


def _is_author(words: Sequence[str], genus: str, epithets: Sequence[str]) -> bool:
    """Whether words are authors: surely, by a point or a sign, or surnames alone after a Latin name."""
    author, signs = " ".join(words), {"&", "et", "ex"}
    if author.count("(") != author.count(")") or not all(map(_is_author_word, words)):
        return False
    if all(word in _BETWEEN and word[-1] != "." for word in words):
        return False
    if not epithets:
        return "." in words[0] or bool(signs.intersection(words[1:2]))
    if "." in author or signs.intersection(words) or _YEAR.search(author) or re.match(r"\(.+\) \S", author):
        return True
    return len(words) <= 3 and is_latin(genus, epithets)


def is_latin(genus: str, epithets: Sequence[str]) -> bool:
    """Whether a genus or one of its epithets has a Latin ending, which few English words have."""
    return bool(_LATIN_GENUS.search(genus) or any(map(_LATIN.search, epithets)))


def _is_author_word(word: str) -> bool:
    bare = word.strip("()[],")
    if bare in _BETWEEN or bare.startswith(("auct.", "hort.")) or _YEAR.fullmatch(bare):
        return True
    letters = re.sub(r"[.'’-]", "", bare)
    return letters.isalpha() and (bare[0].isupper() or bare[1:2] in ("'", "’"))
