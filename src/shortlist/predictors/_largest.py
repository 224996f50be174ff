"""Find the largest of very many values that arrive in batches, exactly and in little memory."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.predictors._exact import exact_sum_above

__all__ = ["LargestValues", "RowsOutOfOrderError", "at_least"]

GROUP = 16
SPARE = 2**16


class RowsOutOfOrderError(ValueError):
    """Raised if values that were dropped on the way are needed in the end."""


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


class LargestValues:
    """All values above a floor that rises as more arrive, and how many equal it.

    Each :meth:`add` is told by ``limit`` how many of the values so far may be needed in the end; from time to
    time the smaller ones are dropped. Whether one of these was needed after all is known in the end, so that
    the answer is exact or an error.

    Where it is known that the largest are needed for their sum alone, a ceiling may be set at the start: what
    reaches it is counted and added up, and not kept.
    """

    def __init__(self, *, floor: float = -math.inf, ceiling: float = math.inf) -> None:
        self.rows = 0
        self.floor, self.ceiling = floor, ceiling
        self.above, self.mass_above = 0, 0  # how many reach the ceiling, and their sum in units
        self.at_floor = 0  # values equal to the floor that are counted, not kept
        self.dropped = False  # whether any value below the floor was
        self._kept = torch.empty(0)  # each value >= floor, and room for more
        self._size, self._shrink_at = 0, SPARE

    def add(self, values: Tensor, limit: Callable[[Tensor, int], int]) -> None:
        """Add values (n, c); ``limit(values so far, rows so far)`` tells how many of them to keep."""
        self.rows += len(values)
        self._append(values)
        if self._size > self._shrink_at:
            self._shrink(limit)

    def _append(self, values: Tensor) -> None:
        if self.ceiling < math.inf:
            found, above = self._below_ceiling(values.reshape(-1))
        else:
            found, above = at_least(values, self.floor), 0
        self.dropped |= len(found) + above < values.numel()
        self._keep(found)

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

    def _shrink(self, limit: Callable[[Tensor, int], int]) -> None:
        values = self.values()
        keep = limit(values, self.rows) + SPARE
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

    def merge(self, other: "LargestValues") -> None:
        """Add all values of another collection."""
        low, high = sorted((self, other), key=lambda collected: collected.floor)
        at_floor = high.at_floor + (low.at_floor if low.floor == high.floor else 0)
        dropped = self.dropped or other.dropped or (low.floor < high.floor and low.at_floor > 0)
        values = [self.values(), other.values()]
        self.rows, self.floor, self.at_floor = self.rows + other.rows, high.floor, at_floor
        self.dropped, self._kept, self._size = dropped, torch.empty(0), 0
        for part in values:
            self._append(part)

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
        found = int((self.values() >= bound).sum()) + (self.at_floor if self.floor >= bound else 0)
        return found + self.above

    def state(self) -> dict[str, Tensor]:
        """Return everything as tensors."""
        numbers = torch.tensor([self.rows, self.at_floor, int(self.dropped)])
        floor = torch.tensor(self.floor, dtype=torch.float64)  # of float64 values, to the last digit
        return {"values": self.values().clone(), "floor": floor, "numbers": numbers}

    @staticmethod
    def from_state(state: dict[str, Tensor]) -> "LargestValues":
        """Restore what :meth:`state` returned."""
        collected = LargestValues()
        collected.floor = float(state["floor"])
        collected.rows, collected.at_floor, dropped = (int(number) for number in state["numbers"])
        collected.dropped = bool(dropped)
        collected._kept, collected._size = state["values"], len(state["values"])
        return collected
