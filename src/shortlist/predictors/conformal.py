"""Sets that hold the true class with a promised probability."""

import math
import warnings
from dataclasses import asdict, is_dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from shortlist._checks import can_read_values, check_choice, check_number, check_scores
from shortlist.predictors._activation import Activation
from shortlist.predictors._base import CalibrationReport, CalibrationWarning, SetPredictor
from shortlist.predictors._order import (
    Places,
    at_last_equal,
    places_in_order,
    prefix_sets,
    true_class_places,
)
from shortlist.predictors._quantiles import conformal_rank
from shortlist.predictors.conformity import CONFORMITY_SCORES, ConformityScore
from shortlist.predictors.thresholds import THRESHOLDS, Threshold

__all__ = ["Conformal"]


class Conformal(SetPredictor):
    r"""All classes whose conformity score is at most a quantile of the calibration rows' scores.

    With n calibration rows exchangeable with the new ones, the set of a new row holds its class with
    probability in :math:`[1 - a, 1 - a + 1/(n + 1)]` (without ties), whatever the model, where ``coverage``
    is :math:`1 - a`: the threshold is the :math:`\lceil (n + 1)(1 - a) \rceil`-th smallest score, infinite
    when there are too few rows.

    Args:
        coverage: Promised share of sets that hold the true class, in (0, 1).
        score: ``"lac"``, ``"aps"``, ``"raps"``, ``"saps"``, ``"prevalence_adjusted"``, or an instance such as
            ``RAPS(penalty=0.02, k_reg=3)``; see :mod:`shortlist.predictors.conformity`.
        threshold: ``"marginal"``, ``"class_conditional"``, ``"clustered"``, ``"interpolated"``, or an
            instance such as ``Interpolated(weight=0.3)``; see :mod:`shortlist.predictors.thresholds`.
        priors: Class frequencies (c,) of the training data, for the score ``"prevalence_adjusted"`` only.
        scores_priors: The priors (c,) that the scores contain, if these are not ``priors``.
        randomised: Draw one uniform number a row, so that scores with cumulative probabilities reach the
            coverage and not more. The same row may then get another set the next time.
        generator: For these draws; the default one if ``None``. Not saved.
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
    threshold: Tensor

    def __init__(
        self,
        *,
        coverage: float = 0.9,
        score: str | ConformityScore = "lac",
        threshold: str | Threshold = "marginal",
        priors: Tensor | None = None,
        scores_priors: Tensor | None = None,
        randomised: bool = False,
        generator: torch.Generator | None = None,
        activation: Activation = "softmax",
    ) -> None:
        super().__init__(activation=activation, priors=priors, scores_priors=scores_priors)
        coverage = check_number("coverage", coverage, above=0.0, below=1.0)
        if isinstance(score, str):
            check_choice("score", score, tuple(CONFORMITY_SCORES))
            score = CONFORMITY_SCORES[score]()
        if isinstance(threshold, str):
            check_choice("threshold", threshold, tuple(THRESHOLDS))
            threshold = THRESHOLDS[threshold]()
        for name, given, kind in (("score", score, ConformityScore), ("threshold", threshold, Threshold)):
            if not isinstance(given, kind):
                raise ValueError(f"{name} must be a name or a {kind.__name__}, got {given!r}")
        if score.weighted != (priors is not None):
            need = "must be given" if score.weighted else "must be None"
            raise ValueError(f"priors {need} for the score {_name(score, CONFORMITY_SCORES)!r}")
        if randomised and not score.ordered:
            raise ValueError("randomised must be False: this score has nothing to randomise, got True")
        self.coverage, self.score, self.set_threshold = coverage, score, threshold
        self.randomised, self.generator = randomised, generator
        self.adds_probabilities = score.ordered
        self.register_buffer("threshold", torch.tensor(math.nan))
        self._scores: list[Tensor] = []
        self._targets: list[Tensor] = []

    def options(self) -> dict[str, Any]:
        """See :class:`SetPredictor`."""
        return {
            "coverage": self.coverage,
            "score": _options(self.score, CONFORMITY_SCORES),
            "threshold": _options(self.set_threshold, THRESHOLDS),
            "randomised": self.randomised,
            "activation": self.activation,
        }

    def forward(self, scores: Float[Tensor, "n c"], *, uniform: Tensor | None = None) -> Bool[Tensor, "n c"]:
        """Sets (n, c).

        Args:
            scores: Scores (n, c).
            uniform: The draws (n, 1), or (n, c) by rank, of a randomised score, if they are given.
        """
        self._check_ready(scores)
        if uniform is not None:
            self._check_uniform(uniform, (len(scores), 1), tuple(scores.shape))
        values = self._values(scores)
        if not self.score.ordered:
            return self.score(_class_order(values)) <= self.threshold.to(values.dtype)
        if uniform is None and self.randomised:
            uniform = self._draw(len(values), values)[:, None]
        threshold = self.threshold.to(values.dtype)
        if threshold.ndim == 0:
            return prefix_sets(
                values, lambda places: self.score(_with(places, uniform)) <= threshold, ties="out"
            )
        in_order, index = values.sort(dim=1, descending=True)
        numbers = at_last_equal(in_order, self.score(_with(places_in_order(in_order), uniform)))
        inside = numbers <= threshold[index]
        return torch.zeros_like(values, dtype=torch.bool).scatter(1, index, inside)

    def _draw(self, rows: int, like: Tensor) -> Tensor:
        """One uniform number a row; the same sequence however the rows are cut into batches."""
        device = like.device if self.generator is None else self.generator.device
        draws = torch.rand(rows, dtype=like.dtype, device=device, generator=self.generator)
        return draws.to(like.device)

    def update(self, scores: Tensor, target: Tensor | None = None, *, uniform: Tensor | None = None) -> None:
        """Take in a batch of calibration rows, and the draws (n,) of a randomised score, if given."""
        if uniform is not None:
            check_scores(scores, name="scores")
            self._check_uniform(uniform, (len(scores),))
            if isinstance(target, Tensor) and target.shape == uniform.shape:
                uniform = uniform[target != -100]  # as the rows themselves
        if self.calibrated:
            self.reset()
        self._given_uniform = uniform
        super().update(scores, target)

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

    def _collect(self, scores: Tensor, target: Tensor | None) -> None:
        assert target is not None
        values = self._values(scores)
        if self.score.ordered:
            places = true_class_places(values, target)
            if self._given_uniform is not None:
                places = places._replace(uniform=self._given_uniform)
            elif self.randomised:
                places = places._replace(uniform=self._draw(len(values), values))
        else:
            places = _class_order(values.gather(1, target[:, None]).squeeze(1))
        self._scores.append(self.score(places))
        self._targets.append(target)

    def _settle(self) -> None:
        if not self._scores or not sum(map(len, self._scores)):
            raise ValueError("calibration needs at least 1 row that is not left out, got 0")
        scores, target = torch.cat(self._scores), torch.cat(self._targets)
        found = self.set_threshold(scores, target, self._classes_known, self.coverage)
        values = found.values.to(scores.dtype)
        if self.score.ordered:  # cumulative sums round differently in a sort and in a masked sum
            values = values + 8 * torch.finfo(values.dtype).eps * values.abs().clamp_min(1)
        at = values[target] if values.ndim else values
        self.threshold = values
        self.report = CalibrationReport(
            rows=len(scores),
            coverage=float((scores <= at).double().mean()),
            ties=self._count_ties(scores, values),
            fallback_classes=found.fallback_classes,
        )
        self._scores, self._targets = [], []
        self._warn(self.report)

    def _count_ties(self, scores: Tensor, threshold: Tensor) -> int:
        """Calibration scores equal to a marginal threshold beyond the rank that makes it."""
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
        self._scores += other._scores
        self._targets += other._targets

    def _forget(self) -> None:
        self._scores, self._targets = [], []
        self._given_uniform: Tensor | None = None
        self.threshold = self.threshold.new_tensor(math.nan)

    def pending(self) -> dict[str, Tensor]:
        """See :class:`SetPredictor`."""
        if not self._scores:
            return {}
        return {"scores": torch.cat(self._scores), "targets": torch.cat(self._targets)}

    def restore_pending(self, state: dict[str, Tensor]) -> None:
        """See :class:`SetPredictor`."""
        self._scores = [state["scores"]] if state else []
        self._targets = [state["targets"]] if state else []


def _with(places: Places, uniform: Tensor | None) -> Places:
    """Places with the draws (n, 1) or (n, c), if there are any."""
    if uniform is None:
        return places
    return places._replace(uniform=uniform[:, : places.probability.shape[1]])


def _class_order(values: Tensor) -> Places:
    """Places for a score that looks at the probability alone."""
    return Places(values, values, values, values)


def _options(instance: object, registry: dict[str, Any]) -> dict[str, Any]:
    """Name and options of a score or a threshold."""
    options = asdict(instance) if is_dataclass(instance) and not isinstance(instance, type) else {}
    return {"name": _name(instance, registry), **options}


def _name(instance: object, registry: dict[str, Any]) -> str:
    """The registered name of an instance's class, or its own for one that is not ours."""
    return next((name for name, kind in registry.items() if type(instance) is kind), type(instance).__name__)
