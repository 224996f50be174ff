"""SinkhornSort converges: both sums of its plan, its gradient, and its bound at any steepness."""

import pytest
import torch
from torch.autograd import gradcheck

from shortlist.losses import ranked_topk_loss
from shortlist.ops import relaxed_topk
from tests import references

STEEPNESS = (1.0, 10.0, 50.0, 100.0, 300.0, 1000.0)


def batches(c: int) -> dict[str, torch.Tensor]:
    normal = torch.randn(6, c, dtype=torch.float64)
    return {
        "normal": normal,
        "skewed": normal.exp().pow(3),
        "tied": torch.randint(3, (6, c)).double(),
        "all equal": torch.zeros(6, c, dtype=torch.float64),
    }


@pytest.mark.parametrize("steepness", STEEPNESS)
def test_both_sums_hold_at_any_steepness(steepness):
    bound = max(1e-10, 1e-13 * steepness)
    for scores in batches(16).values():
        plan = relaxed_topk(scores, k=16, method="sinkhorn", steepness=steepness)
        ones = torch.ones(6, 16, dtype=torch.float64)
        assert (plan >= 0).all()
        torch.testing.assert_close(plan.sum(1), ones, rtol=0, atol=bound)  # each class has one rank
        torch.testing.assert_close(plan.sum(2), ones, rtol=0, atol=bound)  # each rank has one class


@pytest.mark.parametrize("steepness", STEEPNESS)
def test_the_first_ranks_are_those_of_the_whole_plan(steepness):
    """Up to 32 classes; beyond, the first k ranks of shared anchors still add up."""
    scores = torch.randn(5, 16, dtype=torch.float64)
    options = {"method": "sinkhorn", "steepness": steepness}
    torch.testing.assert_close(
        relaxed_topk(scores, k=5, **options), relaxed_topk(scores, k=16, **options)[:, :5], rtol=0, atol=1e-8
    )
    many = relaxed_topk(torch.randn(3, 200, dtype=torch.float64), k=5, **options)
    bound = max(1e-10, 1e-13 * steepness)
    torch.testing.assert_close(many.sum(2), torch.ones(3, 5, dtype=torch.float64), rtol=0, atol=bound)
    assert many.sum(1).max() <= 1 + bound


def test_equals_very_many_scalings_at_a_steepness_where_few_do_not_suffice():
    row = torch.tensor([0.3, -1.2, 0.8, 2.0, 0.9, -0.4], dtype=torch.float64)
    ours = relaxed_topk(row[None], k=6, method="sinkhorn", steepness=100.0)[0]
    few, many = (references.sinkhornsort(row, 6, 0.01, steps=steps) for steps in (20, 30_000))
    assert (few - many).abs().max() > 1e-2
    torch.testing.assert_close(ours, many, rtol=0, atol=1e-9)


@pytest.mark.parametrize("steepness", [1.0, 30.0, 1000.0])
def test_gradient_is_that_of_the_solution(steepness):
    scores = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    gap = 1e-7 if steepness > 100 else 1e-6
    options = {"k": 3, "method": "sinkhorn", "steepness": steepness}
    assert gradcheck(lambda s: relaxed_topk(s, **options), (scores,), eps=gap, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("steepness", STEEPNESS)
def test_no_loss_is_negative(steepness):
    scores, target = torch.randn(200, 16), torch.randint(16, (200,))
    options = {"distribution": [0.2] * 5, "top1": "sort", "method": "sinkhorn", "reduction": "none"}
    rows = ranked_topk_loss(scores, target, steepness=steepness, **options)
    assert rows.min() >= -1e-6


def test_rows_are_independent_and_slabs_change_nothing():
    from shortlist.ops import _transport

    scores = torch.randn(300, 120, requires_grad=True)
    assert len(scores) > _transport._SLAB // (32 * 120)  # more than one slab
    ranks = relaxed_topk(scores, k=4, method="sinkhorn", steepness=40.0)
    weights = torch.randn_like(ranks)
    (gradient,) = torch.autograd.grad((ranks * weights).sum(), scores)
    for row in (0, 272, 299):
        single = scores[row : row + 1].detach().requires_grad_()
        alone = relaxed_topk(single, k=4, method="sinkhorn", steepness=40.0)
        (alone * weights[row]).sum().backward()
        torch.testing.assert_close(ranks[row], alone[0], rtol=1e-5, atol=1e-6)
        assert single.grad is not None
        torch.testing.assert_close(gradient[row], single.grad[0], rtol=1e-4, atol=1e-4)


@pytest.mark.errors
def test_no_second_derivative():
    scores = torch.randn(2, 6, requires_grad=True)
    ranks = relaxed_topk(scores, k=2, method="sinkhorn")
    with pytest.raises(RuntimeError, match="method='sinkhorn' has no second derivative"):
        torch.autograd.grad(ranks.square().sum(), scores, create_graph=True)
