"""Sets with a given error that trust the probabilities: they need no labels and promise nothing more."""

import math

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import check_number
from shortlist.predictors._activation import Activation
from shortlist.predictors._base import SetPredictor, UncalibratedPredictor
from shortlist.predictors._chunks import sets_in_chunks, where_at_least
from shortlist.predictors._exact import exact_sum, first_reaching, from_units, to_units
from shortlist.predictors._largest import LargestValues
from shortlist.predictors._order import Places, prefix_sets
from shortlist.predictors._window import MANY, find_window
from shortlist.predictors.accumulator import Accumulator, CalibrationReport, Finished, RowsOutOfOrderError
from shortlist.promise import Promise


class PointwiseError(UncalibratedPredictor):
    """A predictor of the fewest classes whose probabilities add up to the coverage; needs no calibration.

    Of all rules whose error is at most ``1 - coverage`` for *each* row it has the smallest sets, if the
    probabilities are right. Nothing is promised if they are not: see :class:`Conformal`.

    Args:
        coverage: Wanted probability that a set contains the true class, in (0, 1).
        activation: ``"softmax"``, or ``"none"`` if the scores are probabilities already.

    Example:
        >>> PointwiseError(coverage=0.8, activation="none")(torch.tensor([[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]))
        tensor([[False,  True,  True],
                [ True, False, False]])
    """

    adds_probabilities = True

    def __init__(self, coverage: float = 0.9, *, activation: Activation = "softmax") -> None:
        super().__init__(activation=activation)
        self.coverage = _check(coverage, activation)

    @property
    def promise(self) -> Promise:
        """No promise: the coverage that was asked for comes if the probabilities are right."""
        return Promise("probabilities", asked=self.coverage)

    def forward(self, scores: Float[Tensor, "n c"] | np.ndarray) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c), each of at least one class."""
        scores = self.checked(scores)
        return sets_in_chunks(scores, lambda some: prefix_sets(self.values(some), self._inside, ties="in"))

    def _inside(self, places: Places) -> Tensor:
        # a class is in if the sum of those before it is below the coverage; rounding may lift that sum, so
        # the first class, which must be in every set, is named
        return (places.cumulative - places.probability < self.coverage) | (places.rank == 1)


class AverageError(SetPredictor):
    r"""A predictor of all classes above a threshold, set for an *average* error of ``1 - coverage``.

    .. math:: \{j : p_j \ge t\}, \qquad t \text{ the largest with }
        \frac1n \sum_i \sum_{j : p_{ij} \ge t} p_{ij} \ge \text{coverage}

    on the calibration rows, whose labels are not needed. Of all rules whose error is at most ``1 -
    coverage`` on average it has the smallest sets, if the probabilities are right. Nothing is promised if
    they are not: the same rule with labels is :class:`Conformal` with the score ``"lac"``.

    Args:
        coverage: Wanted probability that a set contains the true class, in (0, 1).
        activation: ``"softmax"``, or ``"none"`` if the scores are probabilities already.

    Example:
        >>> probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3]])
        >>> AverageError(coverage=0.6, activation="none").calibrate(probabilities).threshold
        tensor(0.4000)
    """

    adds_probabilities = True

    def __init__(self, coverage: float = 0.9, *, activation: Activation = "softmax") -> None:
        super().__init__(activation=activation)
        self.coverage = _check(coverage, activation)

    @property
    def promise(self) -> Promise:
        """No promise: the coverage that was asked for comes if the probabilities are right."""
        rows = None if self.report is None else self.report.rows
        return Promise("probabilities", asked=self.coverage, rows=rows)

    def forward(self, scores: Float[Tensor, "n c"] | np.ndarray) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c), some of which may be empty."""

        def sets(some: Tensor) -> Tensor:
            values = self.values(some)
            return where_at_least(values, self.threshold.to(values.dtype))

        return sets_in_chunks(self.checked(scores), sets)

    def measure(self, scores: Tensor, target: Tensor | None) -> Tensor:
        """Return the probabilities (n, c) of all classes."""
        return self.values(scores)

    def accumulator(self, max_rows: int | None = None) -> Accumulator[Finished]:
        """Return an accumulator of the largest probabilities; of all where their number is known."""
        return LargestValues(self._needed if max_rows is None else _all, self._finished)

    def quick_accumulators(self, scores: Tensor, target: Tensor | None) -> list[Accumulator[Finished]]:
        """Return an accumulator of values near the threshold, which some rows tell, and one of large ones."""
        window = find_window(scores, target, self.values, self.coverage) if scores.numel() >= MANY else None
        if window is None:
            return [self.accumulator()]
        low, high = window
        around = LargestValues(_all, self._finished, floor=low, ceiling=high)
        return [around, self.accumulator()]

    def _needed(self, seen: LargestValues) -> int:
        """Return how many of the largest values add up to well over the coverage."""
        return first_reaching(seen.in_order(), to_units((1 + self.coverage) / 2 * seen.rows)) + 1

    def _finished(self, seen: LargestValues) -> Finished:
        rows = seen.rows
        if rows < 1:
            raise ValueError("calibration needs at least 1 row, got 0")
        values = seen.in_order()
        needed = to_units(self.coverage * rows * (1 - 1e-12))  # probabilities are rounded
        threshold = _threshold(seen, values, needed)
        count = seen.count_at_least(threshold)
        higher = int((values > threshold).sum())
        mass, equal = seen.mass_above + exact_sum(values[:higher]), count - seen.above - higher
        unit = to_units(threshold) if threshold > -math.inf else 0
        tied = equal > 1 and mass + (equal - 1) * unit >= needed > mass
        return Finished(
            {"threshold": values.new_tensor(threshold)},
            CalibrationReport(rows=rows, average_size=count / rows, ties=equal if tied else 0),
            self._warnings(threshold, from_units(mass + equal * unit) / rows if tied else 0.0),
        )

    def _warnings(self, threshold: float, mass: float) -> tuple[str, ...]:
        """Warn of rows without enough mass, and of ties that bring the sets well over the coverage."""
        if threshold == -math.inf:
            return (
                f"the probabilities add up to less than coverage={self.coverage:g} a row: "
                "every set will hold all classes",
            )
        if mass > self.coverage + 0.005:
            return (
                f"ties at the threshold {threshold:g}: on the calibration rows the mean probability of a set "
                f"is {mass:.4g} for coverage={self.coverage:g}",
            )
        return ()


def _all(seen: LargestValues) -> int:
    """Return that all values may be needed."""
    return len(seen.values())


def _threshold(seen: LargestValues, values: Tensor, needed: int) -> float:
    """Return the largest value that brings the sum of all not below it to what is needed."""
    place = first_reaching(values, needed - seen.mass_above)
    reached = seen.mass_above + exact_sum(values)
    if place < len(values) and seen.mass_above < needed:
        return float(values[place])
    if seen.mass_above < needed and seen.at_floor:
        if reached + seen.at_floor * to_units(seen.floor) >= needed:
            return seen.floor
    if seen.dropped or seen.mass_above >= needed:
        raise RowsOutOfOrderError(
            f"the values kept of {seen.rows} rows add up to {from_units(reached):g}, but "
            f"{from_units(needed):g} is needed: the first rows are surer than the later ones. "
            "Shuffle the rows, or calibrate(...) at once"
        )
    return -math.inf  # rows that do not add up to 1


def _check(coverage: float, activation: str) -> float:
    check_choice("activation", activation, ("softmax", "none"))  # sigmoids do not add up to 1
    return check_number("coverage", coverage, above=0.0, below=1.0)
