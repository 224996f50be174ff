"""A threshold that learns from confirmed lists, and never from rows whose class it did not see."""

import heapq
import math
from typing import Any

from shortlist._beta import rank_with_tail
from shortlist._checks import check_count, check_number
from shortlist.predictors._sealed_rule import SealedRule


class ShrinkingThreshold(SealedRule):
    r"""A threshold for lists that people confirm; it only ever falls, so that what it needs is always known.

    A list holds the classes whose conformity score is at most :attr:`threshold`. People say which of them is
    right, or that none is. The score of the true class is then known only if it was in the list; calibrating
    on these rows alone makes lists shorter and shorter. Here, with probability ``1 - delta``, *every* list
    that was ever shown had a coverage of at least ``coverage``: at update j, after t replies, the threshold
    becomes the k-th smallest score seen, where k is the smallest with
    :math:`P(\mathrm{Bin}(t, 1 - a) \ge k) \le \delta / (j (j + 1))`, if that is lower.

    This holds for rows that are drawn independently from one distribution, whose true class the list does
    not influence, and if whether somebody replies does not depend on the true class being in the list. After
    a shift of the rows it cannot rise again: start anew. A ``start`` of your own must have the coverage
    itself.

    At most ``capacity`` scores are kept, the largest that are not above the threshold: only they can become
    the next one. If, against all expectation, a smaller one is needed, the smallest that is kept takes its
    place, which is on the safe side.

    Args:
        coverage: Promised coverage of every list, in (0, 1).
        delta: Chance that the promise fails, in (0, 1).
        start: Threshold of the first lists; infinite, so that they hold all classes, or from labeled rows.
        growth: How many times more replies each update needs than the one before, > 1.
        capacity: Largest number of scores to keep.

    Example:
        >>> rule = ShrinkingThreshold(coverage=0.5, delta=0.5)
        >>> for score in (0.1, 0.4):  # of the true class, which was in the list
        ...     rule.observe(score)
        >>> rule.threshold  # 0.5 ** 2 <= 0.5 / 2: the largest of two
        0.4
        >>> rule.observe(None)  # "none of these": the first list without the true class
        >>> rule.rounds, rule.updates
        (3, 2)
    """

    _format = "shortlist shrinking threshold 1"

    def __init__(
        self,
        *,
        coverage: float = 0.9,
        delta: float = 0.1,
        start: float = math.inf,
        growth: float = 1.25,
        capacity: int = 4096,
    ) -> None:
        self.coverage = check_number("coverage", coverage, above=0.0, below=1.0)
        self.delta = check_number("delta", delta, above=0.0, below=1.0)
        self.growth = check_number("growth", growth, above=1.0)
        check_count("capacity", capacity)
        self.capacity = capacity
        self.start = math.inf if start == math.inf else float(check_number("start", start))
        self.threshold = self.start
        self.rounds = 0
        self.updates = 0
        self.next_update = math.ceil(math.log(self.delta / 2) / math.log(self.coverage) - 1e-9)
        self.collects_only = False
        self._scores: list[float] = []  # the largest scores up to the threshold, as a heap
        self._smaller = 0  # scores below all of these, which are only counted

    def observe(self, score: float | None) -> None:
        """Count the reply to one list.

        Do not call it for a list that nobody replied to: no reply is not a miss.

        Args:
            score: Conformity score of the class that was confirmed; ``None`` if none of the list was right.
        """
        self._count(score)
        if not self.collects_only and self.rounds >= self.next_update:
            self._update()

    def _count(self, score: float | None) -> None:
        self.rounds += 1
        if score is None:
            return
        if check_number("score", score) <= self.threshold:  # a list of earlier may have been longer
            self._keep(float(score))

    def _keep(self, score: float) -> None:
        if self._smaller and score < self._scores[0]:
            self._smaller += 1  # others that are only counted may be larger than it
        elif len(self._scores) < self.capacity:
            heapq.heappush(self._scores, score)
        else:
            heapq.heappushpop(self._scores, score)
            self._smaller += 1

    def _update(self) -> None:
        self.updates += 1
        self.next_update = max(self.rounds + 1, math.ceil(self.rounds * self.growth - 1e-9))
        tail = self.delta / (self.updates * (self.updates + 1))
        rank = rank_with_tail(self.rounds, self.coverage, tail)
        if rank > self._smaller + len(self._scores):
            return  # that score was not seen: it is above the threshold
        ranked = sorted(self._scores)
        self._shrink(ranked[max(0, rank - self._smaller - 1)])

    def _shrink(self, threshold: float) -> None:
        self.threshold = min(self.threshold, threshold)
        self._scores = sorted(score for score in self._scores if score <= self.threshold)

    def collector(self) -> "ShrinkingThreshold":
        """Return an empty rule for lists by the same threshold, which collects replies to merge later."""
        other = ShrinkingThreshold(**self._options(), start=self.threshold)
        other.collects_only = True
        return other

    def merge(self, other: "ShrinkingThreshold") -> None:
        """Add the replies of a :meth:`collector`, and update if there are enough.

        How many replies a collector gathers before it is merged must not depend on what they are.

        Raises:
            ValueError: If ``other`` set thresholds itself: each of them used up some of ``delta``, and for
                both together the promise would not hold.
        """
        if not isinstance(other, ShrinkingThreshold) or other is self:
            raise ValueError("other must be another ShrinkingThreshold")
        if self._options() != other._options():
            raise ValueError(f"other must have the same options {self._options()}, got {other._options()}")
        if other.updates:
            raise ValueError(
                f"other must not have set its own threshold, it did {other.updates} times: two such rules "
                "would fail twice as often as promised. Collect replies with collector() and merge those"
            )
        if other.threshold < self.threshold:
            raise ValueError(
                f"other must have shown lists by a threshold >= {self.threshold:g}, got {other.threshold:g}: "
                "it did not see the scores in between"
            )
        self.rounds += other.rounds
        self._join(other)
        if not self.collects_only and self.rounds >= self.next_update:
            self._update()

    def _join(self, other: "ShrinkingThreshold") -> None:
        """Add the scores of another; those that either only counted lie below the smallest that it kept."""
        smaller = other._smaller
        if smaller and other._scores[0] > self.threshold:
            smaller = 0  # they may be above the threshold: on the safe side, they are
        floors = [rule._scores[0] for rule, number in ((self, self._smaller), (other, smaller)) if number]
        joined = sorted(self._scores + [score for score in other._scores if score <= self.threshold])
        kept = [score for score in joined if score >= max(floors, default=-math.inf)][-self.capacity :]
        self._smaller += smaller + len(joined) - len(kept)
        self._scores = kept

    def _options(self) -> dict[str, Any]:
        names = ("coverage", "delta", "growth", "capacity")
        return {name: getattr(self, name) for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return options and state as plain values for JSON; an infinite threshold is ``None``."""
        return super().to_dict() | {"scores": sorted(self._scores)}

    def _check_state(self) -> None:
        super()._check_state()
        seen = self._smaller + len(self._scores)
        if seen > self.rounds or max(self._scores, default=-math.inf) > self.threshold:
            raise ValueError("content must be that of a ShrinkingThreshold: its scores do not fit its state")
