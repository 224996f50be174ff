"""What all losses of class scores share: target forms, class weights, ignored rows, reductions."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
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
    "ScoreMeaning",
    "Weighting",
    "check_reduction",
    "check_weighting",
    "class_loss",
    "log_weights",
    "own_copy",
    "reduce_rows",
]

Reduction = Literal["mean", "sum", "none"]
# of margin losses with class weights: margins that keep them consistent (Menon et al., theorem 1), or none
Weighting = Literal["consistent", "plain"]
# of losses of single positives: as the paper prints it, or as its authors' code has it
Normalisation = Literal["paper", "original"]


@dataclass(frozen=True)
class ScoreMeaning:
    r"""What the scores mean that a network learns with a loss; :func:`shortlist.scores.map_of_loss` reads it.

    Args:
        scale: What the loss multiplies the network's output by (cosine scores), 1 for most.
        log_ratio: If the softmax of the scaled scores is a posterior: the logarithm of the priors that it
            contains, over those of the rows that the loss saw, as one number or one per class (c,). For a
            margin loss with factors :math:`\alpha_y` and margins :math:`\log(\delta_j / \delta_y)` it is
            :math:`\log(\alpha / \delta)`. ``None`` if the scores are no log-probabilities or contain unknown
            priors: then temperature and prior have to be fitted.
        sigmoid: Whether the loss takes the sigmoid of each score for a probability of its own.
        free_levels: Whether nothing in the loss ties the level of one class's scores to the others': then a
            shift for each class has to be fitted too.
    """

    scale: float = 1.0
    log_ratio: float | Tensor | None = None
    sigmoid: bool = False
    free_levels: bool = False

    @staticmethod
    def weighted(weight: Tensor | None) -> "ScoreMeaning":
        """Of cross-entropy: log-posteriors of rows that occur as often as their classes weigh."""
        return ScoreMeaning(log_ratio=0.0 if weight is None else log_weights(weight))


def log_weights(weight: Tensor) -> Tensor:
    """Logarithms of class weights (c,) in float64; 0 for a class of weight 0, which has no say."""
    double = weight.detach().double()
    return torch.where(double > 0, double, 1.0).log()


def check_reduction(reduction: str) -> None:
    """Require mean, sum or none."""
    check_choice("reduction", reduction, ("mean", "sum", "none"))


def check_weighting(weighting: str) -> None:
    """Require consistent or plain."""
    check_choice("weighting", weighting, ("consistent", "plain"))


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
    at construction, ``"cosine_scores"`` or ``"two_heads"`` from the model, ``"sample_ids"`` with each batch.
    ``"label_sets"`` and ``"margin_table"`` no recipe can give. :meth:`score_meaning` says what the scores are
    that a network learns with it.
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

    def score_meaning(self) -> ScoreMeaning:
        """What the scores mean: no log-probabilities, unless a loss says otherwise."""
        return ScoreMeaning()

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
    """A margin loss made from the training counts of the classes, which are checked when it is made.

    ``half()`` and its like leave the counts as they are: 70,000 is no number of float16.
    """

    needs = frozenset({"class_counts"})

    class_counts: Tensor

    def __init__(
        self,
        *,
        class_counts: Tensor,
        zero_counts: ZeroCounts,
        weighting: Weighting,
        weight: Tensor | None,
        ignore_index: int,
        reduction: Reduction,
    ) -> None:
        super().__init__(weight=weight, ignore_index=ignore_index, reduction=reduction)
        check_weighting(weighting)
        self.weighting: Weighting = weighting
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
        counts = {"class_counts": self.class_counts, "zero_counts": self.zero_counts}
        return {**counts, "weighting": self.weighting, **self.common}

    def without_priors(self, tau: float) -> ScoreMeaning:
        """Log-posteriors without tau times the log priors; with plain weights, plus their logarithms."""
        counts = usable_counts(self.class_counts, zero_counts="floor")
        ratio = -tau * (counts / counts.sum()).log()
        if self.weight is not None and self.weighting == "plain":
            ratio = ratio + log_weights(self.weight)
        return ScoreMeaning(log_ratio=ratio)
