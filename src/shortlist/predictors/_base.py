"""The base of all predictors: rows of scores become sets, and calibration rows a state in buffers."""

import copy
import inspect
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import (
    can_read_values,
    check_number,
    check_priors,
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
from shortlist.class_table import ClassTable
from shortlist.predictors._activation import (
    Activation,
    check_activation,
    check_finite,
    check_not_negative,
    class_values,
    class_weights,
    prior_conversion,
)
from shortlist.predictors._calibrated import Calibrated
from shortlist.predictors._chunks import chunk_rows
from shortlist.predictors.accumulator import (
    Accumulator,
    CalibrationReport,
    Finished,
    NoRows,
    RowsOutOfOrderError,
)
from shortlist.predictors.at_place import PlaceLike, place_offset, place_weights
from shortlist.predictors.kept import KeptRule
from shortlist.promise import Promise

P = TypeVar("P", bound="SetPredictor")
Scores = Tensor | np.ndarray
"""Scores (n, c)."""
Classes = Tensor | np.ndarray | Sequence[int]
"""Class numbers (n,) of any integer type, counted from 0."""


class SetPredictor(Calibrated):
    """A predictor of sets: it is calibrated once, and is then a pure function of scores.

    Calibrate with :meth:`calibrate`, or with :meth:`update` for each batch and :meth:`finish` at the end,
    which gives the same result to the bit. Pieces that were updated elsewhere join by :meth:`merge`. The
    calibrated state is in buffers, so ``state_dict``, ``.to(device)`` and ``torch.export`` need nothing
    more; converting a model to another precision leaves it as it is.

    A predictor defines :meth:`measure`, :meth:`accumulator` and :meth:`forward`, and has its arguments as
    attributes of the same names.
    """

    needs_target: bool = False
    takes_place: ClassVar[bool] = False  # whether :meth:`at` makes one for a place
    takes_priors: ClassVar[bool] = False  # whether class priors are among its arguments
    takes_taxonomy: ClassVar[bool] = False  # whether it is made for a taxonomy of the classes
    from_code: ClassVar[frozenset[str]] = frozenset({"priors", "scores_priors", "generator", "max_rows"})
    takes_votes: ClassVar[bool] = False  # whether the target may be votes (n, c)
    chunks_at_once: ClassVar[int] = 1  # more if work that is done once for each call takes long
    adds_probabilities: bool = False  # whether activation "none" must come with probabilities
    weights: Tensor | None
    shift: Tensor | None
    place: Tensor | None
    place_name: str = ""
    threshold: Tensor
    report: CalibrationReport | None

    def __init__(
        self,
        *,
        activation: Activation,
        priors: Tensor | None = None,
        scores_priors: Tensor | None = None,
        tau: float = 1.0,
        num_classes: int = 0,
    ) -> None:
        super().__init__(num_classes if priors is None else len(priors))
        check_activation(activation)
        tau = check_number("tau", tau)
        self.activation: Activation = activation
        self.tau = tau
        self.register_buffer("weights", None if priors is None else class_weights(priors, tau))
        self.register_buffer("shift", prior_conversion(priors, scores_priors, activation))
        self.register_buffer("place", None)

    @property
    def promise(self) -> Promise:
        """What the sets promise, and from how many calibration rows; by default nothing."""
        return Promise()

    def at(self: P, place: PlaceLike, *, priors: Tensor, class_table: ClassTable | None = None) -> P:
        r"""Return a new predictor of this kind, not calibrated, whose sets are for photos of a place.

        Its values are the posteriors at the place, :math:`u_j \propto p_j v_j / \pi_j`; a class that does
        not occur there is in no set. Calibration takes labeled rows from anywhere: a row of class y weighs
        :math:`v_y / n_y`, and rows of classes that do not occur there are left out.

        Args:
            place: How often each class occurs (c,), >= 0; only ratios matter. Or a :class:`shortlist.Place`.
            priors: Class priors :math:`\pi` (c,) that the scores contain: as a rule the class frequencies of
                the training data, uniform for a logit-adjusted loss.
            class_table: Table of the classes, for a :class:`shortlist.Place`.

        Raises:
            ValueError: If no class occurs there, or a predictor of this kind or with these options cannot be
                made for a place.
        """
        self._check_takes_place()
        weights, name = place_weights(place, class_table)
        check_priors("priors", priors, num_classes=len(weights))
        placed = copy.deepcopy(self)
        placed._make_for_place(weights, place_offset(weights, priors.cpu()), name)
        return placed.to(self._device_mark.device)

    def _make_for_place(self, weights: Tensor, offset: Tensor, name: str) -> None:
        """Make this a predictor of a place, not calibrated."""
        self.place, self.shift, self.place_name = weights, offset, name
        self._made_for = len(weights)
        self._adapt_to_place()
        self.reset()

    def _check_takes_place(self) -> None:
        kind = type(self).__name__
        if not self.takes_place:
            raise ValueError(f"{kind} cannot be made for a place: TopK, AverageK and Conformal can")
        if self.activation != "softmax":
            raise ValueError(f"activation must be 'softmax' at a place, got {self.activation!r}")
        if self.weights is not None or self.place is not None:
            got = "priors" if self.place is None else "a place"
            raise ValueError(
                f"at() is for a {kind} without priors and place, got one with {got}: give the priors that "
                "the scores contain to at(place, priors=...)"
            )

    def _adapt_to_place(self) -> None:
        """Set and check what depends on the place, once it is known."""

    @property
    def place_classes(self) -> int | None:
        """Number of classes that occur at the place; ``None`` if there is no place."""
        return None if self.place is None else int((self.place > 0).sum())

    def _only_there(self, sets: Tensor) -> Tensor:
        """Leave out of sets (n, c) what does not occur at the place."""
        return sets if self.place is None else sets & (self.place > 0)

    def _ranked(self, values: Tensor) -> Tensor:
        """Return values (n, c) by which classes are ranked: what does not occur at the place is last."""
        return values if self.place is None else values.where(self.place > 0, -1.0)

    @abstractmethod
    def measure(self, scores: Tensor, target: Tensor | None) -> Any:
        """Return what the accumulator adds of checked rows; the predictor does not change.

        Args:
            scores: Scores (n, c), of rows that count alone.
            target: True classes (n,), if there are any.
        """

    @abstractmethod
    def forward(self, scores: Scores) -> Tensor:
        """Return the sets (n, c), a bool tensor, of scores (n, c), tensor or array; some may be empty."""

    def kept_rule(self) -> KeptRule | None:
        """Return the rule that makes sets from the largest probabilities of each row, which score keeps.

        ``None`` by default: then ``shortlist score`` makes the sets while it has the scores of all classes.
        """
        return None

    def quick_accumulators(self, scores: Tensor, target: Tensor | None) -> list[Accumulator[Finished]]:
        """Return faster accumulators, which :meth:`calibrate` tries first; none by default.

        They guess from all rows what they need to keep. After a wrong guess, an accumulator raises
        :class:`RowsOutOfOrderError`, and the next one is tried.
        """
        return []

    def calibrate(self: P, scores: Scores, target: Classes | None = None) -> P:
        """Calibrate on all rows at once.

        Args:
            scores: Scores (n, c) of rows that the model was not trained on, as a tensor or a NumPy array.
            target: True classes (n,), counted from 0, as a tensor, an array or a list, which not all
                predictors need; -100 leaves a row out. If people disagree, :class:`Conformal` takes their
                votes (n, c), floating: counts or shares, of which only the ratios in a row matter. Rows
                without votes are left out. The promise is then about a random vote on a new row.

        Returns:
            The predictor itself.
        """
        rows, classes = self._tensors(scores, target)
        check_scores(rows, name="scores")
        if classes is not None:
            self._counted(classes, rows)
        self.reset()
        for accumulator in self.quick_accumulators(rows, classes):
            with suppress(RowsOutOfOrderError):
                return self._calibrate_in(accumulator, rows, classes)
        return self._calibrate_in(self.accumulator(len(rows)), rows, classes)

    def _calibrate_in(self: P, accumulator: Accumulator[Finished], scores: Tensor, target: Any) -> P:
        with self._anew():
            self._rows = accumulator
            step = self._rows_at_once(scores.shape[1])
            for start in range(0, len(scores), step):
                part = slice(start, start + step)
                self.update(scores[part], None if target is None else target[part])
            return self.finish()

    @torch.no_grad()
    def update(self, scores: Scores, target: Classes | None = None, **by_row: Tensor | None) -> None:
        """Add a batch of calibration rows. After :meth:`finish`, this starts a new calibration.

        Args:
            scores: Scores (n, c).
            target: True classes (n,), where they are needed; -100 leaves a row out.
            by_row: Other tensors with one entry per row that a predictor measures, such as the draws
                ``uniform`` (n,) of a randomized :class:`Conformal`.
        """
        rows, classes = self._tensors(scores, target)
        chunks = self._counted_chunks(rows, classes, by_row)
        # a list: nothing is added before all rows of the batch are checked
        for measured in [self.measure(*chunk, **others) for chunk, others in chunks]:
            self.rows.add(measured)

    def finish(self: P) -> P:
        """Set the threshold from the rows added so far, and drop the rows."""
        super().finish()
        if self._are_probabilities and self.activation == "softmax":
            warn_of_probabilities(type(self).__name__)
        return self

    def merge(self, other: Calibrated) -> None:
        """Add the rows of another, unfinished predictor of the same kind and options."""
        super().merge(other)
        assert isinstance(other, SetPredictor)
        self._are_probabilities = self._are_probabilities or other._are_probabilities

    def reset(self) -> None:
        """Drop the calibration."""
        super().reset()
        self._are_probabilities: bool | None = None  # what the first rows look like; None before any came

    def _counted_chunks(
        self, scores: Tensor, target: Tensor | None, by_row: Mapping[str, Tensor | None]
    ) -> Iterator[tuple[tuple[Tensor, Tensor | None], dict[str, Tensor | None]]]:
        """Check a batch of calibration rows, and yield the rows that count, in chunks that fit the cache."""
        check_scores(scores, name="scores")
        self._start(scores.shape[1])
        if target is None and self.needs_target:
            raise ValueError(f"{type(self).__name__} is calibrated with labels: target must be given")
        counted = None if target is None else self._counted(target, scores)
        self._look_at_first(scores)
        n, step = len(scores), self._rows_at_once(scores.shape[1]) if can_read_values(scores) else len(scores)
        even = math.ceil(n / max(1, math.ceil(n / max(1, step))))  # so that no chunk is short
        for start in range(0, n, max(1, even)):
            chunk = slice(start, start + even)
            check_finite(scores[chunk], first_row=start)
            take = partial(_counted_rows, chunk=chunk, counted=counted)
            yield (take(scores), take(target)), {name: take(rows) for name, rows in by_row.items()}

    def _look_at_first(self, scores: Tensor) -> None:
        """Note whether the first few hundred rows are probabilities; refuse logits for ``"none"``."""
        if self._are_probabilities is None and len(scores):
            if self.activation == "none":
                refuse_logits(scores)
            self._are_probabilities = rows_are_probabilities(scores)

    def _counted(self, target: Tensor, scores: Tensor) -> Tensor | None:
        """Check the target of some rows; return which of them count (n,), if not all do."""
        if self.takes_votes and isinstance(target, Tensor) and target.ndim == 2:
            check_votes(target, scores)
            return None  # rows without votes add nothing
        every = check_target(target, scores, ignore_index=-100)
        if self.place is not None:
            return (self.place > 0)[target.clamp_min(0)] & (target != -100)
        return None if every else target != -100

    def shown_options(self) -> str:
        """Show the first option, and the options that differ from their defaults."""
        defaults = {name: each.default for name, each in inspect.signature(type(self)).parameters.items()}
        first, options = next(iter(defaults), None), self.options().items()
        shown = [(name, value) for name, value in options if name == first or value != defaults.get(name)]
        return ", ".join(f"{name}={_brief(value)}" for name, value in shown)

    def extra_repr(self) -> str:
        """Show the options, and on how many rows the predictor was calibrated."""
        shown = [self.shown_options()]
        if self.place is not None:
            shown.append(f"at {self.place_name or 'a place'} of {self.place_classes:,} classes")
        if self.needs_calibration and not self.calibrated:
            shown.append("not calibrated")
        elif self.needs_calibration:
            rows = "" if self.report is None else f" on {self.report.rows:,} rows"
            shown.append(f"calibrated{rows}")
        return ", ".join(shown)

    def _rows_at_once(self, num_classes: int) -> int:
        """Return the number of rows of a chunk."""
        return self.chunks_at_once * chunk_rows(num_classes)

    @property
    def _looks_at_probabilities(self) -> bool:
        """Whether the values that are compared are the probabilities by softmax themselves."""
        return self.activation == "softmax" and self.weights is None and self.shift is None

    def values(self, scores: Tensor) -> Tensor:
        """Return the values that are compared with the threshold: probabilities times class weights.

        Without weights: ``class_values(scores, self.activation, None, self.shift)``.
        """
        if self.activation == "none" and (self.adds_probabilities or self.weights is not None):
            check_not_negative(scores)
        values = class_values(scores, self.activation, self.weights, self.shift)
        # a row in which all classes of the place are ruled out is 0
        return values if self.place is None else values.nan_to_num(nan=0.0)

    def _tensors(self, scores: Any, target: Any) -> tuple[Tensor, Tensor | None]:
        """Return tensors for arrays and lists, on the device of the predictor; others as they are."""
        refuse_vmap(type(self).__name__, scores)
        device = self._device_mark.device
        return tensor_of(scores, device=device, name="scores"), classes_of(target, device=device)

    def checked(self, scores: Any) -> Tensor:
        """Check before a prediction that the predictor is calibrated and fits the scores; return a tensor."""
        scores = self._tensors(scores, None)[0]
        self._check_calibrated()
        check_finite(scores)
        self._check_classes(scores.shape[1])
        return scores


class UncalibratedPredictor(SetPredictor):
    """A predictor that needs no calibration. Of calibration rows it only notes the number of classes."""

    needs_calibration: ClassVar[bool] = False
    calibrated_buffers: ClassVar[tuple[str, ...]] = ()

    def measure(self, scores: Tensor, target: Tensor | None) -> None:
        """Measure nothing."""

    def accumulator(self, max_rows: int | None = None) -> NoRows:
        """Return an accumulator that keeps nothing."""
        return NoRows()


def _counted_rows(values: Any, *, chunk: slice, counted: Tensor | None) -> Any:
    """Return the rows of a chunk that count; ``None`` where there are no values."""
    return None if values is None else values[chunk] if counted is None else values[chunk][counted[chunk]]


def _brief(value: Any) -> str:
    """Show an option; of a part with a name and options, the name."""
    return repr(value["name"]) if isinstance(value, Mapping) and "name" in value else repr(value)
