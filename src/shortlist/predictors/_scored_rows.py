"""The calibration rows of conformal prediction: one score and one class for each row."""

import torch
from torch import Tensor

__all__ = ["ScoredRows"]

_FIRST = 1024


class ScoredRows:
    """Scores of the true classes of rows that arrive in batches, and these classes.

    They are copied into two long tensors that double when they are full: small tensors kept from each batch
    would hold on to the memory of the large ones between them.
    """

    def __init__(self) -> None:
        self._scores = torch.empty(0)
        self._target = torch.empty(0, dtype=torch.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, scores: Tensor, target: Tensor) -> None:
        """Add the scores (n,) of rows and their classes (n,)."""
        dtype = torch.promote_types(self._scores.dtype, scores.dtype) if self._count else scores.dtype
        count = self._count + len(scores)
        if count > len(self._scores) or dtype != self._scores.dtype:
            size = max(_FIRST, 2 * count)
            scores_before, target_before = self.scores, self.target
            self._scores, self._target = scores.new_empty(size, dtype=dtype), target.new_empty(size)
            self._scores[: self._count], self._target[: self._count] = scores_before, target_before
        self._scores[self._count : count], self._target[self._count : count] = scores, target
        self._count = count

    @property
    def scores(self) -> Tensor:
        """Scores (n,) of all rows so far, in the order that they came in."""
        return self._scores[: self._count]

    @property
    def target(self) -> Tensor:
        """Classes (n,) of all rows so far."""
        return self._target[: self._count]
