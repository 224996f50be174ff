"""Every loss as a function of scores and target alone, with options that fit small batches."""

import torch

from shortlist.losses import LOSSES, LabelEstimates
from tests.test_losses_common import COUPLED, C, N, options

# options that take a loss another way than those of the common contract
OTHER_WAYS = {
    "noised_topk drawn": {"k": 3, "num_samples": 4},
    "noised_topk without noise": {"k": 3, "noise_std": 0.0},
    "ldam scaled": {"scale": 30.0},
    "ranked_topk softsort": {"method": "softsort"},
    "ranked_topk neuralsort": {"method": "neuralsort"},
    "ranked_topk sinkhorn": {"method": "sinkhorn"},
    "ranked_topk bitonic": {"method": "bitonic"},
    "ranked_topk candidates": {"candidates": 4, "top1": "softmax_ce"},
}
WAYS = [*LOSSES, *OTHER_WAYS]


def loss_call(way: str, device: str = "cpu", **more):
    """A function of scores (n, c) and target."""
    name = way.split()[0]
    if name == "role":
        estimates = LabelEstimates(torch.zeros(N, dtype=torch.int64), num_classes=C)
        role = LOSSES[name](estimates=estimates, k=2.5).to(device)
        return lambda scores, target: role(scores, target, torch.arange(len(scores), device=scores.device))
    settings = {"k": 2.5} if name in COUPLED else options(name) | OTHER_WAYS.get(way, {})
    module = LOSSES[name](**settings, **more).to(device)
    if name == "average_k":
        return lambda scores, target: module((scores, 2 * scores), target)
    return module
