import pytest
import torch

from shortlist.losses import ImbalancedNoisedTopKLoss, imbalanced_noised_topk_loss, noised_topk_loss
from shortlist.priors import margins_from_counts
from tests.conftest import tensor
from tests.losses.batches import assert_equals_golden_noise


def test_golden(golden):
    def rows_of(scores, target, params, options):
        counts = torch.tensor(params["cls_num_list"], dtype=torch.float64)
        margins = margins_from_counts(counts, max_margin=params["max_m"])
        torch.testing.assert_close(margins, tensor(params["m_list"]), rtol=0, atol=1e-12)
        options = {**options, "scale": float(params["scale"])}
        rows = imbalanced_noised_topk_loss(scores, target, margins=margins, **options)
        options |= {"class_counts": counts, "max_margin": params["max_m"]}
        assert rows.equal(imbalanced_noised_topk_loss(scores, target, **options))
        assert rows.equal(ImbalancedNoisedTopKLoss(**options)(scores, target))
        return rows

    assert_equals_golden_noise(golden, "imbal_noised_topk_loss", rows_of)


def test_equal_margins_and_scale_1_are_the_balanced_loss():
    scores, target, noise = torch.rand(9, 12), torch.randint(12, (9,)), torch.randn(4, 9, 12)
    got = imbalanced_noised_topk_loss(scores, target, margins=torch.ones(12), k=2, scale=1.0, noise=noise)
    torch.testing.assert_close(got, noised_topk_loss(scores, target, k=2, noise_std=0.01, noise=noise))


def test_margins_given_or_made_from_counts():
    counts = torch.tensor([100, 10, 1])
    made = ImbalancedNoisedTopKLoss(class_counts=counts, max_margin=0.3, k=1)
    given = ImbalancedNoisedTopKLoss(margins=0.3 * counts.double().pow(-0.25).float(), k=1)
    torch.testing.assert_close(made.margins, given.margins)
    assert "margins" in made.state_dict() and made.needs == {"class_counts", "cosine_scores"}


def test_margins_of_another_type():
    loss = imbalanced_noised_topk_loss(
        torch.rand(2, 5), torch.tensor([0, 1]), margins=torch.ones(5, dtype=torch.float64), k=2
    )
    assert loss.dtype == torch.float32


@pytest.mark.errors
def test_bad_margins():
    with pytest.raises(ValueError, match="exactly one of class_counts and margins must be given, got none"):
        ImbalancedNoisedTopKLoss()
    with pytest.raises(ValueError, match="exactly one of class_counts and margins must be given, got both"):
        ImbalancedNoisedTopKLoss(class_counts=torch.ones(3), margins=torch.ones(3))
    with pytest.raises(ValueError, match="exactly one of class_counts and margins must be given, got none"):
        imbalanced_noised_topk_loss(torch.zeros(2, 4), torch.tensor([0, 1]), k=1)
    with pytest.raises(ValueError, match=r"margin must have one entry per class \(4\), got 3"):
        imbalanced_noised_topk_loss(torch.zeros(2, 4), torch.tensor([0, 1]), margins=torch.ones(3), k=1)
