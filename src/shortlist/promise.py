"""What a predictor promises, how far its calibration rows alone can move that, and what was measured."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from shortlist.coverage_law import clopper_pearson, conformal_rank, coverage_range

About = Literal[
    "rows",
    "average class",
    "average group",
    "weighted classes",
    "place",
    "each class",
    "each cluster",
    "vote",
    "node",
    "probabilities",
    "size",
    "nothing",
]
"""What a promise is about; ``probabilities``: the model's, which it trusts and so promises nothing itself."""

_COVERAGE = frozenset(get_args(About)) - {"probabilities", "size", "nothing"}
_CHANCE = 0.025  # a result that is less likely than this is not explained by chance
_LEVEL = 0.95


@dataclass(frozen=True)
class Measured:
    """What was measured of a promise, on rows that were neither trained nor calibrated on.

    Args:
        rows: Number of these rows; of the classes that the promise extends to.
        coverage: Share of them whose set contains the true class; for a promise about the average class or
            group, the mean of the classes' own shares, weighted as it is promised.
        low: Lower end of the 95 % interval of the coverage over such rows; ``None`` if it is not known.
        high: Upper end.
        mean_size: Mean number of classes in a set, over rows; at a place, weighted as the coverage is.
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
class Scope:
    """Which objects a promise is about, where these are not all photos one by one.

    Args:
        unknown: Number of names of the place that are no class of the model.
        photos: Number of photos of each object.
        calibrated_photos: Number of photos of the objects that calibrated, if too few have as many.
        column: Column of the data that chooses photos, such as ``"organ"``.
        value: Its value, such as ``"leaf"``.
        joined: Whether too few calibration photos have the value, so that all photos count.
        macro: Whether each class counts the same.
    """

    unknown: int = 0
    photos: int = 1
    calibrated_photos: int | None = None
    column: str = ""
    value: str = ""
    joined: bool = False
    macro: bool = False


Void = Literal["place", "group", "photos", "few photos", "at most"]
"""Why a promise is not about a list; see :class:`Promise`."""


@dataclass(frozen=True)
class Promise:
    r"""A promise of a predictor, and all that is needed to read it rightly.

    Args:
        about: What it is about: all ``rows`` together, the ``average class``, the ``average group``
            of classes (and within it the average class), the ``weighted classes`` by a given importance,
            what is met at a ``place``, ``each class``, ``each cluster`` of classes, a random ``vote``, a
            ``node`` of a taxonomy;
            ``probabilities`` if coverage was asked for and depends on the model's probabilities being right;
            ``size`` if a mean size is set; ``nothing``.
        level: Promised coverage; ``None`` if no coverage is promised.
        asked: Coverage that was asked for. It is the level, unless a rule promises less or nothing.
        size: Number of classes in each set, or in a set on average, if that is set.
        group: What a group is called, such as "genus", for ``average group``.
        place: Name of the place that lists are for; empty if it has none, or if they are for no place.
        classes: Number of classes that occur there; ``None`` if lists are for no place.
        rows: Number of calibration rows; ``None`` if there are none.
        class_rows: For ``each class`` and ``each cluster``, the rows of the smallest one that has a threshold
            of its own, and of the median one.
        left_out: Number of classes to which the promise does not extend, for lack of rows.
        has_law: Whether the coverage given the calibration rows has a known law (see
            :func:`~shortlist.coverage_law.coverage_range`). If not, only the level is known.
        rows_also: What else the calibration rows served for, such as "chose the epoch". The promise is then
            not exact, since these rows are not like new ones any more.
        measured: Coverage and size on held-out rows, if they were measured.
        void: Why the promise is not about a list: it is for a ``place`` or a ``group`` that its predictor
            does not know, of several ``photos`` where nobody knows which calibration photos are of one
            object, of so many that ``few photos`` calibrate, or has ``at most`` so many classes that it
            cannot be as sure.
            ``None`` if the promise is about it.
        scope: Which objects it is about.
        lists_all: Whether the calibration rows are too few, so that every list has all classes that can
            be; ``None`` if their number tells.
        at_least: Smallest number of classes in a set.
        at_most: Largest number of classes in a set; ``None`` for any.
        share: Share of the calibration rows whose set contains the true class, where it is measured instead
            of promised.
        share_rows: How many rows of one weight tell as much about the share; ``rows`` if ``None``.

    Example:
        >>> promise = Promise("rows", level=0.9, asked=0.9, rows=84, has_law=True)
        >>> [round(end, 3) for end in promise.spread]
        [0.836, 0.958]
    """

    about: About = "nothing"
    level: float | None = None
    asked: float | None = None
    size: float | None = None
    group: str = ""
    place: str = ""
    classes: int | None = None
    rows: int | None = None
    class_rows: tuple[int, int] | None = None
    left_out: int = 0
    has_law: bool = False
    rows_also: str = ""
    measured: Measured | None = None
    void: Void | None = None
    scope: Scope = Scope()
    lists_all: bool | None = None
    at_least: int = 0
    at_most: int | None = None
    share: float | None = None
    share_rows: float | None = None

    def __post_init__(self) -> None:
        if self.about not in get_args(About):
            raise ValueError(f"about must be one of {', '.join(get_args(About))}, got {self.about!r}")
        if (self.level is not None) != (self.about in _COVERAGE):
            wanted = "a share" if self.about in _COVERAGE else "None"
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
        if self.law_rows is None or self.level is None:
            return None
        return coverage_range(self.law_rows, self.level, level=_LEVEL)

    @property
    def share_range(self) -> tuple[float, float] | None:
        """Ends of the exact 95 % interval of the measured share; ``None`` if none was measured."""
        rows = self.share_rows or self.rows
        if self.share is None or not rows:
            return None
        return clopper_pearson(min(self.share, 1.0) * rows, rows, level=_LEVEL)

    @property
    def law_rows(self) -> int | None:
        """Number of rows whose choice decides the spread, if its law is known."""
        if not self.has_law:
            return None
        if self.is_by_unit:
            return None if self.class_rows is None else self.class_rows[0]
        return self.rows

    @property
    def is_by_unit(self) -> bool:
        """Whether each class, or each cluster of classes, has a promise of its own."""
        return self.about in ("each class", "each cluster")

    @property
    def has_too_few_rows(self) -> bool:
        """Whether it is kept only by lists of all classes, since its calibration rows are too few."""
        if self.level is None or self.rows is None or self.lists_all is not None:
            return bool(self.lists_all)
        return (
            self.class_rows is None if self.is_by_unit else conformal_rank(self.rows, self.level) > self.rows
        )

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
        values["scope"] = Scope(**values.get("scope", {}))
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
