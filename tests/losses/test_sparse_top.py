import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck

from shortlist.losses import sparse_top_loss
from shortlist.ops import sparse_top
from tests import references
from tests.conftest import tensor


def test_golden(golden):
    reference, checked = golden("sparse_top"), 0
    for case in reference.cases:
        for entry in case["losses"]:
            if len(entry["Y"][0]) != case["params"]["K"]:
                continue  # unbounded below: not a loss
            scores = reference.inputs(case)["s"].requires_grad_()
            labels = torch.zeros_like(scores).scatter(1, torch.tensor(entry["Y"]), 1.0).detach()
            rows = sparse_top_loss(scores, labels, reduction="none")
            rows.sum().backward()
            torch.testing.assert_close(rows.detach(), tensor(entry["loss_fenchel_young"]), rtol=0, atol=1e-10)
            torch.testing.assert_close(scores.grad, tensor(entry["grad"]), rtol=0, atol=1e-10)
            checked += 1
    assert checked >= 12


@given(c=st.integers(2, 10), scale=st.sampled_from([1e-3, 1.0, 1e4]), seed=st.integers(0, 99))
def test_equals_the_fenchel_young_loss(c, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(4, c, dtype=torch.float64, generator=generator)
    labels = (torch.rand(4, c, generator=generator) < 0.4).long()
    labels[:, 0] = 1
    want = references.rows(references.fenchel_young, scores, labels)
    got = sparse_top_loss(scores, labels, reduction="none")
    torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9 * (1 + scale))
    assert (got >= -1e-9).all()


def test_zero_iff_the_labels_are_the_sparse_top():
    scores = torch.tensor([[3.0, 2.5, 0.5, 0.0]])
    assert sparse_top_loss(scores, torch.tensor([[1, 1, 0, 0]])) == 0
    assert sparse_top_loss(scores, torch.tensor([[1, 0, 1, 0]])) > 0


def test_gradient_is_the_difference_of_weights():
    scores = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)
    labels = torch.zeros(5, 8).scatter(1, torch.rand(5, 8).topk(3).indices, 1.0)
    sparse_top_loss(scores, labels, reduction="sum").backward()
    torch.testing.assert_close(scores.grad, sparse_top(scores.detach(), k=3) - labels)
    assert gradcheck(lambda s: sparse_top_loss(s, labels), (scores,))


def test_one_positive_is_sparsemax_loss():
    scores = torch.tensor([[0.4, 0.1, -2.0]])
    # sparsemax weights 0.65, 0.35: loss = (0.65^2 + 0.35^2) / 2 with the true class 0 at ... by the
    # definition
    q = torch.tensor([0.65, 0.35, 0.0])
    want = (q * scores[0]).sum() - 0.5 * q.square().sum() - 0.4 + 0.5
    assert sparse_top_loss(scores, torch.tensor([[1, 0, 0]])).item() == pytest.approx(want.item(), abs=1e-6)


def test_class_weights_weigh_rows_by_their_positives():
    scores, weight = torch.randn(2, 4), torch.tensor([1.0, 3.0, 5.0, 7.0])
    labels = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 1]])
    rows = sparse_top_loss(scores, labels, reduction="none")
    weighted = sparse_top_loss(scores, labels, weight=weight, reduction="none")
    torch.testing.assert_close(weighted, rows * torch.tensor([2.0, 7.0]))
    mean = sparse_top_loss(scores, labels, weight=weight)
    torch.testing.assert_close(mean, weighted.sum() / 9)


def test_masked_scores():
    scores = torch.tensor([[1.0, 0.5, -torch.inf]], requires_grad=True)
    loss = sparse_top_loss(scores, torch.tensor([[1, 1, 0]]))
    loss.backward()
    assert loss == 0 and torch.isfinite(scores.grad).all()


@pytest.mark.errors
def test_bad_labels():
    scores = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="at least one positive in each row, got none in row 1"):
        sparse_top_loss(scores, torch.tensor([[1, 0, 0], [0, 0, 0]]))
    with pytest.raises(ValueError, match="target must be 0 or 1, got 2"):
        sparse_top_loss(scores, torch.tensor([[1, 0, 0], [0, 2, 0]]))
    with pytest.raises(ValueError, match=r"target must have the logits' shape \(2, 3\), got \(2,\)"):
        sparse_top_loss(scores, torch.tensor([0, 1]))


def test_large_scores():
    for lead in (1e4, 1e5):
        scores, labels = torch.tensor([[lead] * 3 + [0.5, 0.4, 0.0]]), torch.tensor([[1, 1, 1, 1, 0, 0]])
        want = sparse_top_loss(scores.double(), labels).item()
        assert sparse_top_loss(scores, labels).item() == pytest.approx(want, abs=1e-6)
