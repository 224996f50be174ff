"""Held-out rows that something is fitted on, looked at some rows at a time."""

import torch
from torch import Tensor

from shortlist._checks import check_scores, check_target

_BLOCK = 2**22  # scores looked at in one go: the fits work in float64, and copy no more than this


def held_out(logits: Tensor, target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Check the rows, and return those that are not ignored, on the CPU; scores are copied only if some are.

    Nothing else of the size of the scores is made here, since they may be most of what fits in memory.
    """
    check_scores(logits)
    check_target(target, logits, ignore_index=ignore_index)
    keep = target != ignore_index
    logits, target = logits.detach(), target[keep].cpu()
    logits = (logits if bool(keep.all()) else logits[keep]).cpu()
    if not len(target):
        raise ValueError("target must have at least one row that is not ignored, got 0")
    for part in logits.split(block_rows(logits)):
        bad = part.isnan() | (part == torch.inf)
        if bad.any():
            raise ValueError(f"logits must be finite, or -inf for a masked class, got {float(part[bad][0])}")
    return logits, target


def block_rows(logits: Tensor) -> int:
    """Return how many rows to look at in one go."""
    return max(1, _BLOCK // logits.shape[1])
