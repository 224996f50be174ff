"""Text that people wrote, in one form."""

import unicodedata


def composed(text: str) -> str:
    r"""Return text with each accented letter as one character (Unicode's form NFC).

    The same word can be written in two ways: "é" is one character, or an "e" and an accent after it. Some
    systems change one into the other when files are copied or unpacked.

    Example:
        >>> composed("e\u0301te\u0301") == "\u00e9t\u00e9"
        True
    """
    return unicodedata.normalize("NFC", text)
