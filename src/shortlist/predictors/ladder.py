"""A ladder: from which coverage on, and from which average size on, a class is in the set of a row."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from shortlist._checks import check_number, check_scores, check_target
from shortlist.coverage_law import conformal_rank
from shortlist.predictors._activation import check_finite, class_values, class_weights, prior_conversion
from shortlist.predictors._chunks import chunk_rows
from shortlist.predictors._largest import LargestValues
from shortlist.predictors.accumulator import Rows
from shortlist.predictors.conformity import LAC, PrevalenceAdjusted, ValueScore

MAX_SIZE = 50  # the largest average size that a ladder knows
MAX_ROWS = 20_000  # calibration rows that are kept; more hardly change a threshold
_SEED = 20_000  # of the choice of rows, which must not depend on their values


@dataclass(frozen=True, eq=False)
class Ladder:
    r"""What is kept of calibration rows, so that sets of any coverage and any average size can be made later.

    For coverage these are the sets of :class:`~shortlist.predictors.Conformal` with the rule ``"marginal"``
    and the score LAC (or prevalence-adjusted, with priors), for an average size those of
    :class:`~shortlist.predictors.AverageK`,
    calibrated on the kept rows, exactly. Class :math:`j` comes in at coverages above
    :math:`|\{i : s_i < s_j\}| / (n + 1)`, one minus its conformal p-value. Each level has its own promise
    and must be chosen without a look at the list: one that is chosen to make the list nice promises nothing.

    Of more than 20,000 rows, so many are drawn at random by a fixed seed, which keeps the promise.

    Args:
        true_values: Values of the true classes of the kept rows (n,), the largest first.
        pooled: Largest values of all classes of the kept rows (m,), the largest first: enough for an average
            of 50 classes.
        true_ranks: Places of the true classes among all classes (n,), the smallest first; equal values count
            against the class.
        num_classes: Number c of classes.
        weights: Weights (c,) of the probabilities, of class priors; ``None`` for none.
        shift: Offset (c,) that converts the priors in the scores; ``None`` for none.

    Example:
        >>> scores = torch.tensor([[0.7, 0.2, 0.1], [0.5, 0.3, 0.2], [0.3, 0.6, 0.1]]).log()
        >>> ladder = Ladder.of_rows(scores, torch.tensor([0, 0, 1]))
        >>> rank, _ = ladder.entries(ladder.values(torch.tensor([[0.62, 0.28, 0.1]]).log()))
        >>> (rank / 4).tolist()  # in the set of every coverage above this
        [[0.25, 0.75, 0.75]]
        >>> ladder.coverage_rank(0.5) > rank
        array([[ True, False, False]])
    """

    true_values: Float[Tensor, " n"]
    pooled: Float[Tensor, " m"]
    true_ranks: Int[Tensor, " n"]
    num_classes: int
    weights: Tensor | None = None
    shift: Tensor | None = None

    @staticmethod
    def of_rows(
        scores: Float[Tensor, "n c"],
        target: Int[Tensor, " n"],
        *,
        priors: Tensor | None = None,
        scores_priors: Tensor | None = None,
    ) -> "Ladder":
        """Make a ladder from calibration rows.

        Args:
            scores: Mapped scores (n, c) of rows that the model was not trained on.
            target: True classes (n,), int64; -100 leaves a row out.
            priors: Class frequencies (c,) of the training data, for sets that are good for rare classes.
            scores_priors: Priors (c,) that the scores contain, if these are not ``priors``.
        """
        check_scores(scores, name="scores")
        check_target(target, scores, ignore_index=-100)
        weights = None if priors is None else class_weights(priors, 1.0)
        shift = prior_conversion(priors, scores_priors, "softmax")
        kept = _kept_rows(target)
        if not len(kept):
            raise ValueError("a ladder needs at least 1 row that is not left out, got 0")
        limit = min(MAX_SIZE * len(kept) + 1, len(kept) * scores.shape[1])
        largest, true_classes = LargestValues(lambda _: limit, _in_order), Rows(Rows.state)
        for rows in kept.split(chunk_rows(scores.shape[1])):
            check_finite(scores[rows])
            values = class_values(scores[rows], "softmax", weights, shift).float().cpu()
            true = values.gather(1, target[rows, None].cpu())
            true_classes.add({"values": true.squeeze(1), "ranks": (values >= true).sum(1)})
            largest.add(values)
        pooled, true = largest.finish()[:limit].contiguous(), true_classes.finish()
        true_values, ranks = true["values"].sort(descending=True).values, true["ranks"].sort().values
        return Ladder(true_values, pooled, ranks.to(torch.int32), scores.shape[1], weights, shift)

    @property
    def rows(self) -> int:
        """Number of calibration rows that are kept."""
        return len(self.true_values)

    @property
    def max_size(self) -> float:
        """Largest average size that can be asked for."""
        return (len(self.pooled) - 1) / self.rows

    def entries(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find from where on classes with these values are in; see :meth:`values`. Any shape will do.

        Returns:
            Whole numbers, so that comparisons are exact. First the number of calibration rows whose true
            class fits better than this class: it is in the set of a coverage if ``coverage_rank(coverage)``
            is larger. Then the smallest number of classes, over all calibration rows together, at which the
            class is in: it is in the set of an average size if ``size_budget(size)`` is at least this.
        """
        fit = self._score(torch.from_numpy(values)).numpy()
        rank = np.searchsorted(self._conformity, fit, side="left")
        thresholds = self._thresholds[::-1]  # ascending
        return rank, 1 + len(thresholds) - np.searchsorted(thresholds, values, side="right")

    def enters_at(self, values: np.ndarray) -> tuple[list[float | None], list[float | None]]:
        """Find above which coverage, and from which average size on, classes with these values (m,) are in.

        Sizes beyond the ladder are ``None``; so are all coverages with priors, where none can be asked for.
        """
        rank, budget = self.entries(values)
        coverages = (rank / (self.rows + 1)).astype(object)
        if self.weights is not None:
            coverages[:] = None
        sizes = (budget / self.rows).astype(object)
        sizes[budget >= len(self.pooled)] = None
        return coverages.tolist(), sizes.tolist()

    def sets_of_coverage(self, values: np.ndarray, coverage: float) -> np.ndarray:
        """Return which values are in the set of a coverage in (0, 1), without a search for each."""
        rank = self.coverage_rank(coverage)
        if rank > self.rows:
            return np.ones(values.shape, dtype=bool)
        return self._score(torch.from_numpy(values)).numpy() <= self._conformity[rank - 1]

    def sets_of_size(self, values: np.ndarray, size: float) -> np.ndarray:
        """Return which values are in the set of an average size."""
        return values >= self._thresholds[self.size_budget(size) - 1]

    def values(self, scores: Float[Tensor, "n c"]) -> np.ndarray:
        """Return the values (n, c) that decide: probabilities, over the priors if the ladder has any."""
        check_finite(scores)
        if scores.shape[1] != self.num_classes:
            raise ValueError(f"scores must have {self.num_classes} classes, got {scores.shape[1]}")
        return class_values(scores.float().cpu(), "softmax", self.weights, self.shift).numpy()

    def coverage_rank(self, coverage: float) -> int:
        """Return which of the kept true classes, the best first, sets the threshold of a coverage in (0, 1).

        It is one more than there are rows where these are too few: then all classes are in.
        """
        coverage = check_number("coverage", coverage, above=0.0, below=1.0)
        return min(conformal_rank(self.rows, coverage), self.rows + 1)

    def size_budget(self, size: float) -> int:
        """Return how many classes the sets of all kept rows have together, for an average size."""
        size = check_number("size", size, above=0.0)
        budget = round(size * self.rows)
        if not 1 <= budget < len(self.pooled):
            low = 1 / self.rows
            raise ValueError(f"size must be from {low:.3g} to {self.max_size:g}, got {size:g}")
        return budget

    def size_at(self, coverage: float) -> float | None:
        """Return the mean size of the kept rows' sets of a coverage; ``None`` if it is beyond the ladder."""
        rank = self.coverage_rank(coverage)
        if rank > self.rows:
            return float(self.num_classes)
        inside = int(np.searchsorted(self._score(self.pooled).numpy(), self._conformity[rank - 1], "right"))
        whole = len(self.pooled) == self.rows * self.num_classes
        return inside / self.rows if inside < len(self.pooled) or whole else None

    def coverage_at(self, size: float) -> float:
        """Return the share of kept rows whose true class is in their set of an average size."""
        threshold = self._thresholds[self.size_budget(size) - 1]
        return float((self.true_values.numpy() >= threshold).mean())

    def coverage_of_top(self, k: int) -> float:
        """Return the share of kept rows whose true class is one of the k best."""
        return float((self.true_ranks <= k).double().mean())

    def to_tensors(self) -> dict[str, Tensor]:
        """Return everything as tensors, for a file."""
        parts: dict[str, Any] = {
            "true_values": self.true_values,
            "pooled": self.pooled,
            "true_ranks": self.true_ranks,
            "num_classes": torch.tensor(self.num_classes),
            "weights": self.weights,
            "shift": self.shift,
        }
        return {name: part for name, part in parts.items() if part is not None}

    @staticmethod
    def from_tensors(tensors: dict[str, Tensor]) -> "Ladder":
        """Restore what :meth:`to_tensors` returned.

        Raises:
            ValueError: If parts are missing, or are not in order.
        """
        needed = {"true_values", "pooled", "true_ranks", "num_classes"}
        if not needed <= tensors.keys() <= needed | {"weights", "shift"}:
            raise ValueError(
                f"a ladder must have {', '.join(sorted(needed))}, got {', '.join(sorted(tensors))}"
            )
        for name in ("true_values", "pooled"):
            if not len(tensors[name]) or not bool((tensors[name].diff() <= 0).all()):
                raise ValueError(f"{name} of a ladder must be values, the largest first")
        return Ladder(**{**tensors, "num_classes": int(tensors["num_classes"])})  # type: ignore[arg-type]

    def _score(self, values: Tensor) -> Tensor:
        score: ValueScore = LAC() if self.weights is None else PrevalenceAdjusted()
        return score(values)

    @cached_property
    def _conformity(self) -> np.ndarray:
        """The scores of the true classes, the best first."""
        return self._score(self.true_values).numpy()

    @cached_property
    def _thresholds(self) -> np.ndarray:
        """The threshold of each budget 1, 2, ...: midway to the next value, rounded up, as AverageK does."""
        pooled = self.pooled.numpy()
        middle = (pooled[:-1].astype(np.float64) + pooled[1:]) / 2
        nearest = middle.astype(np.float32)
        return np.where(nearest >= middle, nearest, np.nextafter(nearest, np.float32(np.inf)))


def _in_order(largest: LargestValues[Tensor]) -> Tensor:
    """Return the values (m,), the largest first."""
    return torch.cat([largest.in_order(), torch.full((largest.at_floor,), largest.floor)])


def _kept_rows(target: Tensor) -> Tensor:
    """Return the numbers of the rows that count, a part of them drawn if there are very many."""
    rows = (target != -100).nonzero().squeeze(1).cpu()
    if len(rows) <= MAX_ROWS:
        return rows
    generator = torch.Generator().manual_seed(_SEED)
    return rows[torch.randperm(len(rows), generator=generator)[:MAX_ROWS]]
