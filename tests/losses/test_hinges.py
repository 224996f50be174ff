import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shortlist.losses import calibrated_topk_hinge_loss, convex_topk_hinge_loss, topk_hinge_loss
from tests import references
from tests.conftest import tensor

FAMILY = {
    "topk_hinge": (topk_hinge_loss, references.topk_hinge),
    "convex_topk_hinge": (convex_topk_hinge_loss, references.convex_topk_hinge),
    "calibrated_hinge": (calibrated_topk_hinge_loss, references.calibrated_topk_hinge),
}


def test_golden(golden):
    reference = golden("hinge")
    checked = 0
    for case in reference.cases:
        if case["kind"] not in FAMILY:
            continue
        inputs = reference.inputs(case)
        scores = inputs["s"].requires_grad_()
        rows = FAMILY[case["kind"]][0](scores, inputs["y"], k=case["params"]["K"], reduction="none")
        rows.sum().backward()
        torch.testing.assert_close(rows.detach(), tensor(case["per_sample"]).double(), rtol=0, atol=1e-12)
        if "grad_of_sum" in case:
            torch.testing.assert_close(scores.grad, tensor(case["grad_of_sum"]), rtol=0, atol=1e-12)
        checked += 1
    assert checked >= 20


@pytest.mark.parametrize("name", FAMILY)
@given(c=st.integers(2, 9), scale=st.sampled_from([1.0, 1e4]), ties=st.booleans(), data=st.data())
def test_equals_the_definition(name, c, scale, ties, data):
    loss, oracle = FAMILY[name]
    k, seed = data.draw(st.integers(1, c - 1)), data.draw(st.integers(0, 99))
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(4, c, dtype=torch.float64, generator=generator)
    scores = scores.round() if ties else scores
    target = torch.randint(c, (4,), generator=generator)
    want = references.rows(lambda row, y: oracle(row, y, k, 0.7), scores, target)
    got = loss(scores, target, k=k, margin=0.7, reduction="none")
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-10)
    shares = torch.rand(4, c, dtype=torch.float64, generator=generator)
    shares = shares / shares.sum(1, keepdim=True)
    table = torch.stack(
        [loss(scores, torch.full((4,), j), k=k, margin=0.7, reduction="none") for j in range(c)], dim=1
    )
    mixed = loss(scores, shares, k=k, margin=0.7, reduction="none")
    torch.testing.assert_close(mixed, (shares * table).sum(1), rtol=1e-12, atol=1e-10)


def test_k_1_is_the_multi_class_hinge():
    scores, target = torch.randn(6, 5, dtype=torch.float64), torch.randint(5, (6,))
    want = references.rows(
        lambda row, y: (1 + references.without(row, int(y)).max() - row[y]).clamp_min(0), scores, target
    )
    for loss in (topk_hinge_loss, convex_topk_hinge_loss):
        torch.testing.assert_close(loss(scores, target, k=1, reduction="none"), want)


def test_ties_still_push_the_true_class_up():
    scores = torch.zeros(3, 6, requires_grad=True)
    topk_hinge_loss(scores, torch.tensor([0, 3, 5]), k=2, reduction="sum").backward()
    assert scores.grad[[0, 1, 2], [0, 3, 5]].tolist() == [-1, -1, -1]
    assert scores.grad.sum(1).tolist() == [0, 0, 0]


def test_zero_iff_the_true_class_leads_by_the_margin():
    scores = torch.tensor([[5.0, 4.0, 2.0, 1.0]])
    assert topk_hinge_loss(scores, torch.tensor([1]), k=2) == 0
    assert topk_hinge_loss(scores, torch.tensor([2]), k=2) == pytest.approx(3)
