"""Collect calibration rows, which come in any batches and from any number of machines, to the same bits."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")
R = TypeVar("R", bound="Report")
State = dict[str, Tensor]

_FIRST = 1024  # rows that a new column has room for


class CalibrationWarning(UserWarning):
    """Warning that a calibration gives less than was asked for; the message says what."""


class RowsOutOfOrderError(ValueError):
    """Raised if values that were dropped on the way are needed in the end."""


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
        average_size: Mean size of the sets of these rows, where it is known.
        coverage: Share of these rows whose set contains the true class, where it is known.
        ties: Number of values equal to the threshold; 0 if it lies between two different values.
        fallback_classes: Classes with too few rows for a threshold of their own.
        class_rows: Number of rows that set the threshold of each class, if each has its own; 0 for those that
            fall back.
        rows_also: What else the rows served for, such as "chose the epoch"; see :class:`Promise`.
        voted: Whether the rows had votes instead of classes.
        capped_share: Share of these rows, weighted as a promise would be, whose set contains the true class,
            if no sets of so few classes can be as sure as asked; ``None`` if they can.
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
    """What a calibration gives: the calibrated state."""

    buffers: State  # by name, those that the predictor declares as ``calibrated_buffers``
    report: Report | None = None
    warnings: tuple[str, ...] = ()


class Accumulator(ABC, Generic[T]):
    """Calibration rows, or what is kept of them, until they give a result.

    The result must not depend, to the last bit, on the order of the rows, their batches, or how parts were
    merged. All four methods are abstract: an accumulator that lacks one of them cannot be created.
    """

    @abstractmethod
    def add(self, measured: Any) -> None:
        """Add what was measured of some rows."""

    @abstractmethod
    def merge(self, state: State) -> None:
        """Add the rows of another accumulator, by its state; into an empty one, this restores them."""

    @abstractmethod
    def state(self) -> State:
        """Return all that is kept as tensors, to save or to merge; nothing if there are no rows."""

    @abstractmethod
    def finish(self) -> T:
        """Return the result of all rows; a predictor's is its :class:`Finished` state."""


class NoRows(Accumulator[Finished]):
    """The accumulator of predictors that need no rows: it keeps nothing."""

    def add(self, measured: None) -> None:
        """Leave the rows alone."""

    def merge(self, state: State) -> None:
        """Leave the rows alone."""

    def state(self) -> State:
        """Return nothing."""
        return {}

    def finish(self) -> Finished:
        """Return that nothing is set."""
        return Finished({})


class Rows(Accumulator[T]):
    """Numbers of rows in columns: tensors by name, with one entry for each row.

    They are copied into long tensors that double when they are full: small tensors kept from each batch would
    hold on to the memory of the large ones between them. Where only some rows have a column, it is 1 for the
    others.

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
        before, self._count = self._count, self._count + count
        for name, values in (self._columns | measured).items():
            column = self._columns.get(name, values.new_ones(before, *values.shape[1:]))
            dtype = torch.promote_types(column.dtype, values.dtype)
            if self._count > len(column) or dtype != column.dtype:
                longer = values.new_empty((max(_FIRST, 2 * self._count), *values.shape[1:]), dtype=dtype)
                longer[:before] = column[:before]
                self._columns[name] = column = longer
            column[before : self._count] = measured.get(name, 1)

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
            ValueError: If there are none.
        """
        if not len(self):
            raise ValueError("calibration needs at least 1 row that is not left out, got 0")
        return self._result(self)
