from typing import get_args

import pytest
import torch

from shortlist.losses._ranked_column import relaxed_column
from shortlist.ops import relaxed_topk
from shortlist.ops.networks import NETWORKS
from shortlist.ops.relaxed_topk import Comparator, Relaxation

METHODS = get_args(Relaxation)
DEFAULTS = {"steepness": 10.0, "comparator": "cauchy", "art_lambda": 0.25}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("comparator", get_args(Comparator))
@pytest.mark.parametrize(("c", "k"), [(1, 1), (2, 1), (7, 4), (16, 5), (70, 3)])
def test_target_picks_one_class_of_each_row(method, comparator, c, k):
    if method not in NETWORKS and comparator != "cauchy":
        return
    scores = torch.randn(6, c, dtype=torch.float64).requires_grad_()
    target, upstream = torch.randint(c, (6,)), torch.randn(6, dtype=torch.float64)
    of_column = {"method": method, "comparator": comparator, "steepness": 3.0, "art_lambda": 0.25}
    options = {"k": k, **of_column}
    for weights in (torch.rand(k), torch.rand(6, k)):
        every = relaxed_topk(scores, rank_weights=weights, **options)
        want = every.gather(1, target[:, None])[:, 0]
        got = relaxed_column(scores, target, rank_weights=weights, **of_column)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-13)
        gradients = [torch.autograd.grad(value @ upstream, scores)[0] for value in (got, want)]
        torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-11)
        without = relaxed_column(scores.detach(), target, rank_weights=weights, **of_column)
        torch.testing.assert_close(without, want.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_a_masked_target_has_no_chance(method):
    scores = torch.randn(3, 6)
    scores[0, 2] = scores[1, 4] = -torch.inf
    target = torch.tensor([2, 1, 5])
    leaf = scores.requires_grad_()
    options = {"method": method, "rank_weights": torch.tensor([1.0, 0.5]), **DEFAULTS}
    got = relaxed_column(leaf, target, **options)
    assert got[0] == 0
    torch.testing.assert_close(got, relaxed_topk(leaf, k=2, **options).gather(1, target[:, None])[:, 0])
    (gradient,) = torch.autograd.grad(got.sum(), leaf)
    assert (gradient[0] == 0).all() and gradient[1, 4] == 0 and gradient.isfinite().all()


def test_one_class_has_no_second_derivative():
    scores = torch.randn(2, 6, requires_grad=True)
    weights = torch.ones(2)
    chance = relaxed_column(scores, torch.tensor([0, 1]), rank_weights=weights, method="splitter", **DEFAULTS)
    with pytest.raises(RuntimeError, match="ranked_topk_loss has no second derivative"):
        torch.autograd.grad(chance.sum(), scores, create_graph=True)
