from hypothesis import given, strategies as st

from shortlist.losses import convex_topk_hinge_loss
from tests import references
from tests.losses.batches import assert_transforms_agree_with_rows
from tests.losses.hinge_family import (
    assert_equals_definition,
    assert_equals_golden,
    assert_k_1_is_the_multi_class_hinge,
)


def test_golden(golden):
    assert_equals_golden(golden, "convex_topk_hinge", convex_topk_hinge_loss)


@given(c=st.integers(2, 9), scale=st.sampled_from([1.0, 1e4]), ties=st.booleans(), data=st.data())
def test_equals_the_definition(c, scale, ties, data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    assert_equals_definition(convex_topk_hinge_loss, references.convex_topk_hinge, c, scale, ties, draw)


def test_k_1_is_the_multi_class_hinge():
    assert_k_1_is_the_multi_class_hinge(convex_topk_hinge_loss)


def test_transforms():
    assert_transforms_agree_with_rows(lambda scores, target: convex_topk_hinge_loss(scores, target, k=3))
