"""A population of calibration rows: sets of any coverage and any average size, for what they are about."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from shortlist._checks import check_number
from shortlist._recent import Recent
from shortlist.coverage_law import conformal_rank
from shortlist.predictors._chunks import chunk_rows
from shortlist.predictors._pool import Pool, pooled
from shortlist.predictors._posterior import PopulationPosterior
from shortlist.predictors._size_bounds import first_classes
from shortlist.predictors.calibration_rows import CalibrationRows
from shortlist.predictors.thresholds import WEIGHTS_SLACK, weighted_thresholds

MAX_SIZE = 50  # the largest average size that can be asked for
_SIZES_FROM = 2000  # rows from which mean sizes are measured
_OUT = 2.0  # the score of a class beyond the largest number of a set; others are at most 1
_THRESHOLDS, _POOLS = 64, 512  # of coverages and of bounds that clients choose, which are remembered
_POOL_BYTES = 256_000_000  # of the pools of all populations of a model


class Values(NamedTuple):
    """What decides about classes (n, c).

    Attributes:
        fit: Posterior in the population, for coverage and for ranks.
        size: What is compared for an average size.
    """

    fit: np.ndarray
    size: np.ndarray


class Population:
    r"""Objects that a promise is about, by a weight for each calibration row.

    By default all rows count the same. Class weights :math:`v` make it a place: the posterior is then
    :math:`u_j \propto p_j v_j / \pi_j`, and a row of class y weighs :math:`v_y / n_y`.

    For coverage a set has the classes with :math:`1 - u_j` up to a threshold: the conformal rank over all
    rows, or the weighted one of each class. Each level has its own promise and must be chosen without a look
    at the list: one that is chosen to make the list nice promises nothing.

    Args:
        rows: Calibration rows of the model.
        objects: Numbers of the rows of each object (n, photos); see :meth:`CalibrationRows.objects`.
        photos: Number of photos of new objects, if it is another.
        importance: How much each class counts (c,), for which coverage is promised; ``None`` if each row
            counts the same.
        frequency: How frequent the classes are (c,), over which sizes are averaged; ``None`` if they are as
            frequent as in the rows.
        pools: Memory of :func:`pool_memory` that populations share; one of its own if ``None``.

    Raises:
        ValueError: If there are no rows for it, or the priors in the scores are not known.

    Example:
        >>> scores = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.3, 0.6, 0.1]]).log()
        >>> rows = CalibrationRows.of_rows(scores, torch.tensor([0, 0, 1]))
        >>> population = Population(rows, rows.objects())
        >>> values = population.values(torch.tensor([[0.62, 0.28, 0.1]]).log())
        >>> population.sets_of_coverage(values, 0.5)
        array([[ True, False, False]])
    """

    def __init__(
        self,
        rows: CalibrationRows,
        objects: Int[Tensor, "n photos"],
        *,
        photos: int | None = None,
        importance: Float[Tensor, " c"] | None = None,
        frequency: Float[Tensor, " c"] | None = None,
        pools: Recent[Pool] | None = None,
    ) -> None:
        self._rows, self.photos = rows, objects.shape[1] if photos is None else photos
        self.importance, self.frequency = importance, frequency
        self._posterior = PopulationPosterior(rows, importance, frequency)
        self._columns = self._posterior.columns
        if self._columns is not None:
            objects = objects[torch.isin(rows.target[objects[:, 0]].long(), self._columns)]
        if not len(objects):
            raise ValueError("there must be at least 1 calibration row for it, got 0")
        self._objects = objects
        self._thresholds: Recent[np.ndarray] = Recent(_THRESHOLDS)
        self._pools, self._key = pool_memory() if pools is None else pools, object()

    @property
    def size(self) -> int:
        """Number of calibration objects."""
        return len(self._objects)

    @property
    def num_classes(self) -> int:
        """Number of classes that can be in a set."""
        return self._rows.num_classes if self._columns is None else len(self._columns)

    @cached_property
    def without_rows(self) -> int:
        """Number of classes that count and have no rows: the promise does not extend to them."""
        if self.importance is None:
            return 0
        return int(((self.importance > 0) & (self._counts == 0)).sum())

    def values(self, scores: Float[Tensor, "n c"]) -> Values:
        """Return what decides about new objects: ``photos`` rows of scores for each, one after the other."""
        fit, size, classes = self._posterior(self._rows.kept(scores), self.photos)
        where = classes if classes is not None or self._columns is None else self._columns.expand_as(fit)
        wide = [_spread(values, where, self._rows.num_classes) for values in dict.fromkeys((fit, size))]
        return Values(wide[0], wide[-1])

    def sets_of_coverage(
        self, values: Values, coverage: float, *, at_least: int = 0, at_most: int | None = None
    ) -> np.ndarray:
        """Return the sets (n, c) of a coverage in (0, 1), within bounds of their size.

        A largest size is part of the score: the threshold is the one with which sets of at most so many
        classes cover enough, as long as any does; see :meth:`reaches`.
        """
        thresholds = self.thresholds(coverage, at_most)
        sets = (1 - values.fit <= thresholds) & self._possible
        if at_most is not None:
            sets &= _ranks(values.fit) <= at_most
        return sets | _best(values, at_least) if at_least else sets

    def sets_of_size(
        self, values: Values, size: float, *, at_least: int = 0, at_most: int | None = None
    ) -> np.ndarray:
        """Return the sets (n, c) of an average size: the best ones, and others that reach a threshold."""
        sets = (values.size >= self._size_threshold(size, at_least, at_most)) & self._possible
        if at_most is not None:
            sets &= _best(values, at_most)
        return sets | _best(values, at_least) if at_least else sets

    def enters_at(
        self, values: Values, where: tuple[np.ndarray, np.ndarray]
    ) -> tuple[list[float | None], list[float | None]]:
        """Return above which coverage, and from which average size on, some classes are in (rows, classes).

        Sizes beyond the largest are ``None``.
        """
        score = 1 - values.fit[where]
        if self.importance is None:
            coverages = np.searchsorted(self._sorted, score, side="left") / (self.size + 1)
        else:
            below = np.concatenate([[0.0], self._reached])[np.searchsorted(self._sorted, score, side="left")]
            coverages = np.maximum(below - self._row_weights.numpy()[where[1]] + WEIGHTS_SLACK, 0.0)
        return coverages.tolist(), self._pool(0, None).enters_at(values.size[where])

    def prepare(self) -> None:
        """Make what the first list would wait for."""
        self._pool(0, None)

    def reaches(self, coverage: float, at_most: int | None = None) -> bool:
        """Whether sets of at most so many classes can promise a coverage, by these rows."""
        return bool((self.thresholds(coverage, at_most) < _OUT).all())

    def is_enough(self, coverage: float) -> bool:
        """Whether there are enough rows for a coverage: if not, sets have all classes."""
        return bool(np.isfinite(self.thresholds(coverage)[self._possible]).any())

    def thresholds(self, coverage: float, at_most: int | None = None) -> np.ndarray:
        """Return the largest score of each class (c,) that is in a set of a coverage in (0, 1)."""
        coverage = check_number("coverage", coverage, above=0.0, below=1.0)
        return self._thresholds.get((coverage, at_most), lambda: self._found_thresholds(coverage, at_most))

    def _found_thresholds(self, coverage: float, at_most: int | None) -> np.ndarray:
        scores = self._scores
        if at_most is not None:
            scores = np.where(self._true.ranks.numpy() <= at_most, scores, scores.dtype.type(_OUT))
        classes = self._rows.num_classes
        if self.importance is None:
            rank = conformal_rank(self.size, coverage)
            last = np.inf if rank > self.size else np.partition(scores, rank - 1)[rank - 1]
            return np.full(classes, last, dtype=scores.dtype)
        counted = self.importance.where(self._counts > 0, 0.0)
        target = self._true.target
        return weighted_thresholds(
            torch.from_numpy(scores), target, counted / counted.sum(), coverage
        ).numpy()

    @property
    def max_size(self) -> float:
        """Largest average size that can be asked for."""
        return min(float(MAX_SIZE), self.num_classes - 1 / self.size)

    def check_size(self, size: float, at_least: int = 0, at_most: int | None = None) -> None:
        """Require an average size that sets within these bounds can have."""
        check_number("size", size, above=0.0)
        low = max(1 / self.size, at_least)
        high = self.max_size if at_most is None else min(self.max_size, at_most)
        if not low <= size <= high:
            raise ValueError(f"size must be from {low:.3g} to {high:g}, got {size:g}")

    def size_at(self, coverage: float) -> float | None:
        """Return the mean size of the sets of a coverage; ``None`` if it is beyond the largest."""
        [size] = self.sizes_at([coverage])
        return size

    def sizes_at(self, coverages: Sequence[float]) -> list[float | None]:
        """Return the mean size of the sets of each coverage, on at most 2,000 of the rows."""
        thresholds = torch.stack([torch.from_numpy(self.thresholds(level)) for level in coverages])
        step = math.ceil(self.size / _SIZES_FROM)
        counts = []
        for objects in self._objects[::step].split(self._chunk):
            fit, _, classes = self._posterior(self._rows.at(objects.reshape(-1)), objects.shape[1])
            where = self._columns if classes is None else classes
            limits = thresholds if where is None else thresholds[:, where]
            inside = 1 - fit <= (limits[:, None] if limits.ndim == 2 else limits)
            dropped = self.num_classes - fit.shape[1] if classes is not None else 0
            everything = torch.isinf(thresholds).all(1)[:, None]
            counts.append(inside.sum(2) + dropped * everything)
        weights = self._object_weights[::step]
        means = (torch.cat(counts, 1) * weights).sum(1) / weights.sum()
        return [size if size <= MAX_SIZE or size == self.num_classes else None for size in means.tolist()]

    def coverage_at(self, size: float, *, at_least: int = 0, at_most: int | None = None) -> float:
        """Return the share of the rows whose class is in their set of an average size."""
        self.check_size(size, at_least, at_most)
        inside = self._true.sizes >= self._size_threshold(size, at_least, at_most)
        if at_most is not None:
            inside &= self._true.ranks <= at_most
        return self._share(inside | (self._true.ranks <= at_least))

    def coverage_of_top(self, k: int) -> float:
        """Return the share of the rows whose class is one of the k best."""
        return self._share(self._true.ranks <= k)

    @property
    def effective_size(self) -> float:
        """How many objects of one weight tell as much about a share as these, which may count differently."""
        weights = self._weights
        return float(weights.sum() ** 2 / weights.square().sum())

    @property
    def _weights(self) -> Tensor:
        """How much each object counts."""
        if self.importance is None:
            return torch.ones(self.size, dtype=torch.float64)
        return self._row_weights[self._true.target]

    def _share(self, inside: Tensor) -> float:
        weights = self._weights
        return float((inside * weights).sum() / weights.sum())

    def _size_threshold(self, size: float, at_least: int, at_most: int | None) -> float:
        self.check_size(size, at_least, at_most)
        return self._pool(at_least, at_most).threshold(size - at_least)

    def _pool(self, at_least: int, at_most: int | None) -> Pool:
        """Return the values at ranks above ``at_least`` up to ``at_most`` of all rows."""
        weights = None if self.frequency is None else self._object_weights
        blocks, bounds = (size for _, size, _ in self._blocks()), {"at_least": at_least, "at_most": at_most}
        return self._pools.get(
            (self._key, at_least, at_most),
            lambda: pooled(blocks, weights, self.size, most=MAX_SIZE, **bounds),
        )

    @property
    def _chunk(self) -> int:
        return chunk_rows(max(self._rows.width, self.num_classes))

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        for objects in self._objects.split(self._chunk):
            yield self._posterior(self._rows.at(objects.reshape(-1)), objects.shape[1])

    @cached_property
    def _true(self) -> "_True":
        """Find the values and places of the true classes of all objects."""
        target = self._rows.target[self._objects[:, 0]].long()
        parts, start = [], 0
        number = None
        if self._columns is not None:
            number = torch.full((self._rows.num_classes,), -1)
            number[self._columns] = torch.arange(len(self._columns))
        for fit, size, classes in self._blocks():
            true_classes = target[start : start + len(fit), None]
            start += len(fit)
            if classes is not None:
                hits = classes == true_classes
                values = [(part * hits).sum(1) for part in (fit, size)]
            else:
                true_classes = true_classes if number is None else number[true_classes]
                values = [part.gather(1, true_classes).squeeze(1) for part in (fit, size)]
            ranks = (fit >= values[0][:, None]).sum(1)
            parts.append((*values, torch.where(values[0] > 0, ranks, self.num_classes)))
        fits, sizes, ranks = (torch.cat(part) for part in zip(*parts, strict=True))
        return _True(target, fits, sizes, ranks)

    @cached_property
    def _scores(self) -> np.ndarray:
        return (1 - self._true.fits).numpy()

    @cached_property
    def _order(self) -> np.ndarray:
        return np.lexsort([self._true.target.numpy(), self._scores])

    @cached_property
    def _sorted(self) -> np.ndarray:
        return self._scores[self._order]

    @cached_property
    def _reached(self) -> np.ndarray:
        """How much the rows weigh up to each one, in order of their scores."""
        return self._row_weights[self._true.target].numpy()[self._order].cumsum()

    @cached_property
    def _counts(self) -> Tensor:
        return self._rows.target[self._objects[:, 0]].long().bincount(minlength=self._rows.num_classes)

    @cached_property
    def _row_weights(self) -> Tensor:
        """What a row of each class weighs for the promise (c,); that of the heaviest if it has none."""
        assert self.importance is not None
        return _weights(self.importance, self._counts)

    @cached_property
    def _object_weights(self) -> Tensor:
        """What each object weighs for a mean size (n,), on average 1."""
        if self.frequency is None:
            return torch.ones(self.size, dtype=torch.float64)
        weights = _weights(self.frequency, self._counts)[self._rows.target[self._objects[:, 0]].long()]
        return weights * (self.size / weights.sum())

    @cached_property
    def _possible(self) -> np.ndarray:
        possible = np.ones(self._rows.num_classes, dtype=bool)
        if self._columns is not None:
            possible[:] = False
            possible[self._columns.numpy()] = True
        return possible


class _True(NamedTuple):
    """Of the true class of each object: its number, fit, value for sizes, and place from 1, each (n,)."""

    target: Tensor
    fits: Tensor
    sizes: Tensor
    ranks: Tensor


def pool_memory() -> Recent[Pool]:
    """Return a memory of what average sizes need, bounded in bytes: it can be large, and strangers ask."""
    return Recent(_POOLS, most_bytes=_POOL_BYTES, bytes_of=lambda pool: pool.nbytes)


def _spread(values: Tensor, classes: Tensor | None, num_classes: int) -> np.ndarray:
    """Return values (n, m) at their classes of c, 0 at the others."""
    if classes is None:
        return values.numpy()
    return values.new_zeros(len(values), num_classes).scatter_(1, classes, values).numpy()


def _weights(by_class: Tensor, counts: Tensor) -> Tensor:
    """Return what a row of each class weighs (c,); rows weigh 1 together."""
    counted = by_class.where(counts > 0, 0.0)
    weights = (counted / counted.sum() / counts).where(counts > 0, 0.0)
    return weights.where(counts > 0, weights.max())


def _best(values: Values, k: int) -> np.ndarray:
    """Return the k classes that fit best, bool (n, c)."""
    return first_classes(torch.from_numpy(values.fit), k).numpy()


def _ranks(fit: np.ndarray) -> np.ndarray:
    """Return the place of each class in its row (n, c), from 1; equal ones count against a class."""
    ascending = np.sort(fit, axis=1)
    return np.stack(
        [
            len(row) - np.searchsorted(order, row, side="left")
            for row, order in zip(fit, ascending, strict=True)
        ]
    )
