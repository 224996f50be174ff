"""Tell the rows that belong to none of the known classes, with a promise about those that do."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import can_read_values, check_count, check_number, check_scores, check_target
from shortlist.predictors._calibrated import Calibrated
from shortlist.predictors._novelty_limits import NoveltyReport, check_enough, fewest_in_batch
from shortlist.predictors.accumulator import Accumulator, CalibrationWarning, Finished, Report, Rows
from shortlist.predictors.p_values import (
    CountedClasses,
    PValueSteps,
    benjamini_hochberg,
    check_numbers,
    class_steps,
    macro_steps,
    pooled_steps,
)
from shortlist.predictors.strangeness import STRANGENESS, distance_strangeness
from shortlist.predictors.thresholds.rules import some_classes

NoveltyRule = Literal["pooled", "class", "macro"]
_RULES = ("pooled", "class", "macro")


class NoveltyDetector(Calibrated):
    r"""A detector of rows that belong to none of the known classes.

    A row is flagged if its p-value is at most ``level``: if hardly any calibration row is as strange. The
    promise is about *known* rows: at most a share ``level`` of them is flagged, by chance. How many strangers
    are flagged is not promised; it depends on how well the strangeness tells them.

    Calibrate it with :meth:`calibrate`, or with :meth:`update` and :meth:`finish`, or merged from several
    processes (:meth:`merge`): to the same bits. The state is in buffers.

    Args:
        strangeness: ``"probability"`` or ``"energy"`` (need scores; see
            :mod:`shortlist.predictors.strangeness`), ``"distance"`` to the nearest class mean (needs
            ``means``, and features of rows), or a function from ``(scores, features)``, of which one may be
            ``None``, to a number for each row (n,).
        rule: What the promise is about: ``"pooled"``, all rows together; ``"macro"``, the average class;
            ``"class"``, each class.
        level: Largest promised share of false alarms, in (0, 1).
        delta: For the pooled rule: if given, the promise holds given the calibration rows, but for a share
            delta of their choices (see :func:`~shortlist.predictors.p_values.pooled_p_values`).
        means: Class means (p, d), from :meth:`FeatureMeans.means`, of rows that do not calibrate.
        num_classes: Number of classes, for the rules about classes where no scores come with the rows.
        classes: Classes that these rules are about: ``"present"``, those with calibration rows, or ``"all"``.

    Example:
        >>> known = torch.arange(39.0)[:, None]  # scores of one class: its energy is minus the score
        >>> detector = NoveltyDetector(strangeness="energy", level=0.05).calibrate(scores=known)
        >>> detector.p_values(scores=torch.tensor([[-1.0], [38.0]]))  # 1 / 40, 40 / 40
        tensor([0.0250, 1.0000], dtype=torch.float64)
        >>> detector.flag(scores=torch.tensor([[-1.0], [38.0]]))
        tensor([ True, False])
    """

    calibrated_buffers: ClassVar[tuple[str, ...]] = ("values", "table", "cutoff")
    report_kind: ClassVar[type[Report]] = NoveltyReport
    from_code: ClassVar[frozenset[str]] = frozenset({"means"})
    parts: ClassVar[Mapping[str, Mapping[str, Any]]] = {"strangeness": STRANGENESS}
    values: Tensor
    table: Tensor
    cutoff: Tensor
    means: Tensor | None
    report: NoveltyReport | None

    def __init__(
        self,
        *,
        strangeness: str | Callable[[Tensor | None, Tensor | None], Tensor] = "probability",
        rule: NoveltyRule = "pooled",
        level: float = 0.05,
        delta: float | None = None,
        means: Float[Tensor, "p d"] | None = None,
        num_classes: int | None = None,
        classes: CountedClasses = "present",
    ) -> None:
        if num_classes is not None:
            check_count("num_classes", num_classes)
        super().__init__(num_classes or 0)
        if not callable(strangeness):
            check_choice("strangeness", strangeness, tuple(STRANGENESS))
        check_choice("rule", rule, _RULES)
        check_choice("classes", classes, ("present", "all"))
        if delta is not None:
            delta = check_number("delta", delta, above=0.0, below=1.0)
            if rule != "pooled":
                raise ValueError(f"delta is for rule='pooled', got {delta} for rule={rule!r}")
        if (means is None) == (strangeness == "distance"):
            raise ValueError(
                "means must be given for strangeness='distance' alone, got "
                f"{'none' if means is None else 'some'} for {self._name(strangeness)!r}"
            )
        if means is not None:
            check_scores(means, name="means")
        self.strangeness, self.delta = strangeness, delta
        self.rule: NoveltyRule = rule
        self.classes: CountedClasses = classes
        self.level = check_number("level", level, above=0.0, below=1.0)
        self.register_buffer("means", None if means is None else means.detach().clone())

    @property
    def needs(self) -> str:
        """What the strangeness is computed from: ``"features"``, ``"scores"``, or ``"any"`` by a function."""
        return {"distance": "features", "energy": "scores", "probability": "scores"}.get(
            self._name(self.strangeness), "any"
        )

    def options(self) -> dict[str, Any]:
        """Return the arguments of this detector as plain values for JSON; means are in the state."""
        given = {"strangeness": self._name(self.strangeness), "num_classes": self._made_for or None}
        return super().options() | given

    @staticmethod
    def _name(strangeness: str | Callable[..., Tensor]) -> str:
        return strangeness if isinstance(strangeness, str) else getattr(strangeness, "__name__", "function")

    def strangeness_of(
        self, *, scores: Float[Tensor, "n c"] | None = None, features: Float[Tensor, "n d"] | None = None
    ) -> Float[Tensor, " n"]:
        """Compute the strangeness (n,) of rows from their scores or features, whichever is needed."""
        if not isinstance(self.strangeness, str):
            values = self.strangeness(scores, features)
            if not isinstance(values, Tensor) or can_read_values(values):
                check_numbers("strangeness", values)
            return values
        given = features if self.needs == "features" else scores
        if given is None:
            raise ValueError(f"{self.needs} must be given for strangeness={self.strangeness!r}, got None")
        if self.strangeness == "distance":
            assert self.means is not None
            return distance_strangeness(given, self.means)
        return STRANGENESS[self.strangeness](given)

    def p_values(self, *, scores: Tensor | None = None, features: Tensor | None = None) -> Tensor:
        """Return the p-value (n,), float64, of each row: small if it is stranger than the known rows."""
        self._check_calibrated()
        return PValueSteps(self.values, self.table)(self.strangeness_of(scores=scores, features=features))

    def flag(self, *, scores: Tensor | None = None, features: Tensor | None = None) -> Bool[Tensor, " n"]:
        """Return which rows (n,) are flagged: those whose p-value is at most the level."""
        self._check_calibrated()
        strangeness = self.strangeness_of(scores=scores, features=features)
        dtype = torch.promote_types(strangeness.dtype, self.cutoff.dtype)
        return strangeness.to(dtype) > self.cutoff.to(dtype)

    def forward(self, scores: Tensor | None = None, features: Tensor | None = None) -> Bool[Tensor, " n"]:
        """Return which rows (n,) are flagged, as :meth:`flag` does."""
        return self.flag(scores=scores, features=features)

    def flag_batch(
        self, *, scores: Tensor | None = None, features: Tensor | None = None, level: float | None = None
    ) -> Bool[Tensor, " m"]:
        """Find the strangers of a batch (Benjamini-Hochberg): of those found, few are known rows.

        Args:
            scores: Scores (m, c) of the batch, where they are needed.
            features: Features (m, d) of the batch, where they are needed.
            level: Largest expected share of known rows among those found; the detector's level if ``None``.
        """
        if self.rule != "pooled":
            raise ValueError(f"flag_batch is proven for rule='pooled' alone, got rule={self.rule!r}")
        level = self.level if level is None else check_number("level", level, above=0.0, below=1.0)
        p_values = self.p_values(scores=scores, features=features)
        smallest = float(self.table[0])
        fewest = fewest_in_batch(smallest, len(p_values), level)
        if fewest > len(p_values):
            raise ValueError(
                f"level must be at least {smallest:.3g}, the smallest p-value that the "
                f"{len(self.values)} calibration rows can give, got {level:g}"
            )
        if fewest > 1:
            warnings.warn(
                f"with {len(self.values)} calibration rows, strangers in a batch of {len(p_values)} can only "
                f"be found at level {level:g} if they are {fewest} or more",
                CalibrationWarning,
                stacklevel=2,
            )
        return benjamini_hochberg(p_values, level=level)

    def calibrate(
        self, target: Tensor | None = None, *, scores: Tensor | None = None, features: Tensor | None = None
    ) -> "NoveltyDetector":
        """Calibrate on all rows at once; see :meth:`update`."""
        with self._anew():
            self.update(target, scores=scores, features=features)
            return self.finish()

    @torch.no_grad()
    def update(
        self, target: Tensor | None = None, *, scores: Tensor | None = None, features: Tensor | None = None
    ) -> None:
        """Add a batch of rows of known classes that the model was not trained on.

        Args:
            target: Classes (n,), int64, which the pooled rule does not need; -100 leaves a row out.
            scores: Scores (n, c), where they are needed.
            features: Features (n, d), where they are needed.
        """
        strangeness = check_numbers("strangeness", self.strangeness_of(scores=scores, features=features))
        if target is None and self.rule != "pooled":
            raise ValueError(f"target must be given for rule={self.rule!r}, which is about classes, got None")
        self._start(None if scores is None or target is None else scores.shape[1])
        if target is None:
            target = torch.zeros(len(strangeness), dtype=torch.int64, device=strangeness.device)
        elif not self._check_target(target, strangeness):
            strangeness, target = strangeness[target != -100], target[target != -100]
        self.rows.add({"strangeness": strangeness, "target": target})

    def _check_target(self, target: Tensor, strangeness: Tensor) -> bool:
        """Check the classes of calibration rows; return whether it is known that no row is left out."""
        if not self.num_classes and self.rule != "pooled":
            raise ValueError(f"num_classes must be given for rule={self.rule!r} without scores, got None")
        like_scores = strangeness.new_empty(1, 1).expand(len(strangeness), self.num_classes or 2**31)
        return check_target(target, like_scores, ignore_index=-100)

    def accumulator(self, max_rows: int | None = None) -> Accumulator[Finished]:
        """Return an accumulator of strangeness and classes."""
        return Rows(self._finished)

    def check_rows(self, target: Tensor) -> None:
        """Refuse calibration rows of classes (n,) that are too few to flag anything, whatever they are."""
        rows, target = Rows(self._finished), target[target != -100]
        rows.add({"strangeness": torch.zeros(len(target), dtype=torch.float64), "target": target})
        rows.finish()

    def _finished(self, rows: Rows) -> Finished:
        """Find the p-values, or refuse rows that are too few to flag anything at this level."""
        values, target, counts = rows["strangeness"], rows["target"], None
        if self.rule == "pooled":
            steps = pooled_steps(values, delta=self.delta)
        else:
            find = class_steps if self.rule == "class" else macro_steps
            steps = find(values, target, num_classes=self.num_classes, classes=self.classes)
            counts = target.bincount(minlength=self.num_classes)
        check_enough(float(steps.table[0]), len(rows), counts, self.options())
        absent = () if counts is None else tuple((counts == 0).nonzero().squeeze(1).tolist())
        cutoff = steps.cutoff(self.level)
        report = NoveltyReport(
            rows=len(rows),
            smallest_p_value=float(steps.table[0]),
            flagged=float((steps.values > cutoff).double().mean()),
            absent_classes=absent,
        )
        lacking = f"nothing is promised about {some_classes(absent)} without calibration rows"
        warned = (lacking,) if absent and self.classes == "present" else ()
        return Finished({**steps._asdict(), "cutoff": cutoff}, report, warned)

    def merge(self, other: Calibrated) -> None:
        """Add the rows of another, unfinished detector with the same options and class means."""
        if isinstance(other, NoveltyDetector) and other.strangeness != self.strangeness:
            raise ValueError("other must have the same strangeness as this NoveltyDetector")
        super().merge(other)
