import inspect

import pytest
import torch

from shortlist import losses
from shortlist.losses import LOSSES

COUNTS = torch.tensor([70, 20, 10])
# what one call cannot know; "sample_ids" means a table of label estimates
OTHERS = {
    "pairwise_margin": {"margins": torch.zeros(3, 3)},
    "role": {"estimates": losses.LabelEstimates(torch.tensor([0, 1]), num_classes=3)},
}


@pytest.mark.parametrize("name", LOSSES)
def test_class_counts_reach_the_losses_that_need_them(name):
    loss = losses.create(name, class_counts=COUNTS, **OTHERS.get(name, {}))
    assert type(loss) is LOSSES[name]
    if name == "imbalanced_noised_topk":
        want = 0.2 * (10 / COUNTS) ** 0.25
        torch.testing.assert_close(loss.margins, want)
    elif "class_counts" in loss.needs:
        assert loss.class_counts.equal(COUNTS)
    else:
        assert "class_counts" not in loss.state_dict()


@pytest.mark.parametrize("name", LOSSES)
def test_whether_class_weights_are_taken_is_declared_as_it_is(name):
    assert LOSSES[name].takes_weight == ("weight" in inspect.signature(LOSSES[name]).parameters)


def test_weight_and_options():
    weight = torch.tensor([1.0, 2.0, 3.0])
    loss = losses.create("smooth_topk", class_counts=COUNTS, weight=weight, k=2, temperature=0.5)
    assert (loss.k, loss.temperature, loss.margin) == (2, 0.5, 1.0) and loss.weight.equal(weight)
    assert losses.create("smooth_topk").weight is None


@pytest.mark.errors
def test_bad_names_and_missing_counts():
    with pytest.raises(ValueError, match=r"name must be one of topk_hinge, .*, role, got 'hinge'"):
        losses.create("hinge")
    with pytest.raises(TypeError, match=r"missing a required .*'class_counts'"):
        losses.create("ldam")
