import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import equalized_loss
from tests.losses.margin_family import COUNTS


def test_tau_0_is_cross_entropy():
    logits, target = torch.randn(9, 5), torch.randint(5, (9,))
    got = equalized_loss(logits, target, class_counts=COUNTS, tau=0.0)
    torch.testing.assert_close(got, cross_entropy(logits, target))
