import pytest
import torch

from shortlist.losses import (
    ImbalancedNoisedTopKLoss,
    calibrated_topk_hinge_loss,
    imbalanced_noised_topk_loss,
    noised_topk_loss,
)
from shortlist.priors import margins_from_counts
from tests.conftest import tensor


def test_golden_balanced_and_imbalanced(golden):
    reference, checked = golden("noised_topk"), set()
    for case in reference.cases:
        if case["kind"] == "noised_topk":
            continue
        inputs, params = reference.inputs(case), case["params"]
        scores, noise = inputs["s"].requires_grad_(), inputs["Z"].permute(2, 0, 1)
        options = {"k": params["k"], "noise_std": params["eps"], "noise": noise, "reduction": "none"}
        if case["kind"] == "bal_noised_topk_loss":
            rows = noised_topk_loss(scores, inputs["y"], **options)
        else:
            counts = torch.tensor(params["cls_num_list"], dtype=torch.float64)
            margins = margins_from_counts(counts, max_margin=params["max_m"])
            torch.testing.assert_close(margins, tensor(params["m_list"]), rtol=0, atol=1e-12)
            rows = imbalanced_noised_topk_loss(
                scores, inputs["y"], margins=margins, scale=float(params["scale"]), **options
            )
        rows.mean().backward()
        torch.testing.assert_close(rows.detach(), tensor(case["per_sample"]), rtol=0, atol=1e-12)
        assert rows.mean().item() == pytest.approx(case["mean"], abs=1e-12)
        torch.testing.assert_close(scores.grad, tensor(case["grad_of_mean"]), rtol=0, atol=1e-12)
        checked.add(case["kind"])
    assert checked == {"bal_noised_topk_loss", "imbal_noised_topk_loss"}


def test_no_noise_is_the_calibrated_hinge():
    scores, target = torch.randn(9, 12), torch.randint(12, (9,))
    for num_samples in (3, None):
        got = noised_topk_loss(scores, target, k=4, noise_std=0.0, num_samples=num_samples)
        torch.testing.assert_close(got, calibrated_topk_hinge_loss(scores, target, k=4))


def test_equal_margins_and_scale_1_are_the_balanced_loss():
    scores, target, noise = torch.rand(9, 12), torch.randint(12, (9,)), torch.randn(4, 9, 12)
    got = imbalanced_noised_topk_loss(scores, target, margins=torch.ones(12), k=2, scale=1.0, noise=noise)
    torch.testing.assert_close(got, noised_topk_loss(scores, target, k=2, noise_std=0.01, noise=noise))


@pytest.mark.parametrize("spread", [0.5, 4.0])
def test_exact_and_sampled_agree_within_monte_carlo_error(spread):
    scores, target = spread * torch.randn(6, 50), torch.randint(50, (6,))
    exact = noised_topk_loss(
        scores, target, k=5, noise_std=0.5, num_samples=None, margin=50.0, reduction="none"
    )
    draws = 20_000
    sampled = noised_topk_loss(
        scores, target, k=5, noise_std=0.5, num_samples=draws, margin=50.0, reduction="none"
    )
    # the margin keeps the hinge open, so that the loss is linear in the smoothed score; its spread is at most
    # the noise's
    assert ((exact - sampled).abs() < 4.5 * 0.5 / draws**0.5).all()


def test_margins_given_or_made_from_counts():
    counts = torch.tensor([100, 10, 1])
    made = ImbalancedNoisedTopKLoss(class_counts=counts, max_margin=0.3, k=1)
    given = ImbalancedNoisedTopKLoss(margins=0.3 * counts.double().pow(-0.25).float(), k=1)
    torch.testing.assert_close(made.margins, given.margins)
    assert "margins" in made.state_dict() and made.needs == {"class_counts", "cosine_scores"}


@pytest.mark.errors
def test_bad_counts_and_margins():
    with pytest.raises(ValueError, match="class_counts must be >= 1, got 0 for class 1"):
        margins_from_counts(torch.tensor([3, 0]), max_margin=0.3)
    with pytest.raises(ValueError, match="max_margin must be > 0, got 0"):
        margins_from_counts(torch.tensor([3, 2]), max_margin=0)
    with pytest.raises(ValueError, match="exactly one of class_counts and margins must be given, got none"):
        ImbalancedNoisedTopKLoss()
    with pytest.raises(ValueError, match="exactly one of class_counts and margins must be given, got both"):
        ImbalancedNoisedTopKLoss(class_counts=torch.ones(3), margins=torch.ones(3))
    with pytest.raises(ValueError, match=r"margin must have one entry per class \(4\), got 3"):
        imbalanced_noised_topk_loss(torch.zeros(2, 4), torch.tensor([0, 1]), margins=torch.ones(3), k=1)
