"""Sets with an error budget that trust the probabilities: no labels, and no promise beyond that trust."""

import math
import warnings
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from shortlist._checks import check_choice, check_number
from shortlist.predictors._activation import Activation
from shortlist.predictors._base import CalibrationReport, CalibrationWarning, SetPredictor, sets_in_chunks
from shortlist.predictors._largest import LargestValues, RowsOutOfOrderError
from shortlist.predictors._order import Places, prefix_sets

__all__ = ["AverageError", "PointwiseError"]


class PointwiseError(SetPredictor):
    """The fewest, most likely classes whose probabilities add up to the coverage; needs no calibration.

    Of all rules whose error is at most ``1 - coverage`` for *each* row it has the smallest sets, if the
    probabilities are right. Nothing is promised if they are not: see :class:`Conformal`.

    Args:
        coverage: In (0, 1).
        activation: ``"softmax"``, or ``"none"`` for probabilities.

    Example:
        >>> PointwiseError(coverage=0.8, activation="none")(torch.tensor([[0.2, 0.5, 0.3], [0.9, 0.1, 0.0]]))
        tensor([[False,  True,  True],
                [ True, False, False]])
    """

    needs_calibration: ClassVar[bool] = False
    adds_probabilities = True

    def __init__(self, *, coverage: float = 0.9, activation: Activation = "softmax") -> None:
        super().__init__(activation=activation)
        self.coverage = _check(coverage, activation)

    def options(self) -> dict[str, Any]:
        """See :class:`SetPredictor`."""
        return {"coverage": self.coverage, "activation": self.activation}

    def forward(self, scores: Float[Tensor, "n c"]) -> Bool[Tensor, "n c"]:
        """Sets (n, c) of at least one class."""
        self._check_ready(scores)
        return sets_in_chunks(scores, lambda some: prefix_sets(self._values(some), self._inside, ties="in"))

    def _inside(self, places: Places) -> Tensor:
        # the running sum minus its last term can round up to the coverage, at the first place never
        return (places.cumulative - places.probability < self.coverage) | (places.rank == 1)


class AverageError(SetPredictor):
    r"""All classes whose probability reaches a threshold, set for an *average* error of ``1 - coverage``.

    .. math:: \{j : p_j \ge t\}, \qquad t \text{ the largest with }
        \frac1n \sum_i \sum_{j : p_{ij} \ge t} p_{ij} \ge \text{coverage}

    on the calibration rows, whose labels are not needed. Of all rules whose error is at most ``1 -
    coverage`` on average it has the smallest sets, if the probabilities are right. Nothing is promised if
    they are not: the same rule with labels is :class:`Conformal` with the score ``"lac"``.

    Args:
        coverage: In (0, 1).
        activation: ``"softmax"``, or ``"none"`` for probabilities.

    Example:
        >>> probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3]])
        >>> AverageError(coverage=0.6, activation="none").calibrate(probabilities).threshold
        tensor(0.4000)
    """

    threshold: Tensor
    adds_probabilities = True

    def __init__(self, *, coverage: float = 0.9, activation: Activation = "softmax") -> None:
        super().__init__(activation=activation)
        self.coverage = _check(coverage, activation)
        self.register_buffer("threshold", torch.tensor(math.nan))
        self._seen = LargestValues()
        self._keep_all = False

    def options(self) -> dict[str, Any]:
        """See :class:`SetPredictor`."""
        return {"coverage": self.coverage, "activation": self.activation}

    def forward(self, scores: Float[Tensor, "n c"]) -> Bool[Tensor, "n c"]:
        """Sets (n, c), some of which may be empty."""
        self._check_ready(scores)
        return self._at_least(scores, self.threshold)

    def calibrate(self, scores: Tensor, target: Tensor | None = None) -> "AverageError":
        """Calibrate on all rows at once; see :class:`SetPredictor`."""
        try:
            return super().calibrate(scores, target)
        except RowsOutOfOrderError:
            self._keep_all = True
            try:
                return super().calibrate(scores, target)
            finally:
                self._keep_all = False

    def _collect(self, scores: Tensor, target: Tensor | None) -> None:
        self._seen.add(self._values(scores), self._limit)

    def _limit(self, values: Tensor, rows: int) -> int:
        """As many of the largest as add up to well over the coverage."""
        if self._keep_all:
            return len(values)
        mass = values.sort(descending=True).values.double().cumsum(0)
        return int((mass < (1 + self.coverage) / 2 * rows).sum()) + 1

    def _settle(self) -> None:
        rows = self._seen.rows
        if rows < 1:
            raise ValueError("calibration needs at least 1 row, got 0")
        values = self._seen.values().sort(descending=True).values
        mass = values.double().cumsum(0)
        needed = self.coverage * rows * (1 - 1e-12)  # sums of many terms round
        enough = int((mass < needed).sum())
        if enough < len(values):
            threshold = float(values[enough])
        elif (float(mass[-1]) if len(mass) else 0.0) + self._seen.at_floor * self._seen.floor >= needed:
            threshold = self._seen.floor
        elif self._seen.dropped:
            raise RowsOutOfOrderError(
                f"the values kept of {rows} rows add up to {float(mass[-1]):g}, but {needed:g} is needed: "
                "the first rows are surer than the later ones. Shuffle the rows, or calibrate(...) at once"
            )
        else:
            threshold = -math.inf  # rows that do not add up to 1
        count = self._seen.count_at_least(threshold)
        above = int((values > threshold).sum())
        mass_above = float(mass[above - 1]) if above else 0.0
        tied = count - above > 1 and mass_above + (count - above - 1) * threshold >= needed
        self.threshold = values.new_tensor(threshold)
        self.report = CalibrationReport(
            rows=rows, average_size=count / rows, ties=count - above if tied else 0
        )
        self._seen = LargestValues()
        self._warn(threshold, (mass_above + (count - above) * threshold) / rows if tied else None)

    def _warn(self, threshold: float, mass: float | None) -> None:
        """Of rows without enough mass, and of ties that bring the sets well over the coverage."""
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
        self._seen = LargestValues()
        self.threshold = torch.full_like(self.threshold, math.nan)

    def pending(self) -> dict[str, Tensor]:
        """See :class:`SetPredictor`."""
        return self._seen.state() if self._seen.rows else {}

    def restore_pending(self, state: dict[str, Tensor]) -> None:
        """See :class:`SetPredictor`."""
        self._seen = LargestValues.from_state(state) if state else LargestValues()


def _check(coverage: float, activation: str) -> float:
    check_choice("activation", activation, ("softmax", "none"))  # sigmoids do not add up to 1
    return check_number("coverage", coverage, above=0.0, below=1.0)
