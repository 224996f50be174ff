import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck

from shortlist.losses import LABEL_SET_LOSSES
from shortlist.losses.label_sets import binary_ce_loss, set_size_loss, shared_ce_loss


def binary_ce(scores: list[float], labels: list[int]) -> float:
    chances = [1 / (1 + math.exp(-score)) for score in scores]
    return -sum(math.log(p if label else 1 - p) for p, label in zip(chances, labels, strict=True))


def shared_ce(scores: list[float], labels: list[int]) -> float:
    total = sum(math.exp(score) for score in scores)
    logs = [math.log(math.exp(s) / total) for s, label in zip(scores, labels, strict=True) if label]
    return -sum(logs) / len(logs)


@given(c=st.integers(1, 6), seed=st.integers(0, 99))
def test_values_are_those_of_loops(c, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(3, c, dtype=torch.float64, generator=generator)
    labels = (torch.rand(3, c, generator=generator) < 0.5).long()
    labels[:, 0] = 1
    for loss, oracle in ((binary_ce_loss, binary_ce), (shared_ce_loss, shared_ce)):
        want = torch.tensor([oracle(*row) for row in zip(scores.tolist(), labels.tolist(), strict=True)])
        got = loss(scores, labels, reduction="none")
        torch.testing.assert_close(got, want.double())
        torch.testing.assert_close(loss(scores, labels), want.double().mean())
        torch.testing.assert_close(loss(scores, labels.bool(), reduction="sum"), want.double().sum())


def test_one_label_is_cross_entropy():
    scores, target = torch.randn(5, 4), torch.tensor([0, 3, 1, 1, 2])
    labels = torch.nn.functional.one_hot(target, 4)
    torch.testing.assert_close(
        shared_ce_loss(scores, labels), torch.nn.functional.cross_entropy(scores, target)
    )


@pytest.mark.parametrize("name", LABEL_SET_LOSSES)
def test_contract_of_every_loss_of_label_sets(name):
    loss = LABEL_SET_LOSSES[name]()
    labels = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0]])
    scores = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda s: loss(s, labels), (scores,))
    half = loss(scores.detach().bfloat16(), labels)
    assert half.dtype == torch.float32 and bool(half.isfinite())
    (gradient,) = torch.autograd.grad(loss(1e4 * scores, labels), scores)
    assert bool(gradient.isfinite().all())
    good = torch.where(labels > 0, 30.0, -30.0)
    assert loss(good, labels) < loss(-good, labels) and loss(good, labels) < 1
    with pytest.raises(ValueError, match="at least one positive in each row, got none in row 0"):
        loss(torch.zeros(1, 2), torch.zeros(1, 2))


def test_size_loss_is_smallest_at_the_mean_size():
    labels = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]])  # 2 on average
    z = torch.linspace(-4, 4, 4001, dtype=torch.float64)
    values = torch.stack([set_size_loss(one.expand(4), labels) for one in z[::10]])
    best = z[::10][values.argmin()]
    assert math.log1p(math.exp(best)) == pytest.approx(1.0, abs=0.02)


def test_size_loss_far_away_is_finite_with_a_bounded_gradient():
    labels = torch.tensor([[1, 1, 1], [1, 0, 0]]).repeat(2, 1)
    z = torch.tensor([-1e4, -1e4, 1e4, 1e4], requires_grad=True)
    set_size_loss(z, labels, reduction="sum").backward()
    torch.testing.assert_close(z.grad, torch.tensor([-2.0, 0.0, 1.0, 1.0]), atol=1e-3, rtol=0)
    z = torch.randn(4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda s: set_size_loss(s, labels), (z,))


@pytest.mark.errors
def test_bad_sizes():
    with pytest.raises(ValueError, match=r"size_logits must be one for each row, \(2,\), got \(3,\)"):
        set_size_loss(torch.zeros(3), torch.ones(2, 4))
