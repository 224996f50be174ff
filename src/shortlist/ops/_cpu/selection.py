"""Select the largest scores exactly, faster than ``topk``; see :mod:`shortlist.ops.selection`."""

import math

import numpy as np
import torch
from torch import Tensor

from shortlist._checks import promote

# Scores in a row from which on sorting by digits is faster.
_MANY_TO_SORT = 256
# The bits of minus infinity, in the order of :func:`_sorted_as_integers`.
_MINUS_INFINITY = -2139095041


def descending(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``scores.sort(descending=True)``; long rows are sorted by digits of 16 bits, the last one first.

    NumPy counts such digits where its other sorts, and PyTorch's, compare: a fifth of the time.
    """
    values = promote(scores.detach())
    if scores.shape[-1] < _MANY_TO_SORT or bool(values.isnan().any()):
        return scores.sort(dim=-1, descending=True)
    keys = _descending_keys(values.numpy())
    order: Tensor | None = None
    for shift in range(0, 8 * keys.itemsize, 16):
        digits = (keys >> shift).astype(np.uint16)
        if order is not None:  # gathered by PyTorch, many times faster than by NumPy
            digits = torch.from_numpy(digits.view(np.int16)).gather(-1, order).numpy().view(np.uint16)
        step = torch.from_numpy(np.argsort(digits, axis=-1, kind="stable"))
        order = step if order is None else order.gather(-1, step)
    assert order is not None
    return scores.gather(-1, order), order


def _descending_keys(scores: np.ndarray) -> np.ndarray:
    """Return unsigned integers in the reverse order of floats: those above 0 flipped but for the sign."""
    signed, unsigned = (np.int32, np.uint32) if scores.itemsize == 4 else (np.int64, np.uint64)
    bits = scores.view(signed)
    positive = ~(bits >> (8 * scores.itemsize - 1)) & np.iinfo(signed).max
    return (bits ^ positive).view(unsigned)


def largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return ``scores.topk(k)``; short rows are sorted as integers that hold score and class.

    In long ones the scores are first folded into groups whose maxima are found by one vectorized pass: the k
    largest scores lie in the k groups with the largest maxima, so only those are searched.
    """
    c = scores.shape[-1]
    if _is_short(scores, k) and scores.dtype != torch.float64:
        order = _sorted_as_integers(promote(scores.detach()).numpy(), k)
        if order is not None:
            indices = torch.from_numpy(order)
            return scores.gather(-1, indices), indices
    fold = _group_size(c, k)
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
    """Tell whether NumPy is faster: PyTorch's ``topk`` is slow where it partitions, see :func:`_group_size`.

    There it mispredicts a branch for most scores; NumPy's sorting has no branches to predict.
    """
    return scores.shape[-1] < min(64 * k, 512)


def _sorted_as_integers(scores: np.ndarray, k: int) -> np.ndarray | None:
    """Return the indices of the k largest of each float32 row; ties in the order of classes, -0 after 0.

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
    """Return how many scores to fold into one, 1 for none; from timings of PyTorch's CPU ``topk``.

    That one keeps a heap while 64 k <= c, fast, and partitions beyond, slowly. In the first regime groups are
    as large as leaves 64 k of them; in the second, the search over groups and the one inside cost the same.
    """
    size = min(c // (64 * k), 16) if 64 * k <= c else math.isqrt(c // k)
    return size if size >= 4 and c >= 512 else 1


def kth_index_in_short_rows(scores: Tensor, k: int) -> Tensor | None:
    """Return the indices of the k-th largest scores; None for long rows, or if there are NaN."""
    kth = _kth_by_partition(scores, k)
    if kth is None:
        return None
    rows = promote(scores).numpy()
    return torch.from_numpy(np.asarray((rows == kth[..., None]).argmax(-1)))


def _kth_by_partition(scores: Tensor, k: int) -> np.ndarray | None:
    """Return the k-th largest scores of short rows, by NumPy; None for other rows, or if there are NaN."""
    if not _is_short(scores, k):
        return None
    c = scores.shape[-1]
    first = np.partition(promote(scores).numpy(), c - k, axis=-1)[..., c - k :]  # NaN count as largest there
    return None if np.isnan(first).any() else first[..., 0]


def largest_indices(values: Tensor, k: int) -> Tensor:
    """Return the indices of the k largest values; only those above a bound from groups of 64 are searched."""
    groups = values.numel() // 64
    if groups < 2 * k or k == 0:
        return values.topk(k).indices
    maxima = values[: 64 * groups].view(64, groups).amax(0)
    near = (~(values < maxima.topk(k, sorted=False).values.amin())).nonzero().squeeze(1)
    return near[values[near].topk(k, sorted=False).indices]


def pack_above(scores: Tensor, bound: Tensor, *, at_least: int) -> tuple[Tensor, Tensor | None]:
    """Pack the scores not below each row's bound; see :func:`shortlist.ops.selection.pack_above`."""
    n, c = scores.shape
    if n == 0:
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
