"""Find the largest of very many values that arrive in batches, exactly and in little memory."""

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.predictors._exact import exact_sum_above
from shortlist.predictors.accumulator import Accumulator, RowsOutOfOrderError, State

T = TypeVar("T")
GROUP = 16
SPARE = 2**16


def at_least(values: Tensor, bound: float) -> Tensor:
    """Return the values (m,) of a tensor that are >= bound, in no order.

    Few are, as a rule: the maxima of groups tell where to look, in one vectorized pass.
    """
    flat = values.reshape(-1)
    if bound == -math.inf:
        return flat.clone()
    groups = flat.numel() // GROUP
    if groups:
        body, rest = flat[: GROUP * groups].view(GROUP, groups), flat[GROUP * groups :]
        near = (body.amax(0) >= bound).nonzero().squeeze(1)
        if 2 * len(near) < groups:
            flat = torch.cat([body[:, near].reshape(-1), rest])
    if not can_read_values(flat):
        return flat[flat >= bound]
    numbers = flat.detach().numpy()  # in a third of PyTorch's time
    return torch.from_numpy(numbers[np.flatnonzero(numbers >= bound)])


class LargestValues(Accumulator[T]):
    """All values above a floor that rises as more arrive, and how many equal it.

    From time to time values are dropped that are too small to be needed in the end. Whether one of these was
    needed after all is known in the end, so that the result is exact or an error.

    Args:
        limit: Function that tells how many of the values so far may be needed in the end.
        result: Function that computes the result of all values.
        floor: Value below which none is needed, if that is known.
        ceiling: Value above which values are needed for their sum alone, if that is known: what reaches it is
            counted and added up, and not kept. Such values cannot be merged.
    """

    def __init__(
        self,
        limit: Callable[["LargestValues[T]"], int],
        result: Callable[["LargestValues[T]"], T],
        *,
        floor: float = -math.inf,
        ceiling: float = math.inf,
    ) -> None:
        self._limit, self._result = limit, result
        self.rows = 0
        self.floor, self.ceiling = floor, ceiling
        self.above, self.mass_above = 0, 0  # how many reach the ceiling, and their sum in units
        self.at_floor = 0  # values equal to the floor that are counted, not kept
        self.dropped = False  # whether any value below the floor was
        self._kept = torch.empty(0)  # each value >= floor, and room for more
        self._size, self._shrink_at = 0, SPARE

    def add(self, measured: Tensor) -> None:
        """Add the values (n, c) of some rows."""
        self.rows += len(measured)
        self._append(measured)
        if self._size > self._shrink_at:
            self._shrink()

    def _append(self, values: Tensor) -> None:
        if self.ceiling < math.inf:
            kept, above = self._below_ceiling(values.reshape(-1))
        else:
            kept, above = at_least(values, self.floor), 0
        self.dropped |= len(kept) + above < values.numel()
        self._keep(kept)

    def _keep(self, found: Tensor) -> None:
        """Copy values (m,) behind the others: kept as they are, they would hold on to memory around them."""
        size = self._size + len(found)
        dtype = torch.promote_types(self._kept.dtype, found.dtype) if self._size else found.dtype
        if size > len(self._kept) or dtype != self._kept.dtype:
            before = self.values()
            self._kept = found.new_empty(max(size, 2 * len(before), SPARE), dtype=dtype)
            self._kept[: self._size] = before
        self._kept[self._size : size] = found
        self._size = size

    def _below_ceiling(self, values: Tensor) -> tuple[Tensor, int]:
        """The values (m,) from floor to ceiling, on the CPU, and how many are above, which are added up."""
        numbers = values.detach().numpy()
        reached = numbers >= self.ceiling
        above = int(np.count_nonzero(reached))
        self.above += above
        self.mass_above += exact_sum_above(values, self.ceiling)
        near = (numbers >= self.floor) ^ reached
        return torch.from_numpy(numbers[np.flatnonzero(near)]), above

    def _shrink(self) -> None:
        values = self.values()
        keep = self._limit(self) + SPARE
        if keep < len(values):
            floor = float(values.kthvalue(len(values) - keep + 1).values)
            kept = values[values > floor]
            equal = int((values == floor).sum())
            if floor == self.floor:
                equal += self.at_floor
            else:
                self.dropped |= self.at_floor > 0 or len(kept) + equal < len(values)
            self.floor, self.at_floor, values = floor, equal, kept
        self._kept, self._size = values, len(values)
        self._shrink_at = 2 * max(keep, self._size)

    def merge(self, state: State) -> None:
        """Add the values of other rows."""
        if not state:
            return
        rows, at_floor, dropped = (int(number) for number in state["numbers"])
        ends = sorted([(self.floor, self.at_floor), (float(state["floor"]), at_floor)])
        (low, at_low), (high, at_high) = ends
        kept = [self.values(), state["values"]]
        self.rows, self.floor = self.rows + rows, high
        self.at_floor = at_high + (at_low if low == high else 0)
        self.dropped |= bool(dropped) or (low < high and at_low > 0)
        self._kept, self._size = torch.empty(0), 0
        for values in kept:
            self._append(values)

    def state(self) -> State:
        """Return everything as tensors."""
        if not self.rows:
            return {}
        numbers = torch.tensor([self.rows, self.at_floor, int(self.dropped)])
        floor = torch.tensor(self.floor, dtype=torch.float64)  # of float64 values, to the last digit
        return {"values": self.values().clone(), "floor": floor, "numbers": numbers}

    def finish(self) -> T:
        """Return the result of all values."""
        return self._result(self)

    def values(self) -> Tensor:
        """Return the kept values (m,), in no order; the floor itself occurs ``at_floor`` times besides."""
        return self._kept[: self._size]

    def in_order(self) -> Tensor:
        """Return the kept values (m,), in descending order."""
        values = self.values()
        if not can_read_values(values):
            return values.sort(descending=True).values
        return torch.from_numpy(np.sort(values.numpy())).flip(0)

    def around(self, rank: int) -> tuple[float, float]:
        """Return the rank-th and the (rank + 1)-th largest value; the latter is -inf if there is none."""
        values = self.values()
        below = self._at(values, rank + 1)
        above = values[values > below]
        return (float(above.amin()) if len(above) == rank else below), below

    def _at(self, values: Tensor, rank: int) -> float:
        if rank <= len(values):
            return float(values.kthvalue(len(values) - rank + 1).values)
        if rank <= len(values) + self.at_floor:
            return self.floor
        if self.dropped:
            raise RowsOutOfOrderError(
                f"{len(values) + self.at_floor} values were kept of {self.rows} rows, but {rank} are needed: "
                "the first rows have larger values than the later ones. Shuffle the rows, or give max_rows"
            )
        return -math.inf

    def count_at_least(self, bound: float) -> int:
        """Return how many of all values are >= a bound, which must not be below the floor."""
        reaching = int((self.values() >= bound).sum()) + (self.at_floor if self.floor >= bound else 0)
        return reaching + self.above
