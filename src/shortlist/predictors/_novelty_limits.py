"""What a calibration set can tell about strangers, and how many rows it takes to tell anything."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from shortlist.predictors.accumulator import Report


@dataclass(frozen=True)
class NoveltyReport(Report):
    """The facts about the calibration of a detector.

    Args:
        rows: Number of calibration rows.
        smallest_p_value: The p-value of a row that is stranger than all of them.
        flagged: Share of the calibration rows that are flagged themselves.
        absent_classes: Classes without calibration rows, where the rule is about classes.
    """

    smallest_p_value: float
    flagged: float
    absent_classes: tuple[int, ...] = ()


def check_enough(smallest: float, rows: int, counts: Tensor | None, options: Mapping[str, Any]) -> None:
    """Refuse a calibration with which no row could ever be flagged.

    Args:
        smallest: The smallest possible p-value.
        rows: Number of calibration rows.
        counts: Calibration rows of each class (c,), for rules about classes.
        options: Options of the detector.
    """
    rule, level = options["rule"], options["level"]
    if smallest <= level + 1e-12:
        return
    if counts is None:
        what = f"needs at least {rows_to_flag(level, options['delta'])} calibration rows, got {rows}"
    else:
        counted = counts if options["classes"] == "all" else counts.where(counts > 0, counts.max())
        what = (_in_each_class if rule == "class" else _in_the_rarest)(level, counts, counted)
        what += f", got {int(counted.min())} in class {int(counted.argmin())}"
    raise ValueError(
        f"NoveltyDetector with rule={rule!r} and level={level:g} can never flag anything: it {what} "
        f"(the smallest possible p-value is {smallest:.3g})"
    )


def _in_each_class(level: float, counts: Tensor, counted: Tensor) -> str:
    needed = rows_to_flag(level)
    few = int((counted < needed).sum())
    have = "1 class has" if few == 1 else f"{few} classes have"
    return f"needs at least {needed} calibration rows in each class, and {have} fewer"


def _in_the_rarest(level: float, counts: Tensor, counted: Tensor) -> str:
    absent = int((counted == 0).sum())
    left = level - absent / len(counted)
    if left <= 0:
        return f"allows at most a share {level:g} of the classes without calibration rows, {absent} have none"
    share = int((counts > 0).sum()) if not absent else len(counted)
    needed = math.ceil(1 / (left * share) - 1e-9)
    return f"needs at least {needed} calibration rows in each of the {share} classes"


def fewest_in_batch(smallest: float, batch: int, level: float) -> int:
    """Return how many rows of a batch must be stranger than all calibration rows before any can be found."""
    return max(1, math.ceil(smallest * batch / level - 1e-9))


def rows_to_flag(level: float, delta: float | None = None) -> int:
    """Return the smallest number of calibration rows whose smallest p-value is at most a level."""
    if delta is None:
        return max(1, math.ceil(1 / level - 1 - 1e-9))
    return 2 * math.ceil(math.log(delta) / math.log1p(-level) - 1e-9)  # 1 - delta ** (1 / half of the rows)
