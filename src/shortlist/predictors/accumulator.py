"""Collect calibration rows. The result has the same bits for any batches and any number of machines."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
R = TypeVar("R", bound="Report")
State = dict[str, Tensor]

_FIRST_ROOM = 1024  # rows that a new column has room for


class Accumulator(ABC, Generic[T]):
    """A collection of calibration rows, or of what is kept of each row, that computes a result at the end.

    The result must have the same bits for any order of the rows, any batches, and any merging of parts. All
    four methods are abstract: an accumulator that lacks one of them cannot be created.
    """

    @abstractmethod
    def add(self, measured: Any) -> None:
        """Add rows: what ``measure`` of the predictor returned for them."""

    @abstractmethod
    def merge(self, state: State) -> None:
        """Add the rows of another accumulator, from its state. An empty accumulator becomes a copy of it."""

    @abstractmethod
    def state(self) -> State:
        """Return all that is kept as tensors, to save or to merge; an empty dict if there are no rows."""

    @abstractmethod
    def finish(self) -> T:
        """Return the result of all rows; for a predictor, its :class:`Finished` state."""


class Rows(Accumulator[T]):
    """Numbers of rows in columns: tensors by name, with one entry for each row.

    Rows are copied into long tensors, which double when they are full: a small tensor that is kept from each
    batch would keep the memory of large tensors around it in use. If only some rows have a column, it is 1
    for the others: a row with a class, beside rows with shares of votes, is one whole vote.

    Args:
        result: Function that computes the result of all rows.
    """

    def __init__(self, result: Callable[["Rows[T]"], T]) -> None:
        self._result = result
        self._columns: State = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> Tensor:
        """Return a column (n, ...), in the order that the rows came in."""
        return self._columns[name][: self._count]

    def add(self, measured: State) -> None:
        """Add columns of some rows, all of the same length."""
        count = len(next(iter(measured.values())))
        if not count:
            return
        start, self._count = self._count, self._count + count
        for name, values in (self._columns | measured).items():
            column = self._columns.get(name, values.new_ones(start, *values.shape[1:]))
            dtype = torch.promote_types(column.dtype, values.dtype)
            if self._count > len(column) or dtype != column.dtype:
                longer = values.new_empty((max(_FIRST_ROOM, 2 * self._count), *values.shape[1:]), dtype=dtype)
                longer[:start] = column[:start]
                self._columns[name] = column = longer
            column[start : self._count] = measured.get(name, 1)

    def merge(self, state: State) -> None:
        """Add the columns of other rows."""
        if state:
            self.add(state)

    def state(self) -> State:
        """Return the columns; none if there are no rows."""
        return {name: self[name].clone() for name in self._columns}

    def finish(self) -> T:
        """Return the result of all rows.

        Raises:
            ValueError: If there are no rows.
        """
        if not len(self):
            raise ValueError("calibration needs at least 1 row that is not left out, got 0")
        return self._result(self)


@dataclass(frozen=True)
class Report:
    """The facts about a calibration.

    Args:
        rows: Number of calibration rows.
    """

    rows: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists for JSON."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()
        }

    @classmethod
    def from_dict(cls: type[R], content: Mapping[str, Any]) -> R:
        """Make the report that :meth:`to_dict` described."""
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
        }
        return cls(**values)


@dataclass(frozen=True)
class CalibrationReport(Report):
    """The facts about the calibration of a predictor.

    Args:
        rows: Number of calibration rows.
        average_size: Mean size of the sets of these rows, if it is known.
        coverage: Share of these rows whose set contains the true class, if it is known.
        ties: Number of values equal to the threshold; 0 if the threshold is between two different values.
        fallback_classes: Classes with too few rows for a threshold of their own.
        class_rows: Number of rows that set the threshold of each class, if each class has its own; 0 for
            ``fallback_classes``.
        rows_also: Another use of the rows, such as "chose the epoch"; see :class:`Promise`.
        voted: Whether the rows had votes instead of classes.
        capped_share: If sets of at most ``at_most`` classes cannot reach the coverage: share of these rows
            whose set contains the true class, weighted as the promise would be. Else ``None``.
    """

    average_size: float | None = None
    coverage: float | None = None
    ties: int = 0
    fallback_classes: tuple[int, ...] = ()
    class_rows: tuple[int, ...] = ()
    rows_also: str = ""
    voted: bool = False
    capped_share: float | None = None


class Finished(NamedTuple):
    """The calibrated state: what an accumulator of a predictor returns."""

    buffers: State  # tensors by the names in ``calibrated_buffers`` of the predictor
    report: Report | None = None
    warnings: tuple[str, ...] = ()


class NoRows(Accumulator[Finished]):
    """The accumulator of predictors that need no calibration: it keeps nothing."""

    def add(self, measured: None) -> None:
        """Keep nothing."""

    def merge(self, state: State) -> None:
        """Keep nothing."""

    def state(self) -> State:
        """Return nothing."""
        return {}

    def finish(self) -> Finished:
        """Return a state without buffers."""
        return Finished({})


class CalibrationWarning(UserWarning):
    """Warning that a calibration does not give exactly what was asked for; the message says what it gives."""


class RowsOutOfOrderError(ValueError):
    """Raised if the result needs values that an accumulator has dropped; the message says what to do."""
