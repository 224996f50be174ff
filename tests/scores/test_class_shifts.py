"""Shifts for each class, fitted with temperature and prior exponent."""

import numpy
import pytest
import torch
from scipy import optimize

from shortlist.scores import PriorRecord, ScoreMap, fit_class_shifts, fit_temperature_and_prior


def shifted_rows(n: int = 300, c: int = 4, seed: int = 0):
    """Rows drawn from a posterior, their scores with levels of their own, and the class priors."""
    generator = torch.Generator().manual_seed(seed)
    priors = torch.rand(c, dtype=torch.float64, generator=generator) + 0.1
    priors = priors / priors.sum()
    log_posterior = torch.randn(n, c, dtype=torch.float64, generator=generator) * 2 + priors.log()
    log_posterior = log_posterior.log_softmax(1)
    target = torch.multinomial(log_posterior.exp(), 1, generator=generator).squeeze(1)
    levels = torch.randn(c, dtype=torch.float64, generator=generator)
    return log_posterior, levels, target, priors


def penalized(x, scores, target, log_priors, offset, spread):
    """The formula of the docstring, in numpy."""
    mapped = x[0] * scores + x[1] * log_priors + offset + x[2:]
    mapped = mapped - mapped.max(1, keepdims=True)
    log_probs = mapped - numpy.log(numpy.exp(mapped).sum(1, keepdims=True))
    return -log_probs[numpy.arange(len(target)), target].sum() + (x[2:] ** 2).sum() / (2 * spread**2)


@pytest.mark.parametrize("spread", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("own_priors", [False, True])
@pytest.mark.parametrize("temperature", [0.02, 1.0, 40.0])
def test_fit_is_scipys_minimum(spread, own_priors, temperature):
    log_posterior, levels, target, priors = shifted_rows()
    scores = temperature * (0.7 * log_posterior + levels)
    rows_priors = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64) if own_priors else None
    offset = numpy.zeros(4) if rows_priors is None else (rows_priors.log() - priors.log()).numpy()
    given = scores.numpy() / temperature, target.numpy(), priors.log().numpy(), offset, spread
    best = optimize.minimize(penalized, [1.0, 0.0, *numpy.zeros(4)], args=given, method="BFGS", tol=1e-9)
    fit = fit_class_shifts(scores, target, priors=priors, rows_priors=rows_priors, spread=spread)
    found = numpy.array([temperature / fit.temperature, fit.exponent, *fit.shifts.tolist()])
    assert penalized(found, *given) <= best.fun + 1e-8
    numpy.testing.assert_allclose(found, best.x, atol=1e-3)
    assert not fit.smoothed


def test_levels_of_many_rows_are_found_and_the_map_has_the_posterior_back():
    log_posterior, levels, target, priors = shifted_rows(n=40_000)
    fit = fit_class_shifts(3 * (log_posterior + levels), target, priors=priors, spread=100.0)
    training = PriorRecord.given(priors)
    score_map = ScoreMap(4, contains=None).identified(
        training, temperature=fit.temperature, exponent=fit.exponent, shifts=fit.shifts
    )
    found = score_map.log_posterior(3 * (log_posterior + levels), priors=training)
    assert float((found.exp() - log_posterior.exp()).abs().max()) < 0.02  # without shifts: 0.3
    # the priors that the map says are inside are those of the rows, so that they can be taken out
    balanced = (log_posterior - priors.log()).softmax(1)
    assert (
        float((score_map.under("balanced")(3 * (log_posterior + levels)).softmax(1) - balanced).abs().max())
        < 0.03
    )


def test_without_spread_it_is_the_fit_of_two_numbers():
    log_posterior, levels, target, priors = shifted_rows()
    scores = log_posterior + levels
    fit, two = (
        fit_class_shifts(scores, target, priors=priors, spread=1e-4),
        fit_temperature_and_prior(scores, target, priors=priors),
    )
    assert fit.shifts.abs().max() < 1e-5
    assert fit.temperature == pytest.approx(two.temperature, abs=1e-5)
    assert fit.exponent == pytest.approx(two.exponent, abs=1e-5)


def test_class_without_rows_is_held_by_the_penalty_and_ignored_rows_count_for_nothing():
    log_posterior, levels, target, priors = shifted_rows()
    without = target.masked_fill(target == 2, -100)
    fit = fit_class_shifts(log_posterior + levels, without, priors=priors)
    kept = without != -100
    again = fit_class_shifts((log_posterior + levels)[kept], without[kept], priors=priors)
    assert torch.equal(fit.shifts, again.shifts) and fit[:2] == again[:2]
    # at the minimum a shift is what the rows of the class are more than expected; no row speaks for class 2
    mapped = (log_posterior + levels)[kept] / fit.temperature + fit.exponent * priors.log() + fit.shifts
    expected = mapped.softmax(1).sum(0)
    torch.testing.assert_close(fit.shifts, target[kept].bincount(minlength=4) - expected, atol=1e-5, rtol=0)
    assert float(fit.shifts[2]) < -0.3


def test_masked_scores_and_rows_without_a_mistake_give_finite_numbers():
    log_posterior, _, target, priors = shifted_rows(n=50)
    masked = log_posterior.masked_fill(torch.arange(4) == (target[:, None] + 1) % 4, -torch.inf)
    fit = fit_class_shifts(masked, target, priors=priors)
    assert fit.shifts.isfinite().all() and 0 < fit.temperature < 10
    sure = fit_class_shifts(log_posterior, log_posterior.argmax(1), priors=priors)
    assert sure.smoothed and sure.shifts.isfinite().all() and 0 < sure.temperature < 10


def test_bad_arguments_are_named():
    log_posterior, _, target, priors = shifted_rows(n=50)
    with pytest.raises(ValueError, match="spread must be > 0, got 0"):
        fit_class_shifts(log_posterior, target, priors=priors, spread=0.0)
    with pytest.raises(ValueError, match="better than chance"):
        fit_class_shifts(-log_posterior, target, priors=priors)
    with pytest.raises(
        ValueError, match=r"shifts must be one number or one per class \(4\), got shape \(3,\)"
    ):
        ScoreMap(4, contains=None).identified(
            PriorRecord.given(priors), temperature=1.0, exponent=0.0, shifts=torch.zeros(3)
        )
