"""Differentiable operators on score vectors; they know nothing of labels."""

from shortlist.ops.log_esp import log_esp, log_esp_ratio
from shortlist.ops.perturbed_topk import perturbed_topk
from shortlist.ops.relaxed_topk import relaxed_topk
from shortlist.ops.sparse_top import sparse_top

__all__ = ["log_esp", "log_esp_ratio", "perturbed_topk", "relaxed_topk", "sparse_top"]
