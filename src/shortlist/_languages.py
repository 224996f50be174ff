"""Languages by their codes, as files, browsers and people write them."""

import re
from collections.abc import Iterable

# codes of three letters, with which Darwin Core files name languages, and words
_CODES = {
    code: short
    for short, codes in {
        "ar": "ara arabic",
        "ca": "cat catalan",
        "cs": "ces cze czech",
        "da": "dan danish",
        "de": "deu ger german deutsch",
        "el": "ell gre greek",
        "en": "eng english",
        "es": "spa spanish español castellano",
        "eu": "eus baq basque",
        "fi": "fin finnish",
        "fr": "fra fre french français",
        "he": "heb hebrew",
        "hi": "hin hindi",
        "hu": "hun hungarian",
        "it": "ita italian italiano",
        "ja": "jpn japanese",
        "ko": "kor korean",
        "nb": "nob bokmål",
        "nl": "nld dut dutch nederlands",
        "no": "nor norwegian",
        "pl": "pol polish",
        "pt": "por portuguese português",
        "ro": "ron rum romanian",
        "ru": "rus russian",
        "sk": "slk slo slovak",
        "sv": "swe swedish",
        "tr": "tur turkish",
        "uk": "ukr ukrainian",
        "zh": "zho chi chinese",
    }.items()
    for code in codes.split()
}
_QUALITY = re.compile(r"\s*;\s*q\s*=\s*([\d.]+)")


def language_key(code: str) -> str:
    """Return the code of a language in one form: small letters, two of them if there is such a code.

    Example:
        >>> language_key("pt_BR"), language_key("fra"), language_key("Español")
        ('pt-br', 'fr', 'es')
    """
    first, *more = code.strip().lower().replace("_", "-").split("-")
    return "-".join([_CODES.get(first, first), *more])


def best_language(wanted: str, available: Iterable[str]) -> str | None:
    """Return the available language that somebody wants most; ``None`` if none of those wanted is there.

    Args:
        wanted: A code, or several with their weights, as in the header ``Accept-Language``.
        available: Codes as :func:`language_key` returns them.

    Example:
        >>> best_language("fr-CA;q=0.8, pt", ["en", "fr", "pt-br"]), best_language("xx", ["en"])
        ('pt-br', None)
    """
    keys = {key: None for key in available}
    for code in _by_weight(wanted):
        primary = code.split("-")[0]
        related = (key for key in keys if key.split("-")[0] == primary)
        if (key := code if code in keys else primary if primary in keys else next(related, None)) is not None:
            return key
    return None


def _by_weight(wanted: str) -> list[str]:
    codes: dict[str, float] = {}
    for part in wanted[:500].split(","):
        weight = _QUALITY.search(part)
        try:
            share = 1.0 if weight is None else float(weight[1])
        except ValueError:
            share = 0.0
        if share > 0 and (code := language_key(part.split(";")[0])):
            codes.setdefault(code, share)
    return sorted(codes, key=lambda code: -codes[code])
