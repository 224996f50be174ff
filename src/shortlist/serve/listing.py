"""Lists of rows that were decided alike: which classes are listed, and from where on they are in."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.predictors import Ladder
from shortlist.serve.exchange import EntersAt

__all__ = ["Decided", "Listing"]


@dataclass(frozen=True)
class Listing:
    """The classes to list of one row, the best first.

    Args:
        classes: Their indices.
        probabilities: Their probabilities.
        in_set: Whether they are in the set.
        enters_at: From where on they are.
        members: Indices of all classes of the set, listed or not.
        mass: Sum of the probabilities of the set.
    """

    classes: list[int]
    probabilities: list[float]
    in_set: list[bool]
    enters_at: list[EntersAt]
    members: list[int]
    mass: float


@dataclass(frozen=True)
class Decided:
    """The sets of some rows.

    Args:
        sets: Whether each class is in the set (n, c), bool.
        possible: Whether each class is possible (n, c), bool.
        order: Values (n, c) by which classes are listed, the largest first.
        values: Values (n, c) that the ladder knows; ``None`` if there is no ladder.
        ladder: Says from where on a class is in the set of a coverage or an average size.
    """

    sets: np.ndarray
    possible: np.ndarray
    order: np.ndarray
    values: np.ndarray | None
    ladder: Ladder | None

    def listings(self, probabilities: np.ndarray, limit: int) -> list[Listing]:
        """List the classes of each row: those of the set first, then the next best, ``limit`` in all."""
        sets, rows = self.sets & self.possible, np.arange(len(self.sets))[:, None]
        best_first = np.argsort(-self.order, axis=1, kind="stable")
        members = sets[rows, best_first]
        members_first = np.argsort(~members, axis=1, kind="stable")
        places = np.sort(members_first[:, :limit], axis=1)
        classes = best_first[rows, places]
        listed = zip(
            np.minimum(self.possible.sum(1), limit).tolist(),
            classes.tolist(),
            probabilities[rows, classes].tolist(),
            members[rows, places].tolist(),
            self._enters_at(rows, classes, places),
            sets,
            np.where(sets, probabilities, 0.0).sum(1).tolist(),
            strict=True,
        )
        # impossible classes have the last places: they are cut off where fewer than the limit are possible
        return [
            Listing(c[:number], p[:number], i[:number], e[:number], np.flatnonzero(own).tolist(), mass)
            for number, c, p, i, e, own, mass in listed
        ]

    def _enters_at(self, rows: np.ndarray, classes: np.ndarray, places: np.ndarray) -> list[list[EntersAt]]:
        tops: Sequence[list[int]] = (places + 1).tolist()
        if self.ladder is None or self.values is None:
            return [[EntersAt(top, None, None) for top in row] for row in tops]
        known, most = self.ladder.rows, len(self.ladder.pooled)
        entries = self.ladder.entries_of(self.values[rows, classes])
        coverages = (entries.rank / (known + 1)).astype(object)
        if self.ladder.weights is not None:
            coverages[:] = None  # with priors none can be asked for
        sizes = (entries.budget / known).astype(object)
        sizes[entries.budget >= most] = None  # beyond what the ladder knows
        return [
            list(map(EntersAt, *row)) for row in zip(tops, coverages.tolist(), sizes.tolist(), strict=True)
        ]
