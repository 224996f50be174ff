"""What all losses of class scores share: target forms, class weights, ignored rows, reductions."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from shortlist._checks import (
    check_choice,
    check_class_vector,
    check_probabilities,
    check_scores,
    check_target,
    promote,
)
from shortlist.priors import ZeroCounts, usable_counts

__all__ = [
    "ClassLoss",
    "CountedLoss",
    "Normalisation",
    "Reduction",
    "check_reduction",
    "class_loss",
    "own_copy",
    "reduce_rows",
]

Reduction = Literal["mean", "sum", "none"]
# of losses of single positives: as the paper prints it, or as its authors' code has it
Normalisation = Literal["paper", "original"]


def check_reduction(reduction: str) -> None:
    """Require mean, sum or none."""
    check_choice("reduction", reduction, ("mean", "sum", "none"))


def reduce_rows(rows: Tensor, reduction: Reduction) -> Tensor:
    """Plain mean or sum over rows, or the rows."""
    return rows.mean() if reduction == "mean" else rows.sum() if reduction == "sum" else rows


def class_loss(
    logits: Tensor,
    target: Tensor,
    *,
    of_target: Callable[[Tensor, Tensor], Tensor],
    of_all: Callable[[Tensor, Tensor], Tensor] | None,
    weight: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
) -> Tensor:
    """Apply a row loss with the meaning of ``torch.nn.functional.cross_entropy``.

    Args:
        logits: Scores (n, c), any floating type; half precision is computed in float32.
        target: Class indices (n,), or class probabilities (n, c).
        of_target: From scores and indices (n,), the loss of each row.
        of_all: From scores and probability targets (n, c), the loss (n, c) of each row for each class taken
            as the true one, of which the mean is taken; where the target is 0 it is not looked at. ``None``
            if the method has no use for probability targets.
        weight: Weight (c,) of each class.
        ignore_index: Rows with this target count for nothing.
        reduction: Weighted mean over the rows, sum, or none.
    """
    check_scores(logits)
    check_reduction(reduction)
    if weight is not None:
        check_class_vector("weight", weight, num_classes=logits.shape[1])
    logits = promote(logits)
    if isinstance(target, Tensor) and target.is_floating_point():
        if of_all is None:
            raise ValueError(
                f"target must be int64 class indices for this loss and these options, got {target.dtype}"
            )
        check_probabilities(target, logits)
        share = (
            target.to(logits.dtype) if weight is None else target.to(logits.dtype) * weight.to(logits.dtype)
        )
        losses = of_all(logits, share)
        # a class of no share has no part, even where its loss is infinite
        return reduce_rows(
            torch.where(share > 0, share * losses, torch.zeros_like(losses)).sum(-1), reduction
        )
    if check_target(target, logits, ignore_index=ignore_index) and weight is None:
        return reduce_rows(of_target(logits, target), reduction)
    counted = target != ignore_index
    target = torch.where(counted, target, 0)
    rows = of_target(logits, target)
    if weight is None:
        rows, total = torch.where(counted, rows, 0), counted.sum()
    else:
        row_weight = torch.where(counted, weight.to(rows.dtype)[target], 0)
        rows, total = torch.where(counted, rows * row_weight, 0), row_weight.sum()
    return rows.sum() / total if reduction == "mean" else reduce_rows(rows, reduction)


def own_copy(tensor: Tensor | None) -> Tensor | None:
    """A tensor for a buffer, which later changes to the caller's do not reach."""
    return None if tensor is None else tensor.detach().clone()


class ClassLoss(nn.Module, ABC):
    """A loss of scores (n, c) and target, with its hyper-parameters; see the function of the same stem.

    ``needs`` names what a loss wants beyond scores and target, for a trainer to provide: ``"class_counts"``
    at construction, ``"cosine_scores"`` from the model.
    """

    needs: frozenset[str] = frozenset()

    weight: Tensor | None

    def __init__(self, *, weight: Tensor | None, ignore_index: int, reduction: Reduction) -> None:
        super().__init__()
        check_reduction(reduction)
        if weight is not None:
            check_class_vector("weight", weight)
        self.register_buffer("weight", own_copy(weight))
        self.ignore_index = ignore_index
        self.reduction: Reduction = reduction

    @abstractmethod
    def forward(self, logits: Any, target: Tensor) -> Tensor:
        """The loss of a batch."""

    def extra_repr(self) -> str:
        """The hyper-parameters."""
        shown = {
            name: value
            for name, value in vars(self).items()
            if not name.startswith("_") and name != "training"
        }
        return ", ".join(f"{name}={value!r}" for name, value in sorted(shown.items()))

    @property
    def common(self) -> dict:
        """The arguments that every loss function takes."""
        return {"weight": self.weight, "ignore_index": self.ignore_index, "reduction": self.reduction}


class CountedLoss(ClassLoss, ABC):
    """A loss made from the training counts of the classes, which are checked when it is made.

    ``half()`` and its like leave the counts as they are: 70,000 is no number of float16.
    """

    needs = frozenset({"class_counts"})

    class_counts: Tensor

    def __init__(
        self,
        *,
        class_counts: Tensor,
        zero_counts: ZeroCounts,
        weight: Tensor | None,
        ignore_index: int,
        reduction: Reduction,
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        usable_counts(class_counts, zero_counts=zero_counts, anywhere=True)
        self.register_buffer("class_counts", own_copy(class_counts))
        self.zero_counts: ZeroCounts = zero_counts

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "CountedLoss":
        counts = self.class_counts
        super()._apply(fn, recurse)
        self.class_counts = counts.to(self.class_counts.device)
        return self

    @property
    def counted(self) -> dict:
        """The arguments that every loss function of counts takes."""
        return {"class_counts": self.class_counts, "zero_counts": self.zero_counts, **self.common}
