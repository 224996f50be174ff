import pytest
import torch
from hypothesis import given, strategies as st

from shortlist.losses import topk_hinge_loss
from tests import references
from tests.losses.batches import assert_transforms_agree_with_rows
from tests.losses.hinge_family import (
    assert_equals_definition,
    assert_equals_golden,
    assert_k_1_is_the_multi_class_hinge,
)


def test_golden(golden):
    assert_equals_golden(golden, "topk_hinge", topk_hinge_loss)


@given(c=st.integers(2, 9), scale=st.sampled_from([1.0, 1e4]), ties=st.booleans(), data=st.data())
def test_equals_the_definition(c, scale, ties, data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    assert_equals_definition(topk_hinge_loss, references.topk_hinge, c, scale, ties, draw)


def test_k_1_is_the_multi_class_hinge():
    assert_k_1_is_the_multi_class_hinge(topk_hinge_loss)


def test_ties_still_push_the_true_class_up():
    scores = torch.zeros(3, 6, requires_grad=True)
    topk_hinge_loss(scores, torch.tensor([0, 3, 5]), k=2, reduction="sum").backward()
    assert scores.grad[[0, 1, 2], [0, 3, 5]].tolist() == [-1, -1, -1]
    assert scores.grad.sum(1).tolist() == [0, 0, 0]


def test_zero_iff_the_true_class_leads_by_the_margin():
    scores = torch.tensor([[5.0, 4.0, 2.0, 1.0]])
    assert topk_hinge_loss(scores, torch.tensor([1]), k=2) == 0
    assert topk_hinge_loss(scores, torch.tensor([2]), k=2) == pytest.approx(3)


def test_the_true_class_is_not_among_the_others():
    scores, target = torch.tensor([[5.0, 1.0, -torch.inf, -torch.inf]]), torch.tensor([0])
    assert topk_hinge_loss(scores, target, k=3) == 0


def test_transforms():
    assert_transforms_agree_with_rows(lambda scores, target: topk_hinge_loss(scores, target, k=3))
