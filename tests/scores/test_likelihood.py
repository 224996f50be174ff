import math

import numpy
import pytest
import torch
from hypothesis import given, strategies as st
from scipy import optimize
from scipy.special import log_softmax

from shortlist.scores import (
    PriorRecord,
    ScoreMap,
    TemperaturePriorFit,
    TemperatureTauFit,
    fit_class_shifts,
    fit_temperature,
    fit_temperature_and_prior,
    fit_temperature_and_tau,
    priors_nearly_equal,
)
from tests.scores.rows import HALF, JOINT, all_rows, calibrated_rows, negative_log_likelihood, random_priors

NELDER_MEAD = {"method": "Nelder-Mead", "options": {"xatol": 1e-10, "fatol": 1e-15, "maxiter": 5000}}


# fit_temperature


@pytest.mark.parametrize("temperature", [1e-2, 0.3, 1.0, 7.0, 1e2])
@pytest.mark.parametrize("weighted", [False, True])
def test_temperature_is_scipys(temperature, weighted):
    logits, target = calibrated_rows()
    weight = torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0, 3.0], dtype=torch.float64) if weighted else None
    row_weight = numpy.ones(len(target)) if weight is None else weight[target].numpy()

    def loss(log_temperature):
        scaled = temperature * logits.numpy() / math.exp(log_temperature)
        return negative_log_likelihood(scaled, target.numpy(), row_weight, 0.0)

    best = optimize.minimize_scalar(
        loss,
        bounds=(math.log(temperature) - 3, math.log(temperature) + 3),
        method="bounded",
        options={"xatol": 1e-9},
    )
    fitted = fit_temperature(temperature * logits, target, weight=weight)
    assert math.log(fitted) == pytest.approx(best.x, abs=1e-6)
    assert loss(math.log(fitted)) <= best.fun + 1e-15
    assert fitted == fit_temperature(temperature * logits, target, weight=weight)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weighted", [False, True])
def test_temperature_with_an_offset_is_scipys(seed, weighted):
    offset = random_priors(6, seed).log()
    logits, target = calibrated_rows(n=600, seed=seed, shift=offset)
    scores = 3 * (logits - offset)  # what is left out comes after the division
    weight = torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0, 3.0], dtype=torch.float64) if weighted else None
    row_weight = numpy.ones(len(target)) if weight is None else weight[target].numpy()

    def loss(log_temperature):
        scaled = scores.numpy() / math.exp(log_temperature)
        return negative_log_likelihood(scaled, target.numpy(), row_weight, offset.numpy())

    best = optimize.minimize_scalar(loss, bounds=(-3, 4), method="bounded", options={"xatol": 1e-9})
    fitted = fit_temperature(scores, target, weight=weight, offset=offset)
    assert math.log(fitted) == pytest.approx(best.x, abs=1e-6)
    assert loss(math.log(fitted)) <= best.fun + 1e-15
    assert abs(fitted - fit_temperature(scores, target, weight=weight)) > 0.1  # it does make a difference


def test_offset_of_equal_numbers_is_none_and_the_right_one_gives_the_temperature():
    logits, target, priors = all_rows()
    plain = fit_temperature(logits, target)
    for offset in (torch.zeros(3), torch.full((3,), -7.5)):
        assert fit_temperature(logits, target, offset=offset) == pytest.approx(plain, rel=1e-12)
    without = 5 * (logits - priors.log())
    assert fit_temperature(without, target, offset=priors.log()) == pytest.approx(5.0, abs=1e-6)


@pytest.mark.slow
@given(factor=st.floats(1e-6, 1e6), shift=st.floats(-1e3, 1e3))
def test_temperature_scales_with_the_scores_and_ignores_shifts(factor, shift):
    logits, target = calibrated_rows(n=200, c=3)
    plain = fit_temperature(logits, target)
    assert fit_temperature(factor * logits, target) == pytest.approx(factor * plain, rel=1e-9)
    assert fit_temperature(logits + shift, target) == pytest.approx(plain, rel=1e-9)


@given(c=st.integers(2, 5), n=st.integers(2, 12), seed=st.integers(0, 999))
def test_temperature_of_few_rows_has_no_gradient_or_is_refused(c, n, seed):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, c, dtype=torch.float64, generator=generator)
    target = torch.randint(c, (n,), generator=generator)
    true = logits.gather(1, target[:, None])
    exists = (logits > true).any() and (logits.mean(1, keepdim=True) - true).sum() < 0
    if not exists:
        with pytest.raises(ValueError, match="temperature"):
            fit_temperature(logits, target)
        return
    temperature = fit_temperature(logits, target)
    probs = (logits / temperature).softmax(1)
    gradient = ((probs * logits).sum(1) - true.squeeze(1)).mean()
    assert abs(float(gradient)) < 1e-9


def test_temperature_of_huge_finite_masks_is_that_of_masked_classes():
    logits, target = calibrated_rows(c=6)
    hidden = (torch.rand(logits.shape) < 0.3) & (torch.arange(6) != target[:, None])
    masked = fit_temperature(logits.masked_fill(hidden, -torch.inf), target)
    assert fit_temperature(logits.masked_fill(hidden, -1e9), target) == pytest.approx(masked, rel=1e-9)
    # a class that is masked everywhere might as well not be there
    fewer = logits[target != 5]
    without = fit_temperature(fewer[:, :5], target[target != 5])
    fewer = fewer.clone()
    fewer[:, 5] = -torch.inf
    assert fit_temperature(fewer, target[target != 5]) == pytest.approx(without, rel=1e-12)


def test_ignored_rows_count_for_nothing_even_if_nan():
    logits, target = calibrated_rows(n=300)
    priors = random_priors(6)
    more = torch.cat([logits, torch.full((2, 6), math.nan, dtype=torch.float64)])
    more_target = torch.cat([target, torch.tensor([-100, -100])])
    assert fit_temperature(more, more_target) == fit_temperature(logits, target)
    joint = fit_temperature_and_tau(more, more_target, source_priors=priors)
    assert joint == fit_temperature_and_tau(logits, target, source_priors=priors)
    exponent = fit_temperature_and_prior(more, more_target, priors=priors)
    assert exponent == fit_temperature_and_prior(logits, target, priors=priors)


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
def test_fits_take_any_precision(dtype):
    logits, target = calibrated_rows(n=400)
    logits = logits.to(dtype)
    priors = random_priors(6)
    assert fit_temperature(logits, target) == fit_temperature(logits.double(), target)
    for fit in (
        lambda scores: fit_temperature_and_tau(scores, target, source_priors=priors),
        lambda scores: fit_temperature_and_prior(scores, target, priors=priors.to(dtype)),
    ):
        low, high = fit(logits), fit(logits.double())
        assert low[:2] == high[:2]
        assert all(isinstance(value, float) for value in low[:2])


def test_blocks_of_rows_add_up(monkeypatch):
    logits, target = calibrated_rows(n=101)
    priors = random_priors(6)
    fits = (
        lambda: fit_temperature_and_tau(logits, target, source_priors=priors),
        lambda: fit_temperature_and_prior(logits, target, priors=priors)[:2],
        lambda: fit_temperature_and_prior(logits, logits.argmax(1), priors=priors)[:2],  # smoothed
        lambda: fit_temperature(logits, target, offset=priors.log()),
    )
    whole = [fit() for fit in fits]
    monkeypatch.setattr("shortlist.scores.held_out_rows._BLOCK", 60)  # ten rows
    for fit, want in zip(fits, whole, strict=True):
        assert fit() == pytest.approx(want, rel=1e-10)


# fit_temperature_and_tau


@pytest.mark.parametrize("with_target", [False, True])
@pytest.mark.parametrize("temperature", [1e-2, 1.0, 1e2])
def test_temperature_and_tau_are_scipys(with_target, temperature):
    priors = random_priors(6, 1)
    logits, target = calibrated_rows(shift=0.8 * priors.log())
    wanted = random_priors(6, 2) if with_target else torch.full((6,), 1 / 6, dtype=torch.float64)
    counts = [int((target == c).sum()) for c in range(6)]
    row_weight = numpy.array([float(wanted[c]) / counts[c] for c in target.tolist()])
    log_ratio = numpy.array([math.log(wanted[c] / priors[c]) for c in range(6)])

    def loss(x):
        return negative_log_likelihood(logits.numpy() * x[0], target.numpy(), row_weight, x[1] * log_ratio)

    best = optimize.minimize(loss, [0.5, 0.5], **NELDER_MEAD)
    target_priors = wanted if with_target else None
    fit = fit_temperature_and_tau(
        temperature * logits, target, source_priors=priors, target_priors=target_priors
    )
    assert isinstance(fit, TemperatureTauFit)
    assert temperature / fit.temperature == pytest.approx(best.x[0], rel=1e-6)
    assert fit.tau == pytest.approx(best.x[1], rel=1e-6)
    assert loss([temperature / fit.temperature, fit.tau]) <= best.fun + 1e-14


def test_true_posterior_needs_no_temperature_and_tau_1():
    """All rows of a discrete distribution, as often as they occur: no sampling error."""
    logits, target, priors = all_rows()
    for target_priors in (None, torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)):
        fit = fit_temperature_and_tau(5 * logits, target, source_priors=priors, target_priors=target_priors)
        assert fit == pytest.approx((5.0, 1.0), abs=1e-6)
    assert fit_temperature(5 * logits, target) == pytest.approx(5.0, abs=1e-6)


def test_absent_classes_have_no_say():
    priors = random_priors(6)
    logits, target = calibrated_rows()
    keep = target != 2
    logits, target = logits[keep], target[keep]
    fit = fit_temperature_and_tau(logits, target, source_priors=priors)
    left = [0, 1, 3, 4, 5]
    fewer = priors[left] / priors[left].sum()
    want = fit_temperature_and_tau(logits[:, left], target - (target > 2).long(), source_priors=fewer)
    assert tuple(fit) == pytest.approx(tuple(want), rel=1e-9)
    changed = logits.clone()
    changed[:, 2] += 50  # a class without rows, whatever its scores
    assert fit_temperature_and_tau(changed, target, source_priors=priors) == fit


def test_few_held_out_rows_of_many_classes_give_tau_1_on_average():
    """Scores of the true posterior, 300 rows of 100 classes, most of which have none."""
    taus = []
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        priors = 1 / torch.arange(1, 101, dtype=torch.float64) ** 1.5
        priors = priors / priors.sum()
        centers = 0.9 * torch.randn(100, 16, generator=generator, dtype=torch.float64)
        target = priors.multinomial(300, replacement=True, generator=generator)
        features = centers[target] + torch.randn(300, 16, generator=generator, dtype=torch.float64)
        logits = priors.log() - 0.5 * torch.cdist(features, centers) ** 2
        assert len(target.unique()) < 50
        taus.append(fit_temperature_and_tau(logits, target, source_priors=priors).tau)
    assert sum(taus) / 6 == pytest.approx(1, abs=0.2)  # 0.65 if absent classes competed


@pytest.mark.errors
def test_one_class_alone_is_refused():
    logits = torch.randn(9, 3)
    with pytest.raises(ValueError, match="target must have rows of at least 2 classes, got class 1 alone"):
        fit_temperature_and_tau(
            logits, torch.ones(9, dtype=torch.int64), source_priors=torch.tensor([0.7, 0.2, 0.1])
        )


# fit_temperature_and_prior


def smoothed_likelihood(logits, target, offset, share):
    """Mean over rows; a share of each counts for all classes that are not masked alike."""
    rows = []
    for scores, true in zip(logits, target, strict=True):
        open_classes = numpy.isfinite(scores)
        log_probs = log_softmax((scores + offset)[open_classes])
        true = int(open_classes[:true].sum())
        rows.append((1 - share) * log_probs[true] + share * log_probs.mean())
    return -sum(rows) / len(rows)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("temperature", [1e-2, 1.0, 1e2])
def test_temperature_and_prior_are_scipys(seed, temperature):
    """Of scores of any kind: here, a noisy power of the posterior, without a random power of the priors."""
    generator = torch.Generator().manual_seed(seed)
    priors = random_priors(5, seed)
    logits, target = calibrated_rows(n=400, c=5, seed=seed, shift=priors.log())
    noise = torch.randn(logits.shape, dtype=torch.float64, generator=generator)
    exponent = float(2 * torch.rand((), generator=generator) - 0.5)
    scores = 0.6 * logits - exponent * priors.log() + 0.3 * noise

    def loss(x):
        return negative_log_likelihood(
            x[0] * scores.numpy(), target.numpy(), numpy.ones(400), x[1] * priors.log().numpy()
        )

    best = optimize.minimize(loss, [0.5, 0.5], **NELDER_MEAD)
    fit = fit_temperature_and_prior(temperature * scores, target, priors=priors)
    assert isinstance(fit, TemperaturePriorFit) and not fit.smoothed
    assert temperature / fit.temperature == pytest.approx(best.x[0], rel=1e-6)
    assert fit.exponent == pytest.approx(best.x[1], abs=1e-6)
    assert loss([temperature / fit.temperature, fit.exponent]) <= best.fun + 1e-14
    # with the exponent given, the temperature alone is the same
    offset = fit.exponent * priors.log()
    alone = fit_temperature(temperature * scores, target, offset=offset)
    assert alone == pytest.approx(fit.temperature, rel=1e-6)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_posterior_without_a_power_of_the_priors_is_found(factor, exponent):
    """Log-posteriors have T = 1 and t = 0, those without the priors t = 1; the map then has them back."""
    log_posterior, target, priors = all_rows()
    scores = factor * (log_posterior - exponent * priors.log())
    fit = fit_temperature_and_prior(scores, target, priors=priors)
    assert fit.temperature == pytest.approx(factor, rel=1e-6)
    assert fit.exponent == pytest.approx(exponent, abs=1e-6)
    assert not fit.smoothed
    training = PriorRecord.training(JOINT.sum(0))
    score_map = ScoreMap(3, contains=None).identified(
        training, temperature=fit.temperature, exponent=fit.exponent
    )
    torch.testing.assert_close(
        score_map.log_posterior(scores, priors=training), log_posterior, rtol=0, atol=1e-5
    )
    balanced = log_posterior.exp() / priors
    torch.testing.assert_close(
        score_map.under("balanced")(scores).softmax(1), balanced / balanced.sum(1, keepdim=True)
    )


@pytest.mark.parametrize("seed", range(3))
def test_drawn_rows_of_the_posterior_have_temperature_near_1_and_exponent_near_0_or_1(seed):
    """3,000 rows; three standard errors of either number are about 0.1 and 0.15."""
    priors = random_priors(6, seed + 10)
    logits, target = calibrated_rows(n=3000, seed=seed, shift=priors.log())
    frequencies = target.bincount(minlength=6) / len(target)
    for scores, exponent in ((logits, 0.0), (logits - frequencies.log(), 1.0)):
        fit = fit_temperature_and_prior(scores, target, priors=frequencies)
        assert fit.temperature == pytest.approx(1, abs=0.1)
        assert fit.exponent == pytest.approx(exponent, abs=0.15)


def test_equal_priors_have_no_exponent():
    logits, target = calibrated_rows(n=300)
    fit = fit_temperature_and_prior(3 * logits, target, priors=torch.full((6,), 1 / 6))
    assert fit == TemperaturePriorFit(fit_temperature(3 * logits, target), 0.0, smoothed=False)


@pytest.mark.parametrize("seed", range(3))
def test_nearly_equal_priors_have_no_exponent_either(seed):
    logits, target = calibrated_rows(n=300, seed=seed)
    counts = torch.tensor([27, 28, 28, 27, 28, 27])
    fit = fit_temperature_and_prior(3 * logits, target, priors=counts / counts.sum())
    assert fit == TemperaturePriorFit(fit_temperature(3 * logits, target), 0.0, smoothed=False)
    assert fit_class_shifts(3 * logits, target, priors=counts / counts.sum()).exponent == 0.0
    assert not priors_nearly_equal(torch.tensor([0.55, 0.45])) and priors_nearly_equal(torch.ones(3) / 3)


@pytest.mark.parametrize("kind", ["priors", "equal priors", "masked"])
@pytest.mark.parametrize("n", [7, 60])
def test_rows_without_a_mistake_give_scipys_smoothed_fit(n, kind):
    logits, _ = calibrated_rows(n=n, c=4)
    target = logits.argmax(1)
    if kind == "masked":
        hidden = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)) < 0.3
        hidden &= torch.arange(4) != target[:, None]
        hidden[0] = torch.arange(4) != target[0]  # nothing left but the true class
        logits = logits.masked_fill(hidden, -torch.inf)
    priors = torch.full((4,), 0.25, dtype=torch.float64) if kind == "equal priors" else random_priors(4, 3)
    with pytest.raises(ValueError, match="rows without a mistake"):
        fit_temperature(logits, target)

    def loss(x):
        offset = (x[1] if len(x) > 1 else 0.0) * priors.log().numpy()
        return smoothed_likelihood(x[0] * logits.numpy(), target.numpy(), offset, 1 / (n + 2))

    start = [0.5] if kind == "equal priors" else [0.5, 0.0]
    best = optimize.minimize(loss, start, **NELDER_MEAD)
    fit = fit_temperature_and_prior(logits, target, priors=priors)
    assert fit.smoothed and 0 < fit.temperature < math.inf
    assert 1 / fit.temperature == pytest.approx(best.x[0], rel=1e-5)
    assert fit.exponent == pytest.approx(best.x[1] if len(best.x) > 1 else 0.0, abs=1e-5)
    assert loss([1 / fit.temperature, fit.exponent][: len(start)]) <= best.fun + 1e-13


def test_smoothed_fit_believes_more_the_more_rows_there_are():
    """Rows that all say the same, of which 1 / (n + 2) counts for both classes: an answer in closed form."""
    for n in (3, 40, 4000):
        logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).repeat(n, 1)
        target = torch.tensor([0, 1]).repeat(n)
        fit = fit_temperature_and_prior(logits, target, priors=torch.tensor([0.5, 0.5]))
        wrong = 0.5 / (2 * n + 2)  # the share that is counted for the other class
        assert fit.smoothed
        assert fit.temperature == pytest.approx(2 / math.log((1 - wrong) / wrong), rel=1e-7)


@pytest.mark.errors
@pytest.mark.parametrize("equal", [False, True])
def test_scores_worse_than_chance_are_refused(equal):
    priors = torch.full((6,), 1 / 6) if equal else random_priors(6)
    logits, target = calibrated_rows(n=300)
    for scores, true in ((-logits, target), (-logits, logits.argmax(1))):
        with pytest.raises(
            ValueError, match=r"logits must rank the target better than chance .* got 1 / temperature = -"
        ):
            fit_temperature_and_prior(scores, true, priors=priors)
    with pytest.raises(ValueError, match="logits must differ"):
        fit_temperature_and_prior(torch.zeros(30, 6), target[:30], priors=priors)


# errors

LOGITS, TARGET = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1, 1])
PRIORS = torch.tensor([0.75, 0.25])
NAN, INF = LOGITS.clone(), LOGITS.clone()
NAN[1, 0], INF[1, 0] = math.nan, math.inf


@pytest.mark.errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_temperature(NAN, TARGET), "logits must be finite, .* got nan"),
        (lambda: fit_temperature(INF, TARGET), "logits must be finite, .* got inf"),
        (lambda: fit_temperature_and_tau(NAN, TARGET, source_priors=PRIORS), "logits must be finite"),
        (lambda: fit_temperature_and_prior(NAN, TARGET, priors=PRIORS), "logits must be finite"),
        (lambda: fit_temperature(LOGITS, TARGET + 1), r"target must be in \[0, 2\) or -100, got 2"),
        (lambda: fit_temperature(LOGITS, TARGET[:2]), r"target must be int64 .* shape \(3,\)"),
        (lambda: fit_temperature(LOGITS, torch.full((3,), -100)), "at least one row .* got 0"),
        (lambda: fit_temperature(LOGITS, TARGET, weight=torch.zeros(2)), "weight must be > 0 for"),
        (
            lambda: fit_temperature(LOGITS, TARGET, offset=torch.zeros(3)),
            r"offset must be one finite number per class \(2\), got shape \(3,\)",
        ),
        (
            lambda: fit_temperature(LOGITS, TARGET, offset=torch.tensor([0.0, -math.inf])),
            "offset must be one finite number per class",
        ),
        (lambda: fit_temperature(LOGITS, LOGITS.argmax(1)), "rows without a mistake"),
        (lambda: fit_temperature(torch.ones(3, 2), TARGET), "equal scores"),
        (lambda: fit_temperature(-LOGITS, LOGITS.argmax(1)), "better than chance"),
        (lambda: fit_temperature(LOGITS.where(LOGITS != 2, -torch.inf), TARGET), "target class, got -inf"),
        (
            lambda: fit_temperature_and_prior(LOGITS.where(LOGITS != 2, -torch.inf), TARGET, priors=PRIORS),
            "target class, got -inf",
        ),
        (
            lambda: fit_temperature_and_tau(LOGITS, LOGITS.argmax(1), source_priors=PRIORS),
            "rows without a mistake",
        ),
        (
            lambda: fit_temperature_and_tau(LOGITS, TARGET, source_priors=torch.ones(2) / 2),
            "source_priors must differ from uniform",
        ),
        (
            lambda: fit_temperature_and_tau(LOGITS, TARGET, source_priors=PRIORS, target_priors=PRIORS),
            "source_priors must differ from target_priors",
        ),
        (
            lambda: fit_temperature_and_tau(
                LOGITS, TARGET, source_priors=PRIORS, target_priors=torch.tensor([0.0, 1.0])
            ),
            "target_priors must be > 0, got 0.0 for class 0",
        ),
        (
            lambda: fit_temperature_and_tau(LOGITS, TARGET, source_priors=torch.ones(4) / 4),
            r"source_priors must have one entry per class \(2\), got 4",
        ),
        (
            lambda: fit_temperature_and_prior(LOGITS, TARGET, priors=torch.ones(4) / 4),
            r"^priors must have one entry per class \(2\), got 4",
        ),
        (
            lambda: fit_temperature_and_prior(LOGITS, TARGET, priors=torch.tensor([1.0, 0.0])),
            "^priors must be > 0, got 0.0 for class 1",
        ),
        (lambda: fit_temperature_and_prior(LOGITS, TARGET, priors=torch.tensor([3.0, 1.0])), "add up to 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
