"""What a predictor promises, how far its calibration rows alone can move that, and what was measured."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from shortlist.predictors.coverage_law import conformal_rank, coverage_range

__all__ = ["About", "Measured", "Promise", "default_predictor"]

About = Literal[
    "rows",
    "average class",
    "average group",
    "weighted classes",
    "each class",
    "each cluster",
    "vote",
    "node",
    "probabilities",
    "size",
    "nothing",
]
"""What a promise is about; ``probabilities``: the model's, which it trusts and so promises nothing itself."""

_HOLDS = {
    "rows": "A list made like this holds the true class {} times in 100, over all rows together",
    "average class": "A list made like this holds the true class {} times in 100 for the average class",
    "average group": "A list made like this holds the true class {} times in 100 for the average {group}",
    "weighted classes": "A list made like this holds the true class {} times in 100, on average over the "
    "classes by the importance that was given to them",
    "each class": "A list made like this holds the true class {} times in 100, whichever class it is",
    "each cluster": "A list made like this holds the true class {} times in 100 in each cluster of classes",
    "vote": "A list made like this holds the class of a random vote {} times in 100",
    "node": "An answer made like this holds the true class {} times in 100, over all rows together",
}
_CHANCE = 0.025  # what is less likely than this is not put down to chance
_LEVEL = 0.95
_MANY = 500  # rows from which on a decimal of a percentage means something


@dataclass(frozen=True)
class Measured:
    """What came of a promise on rows that were neither trained nor calibrated on.

    Args:
        rows: Number of these rows; of the classes that the promise extends to.
        coverage: Share of them whose set contains the true class; for a promise about the average class or
            group, the mean of the classes' own shares, weighted as it is promised.
        low: Lower end of the 95 % interval of the coverage over such rows; ``None`` if it is not known.
        high: Upper end.
        mean_size: Mean number of classes in a set.
        p_value: Chance of so low a coverage, or a lower one, if the promise holds, over calibration rows and
            these rows together; ``None`` if no law is known.
    """

    rows: int
    coverage: float
    low: float | None
    high: float | None
    mean_size: float
    p_value: float | None = None


@dataclass(frozen=True)
class Promise:
    r"""A promise of a predictor, and all that is needed to read it rightly.

    Args:
        about: What it is about: all ``rows`` together, the ``average class``, the ``average group``
            of classes (and within it the average class), the ``weighted classes`` by a given importance,
            ``each class``, ``each cluster`` of classes, a random ``vote``, a ``node`` of a taxonomy;
            ``probabilities`` if coverage was asked for and depends on the model's probabilities being right;
            ``size`` if a mean size is set; ``nothing``.
        level: Promised coverage; ``None`` if no coverage is promised.
        asked: Coverage that was asked for. It is the level, unless a rule promises less or nothing.
        size: Number of classes in each set, or in a set on average, if that is set.
        group: What a group is called, such as "genus", for ``average group``.
        rows: Number of calibration rows; ``None`` if there are none.
        class_rows: For ``each class`` and ``each cluster``, the rows of the smallest one that has a threshold
            of its own, and of the median one.
        left_out: Number of classes to which the promise does not extend, for lack of rows.
        has_law: Whether the coverage given the calibration rows has a known law (see
            :func:`~shortlist.predictors.coverage_law.coverage_range`). If not, only the level is known.
        rows_also: What else the calibration rows served for, such as "chose the epoch". The promise is then
            not exact, since these rows are not like new ones any more.
        measured: Coverage and size on held-out rows, if they were measured.
        void: Why the promise is not about a list: it has only some ``classes``, or is of several ``photos``
            where calibration rows have one each. ``None`` if the promise is about it.

    Example:
        >>> promise = Promise("rows", level=0.9, asked=0.9, rows=84, has_law=True)
        >>> print(promise.words().replace(". ", ".\n"))
        A list made like this holds the true class 90 times in 100, over all rows together.
        It was calibrated on 84 rows.
        Other calibration rows of this number would give a coverage between 83 and 96 % (95 times in 100).
    """

    about: About = "nothing"
    level: float | None = None
    asked: float | None = None
    size: float | None = None
    group: str = ""
    rows: int | None = None
    class_rows: tuple[int, int] | None = None
    left_out: int = 0
    has_law: bool = False
    rows_also: str = ""
    measured: Measured | None = None
    void: Literal["classes", "photos"] | None = None

    def __post_init__(self) -> None:
        if self.about not in get_args(About):
            raise ValueError(f"about must be one of {', '.join(get_args(About))}, got {self.about!r}")
        if (self.level is not None) != (self.about in _HOLDS):
            wanted = "a share" if self.about in _HOLDS else "None"
            raise ValueError(f"level must be {wanted} for a promise about {self.about}, got {self.level!r}")

    @property
    def holds(self) -> bool:
        """Whether a coverage is promised for this very list."""
        return self.level is not None and self.void is None

    @property
    def spread(self) -> tuple[float, float] | None:
        """Ends of the range that holds the coverage for 95 of 100 sets of as many calibration rows.

        Of ``each class`` and ``each cluster`` it is that of the smallest one. ``None`` if no law is known.
        """
        if self._law_rows is None or self.level is None:
            return None
        return coverage_range(self._law_rows, self.level, level=_LEVEL)

    @property
    def _law_rows(self) -> int | None:
        """Number of rows whose choice decides the spread, if its law is known."""
        if not self.has_law:
            return None
        if self._by_unit:
            return None if self.class_rows is None else self.class_rows[0]
        return self.rows

    @property
    def has_too_few_rows(self) -> bool:
        """Whether it is kept only by lists of all classes, since its calibration rows are too few."""
        if self.level is None or self.rows is None:
            return False
        return self.class_rows is None if self._by_unit else conformal_rank(self.rows, self.level) > self.rows

    @property
    def is_below(self) -> bool:
        """Whether what was measured is below the promise by more than all chance together explains.

        The chance is that of the calibration rows and that of the measured rows, and its limit 2.5 %.
        """
        p_value = None if self.measured is None else self.measured.p_value
        return p_value is not None and p_value < _CHANCE

    def with_measured(self, measured: Measured | None) -> "Promise":
        """Return the same promise with what was measured."""
        return replace(self, measured=measured)

    def words(self) -> str:
        """Say all of it in whole sentences."""
        return " ".join([self._what(), *self._calibration(), *self._found()])

    def brief(self) -> str:
        """Say in a few words what is promised about what, for a table.

        Example:
            >>> Promise("average class", level=0.9, asked=0.9).brief(), Promise("size", size=5).brief()
            ('promised 90 for the average class', '5 on average')
        """
        if self.level is not None:
            return f"promised {_percent(self.level)}{self._for_whom()}"
        if self.asked is not None:
            return f"asked for {_percent(self.asked)}"
        return f"{self.size:g} on average" if self.about == "size" else ""

    def _for_whom(self) -> str:
        whom = {
            "rows": "",
            "vote": " for a vote",
            "average class": " for the average class",
            "average group": f" for the average {self.group or 'group'}",
            "weighted classes": " for classes by importance",
            "node": " for a node",
        }
        return whom.get(self.about, f" for {self.about}")

    def in_short(self) -> str:
        """Say in a short sentence each what is promised and what was measured.

        Example:
            >>> found = Measured(921, 0.912, None, None, 1.3)
            >>> Promise("rows", level=0.9, asked=0.9, measured=found).in_short()
            '90 of 100 such lists contain the right class. Measured: 91.2.'
            >>> Promise("size", size=5).in_short()
            'Such lists have 5 classes on average.'
        """
        if self.has_too_few_rows:
            return "Every list holds all classes: there are too few calibration rows."
        contain = "of 100 such lists contain the right class"
        if self.level is not None:
            text = f"{_percent(self.level)} {contain}{self._for_whom()}."
        elif self.size is not None:
            text = f"Such lists have {self.size:g} classes{' on average' if self.about == 'size' else ''}."
        else:
            text = "Nothing is promised about the right class."
        if self.measured is None:
            return text
        times = f"{100 * self.measured.coverage:.{int(self.measured.rows >= _MANY)}f}"
        measured = times if self.level is not None else f"{times} {contain}"
        return f"{text} Measured: {measured}{', less than chance explains' if self.is_below else ''}."

    def _what(self) -> str:
        nothing = "Nothing is promised about the true class."
        if self.level is not None:
            text = _HOLDS[self.about].format(_percent(self.level), group=self.group or "group of classes")
            if self.asked is not None and self.asked != self.level:
                text += f" (asked for were {_percent(self.asked)}, which this rule does not promise)"
            return f"{text}."
        if self.about == "probabilities" and self.asked is not None:
            times = f"{_percent(self.asked)} times in 100"
            return (
                f"A list made like this holds the true class {times} if the model's probabilities are right: "
                "that is no promise."
            )
        if self.about == "size":
            return f"Lists made like this hold {self.size:g} classes on average. {nothing}"
        if self.asked is not None:
            return f"{nothing} Asked for were {_percent(self.asked)} times in 100."
        return nothing if self.size is None else f"Each list holds {self.size:g} classes. {nothing}"

    def _calibration(self) -> list[str]:
        """Say from how many rows it is, and what these alone can do."""
        if self.rows is None:
            return []
        text = f"It was calibrated on {_count(self.rows, 'row')}"
        if self.class_rows is not None:
            least, median = self.class_rows
            text += f", {least:,} of the smallest {self._unit} and {median:,} of the median one"
        said = [text + self._spread_words()]
        if self._by_unit and self.class_rows is None:
            then = "nothing is promised" if self.left_out else "every list holds all classes"
            said.append(f"These are too few for each {self._unit}: {then}.")
        elif self.left_out:
            few = _count(self.left_out, "class has", "classes have")
            whom = "it" if self.left_out == 1 else "them"
            lack = "too few" if self._by_unit else "no"  # an average counts every class that has a row
            said.append(f"{few} {lack} rows: the promise does not extend to {whom}.")
        if self.rows_also:
            said.append(f"These rows also {self.rows_also}, so that the promise is not exact.")
        return said

    @property
    def _by_unit(self) -> bool:
        return self.about in ("each class", "each cluster")

    @property
    def _unit(self) -> str:
        return "cluster" if self.about == "each cluster" else "class"

    def _spread_words(self) -> str:
        """End the sentence about the calibration rows."""
        if self.level is None:
            return "."
        rows = self._law_rows
        if self._by_unit and self.class_rows is None:
            return "."
        if self.spread is None or rows is None:
            return ". How much other calibration rows would change the coverage is not known."
        if conformal_rank(rows, self.level) > rows:
            return ". These are too few: every list holds all classes."
        digits = int(rows >= _MANY)
        low, high = _down(self.spread[0], digits), _up(self.spread[1], digits)
        of = "" if self.class_rows is None else f" for the smallest {self._unit}"
        coverage = f"a coverage between {low} and {high} %{of} (95 times in 100)"
        return f". Other calibration rows of this number would give {coverage}."

    def _found(self) -> list[str]:
        """Say what was measured, and whether it goes with the promise."""
        found = self.measured
        if found is None:
            return []
        digits = int(found.rows >= _MANY)
        times = f"{100 * found.coverage:.{digits}f} times in 100"
        text = f"Measured on {_count(found.rows, 'row')}"
        if self.left_out:
            text += " of the other classes"
        if self.about == "vote":
            text += " by their classes, not by votes"
        text += f": {times}"
        if found.low is not None and found.high is not None:
            text += f" ({_down(found.low, digits)} to {_up(found.high, digits)})"
        said = [f"{text}, with {found.mean_size:.1f} classes on average."]
        if self.is_below:
            where = "For some class it" if self.about == "each class" else "That"
            said.append(f"{where} is below the promise: chance alone does not explain it.")
        elif self.level is not None and found.coverage < self.level and found.p_value is not None:
            said.append(
                "That is less than promised, but chance can explain it: other calibration rows and other "
                "measured rows would give other numbers."
            )
        return said

    def numbers(self) -> dict[str, Any]:
        """Return the few numbers that a program needs beside a list.

        Example:
            >>> Promise("vote", level=0.9, asked=0.9, rows=999).numbers()
            {'about': 'vote', 'level': 0.9, 'calibration_rows': 999, 'spread': None, 'measured': None}
        """
        found = self.measured
        return {
            "about": self.about,
            "level": self.level,
            "calibration_rows": self.rows,
            "spread": self.spread,
            "measured": None if found is None else {"coverage": found.coverage, "rows": found.rows},
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        content = asdict(self)
        if self.class_rows is not None:
            content["class_rows"] = list(self.class_rows)
        return content

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> "Promise":
        """Make the promise that :meth:`to_dict` described."""
        values = dict(content)
        if values.get("class_rows") is not None:
            least, median = values["class_rows"]
            values["class_rows"] = (least, median)
        if values.get("measured") is not None:
            values["measured"] = Measured(**values["measured"])
        return Promise(**values)


def default_predictor(promises: Mapping[str, Promise]) -> str:
    """Return the name of the predictor to use if none is named.

    It is the first one that promises something about the true class. If there is none, or only such as need
    more calibration rows, it is the first of all.

    Args:
        promises: By name, the promise of each predictor; at least one.

    Example:
        >>> default_predictor({"top5": Promise("size", size=5), "lac": Promise("rows", level=0.9, rows=99)})
        'lac'
    """
    useful = [name for name, one in promises.items() if one.level is not None and not one.has_too_few_rows]
    return (useful or list(promises))[0]


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def _percent(share: float) -> str:
    return f"{100 * share:.6g}"


def _down(share: float, digits: int) -> str:
    """Write a lower end in percent, rounded so that nothing is left out of the range."""
    scale = 10**digits
    return f"{math.floor(100 * share * scale + 1e-9) / scale:.{digits}f}"


def _up(share: float, digits: int) -> str:
    scale = 10**digits
    return f"{math.ceil(100 * share * scale - 1e-9) / scale:.{digits}f}"
