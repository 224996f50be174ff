"""Differentiable operators on score vectors; they know nothing of labels."""

from shortlist.ops.log_esp import log_esp, log_esp_ratio
from shortlist.ops.perturbed_topk import perturbed_topk
from shortlist.ops.perturbed_topk_sum import perturbed_topk_mask, perturbed_topk_sum
from shortlist.ops.relaxed_topk import relaxed_topk
from shortlist.ops.sparse_top import sparse_top

__all__ = [
    "log_esp",
    "log_esp_ratio",
    "perturbed_topk",
    "perturbed_topk_mask",
    "perturbed_topk_sum",
    "relaxed_topk",
    "sparse_top",
]
