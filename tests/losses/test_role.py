import math

import numpy
import pytest
import torch

from shortlist.losses import role_loss
from tests.conftest import tensor
from tests.losses.batches import assert_equals_case, golden_single_positive, heads


def test_golden(golden):
    for case, logits, target in golden_single_positive(golden, "role"):
        estimates = golden("spml").shared[case["inputs"]["g_logits"]].clone().requires_grad_()
        loss = role_loss(logits, estimates, target, k=case["params"]["expected_num_pos"])
        assert_equals_case(loss, case, logits)
        torch.testing.assert_close(estimates.grad, tensor(case["grad_g_logits"]), rtol=0, atol=1e-7)


def test_each_side_learns_with_the_other_fixed():
    scores, estimates, target = heads()
    scores.requires_grad_()
    estimates = estimates.requires_grad_()

    def sides(s, e):  # each side's gradient with the other fixed, as the loss defines it
        return role_loss(s, estimates.detach(), target, k=2.0), role_loss(scores.detach(), e, target, k=2.0)

    both = torch.autograd.grad(role_loss(scores, estimates, target, k=2.0), (scores, estimates))
    one = torch.autograd.grad(sides(scores, estimates)[0], scores)[0]
    two = torch.autograd.grad(sides(scores, estimates)[1], estimates)[0]
    torch.testing.assert_close(both, (one, two))


@pytest.mark.parametrize("size_weight", [0.0, 0.3, 1.0])
def test_with_a_weight_of_the_size_term(size_weight):
    """By autograd, on the formula of METHODS 3; the other side of each half is fixed."""
    torch.manual_seed(0)
    leaves = [torch.randn(6, 5, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    target = torch.randint(5, (6,))
    observed = torch.eye(5, dtype=torch.float64)[target]

    def half(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        fit = -observed * (p + 1e-5).log() - q * (p + 1e-5).log() - (1 - q) * (1 - p + 1e-5).log()
        return fit.mean() + size_weight * ((p.sum(1).mean() - 2.0) / 5) ** 2

    p, q = (leaf.sigmoid() for leaf in leaves)
    expected = (half(p, q.detach()) + half(q, p.detach())) / 2
    loss = role_loss(*leaves, target, k=2.0, size_weight=size_weight)
    torch.testing.assert_close(loss, expected)
    for got, want in zip(
        torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), strict=True
    ):
        torch.testing.assert_close(got, want)


def test_ignores_rows():
    scores, estimates, target = heads()
    both = [
        torch.cat([part, torch.full((2, 8), math.nan, dtype=torch.float64)]) for part in (scores, estimates)
    ]
    leaves = [part.requires_grad_() for part in both]
    loss = role_loss(*leaves, torch.cat([target, torch.tensor([-7, -7])]), k=2.0, ignore_index=-7)
    torch.testing.assert_close(loss.detach(), role_loss(scores, estimates, target, k=2.0))
    short = [part.clone().requires_grad_() for part in (scores, estimates)]
    want = torch.autograd.grad(role_loss(*short, target, k=2.0), short)
    for got, part in zip(torch.autograd.grad(loss, leaves), want, strict=True):
        torch.testing.assert_close(got[:6], part)
        assert (got[6:] == 0).all()


def test_has_no_second_derivative():
    scores, estimates, target = heads()
    loss = role_loss(scores.requires_grad_(), estimates, target, k=2.0)
    with pytest.raises(RuntimeError, match="role_loss has no second derivative"):
        torch.autograd.grad(loss**2, scores, create_graph=True)


@pytest.mark.errors  # of types, to a checker of these: floats are annotated
def test_numpy_numbers_are_numbers():
    scores, proposals, target = heads()
    assert role_loss(scores, proposals, target, k=numpy.int64(2)) == role_loss(scores, proposals, target, k=2)


def test_nan_scores_give_nan():
    scores, proposals, target = heads()
    scores[0, 0] = torch.nan
    assert role_loss(scores, proposals, target, k=2.0).isnan()


@pytest.mark.errors
def test_bad_input():
    scores, proposals, target = heads()
    with pytest.raises(ValueError, match=r"estimates must have the logits' shape \(6, 8\), got \(5, 8\)"):
        role_loss(scores, proposals[:5], target)
    with pytest.raises(ValueError, match=r"k must be < the number of classes \(8\), got 8"):
        role_loss(scores, proposals, target, k=8)
    with pytest.raises(ValueError, match=r"size_weight must be .*>= 0.*got -1"):
        role_loss(scores, proposals, target, k=2, size_weight=-1.0)
    with pytest.raises(ValueError, match=r"target must be in \[0, 8\) or -100, got -1"):
        role_loss(scores, proposals, target - target - 1)
