"""The class priors of held-out rows, and fits on rows that have others than the training rows."""

import pytest
import torch
from scipy.optimize import minimize_scalar

from shortlist.scores import PriorRecord, ScoreMap, fit_temperature_and_prior, priors_of_rows

COUNTS = (3000 / torch.arange(1, 41)).long()
TRAINING = PriorRecord.training(COUNTS)


def drawn(power, rows=4000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.multinomial(TRAINING.to_power(power).priors, rows, replacement=True, generator=generator)


@pytest.mark.parametrize("power", [0.0, 0.3, 0.7, 1.4])
def test_the_power_is_the_likeliest(power):
    target = drawn(power)

    def nll(a):
        return -float(torch.log_softmax(a * TRAINING.log_priors, 0)[target].mean())

    expected = minimize_scalar(nll, bounds=(-2, 3), method="bounded", options={"xatol": 1e-9}).x
    assert priors_of_rows(target, TRAINING).power == pytest.approx(expected, abs=1e-5)
    assert expected == pytest.approx(power, abs=0.1)


def test_what_rows_cannot_tell_from_the_training_priors_is_them():
    found = [priors_of_rows(drawn(1.0, rows=200, seed=seed), TRAINING).power for seed in range(40)]
    assert sum(power == 1.0 for power in found) >= 34  # all but 1 in 20, on average
    equal = PriorRecord.training(torch.tensor([5, 5, 5]))
    assert priors_of_rows(torch.tensor([0, 0, 1]), equal).same_as(equal)


def test_shares_that_are_no_power_are_taken_as_they_are():
    generator = torch.Generator().manual_seed(1)
    shares = torch.rand(40, generator=generator).double()
    target = torch.multinomial(shares, 4000, replacement=True, generator=generator)
    found = priors_of_rows(target, TRAINING)
    counts = target.bincount(minlength=40).double()
    torch.testing.assert_close(found.priors, (counts + 0.5) / (4000 + 20), rtol=1e-9, atol=0)
    few = priors_of_rows(target[:100], TRAINING)  # too few rows to say anything but a power
    assert few.name in ("training", "balanced")


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("left_out", [0.0, 0.4, 1.0])
def test_the_fit_finds_the_training_posterior_whatever_rows_it_is_made_on(balanced, left_out):
    """Exact scores with some of the priors left out: T and t come back from balanced rows as from others."""
    generator = torch.Generator().manual_seed(3)
    means = 1.5 * torch.randn(40, 8, generator=generator, dtype=torch.float64)
    shares = TRAINING.to_power(0.0) if balanced else TRAINING
    target = torch.multinomial(shares.priors, 6000, replacement=True, generator=generator)
    inputs = means[target] + torch.randn(6000, 8, generator=generator, dtype=torch.float64)
    log_posterior = (TRAINING.log_priors - torch.cdist(inputs, means) ** 2 / 2).log_softmax(1)
    scores = 2.5 * (log_posterior - left_out * TRAINING.log_priors)
    own = priors_of_rows(target, TRAINING)
    fit = fit_temperature_and_prior(scores, target, priors=TRAINING.priors, rows_priors=own.priors)
    assert fit.temperature == pytest.approx(2.5, rel=0.05)
    assert fit.exponent == pytest.approx(left_out, abs=0.06)
    mapped = ScoreMap(40, contains=None).identified(
        TRAINING, temperature=fit.temperature, exponent=fit.exponent
    )
    distance = (mapped(scores).softmax(1) - log_posterior.exp()).abs().sum(1).mean() / 2
    assert float(distance) < 0.03
