import pytest
import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import two_parameter_margin_loss
from tests.losses.margin_family import COUNTS


def test_both_taus_0_are_cross_entropy():
    logits, target = torch.randn(9, 5), torch.randint(5, (9,))
    got = two_parameter_margin_loss(logits, target, class_counts=COUNTS, tau_true=0.0, tau_others=0.0)
    torch.testing.assert_close(got, cross_entropy(logits, target))


@pytest.mark.parametrize("scale", [0.1, 30.0, 1e4])
def test_table_of_margins_does_not_cancel(scale):
    """Probability targets on scores whose softmax is all but one-hot."""
    logits = scale * torch.randn(6, 5, dtype=torch.float64)
    options = {"class_counts": COUNTS.double(), "tau_true": 0.2, "tau_others": 0.9}
    for j in range(5):
        shares = torch.zeros(6, 5, dtype=torch.float64)
        shares[:, j] = 1
        want = two_parameter_margin_loss(logits, torch.full((6,), j), **options, reduction="none")
        got = two_parameter_margin_loss(logits, shares, **options, reduction="none")
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
