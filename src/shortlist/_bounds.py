"""Checks of plain values, for modules that do without torch; ``_checks`` has them for those that do not."""

import math
import numbers


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Require one of the given words."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def require_number(
    name: str,
    value: int | float,
    *,
    low: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    high: float = math.inf,
) -> int | float:
    """Require a finite number ``>= low``, ``> above``, ``< below``, ``<= high``; return a Python number."""
    bound = f" > {above:g}" if above > -math.inf else f" >= {low:g}" if low > -math.inf else ""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number{bound}, got {value!r}")
    if value < low or value <= above:
        raise ValueError(f"{name} must be{bound}, got {value!r}")
    if value >= below:
        raise ValueError(f"{name} must be < {below:g}, got {value!r}")
    if value > high:
        raise ValueError(f"{name} must be <= {high:g}, got {value!r}")
    return value if isinstance(value, int | float) else float(value)  # a NumPy scalar


def require_count(name: str, value: int, *, low: int = 1) -> None:
    """Require an integer ``>= low``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"{name} must be an integer >= {low}, got {value!r}")
