"""Select the largest scores exactly."""

import torch
from torch import Tensor

from shortlist._checks import can_read_values
from shortlist.ops._cpu import selection as cpu


def descending(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return values and indices of the scores of the last axis in descending order; NaN come first.

    The same as ``scores.sort(descending=True)``, faster on the CPU; the order of equal scores may differ.
    """
    return cpu.descending(scores) if can_read_values(scores) else scores.sort(dim=-1, descending=True)


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return values and indices of the k largest scores of the last axis, descending; NaN counts as largest.

    The same as ``scores.topk(k)``, faster on the CPU; which of equal scores are taken may differ.
    """
    return cpu.largest(scores, k) if can_read_values(scores) else scores.topk(k, dim=-1)


def kth_largest_index(scores: Tensor, k: int) -> Tensor:
    """Return the index of the k-th largest score of the last axis, or that of a NaN if there is one."""
    scores = scores.detach()
    index = cpu.kth_index_in_short_rows(scores, k) if can_read_values(scores) else None
    if index is not None:
        return index
    values, indices = largest(scores, k)
    # NaN sorts first: it must not give way to the k-th number behind it
    return torch.where(values[..., 0].isnan(), indices[..., 0], indices[..., -1])


def kth_largest(scores: Tensor, k: int) -> Tensor:
    """Return the k-th largest score of the last axis, NaN if any score is NaN."""
    return scores.gather(-1, kth_largest_index(scores, k).unsqueeze(-1)).squeeze(-1)


def largest_indices(values: Tensor, k: int) -> Tensor:
    """Return the indices of the k largest of many values (m,), in no order."""
    return cpu.largest_indices(values, k) if can_read_values(values) else values.topk(k).indices


def pack_above(scores: Tensor, bound: Tensor, *, at_least: int) -> tuple[Tensor, Tensor | None]:
    """Pack the scores not below each row's bound (n, 1) to the left of (n, m); return them and their indices.

    The rest is ``-inf``. m is the longest row's count, at least ``at_least``. Padding points to class 0. NaN
    is kept. Where packing would not halve the work, or reading values would wait for a device, the scores
    come back as they are, with no index.
    """
    return cpu.pack_above(scores, bound, at_least=at_least) if can_read_values(scores) else (scores, None)
