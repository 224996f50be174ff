import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import (
    LogitAdjustedAdaptiveLoss,
    LogitAdjustedLoss,
    logit_adjusted_adaptive_loss,
    logit_adjusted_loss,
    pairwise_margin_loss,
)
from shortlist.scores import map_of_loss


def test_equal_counts_are_cross_entropy_with_one_margin():
    logits, target = torch.randn(9, 5), torch.randint(5, (9,))
    got = logit_adjusted_adaptive_loss(logits, target, class_counts=torch.full((5,), 7))
    led = logits.clone()
    led[torch.arange(9), target] -= 5**0.25
    torch.testing.assert_close(got, cross_entropy(led, target))


def test_tau_and_margin_against_the_pairwise_form():
    logits, target = torch.randn(9, 4, dtype=torch.float64), torch.randint(4, (9,))
    counts = torch.tensor([50, 20, 5, 1])
    priors = (counts / counts.sum()).double()
    table = [
        [0.7 * math.log(priors[j] / priors[y]) + 0.3 * float(priors[y]) ** -0.25 for j in range(4)]
        for y in range(4)
    ]
    want = pairwise_margin_loss(logits, target, margins=torch.tensor(table, dtype=torch.float64))
    got = logit_adjusted_adaptive_loss(logits, target, class_counts=counts, tau=0.7, margin=0.3)
    torch.testing.assert_close(got, want)
    without = logit_adjusted_adaptive_loss(logits, target, class_counts=counts, tau=0.7, margin=0.0)
    torch.testing.assert_close(without, logit_adjusted_loss(logits, target, class_counts=counts, tau=0.7))


def test_scores_without_a_margin_mean_what_those_of_logit_adjustment_do():
    counts = torch.tensor([50, 20, 5])

    def contains(loss):
        return map_of_loss(loss, class_counts=counts).contains

    plain = contains(LogitAdjustedLoss(class_counts=counts, tau=0.7))
    adaptive = contains(LogitAdjustedAdaptiveLoss(class_counts=counts, tau=0.7, margin=0.0))
    torch.testing.assert_close(adaptive.log_priors, plain.log_priors)
    torch.testing.assert_close(plain.priors, counts**0.3 / (counts**0.3).sum(), check_dtype=False)
    assert contains(LogitAdjustedAdaptiveLoss(class_counts=counts)) is None


@pytest.mark.errors
def test_a_negative_margin():
    with pytest.raises(ValueError, match="margin must be >= 0, got -1"):
        LogitAdjustedAdaptiveLoss(class_counts=torch.tensor([1, 2]), margin=-1)
