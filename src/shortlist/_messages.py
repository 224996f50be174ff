"""What is said to people when something goes wrong: one line, of a bounded length."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path

MAX_MESSAGE = 2000
"""Characters of the longest message."""


def shortened(text: str, limit: int = MAX_MESSAGE) -> str:
    """Cut the middle out of a text that is too long, and say how much is left out.

    Example:
        >>> shortened("a" * 30 + "b" * 70, limit=60)
        'aaaaaaaaaaaa ... (76 characters left out) ... bbbbbbbbbbbb'
    """
    if len(text) <= limit:
        return text
    # with the number of all characters, which has at least as many digits as that of those left out
    room = limit - len(f" ... ({len(text)} characters left out) ... ")
    half = max(0, room // 2)
    start, end = text[:half], text[len(text) - half :]
    return f"{start} ... ({len(text) - 2 * half} characters left out) ... {end}"


def one_line(error: BaseException | Warning | str) -> str:
    r"""Say what went wrong in one line; an error without words by the name of its kind.

    Control characters, by which the name of a file could write to the terminal, are shown as escapes.

    Example:
        >>> one_line(ValueError("k must be >= 1,\n  got 0"))
        'k must be >= 1, got 0'
        >>> print(one_line("a \x1b[31mred name"))
        a \x1b[31mred name
    """
    try:
        text = str(error)
    except Exception:  # an error whose words cannot be made must not hide what it is
        text = ""
    text = " ".join(text.split())
    text = "".join(repr(c)[1:-1] if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)
    return shortened(text or type(error).__name__)


def examples(items: Sequence[object], limit: int = 3) -> str:
    """Return the first few items of many, for a message."""
    shown = ", ".join(str(item) for item in items[:limit])
    return shown + (", ..." if len(items) > limit else "")


def counted(number: int, noun: str, verb: str = "") -> str:
    """Return a number with its noun and perhaps "is" or "are".

    Example:
        >>> counted(1, "name", "is"), counted(1200, "class")
        ('1 name is', '1,200 classes')
    """
    plural = noun if number == 1 else noun + ("es" if noun.endswith("s") else "s")
    verb = {"is": " is" if number == 1 else " are"}.get(verb, "")
    return f"{number:,} {plural}{verb}"


def missing(path: str | Path, help_text: str) -> FileNotFoundError:
    """Return the error for a missing file, which says where to get it and where to put it."""
    return FileNotFoundError(f"{path} is missing. {help_text}")
