"""Hinges with the exact expectation under noise, and the warning where noise leaves no gradient."""

import pytest
import torch
from torch.autograd import gradcheck

from shortlist.losses import (
    ConvexTopKHingeLoss,
    convex_topk_hinge_loss,
    noised_topk_loss,
    topk_hinge_loss,
)
from tests import references


def plain_hinge(row, label, k, noise_std):
    others = torch.cat([row[:label], row[label + 1 :]])
    return max(0.0, 1 + references.expected_topk(others, k, noise_std) - float(row[label]))


def convex_hinge(row, label, k, noise_std):
    raised = row + 1.0
    raised[label] -= 1.0
    total = sum(references.expected_topk(raised, i, noise_std) for i in range(1, k + 1))
    return max(0.0, total / k - float(row[label]))


@pytest.mark.parametrize(
    ("loss", "oracle"), [(topk_hinge_loss, plain_hinge), (convex_topk_hinge_loss, convex_hinge)]
)
@pytest.mark.parametrize("k", [1, 3])
def test_equals_the_expectation(loss, oracle, k):
    scores, target = torch.randn(5, 6, dtype=torch.float64), torch.randint(6, (5,))
    got = loss(scores, target, k=k, noise_std=0.4, reduction="none")
    want = [oracle(row.clone(), int(label), k, 0.4) for row, label in zip(scores, target, strict=True)]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=1e-4)
    near = loss(scores, target, k=k, noise_std=1e-7, reduction="none")
    torch.testing.assert_close(near, loss(scores, target, k=k, reduction="none"), rtol=0, atol=1e-5)


@pytest.mark.parametrize("loss", [topk_hinge_loss, convex_topk_hinge_loss])
def test_more_classes_have_a_gradient(loss):
    scores = torch.randn(1, 30, dtype=torch.float64, requires_grad=True)
    target = scores.argmin(1)
    reached = []
    for noise_std in (0.0, 1.0):
        (gradient,) = torch.autograd.grad(loss(scores, target, k=5, noise_std=noise_std), scores)
        reached.append(int((gradient.abs() > 1e-4).sum()))
    assert reached[0] <= 6 and reached[1] > 15
    assert gradcheck(lambda s: loss(s, target, k=5, noise_std=1.0), (scores,), atol=1e-3)


@pytest.mark.errors
def test_bad_options():
    with pytest.raises(ValueError, match="noise_std must be >= 0, got -1"):
        ConvexTopKHingeLoss(noise_std=-1)
    with pytest.raises(
        ValueError, match="target must be int64 class indices for this loss and these options"
    ):
        topk_hinge_loss(torch.randn(2, 4), torch.rand(2, 4).softmax(1), k=1, noise_std=0.5)


def test_noise_that_leaves_no_gradient_is_warned_of():
    scores, target = torch.zeros(4, 10, requires_grad=True), torch.tensor([0, 1, 2, 3])
    # the 6th of 10 standard normals is -0.1227 on average: 1 / 0.1227 = 8.15
    with pytest.warns(UserWarning, match=r"noise_std=10 leaves no gradient .* k=5 of 10 .* must be < 8\.15"):
        loss = noised_topk_loss(scores, target, k=5, noise_std=10.0, num_samples=None)
    assert loss.item() == 0 and not torch.autograd.grad(loss, scores)[0].any()
    loss = noised_topk_loss(scores, target, k=5, noise_std=8.0, num_samples=None)  # no warning
    assert loss.item() > 0 and torch.autograd.grad(loss, scores)[0].any()
    noised_topk_loss(torch.zeros(4, 100), target, k=5, noise_std=100.0)  # the 6th of 100 is above the mean
