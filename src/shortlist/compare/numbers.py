"""Compute the numbers behind the drawings of the page, by pure functions of tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist.metrics import ReliabilityBins

_SIZE_STEPS = (0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 21, 31, 51, 101, 201, 501)
_COUNT_STEPS = (0, 1, 5, 10, 20, 50, 101, 201, 501)


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes that are confused with each other.

    Args:
        classes: Indices of the two classes; more rows of the first are taken for the
            second than the other way.
        forth: Number of rows of the first class whose first guess is the second.
        back: Number of rows of the second class whose first guess is the first.
        rows: Number of rows of each of the two.
    """

    classes: tuple[int, int]
    forth: int
    back: int
    rows: tuple[int, int]

    @property
    def mistakes(self) -> int:
        """Count the mistakes both ways."""
        return self.forth + self.back

    def turned(self) -> "ConfusedPair":
        """Return the same pair, the second class first."""
        (first, second), (rows, other_rows) = self.classes, self.rows
        return ConfusedPair((second, first), forth=self.back, back=self.forth, rows=(other_rows, rows))


def confused_pairs(guess: Tensor, target: Tensor, *, num_classes: int, limit: int = 10) -> list[ConfusedPair]:
    """Find the pairs of classes with most mistakes between them, both ways counted, most first.

    Args:
        guess: First guess of each row (n,).
        target: True class of each row (n,).
        num_classes: Number of classes.
        limit: Largest number of pairs; of pairs with equally many mistakes, lower class indices come first.

    Example:
        >>> guess, target = torch.tensor([1, 1, 0, 2, 2]), torch.tensor([0, 0, 1, 2, 0])
        >>> [(pair.classes, pair.mistakes) for pair in confused_pairs(guess, target, num_classes=3)]
        [((0, 1), 3), ((0, 2), 1)]
    """
    check_count("limit", limit)
    rows = target.bincount(minlength=num_classes)
    wrong = guess != target
    codes, counts = (target[wrong] * num_classes + guess[wrong]).unique(return_counts=True)
    directed = dict(zip(codes.tolist(), counts.tolist(), strict=True))
    totals: dict[tuple[int, int], int] = {}
    for code, count in directed.items():
        pair = divmod(code, num_classes)
        key = (min(pair), max(pair))
        totals[key] = totals.get(key, 0) + count
    pairs = []
    for a, b in sorted(totals, key=lambda pair: (-totals[pair], pair))[:limit]:
        forth, back = directed.get(a * num_classes + b, 0), directed.get(b * num_classes + a, 0)
        if back > forth:
            a, b, forth, back = b, a, back, forth
        pairs.append(ConfusedPair((a, b), forth, back, (int(rows[a]), int(rows[b]))))
    return pairs


def size_histograms(
    sizes: Tensor, target: Tensor, class_groups: Mapping[str, Tensor]
) -> dict[str, list[int]]:
    """Count the sets with 0, 1, 2, ... classes, for the rows of each group of classes that has any.

    All lists go up to the largest size. Without groups there is one, "all".
    """
    length = int(sizes.max()) + 1 if len(sizes) else 1
    rows = {name: of_group[target] for name, of_group in class_groups.items()}
    rows = rows or {"all": torch.ones_like(target, dtype=torch.bool)}
    return {
        name: sizes[kept].bincount(minlength=length).tolist() for name, kept in rows.items() if kept.any()
    }


def size_bins(largest: int) -> list[tuple[int, int]]:
    """Divide sizes from 0 to the largest into bins (first, last): single sizes first, then wider bins.

    Example:
        >>> size_bins(9)
        [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 7), (8, 9)]
    """
    return [(size, size) for size in range(largest + 1)] if largest <= 7 else _bins(_SIZE_STEPS, largest)


def _bins(steps: Sequence[int], largest: int) -> list[tuple[int, int]]:
    starts = [step for step in steps if step <= largest]
    while starts[-1] > steps[-2] and 2 * starts[-1] - 1 <= largest:  # beyond the list: doubling
        starts.append(2 * starts[-1] - 1)
    ends = [start - 1 for start in starts[1:]] + [largest]
    return list(zip(starts, ends, strict=True))


def bin_labels(bins: Sequence[tuple[int, int]]) -> list[str]:
    """Write the label below each bin.

    Example:
        >>> bin_labels([(0, 0), (1, 4)])
        ['0', '1–4']
    """
    return [str(first) if first == last else f"{first}–{last}" for first, last in bins]


def bin_histogram(histogram: Sequence[int], bins: Sequence[tuple[int, int]]) -> list[int]:
    """Sum a histogram over each bin.

    Example:
        >>> bin_histogram([5, 1, 2, 3], [(0, 0), (1, 3)])
        [5, 6]
    """
    return [sum(histogram[first : last + 1]) for first, last in bins]


@dataclass(frozen=True)
class FrequencyBin:
    """Classes with similarly many training rows.

    Args:
        low: Smallest number of training rows.
        high: Largest number of training rows.
        classes: Number of classes in the bin that have test rows.
        rows: Number of test rows of these classes.
        coverage: Mean over these classes of the share of their rows whose set contains them; None without
            any.
    """

    low: int
    high: int
    classes: int
    rows: int
    coverage: float | None


def frequency_edges(counts: Sequence[int]) -> list[tuple[int, int]]:
    """Make bins (smallest, largest) of training counts of growing width, without empty bins at the ends.

    Example:
        >>> frequency_edges([7, 40, 41])
        [(5, 9), (10, 19), (20, 49)]
    """
    bins = _bins(_COUNT_STEPS, max(counts))
    if len(bins) > 1 or bins[0][1] > 0:
        top = next((step - 1 for step in _COUNT_STEPS if step > max(counts)), bins[-1][1])
        bins[-1] = (bins[-1][0], top)
    return [(low, high) for low, high in bins if high >= min(counts)]


def coverage_by_frequency(
    hits: Sequence[int], rows: Sequence[int], counts: Sequence[int], edges: Sequence[tuple[int, int]]
) -> list[FrequencyBin]:
    """Average the coverage of classes by how many training rows they have; each class counts the same.

    Args:
        hits: Number of rows of each class whose set contains it.
        rows: Number of rows of each class; classes without rows are left out.
        counts: Number of training rows of each class.
        edges: Smallest and largest number of training rows of each bin.
    """
    bins = []
    for low, high in edges:
        members = [c for c, count in enumerate(counts) if low <= count <= high and rows[c]]
        shares = [hits[c] / rows[c] for c in members]
        mean = sum(shares) / len(shares) if shares else None
        bins.append(FrequencyBin(low, high, len(members), sum(rows[c] for c in members), mean))
    return bins


def easy_to_hard(true_probability: Tensor, *, limit: int = 9) -> list[int]:
    """Choose rows from the one whose true class is most probable to the one where it is least.

    They are evenly spaced. Rows with NaN have no part; of rows with the same probability the first comes
    first.

    Args:
        true_probability: Probability of the true class of each row (n,).
        limit: Largest number of rows.

    Example:
        >>> easy_to_hard(torch.tensor([0.5, 0.9, 0.1, 0.7, 0.3]), limit=3)
        [1, 0, 2]
    """
    check_count("limit", limit)
    rows = (~true_probability.isnan()).nonzero().flatten()
    order = rows[true_probability[rows].argsort(descending=True, stable=True)].tolist()
    if len(order) <= limit:
        return order
    places = [round(i * (len(order) - 1) / (limit - 1)) if limit > 1 else 0 for i in range(limit)]
    return [order[place] for place in places]


def pool_reliability(bins: Sequence[ReliabilityBins]) -> ReliabilityBins:
    """Join the bins of several runs as if their rows were those of one."""
    rows = [sum(column) for column in zip(*(each.rows for each in bins), strict=True)]

    def mean(name: str) -> tuple[float | None, ...]:
        sums = [0.0] * len(rows)
        for each in bins:
            for i, (number, value) in enumerate(zip(each.rows, getattr(each, name), strict=True)):
                sums[i] += number * (value or 0.0)
        return tuple(total / number if number else None for total, number in zip(sums, rows, strict=True))

    return ReliabilityBins(tuple(rows), mean("accuracy"), mean("confidence"))


def share_of(histogram: Sequence[int]) -> list[float]:
    """Divide counts by their sum."""
    total = sum(histogram) or 1
    return [number / total for number in histogram]
