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
from shortlist.predictors.accumulator import Accumulator, CalibrationReport, Finished, Rows, State
from shortlist.predictors.at_place import check_size_at_place
from shortlist.predictors.kept import KeptRule, enough_above
from shortlist.predictors.thresholds.macro import by_score_and_class
from shortlist.promise import Promise

_SLACK = 1e-9  # in sums of weights


class AverageK(SetPredictor):
    r"""A predictor of all classes whose probability reaches a threshold, set for k classes on average.

    .. math:: \{j : p_j \ge \lambda\}, \qquad \lambda \text{ between the } kn\text{-th and the }
        (kn+1)\text{-th largest of all probabilities of the } n \text{ calibration rows}

    Of all rules with k classes on average it has the smallest error, if the probabilities are right.
    Calibration needs no labels. With ``priors`` the values are :math:`p_j / \pi_j^\tau`: for ``tau=1`` the
    smallest *macro* error.

    With ``at_least`` and ``at_most`` no set is empty, or too long to read. A set then has the ``at_least``
    best classes of the row. The next classes, up to the ``at_most``-th, are in the set if they reach the
    threshold. This threshold is between the ``(k - at_least) n``-th and the next largest probability of these
    next classes.

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
        scores_priors: The priors (c,) that the scores contain, if they differ from ``priors``, such as
            uniform priors for a logit-adjusted loss. The scores are converted before the rule is applied.
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
    takes_place: ClassVar[bool] = True

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
        """No promise about the true class; the mean size, and the number of calibration rows."""
        rows = None if self.report is None else self.report.rows
        return Promise("size", size=self.k, rows=rows, place=self.place_name, classes=self.place_classes)

    def kept_rule(self) -> KeptRule | None:
        """Return which kept classes reach the threshold; ``None`` with priors, which need all scores."""
        if not self._looks_at_probabilities:
            return None
        return KeptRule(
            takes=lambda p, rank: self.bounds.take(rank, p >= self.threshold.to(p.dtype)),
            enough=lambda c: max(
                self.at_least, min(self.bounds.largest_size(c), enough_above(float(self.threshold), c))
            ),
            measure=lambda rows: rows.probabilities[:, self.at_least : self.at_most],
            is_exact=lambda dropped: float(self.threshold) > dropped,  # larger values would only raise it
        )

    def forward(self, scores: Float[Tensor, "n c"] | np.ndarray) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c), some of which may be empty unless ``at_least`` is 1 or more."""
        return sets_in_chunks(self.checked(scores), self._sets)

    def _sets(self, scores: Tensor) -> Tensor:
        values = self.values(scores)
        sets = self._only_there(where_at_least(values, self.threshold.to(values.dtype)))
        return self.bounds.sets(sets, self._ranked(values))

    def measure(self, scores: Tensor, target: Tensor | None) -> Tensor | State:
        """Return the values (n, m) of the open classes, which the bounds on sizes leave to the threshold."""
        if self.place is None:
            return self.bounds.open_values(self.values(scores))
        assert target is not None  # as labels are needed
        return {"values": self.bounds.open_values(self.values(scores)[:, self.place > 0]), "target": target}

    def accumulator(self, max_rows: int | None = None) -> Accumulator[Finished]:
        """Return an accumulator of the largest values."""
        if self.place is not None:
            return Rows(self._finished_at_place)
        return LargestValues(partial(self._needed, max_rows), self._finished)

    def _adapt_to_place(self) -> None:
        check_size_at_place(self.k, self.place_classes)
        self.bounds.check_classes(self.place_classes or 0)
        self.needs_target = True

    @torch.no_grad()
    def quick_accumulators(self, scores: Tensor, target: Tensor | None) -> list[Accumulator[Finished]]:
        """Return an accumulator with a floor, from a sample of rows, that is likely below the threshold."""
        sample = scores[:: max(1, len(scores) // 256)]
        rank = math.ceil(1.5 * self._open_per_row * len(sample)) + 64
        if len(scores) < 4096 or self.place is not None:
            return []
        check_finite(sample)
        self._check_classes(sample.shape[1])
        values = self.bounds.open_values(self.values(sample)).flatten()
        if rank >= values.numel():
            return []
        floor = float(values.kthvalue(values.numel() - rank + 1).values)
        return [LargestValues(partial(self._needed, len(scores)), self._finished, floor=floor)]

    def _check_classes(self, number: int) -> None:
        super()._check_classes(number)
        if self.k > number:
            raise ValueError(f"k must be <= the number of classes ({number}), got {self.k}")
        self.bounds.check_classes(number)

    @property
    def _open_per_row(self) -> float:
        """Mean number of classes of a row that reach the threshold, beside the ``at_least`` best ones."""
        return self.k - self.at_least

    def _needed(self, max_rows: int | None, largest: LargestValues) -> int:
        """Return how many of the largest values so far may be above the threshold."""
        bound = self.max_rows if max_rows is None else max_rows
        rows = 2 * largest.rows if bound is None else max(largest.rows, bound)
        return math.ceil(self._open_per_row * rows) + 1

    def _finished(self, largest: LargestValues) -> Finished:
        # k n to 6 digits: 0.29 * 100 is meant to be 29
        wanted = self._open_per_row * largest.rows
        budget = round(wanted) if self.rule == "midpoint" else math.floor(round(wanted, 6))
        values = largest.values()
        if not self._has_open_classes(budget, largest.rows):
            return self._without_open_classes(values, largest.rows)
        above, below = largest.around(budget)
        threshold = self._between(above, below, values)
        taken, tied, next_up = largest.count_at_least(threshold), above == below, _next_up(below, values)
        ties = largest.count_at_least(below) - largest.count_at_least(next_up) if tied else 0
        average = self.at_least + taken / largest.rows
        report = CalibrationReport(rows=largest.rows, average_size=average, ties=ties)
        return self._with_threshold(threshold, values, report, larger=tied and budget != taken)

    def _finished_at_place(self, rows: Rows) -> Finished:
        """Set the threshold at a place: a row of class y weighs v_y / n_y in the mean size k."""
        assert self.place is not None
        target, values = rows["target"], rows["values"]
        counts = target.bincount(minlength=len(self.place))
        weights = self.place.where(counts > 0, 0.0) / counts.clamp_min(1)
        weights, open_values = weights / (weights * counts).sum(), values.flatten()
        classes = target.repeat_interleave(values.shape[1])
        order = by_score_and_class(-open_values, classes)
        in_order, reached = open_values[order], weights[classes[order]].cumsum(0)
        budget = int((reached <= self._open_per_row + _SLACK).sum())
        if not self._has_open_classes(budget, len(rows)):
            return self._without_open_classes(values, len(rows))
        above = float(in_order[budget - 1])
        below = float(in_order[budget]) if budget < len(in_order) else -math.inf
        threshold = self._between(above, below, values)
        average = self.at_least + float(weights[classes[open_values >= threshold]].sum())
        ties = int((in_order == below).sum()) if above == below else 0
        report = CalibrationReport(rows=len(rows), average_size=average, ties=ties)
        return self._with_threshold(threshold, values, report, larger=average > self.k + _SLACK)

    def _has_open_classes(self, budget: int, rows: int) -> bool:
        """Whether sets have more than the ``at_least`` best classes; an error if rows are too few for it."""
        if budget >= 1 or (rows and not self._open_per_row):
            return bool(self._open_per_row)
        least = math.ceil(1 / self._open_per_row) if self._open_per_row else 1
        raise ValueError(f"calibration of {self.shown_options()} needs at least {least} rows, got {rows}")

    def _without_open_classes(self, like: Tensor, rows: int) -> Finished:
        report = CalibrationReport(rows=rows, average_size=float(self.at_least))
        return Finished({"threshold": like.new_tensor(math.inf)}, report)

    def _between(self, above: float, below: float, like: Tensor) -> float:
        """Return the threshold that the rule sets for the two values around it."""
        return _next_up(below, like) if self.rule == "strict" else _round_up((above + below) / 2, like)

    def _with_threshold(
        self, threshold: float, like: Tensor, report: CalibrationReport, *, larger: bool
    ) -> Finished:
        words = (
            f"ties at the threshold {threshold:g}: the average size on the {report.rows} calibration "
            f"rows is {report.average_size:g} for k={self.k:g} (rule={self.rule!r})"
        )
        return Finished({"threshold": like.new_tensor(threshold)}, report, (words,) if larger else ())


def _next_up(value: float, like: Tensor) -> float:
    """Return the smallest number of a tensor's type above a value: to reach it means to exceed the value."""
    start = torch.tensor(value, dtype=like.dtype)
    return float(torch.nextafter(start, start.new_tensor(math.inf)))


def _round_up(value: float, like: Tensor) -> float:
    """Return the smallest number of a tensor's type that is not below a value."""
    nearest = float(torch.tensor(value, dtype=like.dtype))
    return nearest if nearest >= value else _next_up(nearest, like)
