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
from shortlist.predictors._chunks import sets_in_chunks, where_at_least
from shortlist.predictors._largest import LargestValues
from shortlist.predictors._size_bounds import SizeBounds
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

    With ``at_least`` and ``at_most`` no set is empty, or too long to read. The best of these rules takes the
    ``at_least`` best classes, and of the others up to the ``at_most``-th those that reach the threshold. It
    lies between the ``(k - at_least) n``-th and the next largest of these others' probabilities.

    Args:
        k: Average size of the sets, > 0; it need not be an integer.
        at_least: Smallest size of a set, at most k.
        at_most: Largest size of a set, at least k; ``None`` for as many as there are classes. With
            ``at_least=k, at_most=k`` the sets are those of :class:`TopK`.
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
        >>> AverageK(1.5, at_least=1, at_most=2, activation="none").calibrate(probabilities).threshold
        tensor(0.2250)

    References:
        C. Garcin, M. Servajean, A. Joly, J. Salmon, "A two-head loss function for deep Average-K
        classification", 2023.
    """

    takes_priors: ClassVar[bool] = True

    def __init__(
        self,
        k: int | float,
        *,
        at_least: int = 0,
        at_most: int | None = None,
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
        self.bounds = SizeBounds.checked(at_least, at_most)
        if k < at_least:
            raise ValueError(f"k must be >= at_least ({at_least}), got {k}")
        if at_most is not None and k > at_most:
            raise ValueError(f"k must be <= at_most ({at_most}), got {k}")
        self.k, self.rule, self.max_rows = k, rule, max_rows
        self.at_least, self.at_most = at_least, at_most

    @property
    def promise(self) -> Promise:
        """Nothing about the true class; the mean size, from so many calibration rows."""
        return Promise("size", size=self.k, rows=None if self.report is None else self.report.rows)

    def kept_rule(self) -> KeptRule | None:
        """Return what the threshold takes of the kept classes, unless priors weigh small probabilities."""
        if not self._looks_at_probabilities:
            return None
        return KeptRule(
            takes=lambda p, rank: self.bounds.take(rank, p >= self.threshold.to(p.dtype)),
            enough=lambda c: max(
                self.at_least, min(self.bounds.largest_size(c), enough_above(float(self.threshold), c))
            ),
            measure=lambda rows: rows.probabilities[:, self.at_least : self.at_most],
            is_exact=lambda dropped: float(self.threshold) > dropped,  # which could only raise it
        )

    def forward(self, scores: Float[Tensor, "n c"] | np.ndarray) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c), some of which may be empty unless ``at_least`` is 1 or more."""
        return sets_in_chunks(self.checked(scores), self._sets)

    def _sets(self, scores: Tensor) -> Tensor:
        values = self.values(scores)
        return self.bounds.sets(where_at_least(values, self.threshold.to(values.dtype)), values)

    def measure(self, scores: Tensor, target: Tensor | None) -> Tensor:
        """Return the values (n, m) of the classes that may be in or out: of all, if sizes have no bounds."""
        return self.bounds.open_values(self.values(scores))

    def accumulator(self, max_rows: int | None = None) -> Accumulator[Finished]:
        """Return an accumulator of the largest values."""
        return LargestValues(partial(self._needed, max_rows), self._finished)

    @torch.no_grad()
    def guesses(self, scores: Tensor, target: Tensor | None) -> list[Accumulator[Finished]]:
        """Return an accumulator with a floor that is very likely below the threshold, from some rows."""
        sample = scores[:: max(1, len(scores) // 256)]
        rank = math.ceil(1.5 * (self.k - self.at_least) * len(sample)) + 64
        if len(scores) < 4096:
            return []
        check_finite(sample)
        self._check_classes(sample.shape[1])
        values = self.measure(sample, None).flatten()
        if rank >= values.numel():
            return []
        floor = float(values.kthvalue(values.numel() - rank + 1).values)
        return [LargestValues(partial(self._needed, len(scores)), self._finished, floor=floor)]

    def _check_classes(self, number: int) -> None:
        super()._check_classes(number)
        if self.k > number:
            raise ValueError(f"k must be <= the number of classes ({number}), got {self.k}")
        self.bounds.check_classes(number)

    def _needed(self, max_rows: int | None, seen: LargestValues) -> int:
        """Return how many of the largest values so far may be above the threshold."""
        most = self.max_rows if max_rows is None else max_rows
        rows = 2 * seen.rows if most is None else max(seen.rows, most)
        return math.ceil((self.k - self.at_least) * rows) + 1

    def _finished(self, seen: LargestValues) -> Finished:
        rows, more = seen.rows, self.k - self.at_least
        if not more and rows:  # the best classes alone
            report = CalibrationReport(rows=rows, average_size=float(self.at_least))
            return Finished({"threshold": seen.values().new_tensor(math.inf)}, report)
        # k n to 6 digits: 0.29 * 100 is meant to be 29
        wanted = more * rows
        budget = round(wanted) if self.rule == "midpoint" else math.floor(round(wanted, 6))
        if budget < 1:
            few = math.ceil(1 / more) if more else 1
            raise ValueError(f"calibration of {self.shown_options()} needs at least {few} rows, got {rows}")
        above, below = seen.around(budget)
        values, after = seen.values(), _next_up(below, seen.values())
        threshold = after if self.rule == "strict" else _round_up((above + below) / 2, values)
        taken, tied = seen.count_at_least(threshold), above == below
        average = self.at_least + taken / rows
        ties = seen.count_at_least(below) - seen.count_at_least(after) if tied else 0
        larger = (
            f"ties at the threshold {threshold:g}: the average size on the {rows} calibration "
            f"rows is {average:g} for k={self.k:g} (rule={self.rule!r})"
        )
        return Finished(
            {"threshold": values.new_tensor(threshold)},
            CalibrationReport(rows=rows, average_size=average, ties=ties),
            (larger,) if tied and budget != taken else (),
        )


def _next_up(value: float, like: Tensor) -> float:
    """Return the smallest number of a tensor's type above a value: ``>=`` it is ``>`` the value."""
    start = torch.tensor(value, dtype=like.dtype)
    return float(torch.nextafter(start, start.new_tensor(math.inf)))


def _round_up(value: float, like: Tensor) -> float:
    """Return the smallest number of a tensor's type that is not below a value."""
    nearest = float(torch.tensor(value, dtype=like.dtype))
    return nearest if nearest >= value else _next_up(nearest, like)
