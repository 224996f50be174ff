import copy
import io
import itertools
import math
import pickle

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import log_softmax
from torch import nn

from shortlist.adjust import (
    LogitAdjustment,
    TauFit,
    TemperatureTauFit,
    adjust_logits,
    fit_tau,
    fit_temperature,
    fit_temperature_and_tau,
    normalise_classifier,
    normalise_weights,
)
from shortlist.heads import CosineHead, TwoHead

HALF = [torch.float16, torch.bfloat16]


def random_priors(c, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(c, dtype=torch.float64, generator=generator).mul(1.5).softmax(0)


def calibrated_rows(n=1500, c=6, *, seed=0, spread=2.0, shift=None):
    """Scores whose softmax is the true posterior of the targets."""
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(n, c, dtype=torch.float64, generator=generator)
    if shift is not None:
        logits = logits + shift
    return logits, torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)


def negative_log_likelihood(logits, target, row_weight, offset):
    rows = log_softmax(logits + offset, axis=1)[numpy.arange(len(target)), target]
    return -(row_weight * rows).sum() / row_weight.sum()


# adjust_logits


@given(c=st.integers(2, 7), seed=st.integers(0, 99), tau=st.floats(-3, 3), with_target=st.booleans())
def test_adjusted_scores_are_the_formula(c, seed, tau, with_target):
    source, target = random_priors(c, seed), random_priors(c, seed + 100) if with_target else None
    logits = torch.randn(3, c, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    adjusted = adjust_logits(logits, source_priors=source, target_priors=target, tau=tau)
    for i, j in itertools.product(range(3), range(c)):
        log_target = 0.0 if target is None else math.log(target[j])
        expected = float(logits[i, j]) + tau * (log_target - math.log(source[j]))
        assert float(adjusted[i, j]) == pytest.approx(expected, abs=1e-12)


def test_tau_0_is_the_identity():
    logits, priors = torch.randn(4, 5), random_priors(5)
    assert torch.equal(adjust_logits(logits, source_priors=priors, tau=0.0), logits)
    assert torch.equal(LogitAdjustment(source_priors=priors, tau=0.0)(logits), logits)


@pytest.mark.parametrize("tau", [1.0, 0.3, 2.5])
def test_there_and_back_returns_the_scores(tau):
    logits, a, b = torch.randn(4, 5, dtype=torch.float64), random_priors(5, 1), random_priors(5, 2)
    there = adjust_logits(logits, source_priors=a, target_priors=b, tau=tau)
    back = adjust_logits(there, source_priors=b, target_priors=a, tau=tau)
    torch.testing.assert_close(back, logits, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_argmax_of_adjusted_posteriors_is_the_bayes_balanced_decision(seed):
    """Five points, three classes: of all 3^5 decisions, none has a smaller balanced error."""
    generator = torch.Generator().manual_seed(seed)
    joint = torch.rand(5, 3, dtype=torch.float64, generator=generator) * torch.tensor([1.0, 0.2, 0.04])
    joint /= joint.sum()
    priors, posterior = joint.sum(0), joint / joint.sum(1, keepdim=True)

    def error(decision):
        return 1 - sum(float(joint[x, j] / priors[j]) for x, j in enumerate(decision)) / 3

    best = min(itertools.product(range(3), repeat=5), key=error)
    adjusted = adjust_logits(posterior.log(), source_priors=priors)
    assert adjusted.argmax(1).tolist() == list(best)
    assert error(posterior.argmax(1).tolist()) > error(best)  # the plain posterior decides worse


def test_adjusted_posterior_is_the_posterior_under_other_priors():
    likelihood = torch.rand(4, 3, dtype=torch.float64)
    a, b = random_priors(3, 1), random_priors(3, 2)
    posteriors = [(likelihood * p) / (likelihood * p).sum(1, keepdim=True) for p in (a, b)]
    adjusted = adjust_logits(posteriors[0].log(), source_priors=a, target_priors=b)
    torch.testing.assert_close(adjusted.softmax(1), posteriors[1])


def test_gradient_and_non_finite_scores_pass_through():
    logits = torch.tensor([[1.0, -torch.inf, math.nan], [0.0, 1.0, 2.0]], requires_grad=True)
    adjusted = adjust_logits(logits, source_priors=torch.tensor([0.5, 0.25, 0.25]))
    assert adjusted[0, 1] == -torch.inf and adjusted[0, 2].isnan()  # and no other entry
    assert adjusted[0, 0].isfinite() and adjusted[1].isfinite().all()
    adjusted.sum().backward()
    assert torch.equal(logits.grad, torch.ones(2, 3))


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision_scores_are_adjusted_in_float32(dtype):
    logits, priors = torch.randn(4, 5).to(dtype), random_priors(5).float()
    expected = adjust_logits(logits.float(), source_priors=priors)
    for adjusted in (
        adjust_logits(logits, source_priors=priors),
        LogitAdjustment(source_priors=priors)(logits),
    ):
        assert adjusted.dtype == torch.float32
        torch.testing.assert_close(adjusted, expected)
    layer = LogitAdjustment(source_priors=priors).to(dtype)  # the whole model in half precision
    torch.testing.assert_close(layer(logits), expected, rtol=0, atol=0.05)


# LogitAdjustment


def test_module_is_the_formula_and_the_function():
    logits, a, b = torch.randn(4, 5), random_priors(5, 1).float(), random_priors(5, 2).float()
    layer = LogitAdjustment(source_priors=a, target_priors=b, tau=1.5, temperature=2.0)
    torch.testing.assert_close(layer(logits), logits / 2 + 1.5 * (b / a).log())
    layer = LogitAdjustment(source_priors=a, tau=0.7)
    torch.testing.assert_close(layer(logits), adjust_logits(logits, source_priors=a, tau=0.7))


def test_module_is_saved_loaded_pickled_and_moved():
    logits = torch.randn(4, 5)
    layer = LogitAdjustment(source_priors=random_priors(5).float(), tau=0.5, temperature=3.0)
    assert set(layer.state_dict()) == {"log_ratio", "tau", "temperature"}
    assert not list(layer.parameters())
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    fresh = LogitAdjustment(source_priors=torch.full((5,), 0.2))
    fresh.load_state_dict(torch.load(file, weights_only=True))
    for twin in (fresh, pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(logits), layer(logits))
    assert layer.to("meta")(logits.to("meta")).shape == (4, 5)  # no value is looked at


@pytest.mark.compiled
def test_module_exports_with_a_model():
    adjustment = LogitAdjustment(source_priors=random_priors(5).float(), temperature=2.0)
    model = nn.Sequential(nn.Linear(3, 5), adjustment).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    exported = torch.export.export(model, (torch.randn(4, 3),), dynamic_shapes=({0: batch},))
    features = torch.randn(7, 3)
    torch.testing.assert_close(exported.module()(features), model(features))


# weight normalisation


@pytest.mark.parametrize("tau", [0.0, 0.5, 1.0, 2.0])
def test_normalised_weights_are_the_formula(tau):
    weight = torch.randn(4, 3, dtype=torch.float64)
    result = normalise_weights(weight, tau=tau)
    for row, expected in zip(result.tolist(), weight.tolist(), strict=True):
        norm = math.sqrt(sum(value * value for value in expected))
        assert row == pytest.approx([value / norm**tau for value in expected])


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
@pytest.mark.parametrize("bias", [True, False])
def test_normalised_classifier_is_a_copy_with_its_bias(dtype, bias):
    layer = nn.Linear(3, 4, bias=bias, dtype=dtype)
    before, state = layer.weight.clone(), torch.get_rng_state()
    result = normalise_classifier(layer, tau=0.5)
    assert torch.equal(torch.get_rng_state(), state)
    assert result is not layer and torch.equal(layer.weight, before)
    assert result.weight.dtype == dtype and result.weight.requires_grad
    assert torch.equal(result.weight, normalise_weights(before, tau=0.5))
    if bias:
        assert torch.equal(result.bias, layer.bias) and result.bias is not layer.bias
    else:
        assert result.bias is None


def test_normalised_classifier_of_a_model_is_found_by_name():
    model = nn.Sequential(nn.Linear(3, 4), TwoHead(4, 5))
    before = copy.deepcopy(model.state_dict())
    result = normalise_classifier(model, name="1.set_head")
    changed = {key for key, value in result.state_dict().items() if not value.equal(before[key])}
    assert changed == {"1.set_head.weight"} and isinstance(result, nn.Sequential)
    torch.testing.assert_close(result[1].set_head.weight.norm(dim=1), torch.ones(5))
    assert all(value.equal(before[key]) for key, value in model.state_dict().items())


@pytest.mark.errors
def test_only_linear_layers_are_normalised():
    for model, name, found in (
        (TwoHead(4, 5), None, "'set_head', 'proposal_head'"),
        (nn.Sequential(nn.Linear(3, 4)), "1", "'0'"),
        (CosineHead(4, 3), None, "none"),
    ):
        with pytest.raises(
            ValueError, match=rf"name must be that of a linear layer, got {name!r}; linear layers: {found}$"
        ):
            normalise_classifier(model, name=name)


def test_half_precision_norms_do_not_overflow():
    weight = torch.full((2, 300), 30000.0, dtype=torch.float16)
    torch.testing.assert_close(
        normalise_weights(weight).float(), torch.full((2, 300), 300**-0.5), rtol=1e-3, atol=0
    )


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
    assert (
        fit_tau(more, more_target, source_priors=priors)[:2]
        == fit_tau(logits, target, source_priors=priors)[:2]
    )
    joint = fit_temperature_and_tau(more, more_target, source_priors=priors)
    assert joint == fit_temperature_and_tau(logits, target, source_priors=priors)


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
def test_fits_take_any_precision(dtype):
    logits, target = calibrated_rows(n=400)
    logits = logits.to(dtype)
    priors = random_priors(6)
    assert fit_temperature(logits, target) == fit_temperature(logits.double(), target)
    for fit in (fit_temperature_and_tau, fit_tau):
        low, high = (fit(scores, target, source_priors=priors) for scores in (logits, logits.double()))
        assert low[:2] == high[:2]
        assert all(isinstance(value, float) for value in low[:2])


def test_blocks_of_rows_add_up(monkeypatch):
    logits, target = calibrated_rows(n=101)
    priors = random_priors(6)
    whole = fit_temperature_and_tau(logits, target, source_priors=priors)
    tau = fit_tau(logits, target, source_priors=priors)
    for module in ("likelihood", "tau"):
        monkeypatch.setattr(f"shortlist.adjust.{module}._BLOCK", 60)  # ten rows
    assert fit_temperature_and_tau(logits, target, source_priors=priors) == pytest.approx(whole, rel=1e-10)
    assert torch.equal(fit_tau(logits, target, source_priors=priors).curve, tau.curve)


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

    options = {"xatol": 1e-10, "fatol": 1e-15, "maxiter": 5000}
    best = optimize.minimize(loss, [0.5, 0.5], method="Nelder-Mead", options=options)
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
    joint = torch.tensor([[40, 4, 1], [10, 8, 3], [6, 2, 2], [4, 6, 4], [20, 5, 5]])
    logits = (joint / joint.sum(1, keepdim=True)).double().log()
    rows = [(x, j) for x, j in itertools.product(range(5), range(3)) for _ in range(int(joint[x, j]))]
    index, target = torch.tensor(rows).T
    priors = joint.sum(0).double() / joint.sum()
    for target_priors in (None, torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)):
        fit = fit_temperature_and_tau(
            5 * logits[index], target, source_priors=priors, target_priors=target_priors
        )
        assert fit == pytest.approx((5.0, 1.0), abs=1e-6)
    assert fit_temperature(5 * logits[index], target) == pytest.approx(5.0, abs=1e-6)


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
    assert fit_tau(logits, target, source_priors=priors).num_absent == 1


def test_few_held_out_rows_of_many_classes_give_tau_1_on_average():
    """Scores of the true posterior, 300 rows of 100 classes, most of which have none."""
    taus = []
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        priors = 1 / torch.arange(1, 101, dtype=torch.float64) ** 1.5
        priors = priors / priors.sum()
        centres = 0.9 * torch.randn(100, 16, generator=generator, dtype=torch.float64)
        target = priors.multinomial(300, replacement=True, generator=generator)
        features = centres[target] + torch.randn(300, 16, generator=generator, dtype=torch.float64)
        logits = priors.log() - 0.5 * torch.cdist(features, centres) ** 2
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


# fit_tau


def balanced_errors(logits, target, priors, grid):
    """Loops; a tie with the true class is an error."""
    errors = []
    for tau in grid.tolist():
        by_class: dict[int, list[bool]] = {}
        for scores, true in zip(logits.tolist(), target.tolist(), strict=True):
            adjusted = [s - tau * math.log(p) for s, p in zip(scores, priors.tolist(), strict=True)]
            wrong = any(adjusted[j] >= adjusted[true] for j in range(len(scores)) if j != true)
            by_class.setdefault(true, []).append(wrong)
        errors.append(sum(sum(wrongs) / len(wrongs) for wrongs in by_class.values()) / len(by_class))
    return errors


@given(c=st.integers(2, 5), n=st.integers(1, 20), seed=st.integers(0, 999), same=st.booleans())
def test_curve_is_the_balanced_error(c, n, seed, same):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, c, dtype=torch.float64, generator=generator)
    target = torch.randint(c, (n,), generator=generator)
    priors = random_priors(c, seed)
    if same:  # two classes as frequent as each other, and ties
        priors[1] = priors[0]
        priors /= priors.sum()
        logits = logits.round()
    grid = torch.tensor([-0.37, 0.0, 0.21, 0.83, 1.0, 1.71, 2.9], dtype=torch.float64)
    fit = fit_tau(logits, target, source_priors=priors, grid=grid, standard_errors=0)
    assert fit.curve.tolist() == pytest.approx(balanced_errors(logits, target, priors, grid), abs=1e-12)
    assert fit.balanced_error == pytest.approx(min(fit.curve.tolist()), abs=1e-12)
    assert fit.num_absent == c - len(set(target.tolist()))
    assert torch.equal(fit.grid, grid)


def test_default_grid():
    logits, target = calibrated_rows(n=50)
    fit = fit_tau(logits, target, source_priors=random_priors(6))
    assert isinstance(fit, TauFit)
    assert fit.grid.tolist() == pytest.approx([0.05 * i for i in range(61)])
    assert len(fit.curve) == 61 and 0.0 <= fit.balanced_error <= 1.0


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([(1.9, 6.1)], 4.0),  # right at 2..6
        ([(1.9, 5.1)], 3.0),  # right at 2..5: the lower middle
        ([(0.9, 2.1), (3.9, 7.1)], 5.0),  # 1..2 and 4..7: the longer run
        ([(0.9, 2.1), (3.9, 5.1)], 1.0),  # as long: the smaller taus
        ([(-1.0, 9.0)], 1.0),  # right everywhere, 0..8: no middle but the grid's
        ([(4.9, 9.0)], 6.0),  # right at 5..8, which does not hold 1
    ],
)
def test_ties_go_to_the_middle_of_the_longest_plateau(offsets, expected):
    """Each pair is one row of a class between a frequent and a rare one, right in between."""
    priors = torch.tensor([1.0, math.exp(-1), math.exp(-2)], dtype=torch.float64)
    logits = torch.tensor([[low, 0.0, -high] for low, high in offsets], dtype=torch.float64)
    fit = fit_tau(
        logits,
        torch.ones(len(offsets), dtype=torch.int64),
        source_priors=priors / priors.sum(),
        grid=torch.arange(9.0, dtype=torch.float64),
        standard_errors=0,
    )
    assert fit.tau == expected


def test_tau_is_the_middle_of_those_within_a_standard_error():
    """Rows of the rare class become right one after another as tau grows, those of the other wrong."""
    priors = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    gap, grid = math.log(2), torch.arange(0.0, 2.01, 0.1, dtype=torch.float64)
    rare = torch.tensor([[gap * (0.05 + 0.1 * i), 0.0, -99.0] for i in range(10)], dtype=torch.float64)
    often = torch.tensor([[0.0, -gap * (1.25 + 0.4 * i), -99.0] for i in range(10)], dtype=torch.float64)
    logits, target = torch.cat([rare, often]), torch.tensor([1] * 10 + [0] * 10)
    fit = fit_tau(logits, target, source_priors=priors, grid=grid)
    # class 1 is all right from tau = 1.0 on, class 0 all right up to 1.2: no error, no standard error
    assert (fit.tau, fit.balanced_error, fit.standard_error) == (pytest.approx(1.1), 0.0, 0.0)
    never = torch.tensor([[0.0, -99.0, 0.0]] * 2, dtype=torch.float64)
    logits, target = torch.cat([logits, never]), torch.cat([target, torch.tensor([1, 1])])
    fit = fit_tau(logits, target, source_priors=priors, grid=grid)
    assert fit.standard_error == pytest.approx(math.sqrt(1 / 6 * 5 / 6 / 12) / 2)  # 0.054
    # as good is what costs one row more, 0.5 / 12 or 0.5 / 10: from 0.9 on, and up to 1.6
    assert fit.tau == pytest.approx(1.2)
    assert fit.balanced_error == pytest.approx(1 / 12)
    least = fit_tau(logits, target, source_priors=priors, grid=grid, standard_errors=0)
    assert least.tau == pytest.approx(1.1)


def test_masked_targets_are_wrong_at_any_tau():
    logits, target = torch.tensor([[-math.inf, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
    for priors in ([0.5, 0.5], [0.6, 0.4], [0.4, 0.6]):
        fit = fit_tau(logits, target, source_priors=torch.tensor(priors))
        assert fit.curve.min() >= 0.5
        assert fit.curve[0] == 0.5
    assert fit_tau(logits[:1], target[:1], source_priors=torch.tensor([0.5, 0.5])).balanced_error == 1


def test_tau_of_scores_without_information_is_1():
    target = torch.arange(30) % 3
    fit = fit_tau(torch.zeros(30, 3), target, source_priors=torch.tensor([0.7, 0.2, 0.1]))
    assert fit.tau == pytest.approx(1.0) and fit.balanced_error == pytest.approx(2 / 3)


def test_tau_of_the_true_posterior_is_near_1():
    priors = torch.tensor([0.9, 0.1], dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    target = (torch.rand(20000, generator=generator) < 0.1).long()
    x = 2 * target - 1 + torch.randn(20000, dtype=torch.float64, generator=generator)
    logits = torch.stack([-x, x], dim=1) + priors.log()
    fit = fit_tau(logits, target, source_priors=priors)
    # A threshold t away from the best costs t^2 phi(1) / 2; errors differ by noise of order
    # sqrt(phi(1) t / (4 * 2000)), so that t is of order 0.07, and tau off by 2 t / log 9.
    assert fit.tau == pytest.approx(1.0, abs=4 * 0.07 * 2 / math.log(9))
    assert fit.balanced_error == pytest.approx(0.1587, abs=4 * 0.5 * math.sqrt(0.1587 * 0.8413 / 2000))


def test_masked_target_is_an_error_at_every_tau():
    logits = torch.tensor([[0.0, -torch.inf, 1.0], [1.0, -torch.inf, -torch.inf], [3.0, 0.0, -torch.inf]])
    fit = fit_tau(logits, torch.tensor([1, 1, 0]), source_priors=torch.tensor([0.25, 0.5, 0.25]))
    assert fit.curve.tolist() == [0.5] * 61


# errors

LOGITS, TARGET = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1, 1])
PRIORS = torch.tensor([0.75, 0.25])
NAN, INF = LOGITS.clone(), LOGITS.clone()
NAN[1, 0], INF[1, 0] = math.nan, math.inf


@pytest.mark.errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: adjust_logits(LOGITS[0], source_priors=PRIORS), r"logits must be .* shape \(n, c\), got"),
        (lambda: adjust_logits(TARGET[:, None], source_priors=PRIORS), "logits must be a floating tensor"),
        (
            lambda: adjust_logits(LOGITS, source_priors=PRIORS, tau=math.nan),
            "tau must be a finite .* got nan",
        ),
        (lambda: adjust_logits(LOGITS, source_priors=torch.tensor([1.0, 0.0])), "> 0, got 0 for class 1"),
        (lambda: adjust_logits(LOGITS, source_priors=torch.tensor([3.0, 1.0])), "add up to 1, got 4"),
        (lambda: adjust_logits(LOGITS, source_priors=torch.tensor([2.0, -1.0])), ">= 0, got -1"),
        (lambda: adjust_logits(LOGITS, source_priors=torch.tensor([1.0, math.nan])), "finite .* got nan"),
        (lambda: adjust_logits(LOGITS, source_priors=torch.ones(4) / 4), r"per class \(2\), got 4"),
        (
            lambda: adjust_logits(LOGITS, source_priors=PRIORS, target_priors=torch.tensor([0.0, 1.0])),
            "target_priors must be > 0, got 0 for class 0",
        ),
        (lambda: adjust_logits(LOGITS, source_priors=[0.5, 0.5]), "source_priors must be a tensor"),  # type: ignore
        (lambda: LogitAdjustment(source_priors=PRIORS, temperature=0.0), "temperature must be > 0, got 0.0"),
        (lambda: LogitAdjustment(source_priors=PRIORS, tau=math.inf), "tau must be a finite number, got inf"),
        (
            lambda: LogitAdjustment(source_priors=PRIORS, target_priors=torch.ones(3) / 3),
            r"target_priors must have one entry per class \(2\), got 3",
        ),
        (
            lambda: LogitAdjustment(source_priors=PRIORS)(torch.zeros(2, 3)),
            "logits must have 2 classes, got 3",
        ),
        (lambda: normalise_weights(torch.zeros(2, 3)), "norm > 0, got 0.0 in row 0"),
        (lambda: normalise_weights(torch.tensor([[1.0], [math.nan]])), "finite norm .* got nan in row 1"),
        (lambda: normalise_weights(torch.ones(3)), r"weight must be .* \(c, d\), got torch.float32 \(3,\)"),
        (lambda: normalise_weights(torch.ones(2, 2), tau=math.nan), "tau must be"),
        (lambda: fit_temperature(NAN, TARGET), "logits must be finite, .* got nan"),
        (lambda: fit_temperature(INF, TARGET), "logits must be finite, .* got inf"),
        (lambda: fit_tau(NAN, TARGET, source_priors=PRIORS), "logits must be finite, .* got nan"),
        (lambda: fit_temperature_and_tau(NAN, TARGET, source_priors=PRIORS), "logits must be finite"),
        (lambda: fit_temperature(LOGITS, TARGET + 1), r"target must be in \[0, 2\) or -100, got 2"),
        (lambda: fit_temperature(LOGITS, TARGET[:2]), r"target must be int64 .* shape \(3,\)"),
        (lambda: fit_temperature(LOGITS, torch.full((3,), -100)), "at least one row .* got 0"),
        (lambda: fit_temperature(LOGITS, TARGET, weight=torch.zeros(2)), "weight must be > 0 for"),
        (lambda: fit_temperature(LOGITS, LOGITS.argmax(1)), "rows without a mistake"),
        (lambda: fit_temperature(torch.ones(3, 2), TARGET), "equal scores"),
        (lambda: fit_temperature(-LOGITS, LOGITS.argmax(1)), "better than chance"),
        (lambda: fit_temperature(LOGITS.where(LOGITS != 2, -torch.inf), TARGET), "target class, got -inf"),
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
        (lambda: fit_tau(LOGITS, TARGET, source_priors=PRIORS, grid=torch.tensor([])), "grid must be"),
        (
            lambda: fit_tau(LOGITS, TARGET, source_priors=PRIORS, standard_errors=-1.0),
            "standard_errors must be .*got -1.0",
        ),
        (lambda: fit_tau(LOGITS, TARGET, source_priors=PRIORS, grid=torch.tensor([1.0, 0.0])), "ascending"),
        (lambda: fit_tau(LOGITS, TARGET, source_priors=torch.tensor([1.0, 0.0])), "> 0, got 0 for class 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
