"""Sets with a given error that trust the probabilities: they need no labels and promise nothing more."""

import math
import warnings
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from shortlist._checks import check_choice, check_number, check_scores
from shortlist.predictors._activation import Activation
from shortlist.predictors._base import (
    CalibrationReport,
    CalibrationWarning,
    Classes,
    Rows,
    SetPredictor,
)
from shortlist.predictors._chunks import sets_in_chunks
from shortlist.predictors._exact import exact_sum, first_reaching, from_units, to_units
from shortlist.predictors._largest import LargestValues, RowsOutOfOrderError
from shortlist.predictors._order import Places, prefix_sets
from shortlist.predictors._window import MANY, find_window
from shortlist.predictors.promise import Promise

__all__ = ["AverageError", "PointwiseError"]


class PointwiseError(SetPredictor):
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

    needs_calibration: ClassVar[bool] = False
    adds_probabilities = True

    def __init__(self, coverage: float = 0.9, *, activation: Activation = "softmax") -> None:
        super().__init__(activation=activation)
        self.coverage = _check(coverage, activation)

    @property
    def promise(self) -> Promise:
        """No promise: the coverage that was asked for comes if the probabilities are right."""
        return Promise("probabilities", asked=self.coverage)

    def options(self) -> dict[str, Any]:
        """Return the arguments of this predictor as plain values for JSON."""
        return {"coverage": self.coverage, "activation": self.activation}

    def forward(self, scores: Float[Tensor, "n c"] | np.ndarray) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c), each of at least one class."""
        scores = self._checked(scores)
        return sets_in_chunks(scores, lambda some: prefix_sets(self._values(some), self._inside, ties="in"))

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

    threshold: Tensor
    adds_probabilities = True

    def __init__(self, coverage: float = 0.9, *, activation: Activation = "softmax") -> None:
        super().__init__(activation=activation)
        self.coverage = _check(coverage, activation)
        self.register_buffer("threshold", torch.tensor(math.nan))
        self._window: tuple[float, float] | None = None  # what the threshold lies between, if that is known
        self._seen = LargestValues()

    @property
    def promise(self) -> Promise:
        """No promise: the coverage that was asked for comes if the probabilities are right."""
        rows = None if self.report is None else self.report.rows
        return Promise("probabilities", asked=self.coverage, rows=rows)

    def options(self) -> dict[str, Any]:
        """Return the arguments of this predictor as plain values for JSON."""
        return {"coverage": self.coverage, "activation": self.activation}

    def forward(self, scores: Float[Tensor, "n c"] | np.ndarray) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c), some of which may be empty."""
        scores = self._checked(scores)
        return self._at_least(scores, self.threshold)

    def calibrate(self, scores: Rows, target: Classes | None = None) -> "AverageError":
        """Calibrate on all rows at once; see :class:`SetPredictor`."""
        scores, target = self._tensors(scores, target)
        check_scores(scores, name="scores")
        self.reset()
        guess = find_window(scores, target, self._values, self.coverage) if scores.numel() >= MANY else None
        for window in (guess, None, (-math.inf, math.inf)):  # the last one keeps all
            self._window = window
            try:
                return super().calibrate(scores, target)
            except RowsOutOfOrderError:
                continue
            finally:
                self._window = None
        raise AssertionError("all values were kept")

    def _measured(self, scores: Tensor, target: Tensor | None) -> Tensor:
        return self._values(scores)

    def _add(self, found: Tensor) -> None:
        self._seen.add(found, self._limit)

    def _limit(self, values: Tensor, rows: int) -> int:
        """Return how many of the largest values add up to well over the coverage."""
        if self._window is not None:
            return len(values)
        return first_reaching(self._seen.in_order(), to_units((1 + self.coverage) / 2 * rows)) + 1

    def _settle(self) -> None:
        rows = self._seen.rows
        if rows < 1:
            raise ValueError("calibration needs at least 1 row, got 0")
        values, seen = self._seen.in_order(), self._seen
        needed = to_units(self.coverage * rows * (1 - 1e-12))  # probabilities are rounded
        threshold = self._threshold(values, needed)
        count = seen.count_at_least(threshold)
        higher = int((values > threshold).sum())
        mass, equal = seen.mass_above + exact_sum(values[:higher]), count - seen.above - higher
        unit = to_units(threshold) if threshold > -math.inf else 0
        tied = equal > 1 and mass + (equal - 1) * unit >= needed > mass
        self.threshold = values.new_tensor(threshold)
        self.report = CalibrationReport(rows=rows, average_size=count / rows, ties=equal if tied else 0)
        self._seen = LargestValues()
        self._warn(threshold, from_units(mass + equal * unit) / rows if tied else None)

    def _threshold(self, values: Tensor, needed: int) -> float:
        """Return the largest value that brings the sum of all not below it to what is needed."""
        seen = self._seen
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

    def _warn(self, threshold: float, mass: float | None) -> None:
        """Warn of rows without enough mass, and of ties that bring the sets well over the coverage."""
        message = None
        if threshold == -math.inf:
            message = (
                f"the probabilities add up to less than coverage={self.coverage:g} a row: "
                "every set will hold all classes"
            )
        elif mass is not None and mass > self.coverage + 0.005:
            message = (
                f"ties at the threshold {threshold:g}: on the calibration rows the mean probability of a set "
                f"is {mass:.4g} for coverage={self.coverage:g}"
            )
        if message is not None:
            warnings.warn(f"AverageError: {message}", CalibrationWarning, stacklevel=4)

    def _join(self, other: "AverageError") -> None:
        self._seen.merge(other._seen)

    def _forget(self) -> None:
        floor, ceiling = self._window or (-math.inf, math.inf)
        self._seen = LargestValues(floor=floor, ceiling=ceiling)
        self.threshold = torch.full_like(self.threshold, math.nan)

    def pending(self) -> dict[str, Tensor]:
        """Return the rows that were added and not yet finished, as tensors to save."""
        return self._seen.state() if self._seen.rows else {}

    def restore_pending(self, state: dict[str, Tensor]) -> None:
        """Restore the rows that :meth:`pending` returned."""
        self._seen = LargestValues.from_state(state) if state else LargestValues()


def _check(coverage: float, activation: str) -> float:
    check_choice("activation", activation, ("softmax", "none"))  # sigmoids do not add up to 1
    return check_number("coverage", coverage, above=0.0, below=1.0)
