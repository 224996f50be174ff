"""The language that is spoken: its sentences, from a file of ``_strings`` for each language, and its numbers.

English is spoken unless :func:`speaking` says otherwise.
"""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from typing import Any

from shortlist._languages import best_language

LANGUAGE = "en"
"""Language of the sentences, if no other is spoken."""
LANGUAGES = ("en", "fr", "de", "es", "pt", "it")
"""Languages that have a file of sentences."""
_SPOKEN: ContextVar[str] = ContextVar("language", default=LANGUAGE)
_ONE_BELOW_TWO = ("fr", "pt")
_MANY = 500  # photos from which on a decimal of a percentage means something


def language_for(wanted: str) -> str:
    """Return the language of the sentences that is best for somebody; English if none is.

    Args:
        wanted: A code, or several with weights, as in the header ``Accept-Language``.

    Example:
        >>> language_for("nl, fr-CA;q=0.5"), language_for("ja")
        ('fr', 'en')
    """
    return best_language(wanted, LANGUAGES) or LANGUAGE


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Say what is said inside in one of the :data:`LANGUAGES`.

    Example:
        >>> with speaking("fr"):
        ...     as_number("1,234.5")
        '1\u202f234,5'
    """
    token = _SPOKEN.set(language)
    try:
        yield
    finally:
        _SPOKEN.reset(token)


def strings() -> dict[str, Any]:
    """Return all sentences in the language that is spoken: of a ``promise``, ``novelty`` and the ``page``."""
    return _read(_SPOKEN.get())


@cache
def _read(language: str) -> dict[str, Any]:
    path = files("shortlist").joinpath(f"_strings/{language}.json")
    return json.loads(path.read_text(encoding="utf-8"))


def as_number(text: str) -> str:
    """Write a number, as Python does with commas, as the language that is spoken does."""
    signs = strings()["number"]
    return text.translate(str.maketrans({",": signs["thousands"], ".": signs["decimal"]}))


def as_count(number: int) -> str:
    """Write a whole number."""
    return as_number(f"{number:,}")


def is_singular(number: float) -> bool:
    """Whether a noun after a number is in the singular: in French and Portuguese below 2, else for 1."""
    return 0 <= number < 2 if _SPOKEN.get() in _ONE_BELOW_TWO else number == 1


def as_percent(share: float) -> str:
    """Write a share in percent, without the sign."""
    return as_number(f"{100 * share:.6g}")


def _digits(rows: int) -> int:
    return int(rows >= _MANY)


def as_share(share: float, rows: int) -> str:
    """Write a share in percent; 100 is for all rows only."""
    text = f"{100 * share:.{_digits(rows)}f}"
    text = f"{math.floor(1000 * share) / 10:.1f}" if float(text) == 100 and share < 1 - 1e-9 else text
    return as_number(text)


def as_lower_end(share: float, rows: int) -> str:
    """Write a lower end in percent, rounded so that nothing is left out of the range."""
    scale = 10 ** _digits(rows)
    return as_number(f"{math.floor(100 * share * scale + 1e-9) / scale:.{_digits(rows)}f}")


def as_upper_end(share: float, rows: int) -> str:
    """Write an upper end in percent, rounded so that nothing is left out of the range."""
    scale = 10 ** _digits(rows)
    return as_number(f"{math.ceil(100 * share * scale - 1e-9) / scale:.{_digits(rows)}f}")
