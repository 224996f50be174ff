"""The base of all predictors: calibration at once or in batches, with the state in buffers."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import (
    can_read_values,
    check_number,
    check_scores,
    check_target,
    check_votes,
    classes_of,
    refuse_logits,
    refuse_vmap,
    rows_are_probabilities,
    tensor_of,
    warn_of_probabilities,
)
from shortlist.predictors._activation import (
    Activation,
    check_activation,
    check_finite,
    check_not_negative,
    class_values,
    class_weights,
    prior_conversion,
)
from shortlist.predictors._chunks import chunk_rows, sets_in_chunks
from shortlist.predictors._compare import where_at_least
from shortlist.predictors._kept_rules import KeptRule
from shortlist.predictors._pending import KeepsPending
from shortlist.predictors.promise import Promise

__all__ = [
    "CalibrationReport",
    "CalibrationWarning",
    "Classes",
    "Rows",
    "SetPredictor",
]

P = TypeVar("P", bound="SetPredictor")
Rows = Tensor | np.ndarray
"""Scores (n, c)."""
Classes = Tensor | np.ndarray | Sequence[int]
"""Class numbers (n,) of any integer type, counted from 0."""


class CalibrationWarning(UserWarning):
    """Warning that a calibration gives less than was asked for; the message says what."""


@dataclass(frozen=True)
class CalibrationReport:
    """The facts about a calibration.

    Args:
        rows: Number of calibration rows.
        average_size: Mean size of the sets of these rows, where it is known.
        coverage: Share of these rows whose set contains the true class, where it is known.
        ties: Number of values equal to the threshold; 0 if it lies between two different values.
        fallback_classes: Classes with too few rows for a threshold of their own.
        class_rows: Number of rows that set the threshold of each class, if each has its own; 0 for those that
            fall back.
        rows_also: What else the rows served for, such as "chose the epoch"; see :class:`Promise`.
        voted: Whether the rows had votes instead of classes.
    """

    rows: int
    average_size: float | None = None
    coverage: float | None = None
    ties: int = 0
    fallback_classes: tuple[int, ...] = ()
    class_rows: tuple[int, ...] = ()
    rows_also: str = ""
    voted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON."""
        lists = {"fallback_classes": list(self.fallback_classes), "class_rows": list(self.class_rows)}
        return asdict(self) | lists

    @staticmethod
    def from_dict(content: Mapping[str, Any]) -> "CalibrationReport":
        """Make the report that :meth:`to_dict` described."""
        tuples = {name: tuple(content[name]) for name in ("fallback_classes", "class_rows")}
        return CalibrationReport(**{**content, **tuples})


class SetPredictor(KeepsPending, ABC):
    """A predictor of sets: it is calibrated once, and is then a pure function of scores.

    Calibrate with :meth:`calibrate`, or with :meth:`update` for each batch and :meth:`finish` at the end,
    which gives the same result to the bit. Pieces that were updated elsewhere join by :meth:`merge`. The
    calibrated state is in buffers, so ``state_dict``, ``.to(device)`` and ``torch.export`` need nothing
    more; converting a model to another precision leaves it as it is.
    """

    needs_calibration: ClassVar[bool] = True
    needs_target: ClassVar[bool] = False
    takes_priors: ClassVar[bool] = False  # whether class priors are among its arguments
    takes_taxonomy: ClassVar[bool] = False  # whether it is made for a taxonomy of the classes
    # arguments that recipes cannot give and files do not keep among the options
    from_code: ClassVar[frozenset[str]] = frozenset({"priors", "scores_priors", "generator", "max_rows"})
    # by argument, what may stand there by a name with options of its own
    parts: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    takes_votes: ClassVar[bool] = False  # whether the target may be votes (n, c)
    adds_probabilities: bool = False  # whether activation "none" must come with probabilities
    weights: Tensor | None
    shift: Tensor | None
    num_classes: Tensor

    def __init__(
        self,
        *,
        activation: Activation,
        priors: Tensor | None = None,
        scores_priors: Tensor | None = None,
        tau: float = 1.0,
        num_classes: int = 0,
    ) -> None:
        super().__init__()
        check_activation(activation)
        tau = check_number("tau", tau)
        self.activation: Activation = activation
        self.tau = tau
        self.register_buffer("weights", None if priors is None else class_weights(priors, tau))
        self.register_buffer("shift", prior_conversion(priors, scores_priors, activation))
        self._made_for = num_classes if priors is None else len(priors)  # classes, 0 for any number
        self.register_buffer("num_classes", torch.tensor(self._made_for))
        self._classes_known = self._made_for  # the same number where a device need not be asked
        self.calibrated = not self.needs_calibration
        self.report: CalibrationReport | None = None
        self._are_probabilities: bool | None = None  # what the first rows look like; None before any came

    @property
    def promise(self) -> Promise:
        """What the sets promise, and from how many calibration rows: nothing, unless a predictor says it."""
        return Promise()

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Return the arguments of this predictor as plain values for JSON; priors are in the state."""

    @abstractmethod
    def forward(self, scores: Rows) -> Tensor:
        """Return the sets (n, c), a bool tensor, of scores (n, c), tensor or array; some may be empty."""

    def kept_rule(self) -> KeptRule | None:
        """Return how its sets follow from the largest probabilities of each row, if these are enough.

        ``shortlist score`` keeps no others. ``None`` by default: then it makes the sets from all scores.
        """
        return None

    def calibrate(self: P, scores: Rows, target: Classes | None = None) -> P:
        """Calibrate on all rows at once.

        Args:
            scores: Scores (n, c) of rows that the model was not trained on, as a tensor or a NumPy array.
            target: True classes (n,), counted from 0, as a tensor, an array or a list, which not all
                predictors need; -100 leaves a row out.

        Returns:
            The predictor itself.
        """
        scores, target = self._tensors(scores, target)
        check_scores(scores, name="scores")
        if target is not None:
            self._counted(target, scores)
        self.reset()
        step = self._rows_at_once(scores.shape[1])
        parts = scores.split(step)
        targets = [None] * len(parts) if target is None else target.split(step)
        try:
            for part, classes in zip(parts, targets, strict=True):
                self.update(part, classes)
            return self.finish()
        except BaseException:
            self.reset()  # a later update() must not find some of these rows
            raise

    @torch.no_grad()
    def update(self, scores: Rows, target: Classes | None = None) -> None:
        """Add a batch of calibration rows. After :meth:`finish`, this starts a new calibration."""
        scores, target = self._tensors(scores, target)
        # nothing is added before all rows of the batch are checked
        for found in [self._measured(*part) for part in self._parts(scores, target)]:
            self._add(found)

    def _parts(
        self, scores: Tensor, target: Tensor | None, *by_row: Tensor | None
    ) -> Iterator[tuple[Any, ...]]:
        """Check a batch of calibration rows, and yield those that count: some at a time, to use the cache.

        ``by_row`` are other tensors with one entry per row, which are yielded after scores and target.
        """
        counted = self._check_rows(scores, target)
        self._look_at_first(scores)
        tensors = (scores, target, *by_row)
        n, step = len(scores), self._rows_at_once(scores.shape[1]) if can_read_values(scores) else len(scores)
        even = math.ceil(n / max(1, math.ceil(n / max(1, step))))  # rather than a short rest
        for start in range(0, n, max(1, even)):
            part = [None if tensor is None else tensor[start : start + even] for tensor in tensors]
            check_finite(scores[start : start + even], first_row=start)
            if counted is not None:
                kept = counted[start : start + even]
                part = [None if tensor is None else tensor[kept] for tensor in part]
            yield tuple(part)

    def _check_rows(self, scores: Tensor, target: Tensor | None) -> Tensor | None:
        """Check all but the values of calibration rows; return which of them count (n,), if not all do."""
        if self.calibrated and self.needs_calibration:
            self.reset()
        check_scores(scores, name="scores")
        self._check_classes(scores.shape[1])
        self._set_num_classes(scores.shape[1])
        if target is None and self.needs_target:
            raise ValueError(f"{type(self).__name__} is calibrated with labels: target must be given")
        return None if target is None else self._counted(target, scores)

    def _look_at_first(self, scores: Tensor) -> None:
        """Look at the first few hundred rows of the first batch: are they what the activation takes?"""
        if self._are_probabilities is None and len(scores):
            if self.activation == "none":
                refuse_logits(scores)
            self._are_probabilities = rows_are_probabilities(scores)

    def _counted(self, target: Tensor, scores: Tensor) -> Tensor | None:
        """Check the target of some rows; return which of them count (n,), if not all do."""
        if self.takes_votes and isinstance(target, Tensor) and target.ndim == 2:
            check_votes(target, scores)
            return None  # rows without votes add nothing
        if check_target(target, scores, ignore_index=-100):
            return None
        return target != -100

    def finish(self: P) -> P:
        """Set the threshold from the rows added so far, and drop the rows."""
        self._settle()
        self.calibrated = True
        if self._are_probabilities and self.activation == "softmax":
            warn_of_probabilities(type(self).__name__)
        return self

    def merge(self, other: "SetPredictor") -> None:
        """Add the rows of another, unfinished predictor of the same kind and options."""
        if other is self:
            raise ValueError("other must be another predictor, got itself")
        if type(other) is not type(self) or other.options() != self.options():
            got = (
                f"a {type(other).__name__} with {other.options()}"
                if isinstance(other, SetPredictor)
                else other
            )
            raise ValueError(
                f"other must be a {type(self).__name__} with the same options {self.options()}, got {got}"
            )
        if not _same(self.weights, other.weights) or not _same(self.shift, other.shift):
            raise ValueError(f"other must have the same priors as this {type(self).__name__}")
        for predictor in (self, other):
            if predictor.calibrated:
                raise ValueError(f"{type(self).__name__} is finished: merge before finish()")
        if other._classes_known:
            self._check_classes(other._classes_known)
            self._set_num_classes(other._classes_known)
        self._are_probabilities = self._are_probabilities or other._are_probabilities
        self._join(other)

    def reset(self) -> None:
        """Drop the calibration."""
        self.calibrated, self.report = not self.needs_calibration, None
        self._are_probabilities = None
        self._set_num_classes(self._made_for)
        self._forget()

    def extra_repr(self) -> str:
        """Show the options, and on how many rows the predictor was calibrated."""
        usual = {name: one.default for name, one in inspect.signature(type(self)).parameters.items()}
        first = next(iter(usual), None)
        options = self.options().items()
        shown = [
            f"{name}={_brief(value)}" for name, value in options if name == first or value != usual.get(name)
        ]
        if self.needs_calibration and not self.calibrated:
            shown.append("not calibrated")
        elif self.needs_calibration:
            rows = "" if self.report is None else f" on {self.report.rows:,} rows"
            shown.append(f"calibrated{rows}")
        return ", ".join(shown)

    def _rows_at_once(self, num_classes: int) -> int:
        """Return how many rows of many to treat at once."""
        return chunk_rows(num_classes)

    def _forget(self) -> None:
        """Drop the rows that were added."""

    def _measured(self, scores: Tensor, target: Tensor | None) -> Any:
        """Return what is kept of checked rows, which changes nothing yet."""

    def _add(self, found: Any) -> None:
        """Add what was found in some rows."""

    def _settle(self) -> None:
        """Set thresholds and the report."""

    def _join(self, other: Any) -> None:
        """Add the rows of a predictor of the same kind."""

    def _at_least(self, scores: Tensor, threshold: Tensor) -> Tensor:
        """Return the sets (n, c) of the classes whose value reaches a threshold."""

        def sets(some: Tensor) -> Tensor:
            values = self._values(some)
            return where_at_least(values, threshold.to(values.dtype))

        return sets_in_chunks(scores, sets)

    @property
    def _looks_at_probabilities(self) -> bool:
        """Whether the values that are compared are the probabilities by softmax themselves."""
        return self.activation == "softmax" and self.weights is None and self.shift is None

    def _values(self, scores: Tensor) -> Tensor:
        """Return the values that are compared with the threshold: probabilities times class weights.

        Probabilities alone are ``class_values(scores, self.activation, None, self.shift)``.
        """
        if self.activation == "none" and (self.adds_probabilities or self.weights is not None):
            check_not_negative(scores)
        return class_values(scores, self.activation, self.weights, self.shift)

    def _set_num_classes(self, number: int) -> None:
        if number != self._classes_known:
            self._classes_known = number
            self.num_classes = torch.full_like(self.num_classes, number)

    def _check_classes(self, number: int) -> None:
        if self._classes_known and number != self._classes_known:
            raise ValueError(
                f"scores must have {self._classes_known} classes, as {type(self).__name__} was "
                f"{'made for' if self._made_for else 'calibrated with'}, got {number}"
            )

    def _tensors(self, scores: Any, target: Any) -> tuple[Tensor, Tensor | None]:
        """Return tensors for arrays and lists, on the device of the predictor; others as they are."""
        refuse_vmap(type(self).__name__, scores)
        device = self.num_classes.device
        return tensor_of(scores, device=device, name="scores"), classes_of(target, device=device)

    def _checked(self, scores: Any) -> Tensor:
        """Check before a prediction that the predictor is calibrated and fits the scores; return a tensor."""
        scores = self._tensors(scores, None)[0]
        if not self.calibrated:
            raise RuntimeError(f"{type(self).__name__} is not calibrated: call .calibrate(...) first")
        check_finite(scores)
        self._check_classes(scores.shape[1])
        return scores

    def _loaded(self) -> None:
        self._classes_known = int(self.num_classes)
        if self.weights is not None:
            self._made_for = len(self.weights)
        threshold = self._buffers.get("threshold")
        self.calibrated = threshold is None or not bool(threshold.isnan().any())


def _brief(value: Any) -> str:
    """Show an option; of a part with a name and options, the name."""
    return repr(value["name"]) if isinstance(value, Mapping) and "name" in value else repr(value)


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    """Return whether two vectors have the same values, or there are none."""
    if first is None or second is None:
        return first is second
    return torch.equal(first.double().cpu(), second.double().cpu())
