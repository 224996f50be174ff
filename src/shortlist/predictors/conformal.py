"""Sets that contain the true class with a promised probability."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import can_read_values, check_number, check_scores, promote
from shortlist.coverage_law import conformal_rank, rows_needed
from shortlist.predictors._activation import Activation
from shortlist.predictors._base import Classes, Scores, SetPredictor
from shortlist.predictors._calibrated import registered_name
from shortlist.predictors._chunks import sets_in_chunks
from shortlist.predictors._exact import exact_sum, from_units
from shortlist.predictors._size_bounds import SizeBounds
from shortlist.predictors._votes import find_votes, scored_votes
from shortlist.predictors.accumulator import Accumulator, CalibrationReport, Finished, Rows, State
from shortlist.predictors.conformity import (
    CONFORMITY_SCORES,
    LAC,
    ConformityScore,
    OrderedScore,
    sets_within,
    true_class_scores,
)
from shortlist.predictors.kept import KeptRows, KeptRule, enough_above
from shortlist.predictors.thresholds import THRESHOLD_RULES, Macro, Marginal, ThresholdRule, Thresholds
from shortlist.promise import Promise


class Conformal(SetPredictor):
    r"""A predictor of all classes whose conformity score is at most a quantile of the calibration scores.

    With n calibration rows exchangeable with the new ones, the set of a new row holds its class with
    probability in :math:`[1 - a, 1 - a + 1/(n + 1)]` (without ties), whatever the model, where ``coverage``
    is :math:`1 - a`: the threshold is the :math:`\lceil (n + 1)(1 - a) \rceil`-th smallest score, infinite
    when there are too few rows.

    The ``rule`` says what the promise is about: all rows together, as above (``"marginal"``), the average
    class (``"macro"``), or each class (``"class_conditional"``). With ``priors`` and no ``rule``, it is about
    the average class.

    Args:
        coverage: Promised share of sets that contain the true class, in (0, 1).
        score: ``"lac"``, ``"aps"``, ``"raps"``, ``"saps"``, ``"prevalence_adjusted"``, or an instance such as
            ``RAPS(penalty=0.02, k_reg=3)``; see :mod:`shortlist.predictors.conformity`. By default ``"lac"``,
            or ``"prevalence_adjusted"`` with priors or the rule ``"macro"``.
        rule: How the threshold is set: ``"marginal"``, ``"macro"``, ``"class_conditional"``, ``"clustered"``,
            ``"interpolated"``, or an instance such as ``Macro(classes="all")``; see
            :mod:`shortlist.predictors.thresholds`. By default ``"marginal"``, or ``"macro"`` with priors.
        priors: Class frequencies (c,) of the training data, for the score ``"prevalence_adjusted"`` only.
            With another importance of the classes than equal shares, this score is multiplied by it.
        scores_priors: Priors (c,) that the scores contain, if these are not ``priors``.
        randomized: Whether to draw one uniform number for each row, so that scores by rank have no ties. The
            coverage is then in the interval above, whatever the probabilities are. With the true
            probabilities, ``"aps"`` covers each row with exactly this probability. Two calls may return
            different sets for the same row.
        generator: Random generator of these draws; the default one if ``None``. It is not saved.
        at_least: Smallest size of a set: smaller sets get the best classes, so that none is empty. The
            promise still holds.
        at_most: Largest size of a set; ``None`` for as many as there are classes. In calibration, a true
            class that ranks below ``at_most`` counts as missed: other sets get larger, and the promise holds.
            If sets of this size cannot reach the coverage, nothing is promised: each set is the ``at_most``
            best classes, and :attr:`promise` says what share of the calibration rows these sets hold. For
            the rules ``"marginal"`` and ``"macro"``.
        activation: How scores become probabilities: ``"softmax"``, ``"sigmoid"``, or ``"none"`` if they are
            probabilities already.

    Example:
        >>> scores = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.3, 0.6, 0.1]])
        >>> predictor = Conformal(coverage=0.5, score="lac", activation="none")
        >>> predictor = predictor.calibrate(scores, torch.tensor([0, 0, 1]))
        >>> predictor.threshold  # the 2nd of 0.3, 0.4, 0.5
        tensor(0.4000)
    """

    needs_target = True
    takes_priors: ClassVar[bool] = True
    takes_place: ClassVar[bool] = True
    parts: ClassVar[Mapping[str, Mapping[str, Any]]] = {"score": CONFORMITY_SCORES, "rule": THRESHOLD_RULES}
    takes_votes: ClassVar[bool] = True
    chunks_at_once: ClassVar[int] = 4

    def __init__(
        self,
        coverage: float = 0.9,
        *,
        score: str | ConformityScore | None = None,
        rule: str | ThresholdRule | None = None,
        priors: Tensor | None = None,
        scores_priors: Tensor | None = None,
        randomized: bool = False,
        generator: torch.Generator | None = None,
        at_least: int = 0,
        at_most: int | None = None,
        activation: Activation = "softmax",
    ) -> None:
        super().__init__(activation=activation, priors=priors, scores_priors=scores_priors)
        coverage = check_number("coverage", coverage, above=0.0, below=1.0)
        self.coverage = coverage
        rule = ("marginal" if priors is None else "macro") if rule is None else rule
        self.rule: ThresholdRule = _instance("rule", rule, THRESHOLD_RULES, ThresholdRule)
        macro = isinstance(self.rule, Macro)
        default = "lac" if priors is None and not macro else "prevalence_adjusted"
        chosen = default if score is None else score
        self.score: ConformityScore = _instance("score", chosen, CONFORMITY_SCORES, ConformityScore)
        if self.score.weighted != (priors is not None):
            need = "must be given" if self.score.weighted else "must be None"
            default_of_macro = ", which the rule 'macro' has unless another is named; or write score='lac'"
            hint = default_of_macro if score is None and macro else ""
            raise ValueError(
                f"priors {need} for the score {registered_name(self.score, CONFORMITY_SCORES)!r}{hint}"
            )
        if self.weights is not None and isinstance(self.rule, Macro):  # equal shares change nothing
            importance = self.rule.class_importance(torch.ones_like(self.weights, dtype=torch.bool))
            self.weights = (self.weights * (importance * len(importance))).to(self.weights.dtype)
        self.adds_probabilities = isinstance(self.score, OrderedScore)
        if randomized and not self.adds_probabilities:
            raise ValueError("randomized must be False: this score has nothing to randomize, got True")
        self.randomized, self.generator = randomized, generator
        self.bounds, self.at_least, self.at_most = SizeBounds.checked(at_least, at_most), at_least, at_most
        if at_most is not None and not isinstance(self.rule, Marginal | Macro):
            named = registered_name(self.rule, THRESHOLD_RULES)
            raise ValueError(f"at_most goes with the rules 'marginal' and 'macro', got {named!r}")

    @property
    def promise(self) -> Promise:
        """What the rule promises at this coverage, and from how many calibration rows."""
        about = self.rule.about if self.place is None else "place"
        level = None if about == "nothing" else self.rule.promised(self.coverage)
        if not level:  # 0 is no promise
            about, level = "nothing", None
        group, has_law, report = self.rule.group_name, self.rule.has_law, self.report
        where: dict[str, Any] = {"place": self.place_name, "classes": self.place_classes}
        where["at_most"] = self.at_most
        if report is not None and report.capped_share is not None:
            share, rows = report.capped_share, report.rows
            return Promise("nothing", asked=self.coverage, share=share, rows=rows, **where)
        if report is None:
            return Promise(about, level=level, asked=self.coverage, group=group, has_law=has_law, **where)
        by_class = sorted(rows for rows in report.class_rows if rows)
        return Promise(
            "vote" if report.voted else about,
            level=level,
            asked=self.coverage,
            group=group,
            rows=report.rows,
            class_rows=(by_class[0], by_class[len(by_class) // 2]) if by_class else None,
            left_out=self._left_out(report) if self.rule.excludes_fallback else 0,
            has_law=has_law and not report.voted,  # of votes no law is known
            rows_also=report.rows_also,
            **where,
        )

    def _left_out(self, report: CalibrationReport) -> int:
        """Return the number of classes without a promise. At a place, only classes that occur there count."""
        if self.place is None:
            return report.class_rows.count(0)
        return int(((self.place.cpu() > 0) & (torch.tensor(report.class_rows) == 0)).sum())

    def _check_takes_place(self) -> None:
        super()._check_takes_place()
        if not isinstance(self.rule, Marginal):
            rule = registered_name(self.rule, THRESHOLD_RULES)
            raise ValueError(
                f"rule must be 'marginal' for at(), which sets the rule of a place, got {rule!r}"
            )

    def _adapt_to_place(self) -> None:
        assert self.place is not None
        self.bounds.check_classes(self.place_classes or 0)
        self.rule = Macro(importance=self.place)

    def _check_classes(self, number: int) -> None:
        super()._check_classes(number)
        self.bounds.check_classes(number)

    def kept_rule(self) -> KeptRule | None:
        """Return which kept classes are within the threshold, for LAC with one threshold and no priors."""
        lac = self.score
        if not (self._looks_at_probabilities and isinstance(lac, LAC) and isinstance(self.rule, Marginal)):
            return None

        def measure(rows: KeptRows) -> State:
            counted = rows.target != -100
            true, kept = rows.true_probability[counted], rows.probabilities[counted]
            scores = lac(true)
            if self.at_most is not None and self.at_most <= kept.shape[1]:
                scores = self._capped(scores, true >= kept[:, self.at_most - 1])
            return {"scores": scores, "target": rows.target[counted]}

        return KeptRule(
            takes=lambda p, rank: self.bounds.take(rank, lac(p) <= self.threshold.to(p.dtype)),
            enough=lambda c: max(
                self.at_least,
                min(self.bounds.largest_size(c), enough_above(self._smallest_probability, c)),
            ),
            measure=measure,
            is_exact=lambda dropped: self.at_most is None or self._smallest_probability > dropped,
        )

    @property
    def _smallest_probability(self) -> float:
        """Probability below which LAC leaves each class out, with a margin for rounding."""
        return 1 - float(self.threshold) - 2**-22

    @staticmethod
    def _capped(scores: Tensor, may_hold: Tensor) -> Tensor:
        """Return scores (m,); a class that no set of at most ``at_most`` classes may hold gets the worst."""
        return scores.where(may_hold, _worst(scores))

    def forward(
        self, scores: Float[Tensor, "n c"] | np.ndarray, *, uniform: Tensor | None = None
    ) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c).

        Args:
            scores: Scores (n, c).
            uniform: Uniform draws (n, 1), or (n, c) by rank, to use with a randomized score.
        """
        scores = self.checked(scores)
        if uniform is not None:
            self._check_uniform(uniform, (len(scores), 1), tuple(scores.shape))
        if uniform is None and self.randomized:
            uniform = self._draw(scores)[:, None]
        return sets_in_chunks(scores, self._sets, uniform)

    def _sets(self, scores: Tensor, uniform: Tensor | None) -> Tensor:
        values = self.values(scores)
        sets = self._only_there(sets_within(self.score, values, self.threshold, uniform=uniform))
        return self.bounds.sets(sets, self._ranked(values))

    def _draw(self, scores: Tensor) -> Tensor:
        """Draw one uniform number for each row; the batches do not change the sequence."""
        device = scores.device if self.generator is None else self.generator.device
        draws = torch.rand(len(scores), dtype=promote(scores).dtype, device=device, generator=self.generator)
        return draws.to(scores.device)

    def update(self, scores: Scores, target: Classes | None = None, **by_row: Tensor | None) -> None:
        """Add a batch of calibration rows, and the draws ``uniform`` (n,) of a randomized score, if given."""
        uniform = by_row.get("uniform")
        if uniform is not None:
            check_scores(self._tensors(scores, None)[0], name="scores")
            self._check_uniform(uniform, (len(scores),))
        super().update(scores, target, **by_row)

    def measure(self, scores: Tensor, target: Tensor | None, uniform: Tensor | None = None) -> State:
        """Return the scores of the true classes; for votes, those of all voted classes, and their shares."""
        assert target is not None  # as labels are needed
        if target.ndim == 2:
            return self._measure_votes(scores, target, uniform)
        if uniform is None and self.randomized:
            uniform = self._draw(scores)
        values = self.values(scores)
        measured = true_class_scores(self.score, values, target, uniform=uniform)
        if self.at_most is not None:
            rows = torch.arange(len(target), device=target.device)
            measured = self._capped(measured, self.bounds.may_hold(self._ranked(values), rows, target))
        return {"scores": measured, "target": target}

    def _measure_votes(self, scores: Tensor, target: Tensor, uniform: Tensor | None) -> State:
        votes = find_votes(target)
        counted = votes.per_row > 0
        if uniform is None and self.randomized:  # a row without votes takes no number of the sequence
            drawn = self._draw(scores[counted])
            uniform = drawn.new_zeros(len(scores)).masked_scatter(counted, drawn)
        values = self.values(scores)
        measured = scored_votes(self.score, values, votes, uniform=uniform)
        if self.at_most is not None:
            measured = self._capped(measured, self.bounds.may_hold(values, votes.rows, votes.classes))
        return {"scores": measured, "target": votes.classes, "shares": votes.shares}

    def accumulator(self, max_rows: int | None = None) -> Accumulator[Finished]:
        """Return an accumulator of scores, classes, and shares of votes."""
        return Rows(self._finished)

    def _counted(self, target: Tensor, scores: Tensor) -> Tensor | None:
        counted = super()._counted(target, scores)
        if target.ndim == 2 and not self.rule.takes_votes:
            rule = registered_name(self.rule, THRESHOLD_RULES)
            raise ValueError(
                f"target must be classes (n,) for the rule {rule!r}: a row with votes for several classes "
                "belongs to none of them. Votes are for the rule 'marginal'"
            )
        return counted

    def _check_uniform(self, uniform: Tensor, *shapes: tuple[int, ...]) -> None:
        """Require draws of one of the shapes."""
        if torch.compiler.is_compiling():
            return
        wanted = f"uniform must be floating, in [0, 1] and of shape {' or '.join(map(str, shapes))}"
        if not isinstance(uniform, Tensor) or not uniform.is_floating_point():
            raise ValueError(f"{wanted}, got {getattr(uniform, 'dtype', type(uniform).__name__)}")
        if tuple(uniform.shape) not in shapes:
            raise ValueError(f"{wanted}, got {tuple(uniform.shape)}")
        outside = ~((uniform >= 0) & (uniform <= 1))
        if can_read_values(uniform) and bool(outside.any()):
            raise ValueError(f"{wanted}, got {float(uniform[outside][0])}")

    def _finished(self, rows: Rows) -> Finished:
        scores, target, voted = rows["scores"], rows["target"], "shares" in rows
        shares = rows["shares"] if voted else None
        number = len(rows) if shares is None else round(float(shares.sum()))  # those of a row add up to 1
        thresholds = self._thresholds(scores, target, shares, number)
        threshold = thresholds.values.to(scores.dtype)
        cannot_cover = self.at_most is not None and bool((threshold >= _worst(scores)).any())
        if isinstance(self.score, OrderedScore):  # cumulative sums round differently in a sort and a mask
            threshold = threshold + 8 * torch.finfo(threshold.dtype).eps * threshold.abs().clamp_min(1)
        within = scores <= (threshold[target] if threshold.ndim else threshold)
        if self.at_most is not None:
            within &= scores < _worst(scores)
        one_rank = (
            isinstance(self.rule, Marginal) and not voted and bool(threshold.isfinite()) and not cannot_cover
        )
        report = CalibrationReport(
            rows=number,
            coverage=_sum_within(within, shares) / number,
            ties=int(within.sum()) - conformal_rank(len(within), self.coverage) if one_rank else 0,
            fallback_classes=thresholds.fallback_classes,
            class_rows=() if thresholds.class_rows is None else tuple(thresholds.class_rows.tolist()),
            voted=voted,
        )
        if cannot_cover:
            report = replace(report, capped_share=self._share(within, target, report))
        return Finished({"threshold": threshold}, report, self._warnings(report, thresholds.warning))

    def _thresholds(self, scores: Tensor, target: Tensor, shares: Tensor | None, number: int) -> Thresholds:
        if self.at_most is not None and isinstance(self.rule, Marginal):
            if number < rows_needed(self.coverage):  # too few rows: each set has at_most classes
                return Thresholds(scores.new_tensor(math.inf))
        if shares is not None:
            return Marginal().of_votes(scores, shares, number, self.coverage)
        supremum = self.score.supremum(self.num_classes)
        return self.rule(scores, target, self.num_classes, self.coverage, supremum)

    def _share(self, within: Tensor, target: Tensor, report: CalibrationReport) -> float | None:
        """Return the share of rows within the threshold, weighted as the promise would be."""
        if not isinstance(self.rule, Macro):
            return report.coverage
        counts = target.bincount(minlength=self.num_classes)
        importance = self.rule.class_importance(counts > 0)
        return float((importance / counts.clamp_min(1))[target][within].sum())

    def _warnings(self, report: CalibrationReport, about_classes: str) -> tuple[str, ...]:
        if report.capped_share is not None:
            return (
                f"sets of at most {self.at_most} classes hold the true class of {report.capped_share:.4g} of "
                f"the calibration rows for {self.coverage:g}, which is not promised",
            )
        beyond = (report.coverage or 0.0) - self.coverage - 1 / (report.rows + 1)
        ties = (
            f"{report.ties} more scores equal the threshold: on the calibration rows the coverage is "
            f"{report.coverage:.4g} for {self.coverage:g}"
        )
        return tuple(filter(None, (about_classes, ties if report.ties and beyond > 0.005 else "")))


def _worst(scores: Tensor) -> Tensor:
    """Return the score of a class that no set may hold: finite, since infinity stands for too few rows."""
    return scores.new_tensor(torch.finfo(scores.dtype).max)


def _sum_within(within: Tensor, shares: Tensor | None) -> float:
    """Return the number of rows, or the sum of the shares of votes, within the threshold, exactly."""
    return float(within.sum()) if shares is None else from_units(exact_sum(shares[within]))


def _instance(argument: str, value: Any, registry: dict[str, Any], kind: Any) -> Any:
    """Return a score or rule as it is, or make it by its name."""
    if isinstance(value, str):
        check_choice(argument, value, tuple(registry))
        return registry[value]()
    if not isinstance(value, kind):
        raise ValueError(f"{argument} must be a name or a {kind.__name__}, got {value!r}")
    return value
