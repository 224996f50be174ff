"""Ranks of the true class among the scores, and top-K accuracies from them."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from shortlist._bounds import check_choice
from shortlist._checks import check_k, check_scores, check_target
from shortlist.metrics.class_means import Average, average_classes

Ties = Literal["against", "favor", "expected"]
"""How classes with the score of the true class count: as above it, below it, or in all orders."""
TIES = ("against", "favor", "expected")


class Ranks(NamedTuple):
    """The first and the last rank, from 1, that the true class of each row may have, int64 (n,) each.

    They are the same but for classes that tie with it under the policy ``"expected"``. A row whose true class
    has no place (its score is NaN) has c + 1, which no K reaches. ``counted`` is false for ignored rows.
    """

    first: Tensor
    last: Tensor
    counted: Tensor


class TopKSums(NamedTuple):
    """Sums over rows: ``hits`` (c, number of K), ``counts`` (c,) of rows, and rows with a NaN."""

    hits: Tensor
    counts: Tensor
    nan_rows: Tensor


def check_ks(k: int | Sequence[int], num_classes: int | None) -> tuple[int, ...]:
    """Check K, and return one K or several as a tuple, each in [1, c] if the number of classes is given."""
    ks = tuple(k) if isinstance(k, Iterable) else (k,)
    if not ks:
        raise ValueError("k must name at least one number of guesses, got none")
    for each_k in ks:
        check_k(each_k, num_classes, up_to=True)
    return ks


@torch.no_grad()
def true_ranks(
    scores: Float[Tensor, "n c"], target: Tensor, *, ties: Ties = "against", ignore_index: int = -100
) -> Ranks:
    """Find the rank of the true class: one more than the number of classes that score above it.

    Args:
        scores: Scores (n, c); any values that rank the classes.
        target: Class indices (n,).
        ties: Where the true class stands among those that score the same: ``"against"`` it, last;
            ``"favor"``, first; ``"expected"``, anywhere with equal chance.
        ignore_index: Rows with this target are ignored.

    Returns:
        First and last place of each row. A class with a NaN stands above the true one; a true class with a
        NaN has no place.

    Example:
        >>> scores, target = torch.tensor([[3.0, 2.0, 2.0, 2.0]]), torch.tensor([1])
        >>> [true_ranks(scores, target, ties=t)[:2] for t in ("against", "favor")]
        [(tensor([4]), tensor([4])), (tensor([2]), tensor([2]))]
        >>> true_ranks(scores, target, ties="expected")[:2]
        (tensor([2]), tensor([4]))
    """
    check_choice("ties", ties, TIES)
    check_scores(scores, name="scores")
    check_target(target, scores, ignore_index=ignore_index)
    counted = target != ignore_index
    true = scores.gather(1, torch.where(counted, target, 0)[:, None])
    lost = true[:, 0].isnan() | ~counted
    c = scores.shape[1]
    # what is not below it stands above it: a NaN, and the true class itself
    last = c - _count(torch.lt, scores, true) if ties != "favor" else None
    first = c + 1 - _count(torch.le, scores, true) if ties != "against" else last
    assert first is not None
    first = first.masked_fill(lost, c + 1)
    last = first if last is None or ties == "against" else last.masked_fill(lost, c + 1)
    return Ranks(first, last, counted)


def _count(compare, scores: Tensor, true: Tensor) -> Tensor:
    """Count the classes of each row for which the comparison holds."""
    if scores.shape[1] > 2**24:  # more than float32 counts
        return compare(scores, true).sum(1)
    # to compare into floats and add these up takes a quarter of the time of adding up booleans
    held = torch.empty(scores.shape, dtype=torch.float32, device=scores.device)
    return compare(scores, true, out=held).sum(1).long()


def topk_hits(ranks: Ranks, ks: Sequence[int], *, ties: Ties) -> Tensor:
    """Return for each row and K whether the true class is among the first K, or the chance of it."""
    k = torch.tensor(ks, device=ranks.first.device)
    if ties != "expected":
        return (ranks.last[:, None] <= k) & ranks.counted[:, None]
    places = (ranks.last - ranks.first + 1).double()[:, None]
    chance = ((k - ranks.first[:, None] + 1) / places).clamp(0, 1)
    return chance * ranks.counted[:, None]


@torch.no_grad()
def topk_sums(
    scores: Float[Tensor, "n c"],
    target: Tensor,
    *,
    k: int | Sequence[int],
    ties: Ties = "against",
    ignore_index: int = -100,
) -> TopKSums:
    """Count the hits of each class for each K, and the rows of each class, for top-K accuracies.

    Sums of two batches add up to those of both together. See :func:`topk_accuracy` for the arguments.

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
        >>> sums = topk_sums(scores, torch.tensor([0, 2]), k=[1, 2])
        >>> sums.hits.tolist(), sums.counts.tolist()
        ([[1, 1], [0, 0], [0, 1]], [1, 0, 1])
    """
    check_scores(scores, name="scores")
    c = scores.shape[1]
    ks = check_ks(k, c)
    ranks = true_ranks(scores, target, ties=ties, ignore_index=ignore_index)
    index = torch.where(ranks.counted, target, 0)
    rows = ranks.counted.long()
    hits = topk_hits(ranks, ks, ties=ties)
    hits = hits if hits.is_floating_point() else hits.long()
    return TopKSums(
        hits.new_zeros(c, len(ks)).index_add_(0, index, hits),
        rows.new_zeros(c).index_add_(0, index, rows),
        nan_rows(scores, ranks.counted),
    )


def nan_rows(scores: Tensor, counted: Tensor) -> Tensor:
    """Count the rows with a NaN, without ignored rows."""
    if not scores.numel():
        return counted.sum() * 0
    return (scores.amax(1).isnan() & counted).sum()  # the largest of some values is NaN if one of them is


def topk_accuracy(
    scores: Float[Tensor, "n c"],
    target: Tensor,
    *,
    k: int | Sequence[int] = 1,
    average: Average = "micro",
    groups: Tensor | None = None,
    ties: Ties = "against",
    ignore_index: int = -100,
) -> Tensor:
    """Compute the share of rows whose true class is among the K highest scores, for one or several K.

    Args:
        scores: Scores (n, c); any values that rank the classes.
        target: Class indices (n,).
        k: One K or several, each in [1, c].
        average: ``"micro"``: over rows. ``"macro"``: mean of the classes' own accuracies, over the classes
            that have rows. ``"group"``: the same within each group. ``"none"``: each class's own, NaN without
            rows.
        groups: Group of each class (c,), as from ``ClassTable.groups()``, for ``average="group"``.
        ties: Whether a class that scores the same as the true one stands before it (``"against"``), after it
            (``"favor"``), or either with equal chance (``"expected"``).
        ignore_index: Rows with this target are ignored.

    Returns:
        float64: a scalar for one K, (number of K,) for several, with another axis for groups or classes. A
        NaN in the true class is a miss; a NaN in another class stands above the true one.

    Example:
        >>> scores = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.4, 0.4, 0.2]])
        >>> target = torch.tensor([0, 2, 0])
        >>> topk_accuracy(scores, target, k=[1, 2, 3])
        tensor([0.3333, 1.0000, 1.0000], dtype=torch.float64)
        >>> topk_accuracy(scores, target, k=1, average="macro")  # (1/2 + 0/1) / 2: class 1 has no rows
        tensor(0.2500, dtype=torch.float64)
        >>> topk_accuracy(scores, target, k=1, ties="expected")
        tensor(0.5000, dtype=torch.float64)
    """
    sums = topk_sums(scores, target, k=k, ties=ties, ignore_index=ignore_index)
    result = average_classes(sums.hits.T, sums.counts, average=average, groups=groups)
    return result[0] if isinstance(k, int) else result


def balanced_error(
    scores: Float[Tensor, "n c"], target: Tensor, *, ties: Ties = "against", ignore_index: int = -100
) -> Float[Tensor, ""]:
    """Compute one minus the macro top-1 accuracy: the mean of each class's own error.

    Example:
        >>> balanced_error(torch.tensor([[2.0, 1.0], [2.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 0, 1]))
        tensor(0.5000, dtype=torch.float64)
    """
    return 1 - topk_accuracy(scores, target, k=1, average="macro", ties=ties, ignore_index=ignore_index)


@torch.no_grad()
def rank_histogram(
    scores: Float[Tensor, "n c"], target: Tensor, *, ties: Ties = "against", ignore_index: int = -100
) -> Tensor:
    """Count the rows whose true class has rank 1, 2, ..., c, or no rank, (c + 1,).

    int64; float64 with ``"expected"`` ties, where a row is shared out among the places it may have.

    Example:
        >>> rank_histogram(torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]]), torch.tensor([0, 1]))
        tensor([1, 0, 1, 0])
    """
    ranks = true_ranks(scores, target, ties=ties, ignore_index=ignore_index)
    return histogram_of(ranks, scores.shape[1], ties=ties)


def histogram_of(ranks: Ranks, num_classes: int, *, ties: Ties) -> Tensor:
    """Count the rows of each rank, see :func:`rank_histogram`."""
    rows, c = ranks.counted.long(), num_classes
    if ties != "expected":
        return rows.new_zeros(c + 1).index_add_(0, ranks.last - 1, rows)
    share = rows / (ranks.last - ranks.first + 1).double()
    steps = share.new_zeros(c + 2).index_add_(0, ranks.first - 1, share).index_add_(0, ranks.last, -share)
    return steps[:-1].cumsum(0).clamp_min(0)


def topk_curve(histogram: Tensor, *, k_max: int | None = None) -> Float[Tensor, " k"]:
    """Compute the top-K accuracy for K = 1, ..., ``k_max`` (or c) from a :func:`rank_histogram`.

    Example:
        >>> topk_curve(torch.tensor([1, 0, 1, 0]))
        tensor([0.5000, 0.5000, 1.0000], dtype=torch.float64)
    """
    c = histogram.shape[0] - 1
    if k_max is not None:
        check_k(k_max, c, name="k_max", up_to=True)
    return histogram[: k_max or c].double().cumsum(0) / histogram.double().sum()


def curve_area_of_rows(ranks: Ranks, k_max: int) -> Float[Tensor, " n"]:
    """Return each row's part of the area under the top-K curve: its share of hits up to ``k_max``."""
    last = ranks.last.clamp_max(k_max)
    places = (last - ranks.first + 1).clamp_min(0)  # of those it may have, the ones that some K reaches
    hits = places * (2 * k_max + 2 - ranks.first - last) / 2
    return hits.double() / (ranks.last - ranks.first + 1) / k_max * ranks.counted


def topk_curve_area(
    scores: Float[Tensor, "n c"],
    target: Tensor,
    *,
    k_max: int | None = None,
    ties: Ties = "against",
    ignore_index: int = -100,
) -> Float[Tensor, ""]:
    """Compute the area under the top-K curve: the mean of its accuracies for K = 1, ..., ``k_max`` (or c).

    1 if the true class always comes first; (c + 1) / 2c for random scores and ``k_max=None``.

    Example:
        >>> scores = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]])
        >>> topk_curve_area(scores, torch.tensor([0, 1]))  # (1/2 + 1/2 + 1) / 3
        tensor(0.6667, dtype=torch.float64)
    """
    histogram = rank_histogram(scores, target, ties=ties, ignore_index=ignore_index)
    return topk_curve(histogram, k_max=k_max).mean()
