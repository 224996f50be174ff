"""Exact selection of the largest scores, faster on the CPU than one ``topk`` call."""

import math

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import can_read_values, promote

__all__ = [
    "kth_largest",
    "kth_largest_at_least",
    "kth_largest_index",
    "largest",
    "largest_indices",
    "pack_above",
]

# The bits of minus infinity, in the order of :func:`_sorted_as_integers`.
_MINUS_INFINITY = -2139095041


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and indices of the k largest scores of the last axis, descending; NaN counts as largest.

    The same as ``scores.topk(k)``. On the CPU short rows are sorted as integers that hold score and class; in
    long ones the scores are first folded into groups whose maxima are found by one vectorised pass: the k
    largest scores lie in the k groups with the largest maxima, so only those are searched.
    """
    c = scores.shape[-1]
    if _is_short(scores, k) and scores.dtype != torch.float64:
        order = _sorted_as_integers(promote(scores.detach()).numpy(), k)
        if order is not None:
            indices = torch.from_numpy(order)
            return scores.gather(-1, indices), indices
    fold = _group_size(c, k) if can_read_values(scores) else 1
    if fold == 1:
        return scores.topk(k, dim=-1)
    flat = scores.detach().reshape(-1, c)
    groups = c // fold
    folded = flat[:, : fold * groups].unflatten(1, (fold, groups))
    best = folded.amax(1).topk(k, dim=1, sorted=False).indices
    members = (best[:, None, :] + groups * torch.arange(fold)[:, None]).flatten(1)
    rest = torch.arange(fold * groups, c).expand(flat.shape[0], -1)
    members = torch.cat([members, rest], dim=1)
    order = flat.gather(1, members).topk(k, dim=1).indices
    indices = members.gather(1, order).reshape(*scores.shape[:-1], k)
    return scores.gather(-1, indices), indices


def _is_short(scores: Tensor, k: int) -> bool:
    """Whether NumPy selects faster: PyTorch's ``topk`` is slow where it partitions, see :func:`_group_size`.

    There it mispredicts a branch for most scores; NumPy's sorting has no branches to predict.
    """
    return scores.shape[-1] < min(64 * k, 512) and can_read_values(scores)


def _sorted_as_integers(scores: np.ndarray, k: int) -> np.ndarray | None:
    """Where the k largest of each row of float32 stand; equal ones in the order of classes, -0 after 0.

    The bits of a float, taken as an integer, are in the float's order but for negative ones, whose order they
    reverse; below them goes the class. None if there are NaN that this order has last.
    """
    c = scores.shape[-1]
    bits = scores.view(np.int32)
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).astype(np.int64) << 32
    keys |= np.arange(c - 1, -1, -1)
    keys.sort(axis=-1)
    if (keys[..., 0] < _MINUS_INFINITY << 32).any():
        return None
    return c - 1 - (keys[..., : -k - 1 : -1] & 0xFFFFFFFF)


def _group_size(c: int, k: int) -> int:
    """How many scores to fold into one, 1 for none; from timings of PyTorch's CPU ``topk``.

    That one keeps a heap while 64 k <= c, fast, and partitions beyond, slowly. In the first regime groups are
    as large as leaves 64 k of them; in the second, the search over groups and the one inside cost the same.
    """
    size = min(c // (64 * k), 16) if 64 * k <= c else math.isqrt(c // k)
    return size if size >= 4 and c >= 512 else 1


def kth_largest_index(scores: Tensor, k: int) -> Tensor:
    """Where the k-th largest score of the last axis stands; where a NaN stands, if there is one."""
    scores = scores.detach()
    kth = _kth_by_partition(scores, k)
    if kth is not None:
        rows = promote(scores).numpy()
        return torch.from_numpy(np.asarray((rows == kth[..., None]).argmax(-1)))
    values, indices = largest(scores, k)
    # NaN sorts first: it must not give way to the k-th number behind it
    return torch.where(values[..., 0].isnan(), indices[..., 0], indices[..., -1])


def _kth_by_partition(scores: Tensor, k: int) -> np.ndarray | None:
    """The k-th largest scores of short rows, by NumPy; None for other rows, or if there are NaN."""
    if not _is_short(scores, k):
        return None
    c = scores.shape[-1]
    first = np.partition(promote(scores).numpy(), c - k, axis=-1)[..., c - k :]  # NaN count as largest there
    return None if np.isnan(first).any() else first[..., 0]


def kth_largest(scores: Tensor, k: int) -> Tensor:
    """The k-th largest score of the last axis, NaN if any score is NaN."""
    kth = None if scores.requires_grad else _kth_by_partition(scores, k)
    if kth is not None:
        return torch.from_numpy(np.array(kth)).to(scores.dtype)
    return scores.gather(-1, kth_largest_index(scores, k).unsqueeze(-1)).squeeze(-1)


def kth_largest_at_least(scores: Tensor, k: int) -> Tensor:
    """A cheap lower bound of the k-th largest score (n, 1): the k-th largest of the maxima of groups."""
    c = scores.shape[1]
    size = 10 if c >= 40 * k else 4
    groups = c // size
    if groups < 4 * k:
        return kth_largest(scores, k)[:, None]
    maxima = scores[:, : size * groups].unflatten(1, (size, groups)).amax(1)
    return maxima.topk(k, dim=1).values[:, -1:]


def largest_indices(values: Tensor, k: int) -> Tensor:
    """Indices of the k largest of many values (m,), in no order.

    The k-th largest of the maxima of groups of 64 bounds them from below; on the CPU only what is not below
    the bound is searched.
    """
    groups = values.numel() // 64
    if not can_read_values(values) or groups < 2 * k or k == 0:
        return values.topk(k).indices
    maxima = values[: 64 * groups].view(64, groups).amax(0)
    near = (~(values < maxima.topk(k, sorted=False).values.amin())).nonzero().squeeze(1)
    return near[values[near].topk(k, sorted=False).indices]


def pack_above(scores: Tensor, bound: Tensor, *, at_least: int) -> tuple[Tensor, Tensor | None]:
    """The scores not below each row's bound (n, 1), packed to the left of (n, m), and where each stood.

    The rest is ``-inf``. m is the longest row's count, at least ``at_least``. Padding points to class 0.
    Where packing would not halve the work, or reading values would wait for a device, the scores come back as
    they are, with no index. NaN is kept.
    """
    n, c = scores.shape
    if not can_read_values(scores) or n == 0:
        return scores, None
    keep = ~(scores < bound)  # the k-th itself stays, even where the reach is lost to rounding
    counts = keep.sum(1)
    m = max(int(counts.max()), at_least)
    if 2 * m > c:
        return scores, None
    flat = keep.reshape(-1).nonzero().squeeze(1)
    row = torch.div(flat, c, rounding_mode="floor")
    start = torch.arange(0, n * m, m) - (counts.cumsum(0) - counts)
    place = torch.arange(flat.numel()) + start[row]
    packed, index = scores.new_full((n * m,), -torch.inf), torch.zeros(n * m, dtype=torch.int64)
    packed[place] = scores.reshape(-1)[flat]
    index[place] = flat - row * c
    return packed.view(n, m), index.view(n, m)
