"""The results of an evaluation: plain numbers that can be saved, compared and drawn."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from shortlist._store.files import read_text, write_text
from shortlist._store.json import parse_json, read_as, strict_json
from shortlist.promise import Promise

_FORMAT = "shortlist results 3"

PLAIN = ("balanced_error", "topk_area", "calibration_error", "nll", "brier")
"""Metrics of scores that are one number."""
BELOW_PROMISE = ("under_covered", "shortfall", "class_gap", "size_violation")
"""How far sets are from what was promised; smaller is better."""


@dataclass(frozen=True)
class Estimate:
    """A number with its confidence interval; ``None`` for what is not defined or was not computed."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Averages:
    """The mean over rows, over the classes that have rows, and over those of each group ("few", ...)."""

    micro: Estimate
    macro: Estimate
    groups: Mapping[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupRows:
    """How many classes a group has, how many of them have rows that were measured, and how many such rows."""

    classes: int
    present: int
    rows: int


@dataclass(frozen=True)
class ReliabilityBins:
    """The rows, the accuracy and the mean confidence of each bin of confidence of the first guess."""

    rows: tuple[int, ...]
    accuracy: tuple[float | None, ...]
    confidence: tuple[float | None, ...]


@dataclass(frozen=True)
class ScoreResults:
    """Metrics of the scores themselves.

    Args:
        topk: Top-K accuracy by K.
        balanced_error: One minus the macro top-1 accuracy.
        topk_area: Area under the top-K curve, the mean over all K = 1, ..., c.
        calibration_error: Expected calibration error of the first guess; over rows without NaN.
        nll: Negative log-likelihood of the true class; over rows without NaN. None for sigmoid scores.
        brier: Brier score, from 0 to 2; over rows without NaN. None for sigmoid scores.
        topk_curve: Top-K accuracy for K = 1, 2, ..., as far as asked for.
        reliability: The bins of the calibration error.
        class_hits: By K, the number of rows of each class whose first K guesses contain the class.
        confused_within: By level of the class table's parents, such as "genus": of the rows whose first guess
            is wrong, the share whose guess has the same parent as the true class.
    """

    topk: Mapping[int, Averages]
    balanced_error: Estimate
    topk_area: Estimate
    calibration_error: Estimate
    nll: Estimate
    brier: Estimate
    topk_curve: tuple[float, ...]
    reliability: ReliabilityBins
    class_hits: Mapping[int, tuple[int, ...] | tuple[float, ...]]
    confused_within: Mapping[str, Estimate] = field(default_factory=dict)


@dataclass(frozen=True)
class SetResults:
    """Metrics of the sets of one predictor.

    Args:
        coverage: Share of rows whose set contains the true class.
        coverage_by: By level of the class table's parents, such as "genus": the mean over parents of the mean
            over their classes.
        size: Number of classes in a set; macro and by group of the true class.
        empty_share: Share of rows with an empty set.
        singleton_hits: Share of rows whose set is the true class and nothing else.
        size_quantiles: Quantiles of the size, by share of rows ("0.5").
        group_size_quantiles: Quantiles of the size for the rows of each group of classes that has any.
        size_histogram: Number of sets with 0, 1, 2, ... classes, up to the largest that occurs.
        promise: Promise of the predictor, with its coverage on these rows; ``None`` if there is none.
        under_covered: Share of the classes with rows whose coverage is below the one that was asked for.
        shortfall: Mean over the classes with rows of how far they are below it.
        class_gap: Mean over the classes with rows of how far they are from it, on either side.
        size_violation: Largest distance from it over strata of set sizes, see :func:`size_violation`.
        worst_classes: The classes with the lowest coverage, lowest first.
        worst_coverage: Coverages of these classes, each with the interval of Clopper and Pearson for its rows
            alone: that of one class, as if it had not been chosen for being low.
        worst_rows: Number of rows of each of these classes.
        class_hits: Number of rows of each class whose set contains the class.
        class_sizes: Sum of the set sizes of the rows of each class.
        nodes: For a predictor of nodes of a taxonomy, the mean number of nodes of an answer on each level,
            from the classes up; the share of answers by level where each is one node.
        mean_level: For such a predictor, the mean level of its nodes: 0 for classes, 1 for the level above.
    """

    coverage: Averages
    coverage_by: Mapping[str, Estimate]
    size: Averages
    empty_share: Estimate
    singleton_hits: Estimate
    size_quantiles: Mapping[str, int]
    group_size_quantiles: Mapping[str, Mapping[str, int]]
    size_histogram: tuple[int, ...]
    promise: Promise | None
    under_covered: float | None
    shortfall: float | None
    class_gap: float | None
    size_violation: float | None
    worst_classes: tuple[int, ...]
    worst_coverage: tuple[Estimate, ...]
    worst_rows: tuple[int, ...]
    class_hits: tuple[int, ...]
    class_sizes: tuple[int, ...]
    nodes: Mapping[str, float] | None = None
    mean_level: float | None = None


@dataclass(frozen=True)
class ListNumbers:
    """The coverage of lists, with the interval of Clopper and Pearson, and their mean size."""

    coverage: Estimate
    size: float


@dataclass(frozen=True)
class PopulationNumbers:
    """Lists of the same objects with two thresholds.

    Args:
        objects: Number of objects that were measured.
        calibration: Number of calibration objects like them.
        own: Lists with a threshold of these; ``None`` if they are too few for the coverage.
        common: Lists with the threshold of single photos, of all groups and places.
    """

    objects: int
    calibration: int
    own: ListNumbers | None
    common: ListNumbers


@dataclass(frozen=True)
class PopulationResults:
    """Lists of one promised coverage, by what they are about.

    Args:
        level: Coverage that was promised.
        photos: By number of photos of an object; empty if no object has several.
        groups: By column, such as ``"organ"``, and group.
    """

    level: float
    photos: Mapping[str, PopulationNumbers] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, PopulationNumbers]] = field(default_factory=dict)


def _percent(estimate: "Estimate") -> str:
    return "-" if estimate.value is None else f"{100 * estimate.value:.1f} %"


@dataclass(frozen=True, repr=False)
class Results:
    """All results of :func:`shortlist.metrics.evaluate`.

    Args:
        rows: Number of rows that were measured.
        ignored_rows: Number of rows left out because of their target.
        nan_rows: Number of rows with a NaN among their scores (a miss if it is the true class's).
        classes: Number of classes.
        absent_classes: Number of classes without rows, which macro means leave out.
        ties: Policy for classes that score the same as the true one.
        activation: How scores become probabilities.
        level: Level of the confidence intervals.
        num_resamples: Number of resamples for the intervals, 0 for no intervals.
        groups: Classes and rows of each group; empty if the class table has no training counts.
        class_rows: Number of rows of each class.
        scores: Metrics of the scores.
        sets: Metrics of each predictor's sets.
        label_sets: Where photos have several labels, the numbers of :func:`measure_label_sets`; all others
            are about pairs of a photo and one of its labels.
        populations: Lists by number of photos and by group of rows, where the data say them.
        own: By name, such as ``"metric.near"`` or ``"cost.price"``, the means of functions that a user gave.
    """

    rows: int
    ignored_rows: int
    nan_rows: int
    classes: int
    absent_classes: int
    ties: str
    activation: str
    level: float
    num_resamples: int
    groups: Mapping[str, GroupRows]
    class_rows: tuple[int, ...]
    scores: ScoreResults
    sets: Mapping[str, SetResults]
    label_sets: Mapping[str, float] = field(default_factory=dict)
    populations: PopulationResults | None = None
    own: Mapping[str, Averages] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Show the accuracies, and the coverage and size of each predictor's sets, in percent."""
        shown = [f"top-{k} {_percent(averages.micro)}" for k, averages in self.scores.topk.items()]
        shown += [
            f"{name}: coverage {_percent(sets.coverage.micro)}, size {sets.size.micro.value:.2f}"
            for name, sets in self.sets.items()
        ]
        return f"Results({self.rows:,} rows, {self.classes:,} classes; {'; '.join(shown)})"

    def metrics(self) -> dict[str, Estimate]:
        """Return all metrics by name, such as ``"top5.macro"`` or ``"sets.average_5.coverage.few"``."""
        named: dict[str, Estimate] = {}
        for k, averages in self.scores.topk.items():
            named |= _named(f"top{k}", averages)
        for name in PLAIN:
            named[name] = getattr(self.scores, name)
        named |= {f"confused_within.{level}": share for level, share in self.scores.confused_within.items()}
        for predictor, sets in self.sets.items():
            start = f"sets.{predictor}"
            named |= _named(f"{start}.coverage", sets.coverage) | _named(f"{start}.size", sets.size)
            named |= {f"{start}.coverage_by.{level}": share for level, share in sets.coverage_by.items()}
            named[f"{start}.worst_class"] = sets.worst_coverage[0]
            named |= {f"{start}.{part}": getattr(sets, part) for part in ("empty_share", "singleton_hits")}
            if sets.under_covered is not None:
                named |= {f"{start}.{part}": Estimate(getattr(sets, part)) for part in BELOW_PROMISE}
            if sets.nodes is not None:
                named[f"{start}.mean_level"] = Estimate(sets.mean_level)
                named |= {f"{start}.nodes.{level}": Estimate(mean) for level, mean in sets.nodes.items()}
        for name, averages in self.own.items():
            named |= _named(name, averages)
        return named | {name: Estimate(value) for name, value in self.label_sets.items()}

    def without_measured(self) -> "Results":
        """Return the results without measured promises: rows that calibrated prove nothing about them."""
        sets = {
            name: numbers
            if (promise := numbers.promise) is None
            else replace(numbers, promise=promise.with_measured(None))
            for name, numbers in self.sets.items()
        }
        return replace(self, sets=sets)

    def to_json(self) -> str:
        """Return the results as JSON; infinite numbers are written as text."""
        return strict_json({"format": _FORMAT} | asdict(self))

    @staticmethod
    def from_json(text: str) -> "Results":
        """Read what :meth:`to_json` wrote."""
        try:
            content = parse_json(text)
            written = content.pop("format")
            if written != _FORMAT:
                raise ValueError(f"its format is {written!r}, not {_FORMAT!r}: evaluate anew")
            return read_as(Results, content)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"text is not a file of results written by shortlist: {error!r}") from error

    def save(self, path: str | Path) -> None:
        """Write the results as JSON."""
        write_text(path, self.to_json() + "\n")

    @staticmethod
    def load(path: str | Path) -> "Results":
        """Read what :meth:`save` wrote."""
        try:
            return Results.from_json(read_text(path))
        except ValueError as error:
            raise ValueError(f"{path} is not a file of results written by shortlist: {error}") from error


def _named(start: str, averages: Averages) -> dict[str, Estimate]:
    metrics = {"micro": averages.micro, "macro": averages.macro, **averages.groups}
    return {f"{start}.{name}": metric for name, metric in metrics.items()}
