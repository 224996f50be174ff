"""Losses of class scores. Each is a function, a module of the same name, and a key of ``LOSSES``."""

from functools import partial
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from shortlist._bounds import check_choice
from shortlist.losses._contract import ScoreMeaning, class_loss, declared_meaning, log_weights
from shortlist.losses._global_batch import in_one_process, num_processes, weighted_mean
from shortlist.losses._row_blocks import has_many_scores
from shortlist.losses.assume_negative import AssumeNegativeLoss, assume_negative_loss
from shortlist.losses.average_k import AverageKLoss, average_k_loss
from shortlist.losses.balanced_ce import BalancedCELoss, balanced_ce_loss
from shortlist.losses.calibrated_topk_hinge import CalibratedTopKHingeLoss, calibrated_topk_hinge_loss
from shortlist.losses.convex_topk_hinge import ConvexTopKHingeLoss, convex_topk_hinge_loss
from shortlist.losses.distributions import distribution_by_class
from shortlist.losses.equalized import EqualizedLoss, equalized_loss
from shortlist.losses.expected_positive import ExpectedPositiveLoss, expected_positive_loss
from shortlist.losses.focal import FocalLoss, focal_loss
from shortlist.losses.imbalanced_noised_topk import ImbalancedNoisedTopKLoss, imbalanced_noised_topk_loss
from shortlist.losses.label_estimates import LabelEstimates, RowSGD
from shortlist.losses.label_sets import LABEL_SET_LOSSES, set_size_loss
from shortlist.losses.ldam import LDAMLoss, ldam_loss
from shortlist.losses.logit_adjusted import LogitAdjustedLoss, logit_adjusted_loss
from shortlist.losses.logit_adjusted_adaptive import LogitAdjustedAdaptiveLoss, logit_adjusted_adaptive_loss
from shortlist.losses.noised_topk import NoisedTopKLoss, noised_topk_loss
from shortlist.losses.pairwise_margin import PairwiseMarginLoss, pairwise_margin_loss
from shortlist.losses.ranked_topk import RankedTopKLoss, own_steepness, ranked_topk_loss
from shortlist.losses.role import RoleLoss, role_loss
from shortlist.losses.smooth_topk import SmoothTopKLoss, smooth_topk_loss
from shortlist.losses.sparse_top import SparseTopLoss, sparse_top_loss
from shortlist.losses.topk_hinge import TopKHingeLoss, topk_hinge_loss
from shortlist.losses.two_parameter_margin import TwoParameterMarginLoss, two_parameter_margin_loss
from shortlist.priors import Counts

__all__ = [
    "LABEL_SET_LOSSES",
    "LOSSES",
    "AssumeNegativeLoss",
    "AverageKLoss",
    "BalancedCELoss",
    "CalibratedTopKHingeLoss",
    "ConvexTopKHingeLoss",
    "EqualizedLoss",
    "ExpectedPositiveLoss",
    "FocalLoss",
    "ImbalancedNoisedTopKLoss",
    "LDAMLoss",
    "LabelEstimates",
    "LogitAdjustedAdaptiveLoss",
    "LogitAdjustedLoss",
    "NoisedTopKLoss",
    "PairwiseMarginLoss",
    "RankedTopKLoss",
    "RoleLoss",
    "RowSGD",
    "ScoreMeaning",
    "SmoothTopKLoss",
    "SparseTopLoss",
    "TopKHingeLoss",
    "TwoParameterMarginLoss",
    "assume_negative_loss",
    "average_k_loss",
    "balanced_ce_loss",
    "calibrated_topk_hinge_loss",
    "call_loss",
    "convex_topk_hinge_loss",
    "create",
    "declared_meaning",
    "distribution_by_class",
    "equalized_loss",
    "expected_positive_loss",
    "focal_loss",
    "imbalanced_noised_topk_loss",
    "in_one_process",
    "ldam_loss",
    "log_weights",
    "logit_adjusted_adaptive_loss",
    "logit_adjusted_loss",
    "noised_topk_loss",
    "pairwise_margin_loss",
    "ranked_topk_loss",
    "role_loss",
    "smooth_topk_loss",
    "sparse_top_loss",
    "topk_hinge_loss",
    "two_parameter_margin_loss",
]

LOSSES: dict[str, type[nn.Module]] = {
    "topk_hinge": TopKHingeLoss,
    "convex_topk_hinge": ConvexTopKHingeLoss,
    "calibrated_topk_hinge": CalibratedTopKHingeLoss,
    "smooth_topk": SmoothTopKLoss,
    "noised_topk": NoisedTopKLoss,
    "imbalanced_noised_topk": ImbalancedNoisedTopKLoss,
    "ranked_topk": RankedTopKLoss,
    "sparse_top": SparseTopLoss,
    "balanced_ce": BalancedCELoss,
    "equalized": EqualizedLoss,
    "focal": FocalLoss,
    "ldam": LDAMLoss,
    "logit_adjusted": LogitAdjustedLoss,
    "logit_adjusted_adaptive": LogitAdjustedAdaptiveLoss,
    "pairwise_margin": PairwiseMarginLoss,
    "two_parameter_margin": TwoParameterMarginLoss,
    "assume_negative": AssumeNegativeLoss,
    "average_k": AverageKLoss,
    "expected_positive": ExpectedPositiveLoss,
    "role": RoleLoss,
}
"""The module of each loss, by the name that recipes use."""


def create(
    name: str, *, class_counts: Counts | None = None, weight: Tensor | None = None, **options: Any
) -> nn.Module:
    """Make a loss by its name in ``LOSSES``, and give it the class counts if it needs them.

    So one call makes any loss, whether or not it looks at the counts of the training set.

    Args:
        name: A key of ``LOSSES``.
        class_counts: Number of training examples of each class (c,): a tensor, an array or a list.
        weight: Weight of each class (c,), or ``None``.
        options: Other arguments of the loss.

    Raises:
        ValueError: If there is no loss of this name.

    Example:
        >>> counts = torch.tensor([90, 10])
        >>> [create(name, class_counts=counts) for name in ("focal", "balanced_ce")]
        [FocalLoss(...), BalancedCELoss(ignore_index=-100, ...)]
    """
    check_choice("name", name, tuple(LOSSES))
    loss = LOSSES[name]
    if class_counts is not None and "class_counts" in getattr(loss, "needs", ()):
        options["class_counts"] = class_counts
    if weight is not None:
        options["weight"] = weight
    return loss(**options)


def call_loss(
    loss: nn.Module, output: Any, target: Tensor, rows: Tensor, *, size_weight: float = 1.0
) -> Tensor:
    """Compute the loss of a batch from a network's output, targets (n,) and row numbers (n,).

    A loss of label sets takes labels (n, c). If the network has a size head, the loss of their number is
    added, times its weight.
    """
    needs = getattr(loss, "needs", frozenset())
    if "label_sets" in needs and not isinstance(output, Tensor):
        scores, size_logits = output
        return loss(scores, target) + size_weight * set_size_loss(size_logits, target)
    if "sample_ids" in needs:
        return loss(output, target, rows)
    of_classes = isinstance(output, Tensor) and not target.is_floating_point()
    if of_classes and _is_plain_cross_entropy(loss) and has_many_scores(output):
        row_loss = partial(cross_entropy, reduction="none", label_smoothing=loss.label_smoothing)
        options: dict[str, Any] = {"ignore_index": loss.ignore_index, "reduction": loss.reduction}
        return class_loss(output, target, row_loss, None, loss.weight, **options)
    if of_classes and _is_mean_cross_entropy(loss) and num_processes() > 1:
        return _mean_cross_entropy(loss, output, target)
    return loss(tuple(output) if "two_heads" in needs else output, target)


def _is_plain_cross_entropy(loss: nn.Module) -> TypeGuard[nn.CrossEntropyLoss]:
    """Return whether a loss is PyTorch's, and its mean is that of its rows, weighted by their classes."""
    return type(loss) is nn.CrossEntropyLoss and (loss.weight is None or loss.label_smoothing == 0)


def _is_mean_cross_entropy(loss: nn.Module) -> TypeGuard[nn.CrossEntropyLoss]:
    return type(loss) is nn.CrossEntropyLoss and loss.reduction == "mean"


def _mean_cross_entropy(loss: nn.CrossEntropyLoss, logits: Tensor, target: Tensor) -> Tensor:
    """Compute PyTorch's loss, whose mean is that over the weighted rows of all processes."""
    weight, counted = loss.weight, target != loss.ignore_index
    options: dict[str, Any] = {"ignore_index": loss.ignore_index, "label_smoothing": loss.label_smoothing}
    rows = cross_entropy(logits, target, weight=weight, reduction="none", **options)
    if weight is None:
        return weighted_mean(rows, counted.sum())
    return weighted_mean(rows, torch.where(counted, weight[torch.where(counted, target, 0)], 0).sum())
