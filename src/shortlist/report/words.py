"""Write small texts of the page: numbers with nouns, metrics with intervals."""

from shortlist._text import format_percent
from shortlist.metrics import Estimate
from shortlist.report.parts import interval_ends


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number with its noun.

    Example:
        >>> count(1, "run"), count(3, "class", "classes")
        ('1 run', '3 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def with_interval(metric: Estimate) -> str:
    """Write a share in percent with its interval.

    Example:
        >>> with_interval(Estimate(0.5, 0.45, 0.55))
        '50.0 % (45.0 to 55.0)'
    """
    ends = interval_ends(metric)
    interval = f" ({format_percent(ends[0])} to {format_percent(ends[1])})" if ends else ""
    return f"{format_percent(metric.value)} %{interval}"
