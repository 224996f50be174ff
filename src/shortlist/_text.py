"""Text that people wrote, in one form; numbers as text; nested values by dotted key."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Any


def composed(text: str) -> str:
    r"""Return text with each accented letter as one character (Unicode's form NFC).

    The same word can be written in two ways: "é" is one character, or an "e" and an accent after it. Some
    systems change one into the other when files are copied or unpacked.

    Example:
        >>> composed("e\u0301te\u0301") == "\u00e9t\u00e9"
        True
    """
    return unicodedata.normalize("NFC", text)


_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})  # categories of what nobody sees
# letters and marks that nobody sees, whatever their category says
_BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_ALPHABETS = frozenset({"LATIN", "CYRILLIC", "GREEK"})  # which have letters that look the same
_LETTERS = re.compile(r"[^\W\d_]+")


def check_distinct(name: str, text: str) -> None:
    """Refuse a name that could look like another one: by blanks, hidden characters, or mixed alphabets."""
    blanks = text != " ".join(text.split())
    hidden = _BLANK.search(text) or any(unicodedata.category(letter) in _HIDDEN for letter in text)
    mixed = any(
        len(_ALPHABETS & {_alphabet(letter) for letter in word}) > 1 for word in _LETTERS.findall(text)
    )
    if blanks or hidden or mixed:
        words = "no blanks but single ones between words, no hidden characters, and one alphabet in each word"
        raise ValueError(f"{name} must have {words}, got {text[:80]!a}")


def _alphabet(letter: str) -> str:
    return unicodedata.name(letter, "").split(" ")[0]


def folded(text: str) -> str:
    """Return text as it is searched for: small letters without accents, one blank between words, no ×.

    Example:
        >>> folded("Mentha ×piperita"), folded("  Chêne  PÉDONCULÉ")
        ('mentha piperita', 'chene pedoncule')
    """
    apart = unicodedata.normalize("NFKD", text.replace("×", " ").casefold())
    plain = "".join(letter for letter in apart if not unicodedata.combining(letter))
    return " ".join(plain.split())


def format_percent(share: float | None, digits: int = 1) -> str:
    """Write a share in percent, without the sign; an unknown number is a hyphen.

    Example:
        >>> format_percent(0.12345), format_percent(0.9, 0), format_percent(None)
        ('12.3', '90', '-')
    """
    return "-" if share is None else f"{100 * share:.{digits}f}"


def format_points(difference: float) -> str:
    """Write a difference of shares in percent points, with its sign.

    Example:
        >>> format_points(-0.0123)
        '-1.2'
    """
    return f"{100 * difference:+.1f}"


def format_interval(
    value: float | None,
    low: float | None,
    high: float | None,
    *,
    factor: float = 100,
    digits: int = 1,
    plus_minus: str = " ± ",
) -> str:
    """Write a number and half its interval, a share in percent.

    Example:
        >>> format_interval(0.5, 0.49, 0.51), format_interval(0.5, None, None)
        ('50.0 ± 1.0', '50.0')
    """
    if value is None:
        return "-"
    text = f"{factor * value:.{digits}f}"
    if low is None or high is None:
        return text
    return f"{text}{plus_minus}{factor * (high - low) / 2:.{digits}f}"


def flatten(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted key.

    Example:
        >>> flatten({"loss": {"name": "ldam"}, "epochs": 3})
        {'loss.name': 'ldam', 'epochs': 3}
    """
    flat: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
