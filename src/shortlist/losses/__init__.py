"""Losses of class scores; each is a function and a module of the same stem, and a key of ``LOSSES``."""

from torch import nn

from shortlist.losses.calibrated_topk_hinge import CalibratedTopKHingeLoss, calibrated_topk_hinge_loss
from shortlist.losses.convex_topk_hinge import ConvexTopKHingeLoss, convex_topk_hinge_loss
from shortlist.losses.imbalanced_noised_topk import (
    ImbalancedNoisedTopKLoss,
    imbalanced_noised_topk_loss,
    margins_from_counts,
)
from shortlist.losses.noised_topk import NoisedTopKLoss, noised_topk_loss
from shortlist.losses.ranked_topk import RankedTopKLoss, ranked_topk_loss
from shortlist.losses.smooth_topk import SmoothTopKLoss, smooth_topk_loss
from shortlist.losses.sparse_top import SparseTopLoss, sparse_top_loss
from shortlist.losses.topk_hinge import TopKHingeLoss, topk_hinge_loss

__all__ = [
    "LOSSES",
    "CalibratedTopKHingeLoss",
    "ConvexTopKHingeLoss",
    "ImbalancedNoisedTopKLoss",
    "NoisedTopKLoss",
    "RankedTopKLoss",
    "SmoothTopKLoss",
    "SparseTopLoss",
    "TopKHingeLoss",
    "calibrated_topk_hinge_loss",
    "convex_topk_hinge_loss",
    "imbalanced_noised_topk_loss",
    "margins_from_counts",
    "noised_topk_loss",
    "ranked_topk_loss",
    "smooth_topk_loss",
    "sparse_top_loss",
    "topk_hinge_loss",
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
}
