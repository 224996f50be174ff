import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import balanced_ce_loss


def test_equal_counts_are_c_times_cross_entropy():
    logits, target = torch.randn(9, 5), torch.randint(5, (9,))
    got = balanced_ce_loss(logits, target, class_counts=torch.full((5,), 7))
    torch.testing.assert_close(got, 5 * cross_entropy(logits, target))
