"""Losses that leave the order within a list free, and say so where a training loses the first place."""

import warnings

import torch
from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.losses._contract import ClassLoss

_FIRST_LOOK = 64  # batches after which a training is looked at; then after twice as many, and so on


class ListLoss(ClassLoss):
    """A loss of lists of k classes that does not care which of the k is first.

    Its module looks at a few batches of a training. It warns once if the true class is among the first k of
    nine rows in ten, and first in less than half of these.
    """

    k: int

    _batches, _next_look = 0, _FIRST_LOOK

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of a batch; see the function of the same name."""
        loss = super().forward(logits, target)
        if self.training and not torch.compiler.is_compiling() and loss.requires_grad:
            self._batches += 1
            if self._batches == self._next_look:
                has_warned = self._warn_if_first_is_lost(logits.detach(), target)
                self._next_look = 0 if has_warned else 2 * self._next_look
        return loss

    def _warn_if_first_is_lost(self, logits: Tensor, target: Tensor) -> bool:
        if target.is_floating_point() or (logits.device.type == "cpu" and not can_read_values(logits)):
            return False
        rows = target != self.ignore_index
        hits = logits[rows].topk(self.k).indices == target[rows, None]
        inside, first = float(hits.any(1).float().mean()), float(hits[:, 0].float().mean())
        if not (inside >= 0.9 and first < inside / 2):
            return False
        warnings.warn(
            f"{type(self).__name__} leaves the order of its {self.k} classes free: in batch {self._batches}, "
            f"{100 * inside:.0f} % of the rows have the true class in the list, {100 * first:.0f} % in first "
            "place. If the first place matters, add 0.2 times the cross-entropy (docs/results/untuned.md)",
            stacklevel=4,
        )
        return True
