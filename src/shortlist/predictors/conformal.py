"""Sets that contain the true class with a promised probability."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from shortlist._checks import can_read_values, check_choice, check_number, check_scores, promote
from shortlist.predictors._activation import Activation
from shortlist.predictors._base import CalibrationReport, CalibrationWarning, SetPredictor, sets_in_chunks
from shortlist.predictors._scored_rows import ScoredRows
from shortlist.predictors.conformity import (
    CONFORMITY_SCORES,
    ConformityScore,
    OrderedScore,
    sets_within,
    true_class_scores,
)
from shortlist.predictors.coverage_law import conformal_rank
from shortlist.predictors.promise import Promise
from shortlist.predictors.thresholds import THRESHOLD_RULES, ThresholdRule

__all__ = ["Conformal"]


class Conformal(SetPredictor):
    r"""A predictor of all classes whose conformity score is at most a quantile of the calibration scores.

    With n calibration rows exchangeable with the new ones, the set of a new row holds its class with
    probability in :math:`[1 - a, 1 - a + 1/(n + 1)]` (without ties), whatever the model, where ``coverage``
    is :math:`1 - a`: the threshold is the :math:`\lceil (n + 1)(1 - a) \rceil`-th smallest score, infinite
    when there are too few rows.

    Args:
        coverage: Promised share of sets that contain the true class, in (0, 1).
        score: ``"lac"``, ``"aps"``, ``"raps"``, ``"saps"``, ``"prevalence_adjusted"``, or an instance such as
            ``RAPS(penalty=0.02, k_reg=3)``; see :mod:`shortlist.predictors.conformity`.
        rule: How the threshold is set: ``"marginal"``, ``"class_conditional"``, ``"clustered"``,
            ``"interpolated"``, or an instance such as ``Interpolated(weight=0.3)``; see
            :mod:`shortlist.predictors.thresholds`.
        priors: Class frequencies (c,) of the training data, for the score ``"prevalence_adjusted"`` only.
        scores_priors: Priors (c,) that the scores contain, if these are not ``priors``.
        randomized: Whether to draw one uniform number for each row, so that scores with cumulative
            probabilities reach the coverage and not more. The same row may then get another set the next
            time.
        generator: Random generator of these draws; the default one if ``None``. It is not saved.
        activation: How scores become probabilities.

    Example:
        >>> scores = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.3, 0.6, 0.1]])
        >>> predictor = Conformal(coverage=0.5, score="lac", activation="none")
        >>> predictor = predictor.calibrate(scores, torch.tensor([0, 0, 1]))
        >>> predictor.threshold  # the 2nd of 0.3, 0.4, 0.5
        tensor(0.4000)
    """

    needs_target: ClassVar[bool] = True
    takes_priors: ClassVar[bool] = True
    parts: ClassVar[Mapping[str, Mapping[str, Any]]] = {"score": CONFORMITY_SCORES, "rule": THRESHOLD_RULES}
    threshold: Tensor

    def __init__(
        self,
        *,
        coverage: float = 0.9,
        score: str | ConformityScore = "lac",
        rule: str | ThresholdRule = "marginal",
        priors: Tensor | None = None,
        scores_priors: Tensor | None = None,
        randomized: bool = False,
        generator: torch.Generator | None = None,
        activation: Activation = "softmax",
    ) -> None:
        super().__init__(activation=activation, priors=priors, scores_priors=scores_priors)
        coverage = check_number("coverage", coverage, above=0.0, below=1.0)
        self.coverage = coverage
        self.score: ConformityScore = _instance("score", score, CONFORMITY_SCORES, ConformityScore)
        self.rule: ThresholdRule = _instance("rule", rule, THRESHOLD_RULES, ThresholdRule)
        if self.score.weighted != (priors is not None):
            need = "must be given" if self.score.weighted else "must be None"
            raise ValueError(f"priors {need} for the score {_name(self.score, CONFORMITY_SCORES)!r}")
        self.adds_probabilities = isinstance(self.score, OrderedScore)
        if randomized and not self.adds_probabilities:
            raise ValueError("randomized must be False: this score has nothing to randomize, got True")
        self.randomized, self.generator = randomized, generator
        self.register_buffer("threshold", torch.tensor(math.nan))
        self._rows = ScoredRows()

    @property
    def promise(self) -> Promise:
        """What the rule promises at this coverage, and from how many calibration rows."""
        level = None if self.rule.about == "nothing" else self.rule.promised(self.coverage)
        promise = Promise(self.rule.about, level=level, asked=self.coverage, has_law=self.rule.has_law)
        if self.report is None:
            return promise
        own = sorted(rows for rows in self.report.class_rows if rows)
        return replace(
            promise,
            rows=self.report.rows,
            class_rows=(own[0], own[len(own) // 2]) if own else None,
            left_out=len(self.report.fallback_classes) if self.rule.excludes_fallback else 0,
            rows_also=self.report.rows_also,
        )

    def options(self) -> dict[str, Any]:
        """Return the arguments of this predictor as plain values for JSON."""
        return {
            "coverage": self.coverage,
            "score": _options(self.score, CONFORMITY_SCORES),
            "rule": _options(self.rule, THRESHOLD_RULES),
            "randomized": self.randomized,
            "activation": self.activation,
        }

    def forward(self, scores: Float[Tensor, "n c"], *, uniform: Tensor | None = None) -> Bool[Tensor, "n c"]:
        """Return the sets (n, c).

        Args:
            scores: Scores (n, c).
            uniform: Uniform draws (n, 1), or (n, c) by rank, to use with a randomized score.
        """
        self._check_ready(scores)
        if uniform is not None:
            self._check_uniform(uniform, (len(scores), 1), tuple(scores.shape))
        if uniform is None and self.randomized:
            uniform = self._draw(scores)[:, None]
        return sets_in_chunks(scores, self._sets, uniform)

    def _sets(self, scores: Tensor, uniform: Tensor | None) -> Tensor:
        values = self._values(scores)
        return sets_within(self.score, values, self.threshold.to(values.dtype), uniform=uniform)

    def _draw(self, scores: Tensor) -> Tensor:
        """Draw one uniform number for each row; the batches do not change the sequence."""
        device = scores.device if self.generator is None else self.generator.device
        draws = torch.rand(len(scores), dtype=promote(scores).dtype, device=device, generator=self.generator)
        return draws.to(scores.device)

    @torch.no_grad()
    def update(self, scores: Tensor, target: Tensor | None = None, *, uniform: Tensor | None = None) -> None:
        """Add a batch of calibration rows, and the draws (n,) of a randomized score, if given."""
        if uniform is not None:
            check_scores(scores, name="scores")
            self._check_uniform(uniform, (len(scores),))
        counted = self._check_rows(scores, target)
        assert target is not None  # as labels are needed
        if counted is not None:
            scores, target = scores[counted], target[counted]
            uniform = None if uniform is None else uniform[counted]
        if uniform is None and self.randomized:
            uniform = self._draw(scores)
        self._rows.add(true_class_scores(self.score, self._values(scores), target, uniform=uniform), target)

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

    def _settle(self) -> None:
        if not len(self._rows):
            raise ValueError("calibration needs at least 1 row that is not left out, got 0")
        scores, target = self._rows.scores, self._rows.target
        found = self.rule(scores, target, self._classes_known, self.coverage)
        values = found.values.to(scores.dtype)
        if isinstance(
            self.score, OrderedScore
        ):  # cumulative sums round differently in a sort and in a masked sum
            values = values + 8 * torch.finfo(values.dtype).eps * values.abs().clamp_min(1)
        at = values[target] if values.ndim else values
        self.threshold = values
        self.report = CalibrationReport(
            rows=len(scores),
            coverage=float((scores <= at).double().mean()),
            ties=self._count_ties(scores, values),
            fallback_classes=found.fallback_classes,
            class_rows=() if found.class_rows is None else tuple(found.class_rows.tolist()),
        )
        self._rows = ScoredRows()
        self._warn(self.report)

    def _count_ties(self, scores: Tensor, threshold: Tensor) -> int:
        """Count the calibration scores that equal a marginal threshold beyond its rank."""
        if threshold.ndim or not bool(threshold.isfinite()):
            return 0
        return int((scores <= threshold).sum()) - conformal_rank(len(scores), self.coverage)

    def _warn(self, report: CalibrationReport) -> None:
        messages = []
        beyond = (report.coverage or 0.0) - self.coverage - 1 / (report.rows + 1)
        if report.ties and beyond > 0.005:
            messages.append(
                f"{report.ties} more scores equal the threshold: on the calibration rows the coverage is "
                f"{report.coverage:.4g} for {self.coverage:g}"
            )
        if report.fallback_classes:
            few = report.fallback_classes
            listed = ", ".join(map(str, few[:5])) + (", ..." if len(few) > 5 else "")
            messages.append(f"{len(few)} classes have too few rows for thresholds of their own ({listed})")
        for message in messages:
            warnings.warn(f"Conformal: {message}", CalibrationWarning, stacklevel=4)

    def _join(self, other: "Conformal") -> None:
        if len(other._rows):
            self._rows.add(other._rows.scores, other._rows.target)

    def _forget(self) -> None:
        self._rows = ScoredRows()
        self.threshold = self.threshold.new_tensor(math.nan)

    def pending(self) -> dict[str, Tensor]:
        """Return the rows that were added and not yet finished, as tensors to save."""
        if not len(self._rows):
            return {}
        return {"scores": self._rows.scores.clone(), "targets": self._rows.target.clone()}

    def restore_pending(self, state: dict[str, Tensor]) -> None:
        """Restore the rows that :meth:`pending` returned."""
        self._rows = ScoredRows()
        if state:
            self._rows.add(state["scores"], state["targets"])


def _instance(argument: str, given: Any, registry: dict[str, Any], kind: Any) -> Any:
    """Return the score or rule that is given, or the one of a given name."""
    if isinstance(given, str):
        check_choice(argument, given, tuple(registry))
        return registry[given]()
    if not isinstance(given, kind):
        wanted = "ThresholdRule" if kind is ThresholdRule else "ConformityScore"
        raise ValueError(f"{argument} must be a name or a {wanted}, got {given!r}")
    return given


def _options(instance: object, registry: dict[str, Any]) -> dict[str, Any]:
    """Return name and options of a score or a rule."""
    options = asdict(instance) if is_dataclass(instance) and not isinstance(instance, type) else {}
    return {"name": _name(instance, registry), **options}


def _name(instance: object, registry: dict[str, Any]) -> str:
    """Return the registered name of an instance's class, or the class's own name if it is not registered."""
    return next((name for name, kind in registry.items() if type(instance) is kind), type(instance).__name__)
