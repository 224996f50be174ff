from hypothesis import given, strategies as st

from shortlist.losses import calibrated_topk_hinge_loss
from tests import references
from tests.losses.hinge_family import assert_equals_definition, assert_equals_golden


def test_golden(golden):
    assert_equals_golden(golden, "calibrated_hinge", calibrated_topk_hinge_loss)


@given(c=st.integers(2, 9), scale=st.sampled_from([1.0, 1e4]), ties=st.booleans(), data=st.data())
def test_equals_the_definition(c, scale, ties, data):
    def draw(low, high):
        return data.draw(st.integers(low, high))

    assert_equals_definition(
        calibrated_topk_hinge_loss, references.calibrated_topk_hinge, c, scale, ties, draw
    )
