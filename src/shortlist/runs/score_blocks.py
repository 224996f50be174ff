"""Scores that stand in a file, read some rows at a time."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from shortlist.metrics import block_rows


class ScoreBlocks:
    """Scores (n, c) as blocks of rows, each of which is read when it is its turn.

    Never more of the scores is in memory than the blocks that somebody holds on to.

    Args:
        read: From the first row and the row after the last, the scores between them.
        shape: How many rows and classes there are.
    """

    def __init__(self, read: Callable[[int, int], Tensor], shape: Sequence[int]) -> None:
        self._read, self.shape = read, tuple(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        n, c = self.shape
        step = block_rows(c)
        for start in range(0, max(1, n), step):  # of no rows, a block without any
            yield self._read(start, min(start + step, n))

    def rows(self, indices: Sequence[int]) -> Tensor:
        """Read the scores of some rows (m, c), in the given order."""
        parts = [self._read(index, index + 1) for index in indices]
        return torch.cat(parts) if parts else torch.empty(0, self.shape[1])
