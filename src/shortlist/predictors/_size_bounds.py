"""Sets with at least so many classes, and at most so many."""

from typing import NamedTuple

import torch
from torch import Tensor

from shortlist._checks import check_count
from shortlist.ops import kth_largest, largest


class SizeBounds(NamedTuple):
    """The smallest and the largest size of a set; ``None`` for as many as there are classes."""

    at_least: int = 0
    at_most: int | None = None

    @staticmethod
    def checked(at_least: int, at_most: int | None) -> "SizeBounds":
        """Return the bounds if they are whole numbers, and a set of some size is within them."""
        check_count("at_least", at_least, low=0)
        if at_most is not None:
            check_count("at_most", at_most)
            if at_most < at_least:
                raise ValueError(f"at_most must be >= at_least ({at_least}), got {at_most}")
        return SizeBounds(at_least, at_most)

    def check_classes(self, number: int) -> None:
        """Require at least as many classes as each set must have."""
        if self.at_least > number:
            raise ValueError(f"at_least must be <= the number of classes ({number}), got {self.at_least}")

    def largest_size(self, num_classes: int) -> int:
        """Return how many classes a set may have."""
        return num_classes if self.at_most is None else min(self.at_most, num_classes)

    def take(self, rank: Tensor, inside: Tensor) -> Tensor:
        """Return which classes are in, by their ranks (1 for the best) and whether the rule takes them."""
        if self.at_most is not None:
            inside = inside & (rank <= self.at_most)
        return inside | (rank <= self.at_least) if self.at_least else inside

    def sets(self, sets: Tensor, values: Tensor) -> Tensor:
        """Add to sets (n, c) the best classes by their values (n, c), or leave all but the best out."""
        most = self.largest_size(values.shape[1])
        capped = most < values.shape[1]
        if not capped and not self.at_least:
            return sets
        best = largest(values, most if capped else self.at_least)[1]
        if capped:
            sets = torch.zeros_like(sets).scatter(1, best, sets.gather(1, best))
        return sets.scatter(1, best[:, : self.at_least], True)

    def may_hold(self, values: Tensor, rows: Tensor, classes: Tensor) -> Tensor:
        """Return whether the set of a row may hold a class (m,): by the values (n, c), it is not too far."""
        most = self.largest_size(values.shape[1])
        if most == values.shape[1]:
            return torch.ones_like(classes, dtype=torch.bool)
        return (largest(values, most)[1][rows] == classes[:, None]).any(1)

    def open_values(self, values: Tensor) -> Tensor:
        """Return the values (n, m) of the classes that may be in or out: of those between both bounds."""
        most = self.largest_size(values.shape[1])
        if most < values.shape[1]:
            return largest(values, most)[0][:, self.at_least :]
        if not self.at_least:
            return values
        best = largest(values, min(self.at_least, most))[1]
        others = torch.ones_like(values, dtype=torch.bool).scatter(1, best, False)
        return values[others].view(len(values), most - best.shape[1])


def first_classes(values: Tensor, k: int) -> Tensor:
    """Return the k classes of each row with the largest values, bool (n, c); of equal ones, the first."""
    if k < 1:
        return torch.zeros_like(values, dtype=torch.bool)
    last = kth_largest(values, min(k, values.shape[1]))[:, None]
    above, equal = values > last, values == last
    return above | (equal & (equal.cumsum(1) <= k - above.sum(1, keepdim=True)))
