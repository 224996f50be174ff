"""Sets of k classes on average, larger for rows that need more."""

import math
import warnings
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from shortlist._checks import check_choice, check_count, check_number, check_scores
from shortlist.predictors._activation import Activation, check_finite
from shortlist.predictors._base import CalibrationReport, CalibrationWarning, Classes, Rows, SetPredictor
from shortlist.predictors._kept_rules import KeptAbove
from shortlist.predictors._largest import LargestValues, RowsOutOfOrderError
from shortlist.predictors.promise import Promise

__all__ = ["AverageK"]


class AverageK(SetPredictor):
    r"""A predictor of all classes whose probability reaches a threshold, set for k classes on average.

    .. math:: \{j : p_j \ge \lambda\}, \qquad \lambda \text{ between the } kn\text{-th and the }
        (kn+1)\text{-th largest of all probabilities of the } n \text{ calibration rows}

    Of all rules with k classes on average it has the smallest error, if the probabilities are right.
    Calibration needs no labels. With ``priors`` the values are :math:`p_j / \pi_j^\tau`: for ``tau=1`` the
    smallest *macro* error.

    Args:
        k: Average size of the sets, > 0; it need not be an integer.
        rule: ``"midpoint"``, as published: halfway between the two values, for ``round(k n)`` classes in all.
            If they are equal, all classes with that value are in, and the average is above k: a
            :class:`CalibrationWarning` says by how much. ``"strict"`` never goes above k on the calibration
            rows: only what is larger than the ``(floor(k n) + 1)``-th largest value is in.
        priors: Class frequencies (c,) of the training data, each > 0.
        scores_priors: The priors (c,) that the scores contain, if these are not ``priors``: uniform for a
            logit-adjusted loss, for example. The scores are converted before the rule is applied.
        tau: Exponent of the priors; 1 for macro coverage, 0 for none.
        activation: How scores become probabilities: ``"softmax"``, ``"sigmoid"``, or ``"none"`` if they are
            probabilities already.
        max_rows: Upper bound of the number of rows, for calibration in batches whose order is not random.
            Memory is then that of ``k * max_rows`` values, otherwise of ``2 k`` values for each row so far.
            It never depends on the number of classes.

    Example:
        >>> probabilities = torch.tensor([[0.9, 0.1, 0.0], [0.4, 0.35, 0.25]])
        >>> predictor = AverageK(1.5, activation="none").calibrate(probabilities)
        >>> predictor.threshold  # between 0.35 and 0.25
        tensor(0.3000)
        >>> predictor(probabilities)
        tensor([[ True, False, False],
                [ True,  True, False]])

    References:
        C. Garcin, M. Servajean, A. Joly, J. Salmon, "A two-head loss function for deep Average-K
        classification", 2023.
    """

    takes_priors: ClassVar[bool] = True
    threshold: Tensor

    def __init__(
        self,
        k: int | float,
        *,
        rule: Literal["midpoint", "strict"] = "midpoint",
        priors: Tensor | None = None,
        scores_priors: Tensor | None = None,
        tau: float = 1.0,
        activation: Activation = "softmax",
        max_rows: int | None = None,
    ) -> None:
        super().__init__(activation=activation, priors=priors, scores_priors=scores_priors, tau=tau)
        k = check_number("k", k, above=0.0)
        check_choice("rule", rule, ("midpoint", "strict"))
        if max_rows is not None:
            check_count("max_rows", max_rows)
        self.k, self.rule, self.max_rows = k, rule, max_rows
        self.register_buffer("threshold", torch.tensor(math.nan))
        self._seen = LargestValues()
        self._first_floor = -math.inf

    @property
    def promise(self) -> Promise:
        """Nothing about the true class; the mean size, from so many calibration rows."""
        return Promise("size", size=self.k, rows=None if self.report is None else self.report.rows)

    def options(self) -> dict[str, Any]:
        """Return the arguments of this predictor as plain values."""
        return {"k": self.k, "rule": self.rule, "tau": self.tau, "activation": self.activation}

    def kept_rule(self) -> KeptAbove | None:
        """Return what the threshold takes of the kept classes, unless priors weigh small probabilities."""
        if not self._looks_at_probabilities:
            return None
        return KeptAbove(lambda p: p >= self.threshold.to(p.dtype), lowest=float(self.threshold))

    def forward(self, scores: Float[Tensor, "n c"] | np.ndarray) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c), some of which may be empty."""
        scores = self._checked(scores)
        return self._at_least(scores, self.threshold)

    def calibrate(self, scores: Rows, target: Classes | None = None) -> "AverageK":
        """Calibrate on all rows at once; see :class:`SetPredictor`."""
        scores, target = self._tensors(scores, target)
        check_scores(scores, name="scores")
        self.reset()
        given, self.max_rows = self.max_rows, len(scores)  # known here: whatever the rows' order, it is exact
        try:
            self._first_floor = self._guess_floor(scores)
            return super().calibrate(scores, target)
        except RowsOutOfOrderError:  # the sample was no good
            self._first_floor = -math.inf
            return super().calibrate(scores, target)
        finally:
            self.max_rows, self._first_floor, self._seen = given, -math.inf, LargestValues()

    @torch.no_grad()
    def _guess_floor(self, scores: Tensor) -> float:
        """Return a value that is very likely below the threshold, from some of the rows."""
        sample = scores[:: max(1, len(scores) // 256)]
        rank = math.ceil(1.5 * self.k * len(sample)) + 64
        if len(scores) < 4096 or rank >= sample.numel():
            return -math.inf
        check_finite(sample)
        self._check_classes(sample.shape[1])
        values = self._values(sample).flatten()
        return float(values.kthvalue(values.numel() - rank + 1).values)

    def _measured(self, scores: Tensor, target: Tensor | None) -> Tensor:
        if self.k > scores.shape[1]:
            raise ValueError(f"k must be <= the number of classes ({scores.shape[1]}), got {self.k}")
        return self._values(scores)

    def _add(self, found: Tensor) -> None:
        self._seen.add(found, self._limit)

    @torch.no_grad()
    def add_probabilities(self, probabilities: Tensor, num_classes: int) -> None:
        """Add calibration rows by their largest probabilities (n, m), where no other one can be needed."""
        self._check_rows_of(num_classes)
        self._seen.add(probabilities, self._limit)

    def _check_rows_of(self, num_classes: int) -> None:
        if self.calibrated:
            self.reset()
        self._check_classes(num_classes)
        self._set_num_classes(num_classes)
        if self.k > num_classes:
            raise ValueError(f"k must be <= the number of classes ({num_classes}), got {self.k}")

    def _limit(self, values: Tensor, rows: int) -> int:
        return math.ceil(self.k * (2 * rows if self.max_rows is None else max(rows, self.max_rows))) + 1

    def _settle(self) -> None:
        rows = self._seen.rows
        # k n to 6 digits: 0.29 * 100 is meant to be 29
        budget = round(self.k * rows) if self.rule == "midpoint" else math.floor(round(self.k * rows, 6))
        if budget < 1:
            raise ValueError(
                f"calibration of k={self.k} needs at least {math.ceil(1 / self.k)} rows, got {rows}"
            )
        above, below = self._seen.around(budget)
        values = self._seen.values()
        if self.rule == "strict":
            threshold = _next_up(below, values)
        else:
            threshold = _round_up((above + below) / 2, values)
        average = self._seen.count_at_least(threshold) / rows
        tied = above == below
        ties = (
            self._seen.count_at_least(below) - self._seen.count_at_least(_next_up(below, values))
            if tied
            else 0
        )
        self.threshold = values.new_tensor(threshold)
        self.report = CalibrationReport(rows=rows, average_size=average, ties=ties)
        self._seen = LargestValues()
        if tied and budget != average * rows:
            warnings.warn(
                f"AverageK: ties at the threshold {threshold:g}: the average size on the {rows} calibration "
                f"rows is {average:g} for k={self.k:g} (rule={self.rule!r})",
                CalibrationWarning,
                stacklevel=2,
            )

    def _join(self, other: "AverageK") -> None:
        self._seen.merge(other._seen)

    def _forget(self) -> None:
        self._seen = LargestValues(floor=self._first_floor)
        self.threshold = torch.full_like(self.threshold, math.nan)

    def pending(self) -> dict[str, Tensor]:
        """Return the rows that were added and not yet finished, as tensors to save."""
        return self._seen.state() if self._seen.rows else {}

    def restore_pending(self, state: dict[str, Tensor]) -> None:
        """Restore the rows that :meth:`pending` returned."""
        self._seen = LargestValues.from_state(state) if state else LargestValues()


def _next_up(value: float, like: Tensor) -> float:
    """Return the smallest number of a tensor's type above a value: ``>=`` it is ``>`` the value."""
    start = torch.tensor(value, dtype=like.dtype)
    return float(torch.nextafter(start, start.new_tensor(math.inf)))


def _round_up(value: float, like: Tensor) -> float:
    """Return the smallest number of a tensor's type that is not below a value."""
    nearest = float(torch.tensor(value, dtype=like.dtype))
    return nearest if nearest >= value else _next_up(nearest, like)
