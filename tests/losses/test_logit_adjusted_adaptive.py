import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import logit_adjusted_adaptive_loss


def test_equal_counts_are_cross_entropy_with_one_margin():
    logits, target = torch.randn(9, 5), torch.randint(5, (9,))
    got = logit_adjusted_adaptive_loss(logits, target, class_counts=torch.full((5,), 7))
    led = logits.clone()
    led[torch.arange(9), target] -= 5**0.25
    torch.testing.assert_close(got, cross_entropy(led, target))
