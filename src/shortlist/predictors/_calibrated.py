"""The life of all that is calibrated: rows are added, merged and finished, and the state is saved."""

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from shortlist._precision import KeepsPrecision
from shortlist.predictors.accumulator import (
    Accumulator,
    CalibrationReport,
    CalibrationWarning,
    Finished,
    Report,
)

C = TypeVar("C", bound="Calibrated")
_PENDING = "pending."  # begins the names of unfinished rows in a state dict
_BUFFERS_OF = {"weights": "priors", "shift": "scores_priors"}  # arguments that buffers are made of


class Calibrated(KeepsPrecision, ABC):
    """Options, and a calibrated state in buffers, which an accumulator of rows sets.

    The state has a flag that says whether it is calibrated. While it is not, the rows that were added so far
    are part of the state.
    """

    needs_calibration: ClassVar[bool] = True
    calibrated_buffers: ClassVar[tuple[str, ...]] = ("threshold",)  # what the calibration sets
    report_kind: ClassVar[type[Report]] = CalibrationReport
    # arguments that recipes cannot give and files do not keep among the options
    from_code: ClassVar[frozenset[str]] = frozenset()
    # by argument that takes a part by its name, such as a conformity score: the registry of these parts
    parts: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    _device_mark: Tensor
    report: Any

    def __init__(self, num_classes: int = 0) -> None:
        super().__init__()
        self._made_for = num_classes  # classes, 0 for any number
        self.register_buffer("_device_mark", torch.empty(0), persistent=False)  # moves with the module
        for name in self.calibrated_buffers:
            self.register_buffer(name, None)
        self.reset()

    @abstractmethod
    def accumulator(self, max_rows: int | None = None) -> Accumulator[Finished]:
        """Return an empty accumulator of calibration rows, of at most ``max_rows`` if their number is known.

        It sets the buffers of ``calibrated_buffers``.
        """

    @property
    def rows(self) -> Accumulator[Finished]:
        """The calibration rows that were added and not yet finished."""
        if self._rows is None:
            self._rows = self.accumulator()
        return self._rows

    def options(self) -> dict[str, Any]:
        """Return the arguments as plain values for JSON; priors and the like are in the state."""
        names = [name for name in inspect.signature(type(self)).parameters if name not in self.from_code]
        values = {name: getattr(self, name) for name in names}
        return values | {name: _described(values[name], registry) for name, registry in self.parts.items()}

    def finish(self: C) -> C:
        """Set the calibrated state from the rows added so far, and drop the rows."""
        return self._finish(self.rows)

    def finish_with(self: C, rows: Accumulator[Finished], num_classes: int, check: Callable[[], None]) -> C:
        """Drop the calibration for a new one from other rows.

        Args:
            rows: Rows in an accumulator of this predictor.
            num_classes: Number of their classes.
            check: Function that raises an error if the state that was set must not be used.
        """
        with self._anew():
            self._fit_classes(num_classes)
            return self._finish(rows, check)

    def _finish(self: C, rows: Accumulator[Finished], check: Callable[[], None] | None = None) -> C:
        finished = rows.finish()
        for name, value in finished.buffers.items():
            setattr(self, name, value)
        self._rows, self.calibrated, self.report = None, True, finished.report
        if check is not None:
            check()
        for message in finished.warnings:
            warnings.warn(f"{type(self).__name__}: {message}", CalibrationWarning, stacklevel=3)
        return self

    def merge(self, other: "Calibrated") -> None:
        """Add the rows of another one of the same kind and options, which is not finished either."""
        kind = type(self).__name__
        if other is self:
            raise ValueError(f"other must be another {kind}, got itself")
        if type(other) is not type(self) or other.options() != self.options():
            got = (
                f"a {type(other).__name__} with {other.options()}" if isinstance(other, Calibrated) else other
            )
            raise ValueError(f"other must be a {kind} with the same options {self.options()}, got {got}")
        for name in self._buffers.keys() - self.calibrated_buffers:
            if not _same(self._buffers[name], other._buffers[name]):
                raise ValueError(f"other must have the same {_BUFFERS_OF.get(name, name)} as this {kind}")
        if self.calibrated or other.calibrated:
            raise ValueError(f"{kind} is finished: merge before finish()")
        if other.num_classes:
            self._fit_classes(other.num_classes)
        self.rows.merge(other.rows.state())

    def reset(self) -> None:
        """Drop the calibration."""
        self.calibrated, self.report = not self.needs_calibration, None
        self.num_classes = self._made_for
        self._rows: Accumulator[Finished] | None = None
        for name in self.calibrated_buffers:
            setattr(self, name, None)

    def _start(self, num_classes: int | None) -> None:
        """Drop a finished calibration for a new one; require the number of classes of the rows so far."""
        if self.calibrated and self.needs_calibration:
            self.reset()
        if num_classes is not None:
            self._fit_classes(num_classes)

    def _fit_classes(self, number: int) -> None:
        self._check_classes(number)
        if number != self.num_classes:  # to set an attribute of a module takes long
            self.num_classes = number

    @contextmanager
    def _anew(self) -> Iterator[None]:
        """Start a new calibration; if it fails, drop its rows, so that a later one does not find them."""
        self.reset()
        try:
            yield
        except BaseException:
            self.reset()
            raise

    def _check_classes(self, number: int) -> None:
        if self.num_classes and number != self.num_classes:
            raise ValueError(
                f"scores must have {self.num_classes} classes, as {type(self).__name__} was "
                f"{'made for' if self._made_for else 'calibrated with'}, got {number}"
            )

    def _check_calibrated(self) -> None:
        if not self.calibrated:
            raise RuntimeError(f"{type(self).__name__} is not calibrated: call .calibrate(...) first")

    def __getstate__(self) -> dict[str, Any]:
        # rows travel by their state: an accumulator may have functions that cannot be pickled
        return {**self.__dict__, "_rows": None, "_pending": {} if self._rows is None else self._rows.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({name: value for name, value in state.items() if name != "_pending"})
        if state["_pending"]:
            self.rows.merge(state["_pending"])

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in ("calibrated", "num_classes"):
            destination[f"{prefix}{name}"] = torch.tensor(getattr(self, name))
        if not self.calibrated:  # to forget rows that are not yet finished would change the threshold
            for name, values in self.rows.state().items():
                destination[f"{prefix}{_PENDING}{name}"] = values.detach()

    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self.reset()
        start = f"{prefix}{_PENDING}"
        pending = {key: state_dict.pop(key) for key in list(state_dict) if key.startswith(start)}
        facts = {name: state_dict.pop(prefix + name, None) for name in ("calibrated", "num_classes")}
        for name in self._buffers:  # they take the shape and type that they were calibrated with
            if state_dict.get(prefix + name) is not None:
                self._buffers[name] = torch.empty_like(
                    state_dict[prefix + name], device=self._device_mark.device
                )
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, *args, **kwargs
        )
        lacking = [name for name, fact in facts.items() if fact is None]
        if not lacking:
            self.num_classes = int(facts["num_classes"])
            if facts["calibrated"]:
                lacking = [name for name in self.calibrated_buffers if self._buffers[name] is None]
            self.calibrated = bool(facts["calibrated"]) and not lacking
        missing_keys += [prefix + name for name in lacking]
        if pending:
            self.rows.merge({key.removeprefix(start): rows for key, rows in pending.items()})


def registered_name(instance: object, registry: Mapping[str, Any]) -> str:
    """Return the name of an instance's class in a registry, or the class's own name if it is not there."""
    return next((name for name, kind in registry.items() if type(instance) is kind), type(instance).__name__)


def _described(instance: Any, registry: Mapping[str, Any]) -> dict[str, Any]:
    """Return name and options of a part that has a registry."""
    options = asdict(instance) if is_dataclass(instance) and not isinstance(instance, type) else {}
    return {"name": registered_name(instance, registry), **options}


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    """Return whether two tensors have the same values, or there are none."""
    if first is None or second is None:
        return first is second
    return torch.equal(first.double().cpu(), second.double().cpu())
