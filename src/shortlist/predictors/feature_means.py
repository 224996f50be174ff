"""Means of the features of each class, from rows that arrive in batches."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from shortlist._checks import can_read_values, check_count, check_scores, check_target
from shortlist._precision import KeepsPrecision


class FeatureMeans(KeepsPrecision):
    """The sums of the features of each class and the numbers of rows, to compute the classes' means.

    The sums are in float64 and the means in float32. So rows in another order, in other batches, or merged
    from several processes give the same means, but for a last digit of float32 where the rounding of the
    sums in float64 happens to decide it (less than one number in a million).

    Args:
        num_classes: Number of classes c.
        dim: Number of features d.

    Example:
        >>> found = FeatureMeans(num_classes=3, dim=2)
        >>> found.update(torch.tensor([[1.0, 0.0], [3.0, 2.0], [0.0, 5.0]]), torch.tensor([0, 0, 2]))
        >>> found.means()  # of the classes 0 and 2
        tensor([[2., 1.],
                [0., 5.]])
    """

    sums: Tensor
    counts: Tensor

    def __init__(self, *, num_classes: int, dim: int) -> None:
        super().__init__()
        check_count("num_classes", num_classes)
        check_count("dim", dim)
        self.register_buffer("sums", torch.zeros(num_classes, dim, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(num_classes, dtype=torch.int64))

    @torch.no_grad()
    def update(self, features: Float[Tensor, "n d"], target: Int[Tensor, " n"]) -> None:
        """Add rows: features (n, d) and classes (n,); the class -100 leaves a row out."""
        check_scores(features, name="features")
        if features.shape[1] != self.sums.shape[1]:
            raise ValueError(f"features must have {self.sums.shape[1]} columns, got {features.shape[1]}")
        like_scores = features.new_empty(1).expand(len(features), len(self.sums))
        if not check_target(target, like_scores, ignore_index=-100):
            features, target = features[target != -100], target[target != -100]
        if can_read_values(features) and not bool(features.isfinite().all()):
            row = int((~features.isfinite()).any(1).nonzero()[0])
            raise ValueError(f"features must be finite, got other numbers in row {row}")
        features, target = features.to(self.sums.device), target.to(self.sums.device)
        self.sums.index_add_(0, target, features.double())
        self.counts.index_add_(0, target, torch.ones_like(target))

    def merge(self, other: "FeatureMeans") -> None:
        """Add the rows of another."""
        if other is self or not isinstance(other, FeatureMeans) or other.sums.shape != self.sums.shape:
            got = tuple(other.sums.shape) if isinstance(other, FeatureMeans) else type(other).__name__
            got = "itself" if other is self else got
            raise ValueError(f"other must be other FeatureMeans of {tuple(self.sums.shape)}, got {got}")
        self.sums += other.sums.to(self.sums.device)
        self.counts += other.counts.to(self.counts.device)

    def means(self) -> Float[Tensor, "p d"]:
        """Return the means (p, d), float32, of the p classes that have rows, in their order."""
        present = self.counts > 0
        if not bool(present.any()):
            raise ValueError("means need at least 1 row, got 0")
        return (self.sums[present] / self.counts[present, None]).float()
