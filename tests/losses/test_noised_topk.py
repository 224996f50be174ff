import copy
import pickle

import pytest
import torch

from shortlist.losses import NoisedTopKLoss, calibrated_topk_hinge_loss, noised_topk_loss
from tests.losses.batches import assert_batches_of_another_size_compile, assert_equals_golden_noise


def test_golden(golden):
    def rows_of(scores, target, params, options):
        rows = noised_topk_loss(scores, target, **options)
        assert rows.equal(NoisedTopKLoss(**options)(scores, target))
        return rows

    assert_equals_golden_noise(golden, "bal_noised_topk_loss", rows_of)


def test_no_noise_is_the_calibrated_hinge():
    scores, target = torch.randn(9, 12), torch.randint(12, (9,))
    for num_samples in (3, None):
        got = noised_topk_loss(scores, target, k=4, noise_std=0.0, num_samples=num_samples)
        torch.testing.assert_close(got, calibrated_topk_hinge_loss(scores, target, k=4))


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


@pytest.mark.parametrize("num_samples", [5, None])
def test_fewer_finite_scores_than_k(num_samples):
    scores = torch.full((1, 100), -torch.inf)
    scores[0, 0] = 3.0
    assert noised_topk_loss(scores, torch.tensor([0]), k=2, num_samples=num_samples) == 0


@pytest.mark.compiled
@pytest.mark.parametrize("num_samples", [5, None])
def test_batches_of_another_size_compile(num_samples):
    assert_batches_of_another_size_compile(NoisedTopKLoss(k=2, num_samples=num_samples))


def test_module_draws_from_its_generator():
    scores, target = torch.randn(6, 9), torch.arange(6)
    loss = NoisedTopKLoss(k=2, generator=torch.Generator().manual_seed(3))
    twins = [copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))]
    generator = torch.Generator().manual_seed(3)
    want = [noised_topk_loss(scores, target, k=2, generator=generator) for _ in range(2)]
    assert want[0] != want[1]
    for module in (loss, *twins):
        assert [module(scores, target) for _ in range(2)] == want


def test_module_takes_a_margin_for_each_class():
    scores, target, margins = torch.randn(6, 9), torch.arange(6), torch.linspace(0.1, 0.9, 9)
    loss = NoisedTopKLoss(k=2, num_samples=None, margin=margins)
    want = noised_topk_loss(scores, target, k=2, num_samples=None, margin=margins)
    margins[0] = 7.0  # the loss has its own
    assert loss(scores, target) == want and loss.state_dict().keys() == {"margin"}
