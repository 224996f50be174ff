import pytest
import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import focal_loss
from tests.conftest import tensor
from tests.losses.batches import golden_long_tail


def test_golden(golden):
    for case, logits, target, weight in golden_long_tail(golden, "focal"):
        options = {"gamma": case["params"]["gamma"], "weight": weight, "weight_in_focus": True}
        rows = focal_loss(logits, target, **options, reduction="none")
        torch.testing.assert_close(rows.detach(), tensor(case["per_sample"]), rtol=1e-9, atol=1e-9)
        mean = rows.mean()  # the original's mean is a plain one
        mean.backward()
        assert mean.item() == pytest.approx(case["mean"], rel=1e-9)
        gradient = tensor(case["grad_of_mean_wrt_logits"])
        torch.testing.assert_close(logits.grad, gradient, rtol=1e-9, atol=1e-9)


def test_gamma_0_is_cross_entropy():
    logits, target = torch.randn(9, 5), torch.randint(5, (9,))
    torch.testing.assert_close(focal_loss(logits, target, gamma=0.0), cross_entropy(logits, target))


def test_gradient_is_finite_where_the_true_class_is_certain():
    logits = torch.tensor([[200.0, 0.0], [0.0, 0.0]], requires_grad=True)
    focal_loss(logits, torch.tensor([0, 1]), gamma=0.5).backward()
    assert torch.isfinite(logits.grad).all() and logits.grad[1, 1] < 0
