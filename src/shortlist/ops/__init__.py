"""Differentiable operators on score vectors; they know nothing of labels."""

from shortlist.ops.comparators import mix
from shortlist.ops.expected_topk import expected_topk
from shortlist.ops.log_esp import log_esp, log_esp_ratio, ratio_and_gradient
from shortlist.ops.networks import NETWORKS, Cascade, comparator_layers, pair_layers, splitter_cascades
from shortlist.ops.perturbed_topk import NUM_NODES, TOLERANCE, noisy_places, perturbed_topk
from shortlist.ops.perturbed_topk_sum import perturbed_topk_mask, perturbed_topk_sum
from shortlist.ops.relaxed_topk import Comparator, Relaxation, is_masked, lower_masked, relaxed_topk
from shortlist.ops.row_operator import row_operator, with_gradient
from shortlist.ops.selection import descending, kth_largest, kth_largest_index, largest, largest_indices
from shortlist.ops.sparse_top import sparse_top, sparse_top_and_offset
from shortlist.ops.wiring import Wiring, arrange, put_back, wire_of
from shortlist.ops.workspaces import cached_workspace

__all__ = [
    "log_esp",
    "log_esp_ratio",
    "perturbed_topk",
    "perturbed_topk_mask",
    "perturbed_topk_sum",
    "relaxed_topk",
    "sparse_top",
]
