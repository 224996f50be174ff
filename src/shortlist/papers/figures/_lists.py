"""Options of figures that are lists: one value counts as a list of one, as ``--set k=2`` gives it."""

from collections.abc import Sequence

from shortlist._checks import check_count, check_number


def _listed(name: str, value: object) -> list:
    listed = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not listed:
        raise ValueError(f"{name} must have at least one entry, got {value!r}")
    return listed


def _distinct(name: str, listed: list) -> list:
    if len(set(listed)) < len(listed):
        raise ValueError(f"{name} must all differ, got {listed}")
    return listed


def check_integers(name: str, value: int | Sequence[int], *, below: int | None = None) -> list[int]:
    """Require different integers ``>= 1`` and ``< below``.

    Example:
        >>> check_integers("k", 2), check_integers("k", (1, 5), below=6)
        ([2], [1, 5])
    """
    listed = _listed(name, value)
    for entry in listed:
        check_count(name, entry)
        if below is not None and entry >= below:
            raise ValueError(f"{name} must be < {below}, got {entry}")
    return _distinct(name, listed)


def check_numbers(
    name: str, value: float | Sequence[float], *, low: float = 0.0, above: float = float("-inf")
) -> list[float]:
    """Require different numbers ``>= low`` and ``> above``."""
    return _distinct(name, [float(check_number(name, v, low=low, above=above)) for v in _listed(name, value)])


def check_names(name: str, value: str | Sequence[str] | None, choices: Sequence[str]) -> list[str]:
    """Require different names among the known ones; ``None`` stands for all."""
    if value is None:
        return list(choices)
    listed = _listed(name, value)
    for entry in listed:
        if entry not in choices:
            raise ValueError(f"{name} must be among {', '.join(choices)}, got {entry!r}")
    return _distinct(name, listed)


def check_texts(name: str, value: str | Sequence[str]) -> list[str]:
    """Require different pieces of text."""
    listed = _listed(name, value)
    for entry in listed:
        if not isinstance(entry, str) or not entry:
            raise ValueError(f"{name} must be text, got {entry!r}")
    return _distinct(name, listed)
