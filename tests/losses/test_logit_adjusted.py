import pytest
import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import LogitAdjustedLoss, logit_adjusted_loss
from shortlist.priors import class_priors
from tests.losses.margin_family import COUNTS


def test_tau_0_and_equal_counts_are_cross_entropy():
    logits, target = torch.randn(9, 5), torch.randint(5, (9,))
    plain = cross_entropy(logits, target)
    torch.testing.assert_close(logit_adjusted_loss(logits, target, class_counts=COUNTS, tau=0.0), plain)
    torch.testing.assert_close(logit_adjusted_loss(logits, target, class_counts=torch.full((5,), 7)), plain)


def test_buffers_are_the_losss_own():
    counts, weight = torch.tensor([3.0, 2.0, 1.0]), torch.ones(3)
    scores, target = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    loss = LogitAdjustedLoss(class_counts=counts, weight=weight)
    before = loss(scores, target)
    counts[0], weight[1] = 300.0, 9.0
    assert loss(scores, target) == before


@pytest.mark.errors
def test_modules_refuse_zero_counts_wherever_these_are(monkeypatch):
    monkeypatch.setattr("shortlist._checks.can_read_values", lambda tensor: False)  # as on an accelerator
    counts = torch.tensor([3, 0, 1])

    def readable_on_the_cpu(self):
        monkeypatch.undo()
        return self

    monkeypatch.setattr(torch.Tensor, "cpu", readable_on_the_cpu)
    with pytest.raises(ValueError, match="class_counts must be >= 1, got 0 for class 1"):
        LogitAdjustedLoss(class_counts=counts)
    monkeypatch.setattr("shortlist._checks.can_read_values", lambda tensor: False)
    priors = class_priors(counts)  # the function does not wait for the device; it says so
    assert priors.tolist() == pytest.approx([0.6, 0.2, 0.2])
