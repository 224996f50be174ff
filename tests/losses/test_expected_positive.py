import numpy
import pytest
import torch
from torch.autograd import gradcheck

from shortlist.losses import ExpectedPositiveLoss, expected_positive_loss
from tests.losses.batches import assert_equals_case, golden_single_positive, heads


def test_golden(golden):
    for case, logits, target in golden_single_positive(golden, "epr"):
        k = case["params"]["expected_num_pos"]
        loss = expected_positive_loss(logits, target, k=k, beta=1.0, normalization="original")
        assert_equals_case(loss, case, logits)


def test_papers_normalization():
    scores, _, target = heads()
    chance = torch.sigmoid(scores)
    true = chance[torch.arange(6), target]
    want = -true.log().mean() + 0.7 * (chance.sum(1).mean() - 2.5) ** 2
    torch.testing.assert_close(expected_positive_loss(scores, target, k=2.5, beta=0.7), want)
    # by default the weight of the publication's recipes on CIFAR-100
    default = expected_positive_loss(scores, target, k=2.5)
    torch.testing.assert_close(default, expected_positive_loss(scores, target, k=2.5, beta=0.01))


def test_gradcheck():
    scores, _, target = heads()
    assert gradcheck(lambda s: expected_positive_loss(s, target, k=2.5), (scores.requires_grad_(),))


@pytest.mark.errors  # of types, to a checker of these: floats are annotated
def test_numpy_numbers_are_numbers():
    scores, _, target = heads()
    for k in (numpy.float32(2.5), numpy.float64(2.5)):
        assert expected_positive_loss(scores, target, k=k) == expected_positive_loss(scores, target, k=2.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    scores, _, target = heads(dtype=dtype)
    loss = expected_positive_loss(scores, target, k=2.0)
    assert loss.dtype == torch.float32 and torch.isfinite(loss)


def test_nan_scores_give_nan():
    scores, _, target = heads()
    scores[0, 0] = torch.nan
    assert expected_positive_loss(scores, target, k=2.0).isnan()


@pytest.mark.errors
def test_bad_input():
    scores, _, target = heads()
    for k in (0.5, float("nan")):
        with pytest.raises(ValueError, match="k must be"):
            expected_positive_loss(scores, target, k=k)
    with pytest.raises(ValueError, match="normalization must be one of paper, original, got 'both'"):
        expected_positive_loss(scores, target, normalization="both")
    with pytest.raises(ValueError, match="reduction must be one of mean, got 'sum'"):
        ExpectedPositiveLoss(reduction="sum")
