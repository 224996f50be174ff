"""Sets of k classes on average, larger for rows that need more."""

import math
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import check_count, check_number
from shortlist.predictors._activation import Activation, check_finite
from shortlist.predictors._base import SetPredictor
from shortlist.predictors._largest import LargestValues
from shortlist.predictors.accumulator import Accumulator, CalibrationReport, Finished
from shortlist.predictors.kept import KeptRule, enough_above
from shortlist.promise import Promise


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

    @property
    def promise(self) -> Promise:
        """Nothing about the true class; the mean size, from so many calibration rows."""
        return Promise("size", size=self.k, rows=None if self.report is None else self.report.rows)

    def kept_rule(self) -> KeptRule | None:
        """Return what the threshold takes of the kept classes, unless priors weigh small probabilities."""
        if not self._looks_at_probabilities:
            return None
        return KeptRule(
            takes=lambda p, rank: p >= self.threshold.to(p.dtype),
            enough=lambda c: enough_above(float(self.threshold), c),
            measure=lambda rows: rows.probabilities,
            is_exact=lambda dropped: float(self.threshold) > dropped,  # which could only raise it
        )

    def forward(self, scores: Float[Tensor, "n c"] | np.ndarray) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c), some of which may be empty."""
        return self._at_least(self.checked(scores), self.threshold)

    def measure(self, scores: Tensor, target: Tensor | None) -> Tensor:
        """Return the values (n, c) of all classes."""
        return self.values(scores)

    def accumulator(self, max_rows: int | None = None) -> Accumulator[Finished]:
        """Return an accumulator of the largest values."""
        return LargestValues(partial(self._needed, max_rows), self._finished)

    @torch.no_grad()
    def guesses(self, scores: Tensor, target: Tensor | None) -> list[Accumulator[Finished]]:
        """Return an accumulator with a floor that is very likely below the threshold, from some rows."""
        sample = scores[:: max(1, len(scores) // 256)]
        rank = math.ceil(1.5 * self.k * len(sample)) + 64
        if len(scores) < 4096 or rank >= sample.numel():
            return []
        check_finite(sample)
        self._check_classes(sample.shape[1])
        values = self.values(sample).flatten()
        floor = float(values.kthvalue(values.numel() - rank + 1).values)
        return [LargestValues(partial(self._needed, len(scores)), self._finished, floor=floor)]

    def _check_classes(self, number: int) -> None:
        super()._check_classes(number)
        if self.k > number:
            raise ValueError(f"k must be <= the number of classes ({number}), got {self.k}")

    def _needed(self, max_rows: int | None, seen: LargestValues) -> int:
        """Return how many of the largest values so far may be above the threshold."""
        most = self.max_rows if max_rows is None else max_rows
        return math.ceil(self.k * (2 * seen.rows if most is None else max(seen.rows, most))) + 1

    def _finished(self, seen: LargestValues) -> Finished:
        # k n to 6 digits: 0.29 * 100 is meant to be 29
        rows, wanted = seen.rows, self.k * seen.rows
        budget = round(wanted) if self.rule == "midpoint" else math.floor(round(wanted, 6))
        if budget < 1:
            raise ValueError(
                f"calibration of k={self.k} needs at least {math.ceil(1 / self.k)} rows, got {rows}"
            )
        above, below = seen.around(budget)
        values, after = seen.values(), _next_up(below, seen.values())
        threshold = after if self.rule == "strict" else _round_up((above + below) / 2, values)
        average, tied = seen.count_at_least(threshold) / rows, above == below
        ties = seen.count_at_least(below) - seen.count_at_least(after) if tied else 0
        larger = (
            f"ties at the threshold {threshold:g}: the average size on the {rows} calibration "
            f"rows is {average:g} for k={self.k:g} (rule={self.rule!r})"
        )
        return Finished(
            {"threshold": values.new_tensor(threshold)},
            CalibrationReport(rows=rows, average_size=average, ties=ties),
            (larger,) if tied and budget != average * rows else (),
        )


def _next_up(value: float, like: Tensor) -> float:
    """Return the smallest number of a tensor's type above a value: ``>=`` it is ``>`` the value."""
    start = torch.tensor(value, dtype=like.dtype)
    return float(torch.nextafter(start, start.new_tensor(math.inf)))


def _round_up(value: float, like: Tensor) -> float:
    """Return the smallest number of a tensor's type that is not below a value."""
    nearest = float(torch.tensor(value, dtype=like.dtype))
    return nearest if nearest >= value else _next_up(nearest, like)
