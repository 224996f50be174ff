import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch.nn.functional import cross_entropy

from shortlist.losses import SmoothTopKLoss, smooth_topk_loss, topk_hinge_loss
from shortlist.ops import log_esp_ratio
from tests import references
from tests.conftest import tensor
from tests.losses.batches import assert_batches_of_another_size_compile


def test_golden(golden):
    reference = golden("smooth_topk")
    for case in reference.cases:
        inputs, params = reference.inputs(case), case["params"]
        scores = inputs["s"].requires_grad_()
        options = {"k": params["k"], "temperature": params["tau"], "margin": params["alpha"]}
        rows = smooth_topk_loss(scores, inputs["y"], reduction="none", **options)
        rows.mean().backward()
        exact = case["exact"]
        torch.testing.assert_close(rows.detach(), tensor(exact["per_sample"]), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(scores.grad, tensor(exact["grad_of_mean"]), rtol=1e-9, atol=1e-9)
    assert any(any(case["hard_rows"]) for case in reference.cases)  # where the original leaves the formula


@given(
    c=st.integers(2, 8),
    scale=st.sampled_from([1e-3, 1.0, 30.0, 1e4]),
    temperature=st.sampled_from([0.1, 1.0, 5.0]),
    ties=st.booleans(),
    data=st.data(),
)
def test_equals_the_sum_over_subsets(c, scale, temperature, ties, data):
    k, seed = data.draw(st.integers(1, c - 1)), data.draw(st.integers(0, 99))
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(3, c, dtype=torch.float64, generator=generator)
    scores = scale * (scores.round() if ties else scores)
    target = torch.randint(c, (3,), generator=generator)
    want = references.rows(lambda row, y: references.smooth_topk(row, y, k, temperature), scores, target)
    got = smooth_topk_loss(scores, target, k=k, temperature=temperature, reduction="none")
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12 * scale + 1e-12)


def test_top_1_is_cross_entropy():
    scores, target = 4 * torch.randn(50, 20), torch.randint(20, (50,))
    got = smooth_topk_loss(scores, target, k=1, temperature=1.0, margin=0.0)
    torch.testing.assert_close(got, cross_entropy(scores, target))
    shares = torch.rand(50, 20).softmax(1)
    got = smooth_topk_loss(scores, shares, k=1, temperature=1.0, margin=0.0)
    torch.testing.assert_close(got, cross_entropy(scores, shares))


def test_low_temperature_is_the_hard_loss(golden):
    scores, target = torch.randn(20, 9, dtype=torch.float64), torch.randint(9, (20,))
    hard = topk_hinge_loss(scores / 3, target, k=3, margin=1.0, reduction="none")
    soft = smooth_topk_loss(scores, target, k=3, temperature=1e-4, reduction="none")
    torch.testing.assert_close(soft, hard, rtol=0, atol=1e-3)
    for case in golden("hinge").cases:
        if case["kind"] == "berrada_hard" and "tie" not in case["inputs"]["s"]:
            inputs = golden("hinge").inputs(case)
            soft = smooth_topk_loss(
                inputs["s"], inputs["y"], k=case["params"]["K"], temperature=1e-5, reduction="none"
            )
            torch.testing.assert_close(soft, tensor(case["per_sample"]).double(), rtol=0, atol=1e-3)


def test_every_class_has_a_gradient():
    scores = torch.randn(4, 100, dtype=torch.float64, requires_grad=True)
    smooth_topk_loss(scores, torch.arange(4), k=5).backward()
    assert (scores.grad != 0).all()


def test_all_remaining_classes_fit_the_list():
    scores = torch.full((1, 6), -torch.inf)
    scores[0, :3] = torch.tensor([1.0, 2.0, 3.0])
    leaf = scores.requires_grad_()
    loss = smooth_topk_loss(
        leaf, torch.tensor([0]), k=3
    )  # three classes left: no set of 3 is without the true one
    loss.backward()
    assert loss == 0 and (leaf.grad == 0).all()


@pytest.mark.parametrize("k", [1, 5, 50])
def test_float32_agrees_with_float64(k):
    scores, target = 10 * torch.randn(8, 200, dtype=torch.float64), torch.randint(200, (8,))
    want = smooth_topk_loss(scores, target, k=k, reduction="none")
    got = smooth_topk_loss(scores.float(), target, k=k, reduction="none")
    torch.testing.assert_close(got.double(), want, rtol=2e-5, atol=1e-6)


def test_masked_classes():
    scores = torch.randn(2, 6)
    scores[1, 0] = -math.inf
    leaf = scores.requires_grad_()
    smooth_topk_loss(leaf, torch.tensor([2, -100]), k=2).backward()
    assert (leaf.grad[1] == 0).all() and torch.isfinite(leaf.grad).all()
    few = torch.tensor([[1.0, 2.0, 3.0] + [-math.inf] * 7])
    for k in (3, 4, 6):
        assert smooth_topk_loss(few, torch.tensor([0]), k=k) == 0
        assert log_esp_ratio(few, k=k + 1) == -math.inf
    assert smooth_topk_loss(few, torch.tensor([5]), k=2) == math.inf  # as cross-entropy


def test_second_derivatives_are_refused():
    scores = torch.randn(4, 6, requires_grad=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        torch.autograd.grad(smooth_topk_loss(scores, torch.arange(4), k=2), scores, create_graph=True)


@pytest.mark.compiled
def test_batches_of_another_size_compile():
    assert_batches_of_another_size_compile(SmoothTopKLoss(k=2))
