"""Values of many rows together, for sets of an average size."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from shortlist.predictors._largest import LargestValues
from shortlist.predictors._size_bounds import SizeBounds

_SLACK = 1e-9  # in sums of weights
_SPARE = 2**18  # values beyond those that are needed, before these are cut off


@dataclass(frozen=True)
class Pool:
    """The values of all rows, the largest first.

    Args:
        values: Values (m,), at least so many as the largest average size needs.
        reached: What the rows of these values weigh together (m,), so that all rows weigh n; ``None`` if each
            row weighs 1.
        rows: Number n of rows.
    """

    values: np.ndarray
    reached: np.ndarray | None
    rows: int

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory, with what it makes of its values when asked."""
        return 2 * self.values.nbytes + (0 if self.reached is None else self.reached.nbytes)

    def threshold(self, size: float) -> float:
        """Return the smallest value in the sets of an average size: midway to the next one, rounded up."""
        if self.reached is None:
            budget = round(size * self.rows)
        else:
            budget = int(np.searchsorted(self.reached, size * self.rows + _SLACK, side="right"))
        return float(self._middle(np.array([min(budget, len(self.values))]))[0])

    def enters_at(self, values: np.ndarray) -> list[float | None]:
        """Return the smallest average size whose sets have these values; ``None`` beyond the largest."""
        thresholds = self._thresholds
        budget = 1 + len(thresholds) - np.searchsorted(thresholds, values, side="right")
        if self.reached is None:  # the smallest size that is rounded to so many values
            sizes = (budget - 0.5) / self.rows
            sizes = np.where(np.rint(sizes * self.rows) >= budget, sizes, (budget - 0.5 + _SLACK) / self.rows)
        else:
            sizes = (self.reached[np.minimum(budget, len(self.values)) - 1] - _SLACK) / self.rows
        sizes = sizes.astype(object)
        sizes[budget >= len(self.values)] = None
        return sizes.tolist()

    @cached_property
    def _thresholds(self) -> np.ndarray:
        """The threshold of each number of values 1, 2, ..., ascending."""
        return np.ascontiguousarray(self._middle(np.arange(1, len(self.values)))[::-1])

    def _middle(self, budget: np.ndarray) -> np.ndarray:
        """Return the threshold at which so many values are in, as AverageK does."""
        ends = np.concatenate([[np.inf], self.values, [0.0]]).astype(np.float64)
        above, below = ends[budget], ends[budget + 1]
        middle = np.where(budget == 0, np.inf, (above + below) / 2)
        kind = self.values.dtype.type
        nearest = middle.astype(kind)
        return np.where(nearest >= middle, nearest, np.nextafter(nearest, kind(np.inf)))


def pooled(
    blocks: Iterable[Tensor],
    weights: Tensor | None,
    rows: int,
    *,
    most: float,
    at_least: int = 0,
    at_most: int | None = None,
) -> Pool:
    """Pool the values of rows at ranks above ``at_least`` up to ``at_most``.

    Args:
        blocks: Values (n, m) of some rows at a time.
        weights: What each row weighs (n,), 1 on average; ``None`` if all weigh the same.
        rows: Number n of rows.
        most: Largest average size that will be asked for: smaller values are not kept.
        at_least: Number of best classes that are left out.
        at_most: Last rank that counts; ``None`` for all.
    """
    open_values = map(SizeBounds(at_least, at_most).open_values, blocks)
    if weights is not None:
        return Pool(*_heaviest(open_values, weights.numpy(), most * rows + 2 * _SLACK), rows)
    limit = round(most * rows) + 1
    largest = LargestValues[Tensor](lambda _: limit, LargestValues.in_order)
    for block in open_values:
        largest.add(block)
    kept = torch.cat([largest.in_order(), torch.full((largest.at_floor,), largest.floor)])[:limit]
    return Pool(kept[kept > 0].numpy(), None, rows)


def _heaviest(blocks: Iterable[Tensor], weights: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest values above 0 and what their rows weigh together, up to the first beyond a limit.

    What is beyond is dropped from time to time, so that the memory does not grow with all values.
    """
    parts, start, spare, floor = [], 0, _SPARE, 0.0
    for block in blocks:
        rows, columns = (block.numpy() > floor).nonzero()
        parts.append((block.numpy()[rows, columns], weights[start + rows]))
        start += len(block)
        if sum(len(values) for values, _ in parts) > spare:
            parts = [_cut(parts, limit)]
            values, heavy = parts[0]
            spare = 2 * len(values) + _SPARE
            floor = float(values[-1]) if heavy.sum() > limit else 0.0
    values, heavy = _cut(parts, limit)
    return values, heavy.cumsum()


def _cut(parts: Sequence[tuple[np.ndarray, np.ndarray]], limit: float) -> tuple[np.ndarray, np.ndarray]:
    """Return values, the largest first, and their weights, up to the first with which these are beyond."""
    values, heavy = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(-values, kind="stable")
    enough = np.searchsorted(heavy[order].cumsum(), limit, side="right") + 1
    return values[order[:enough]], heavy[order[:enough]]
