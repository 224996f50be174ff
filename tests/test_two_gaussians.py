import json
import math
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import numpy
import pytest
import torch
from scipy import integrate, stats
from torch.nn.functional import cross_entropy

from shortlist.datasets.gaussians import TWO_GAUSSIANS_BALANCED_ERROR as BAYES, draw_two_gaussians
from shortlist.losses import (
    LogitAdjustedLoss,
    balanced_ce_loss,
    logit_adjusted_loss,
    two_parameter_margin_loss,
)
from shortlist.papers.figures import load_figure
from shortlist.papers.figures.two_gaussians import exact_error, measure, separator, train
from shortlist.priors import class_balanced_weights
from shortlist.scores import PriorRecord, ScoreMap, map_of_loss

PATH = Path(__file__).parents[1] / "examples" / "two_gaussians.py"
TRIALS = 5
FREQUENCY = 0.05
CONSISTENT = (
    "post-hoc adjustment, tau = 1",
    "post-hoc, tau by held-out error",
    "post-hoc, likeliest tau and temperature",
    "logit-adjusted loss",
)
INCONSISTENT = (
    "cross-entropy",
    "weight normalization, tau = 1",
    "adaptive margin (LDAM)",
    "equalized margin",
)
CLOSE = 0.003  # what counts as reaching the Bayes error


@pytest.fixture(scope="module")
def numbers():
    return measure(trials=TRIALS, frequencies=(FREQUENCY,))


def errors_of(numbers, name: str, kind: str) -> torch.Tensor:
    """Of each trial (t,)."""
    return torch.tensor(numbers["methods"][name][kind][0], dtype=torch.float64)


def test_every_method_is_there(numbers):
    assert set(numbers["methods"]) == {*CONSISTENT, *INCONSISTENT, "Bayes rule"}
    for method in numbers["methods"].values():
        assert [len(errors) for errors in (*method["test"], *method["exact"])] == [TRIALS, TRIALS]
        assert len(method["separator"]) == 3


def test_bayes_error_is_the_integral_of_the_smaller_density():
    along = stats.norm(-math.sqrt(2)), stats.norm(math.sqrt(2))  # across it, the classes are the same
    smaller, _ = integrate.quad(lambda t: min(along[0].pdf(t), along[1].pdf(t)), -12, 12, points=[0])
    assert pytest.approx(smaller / 2, abs=1e-9) == BAYES
    assert pytest.approx(0.0786, abs=5e-5) == BAYES


def test_exact_error_is_that_of_many_draws():
    line = torch.tensor([1.5, 0.5, -1.0], dtype=torch.float64)
    n = 200_000
    noise = torch.randn(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    missed = ((noise + 1) @ line[:2] + line[2] <= 0).double().mean()
    alarms = ((noise - 1) @ line[:2] + line[2] > 0).double().mean()
    expected = float(exact_error(line))
    assert float(missed + alarms) / 2 == pytest.approx(expected, abs=5 * 0.5 / math.sqrt(n))


def test_training_converges():
    generator = torch.Generator().manual_seed(0)
    points, target = draw_two_gaussians(10_000, rare_prior=FREQUENCY, generator=generator)
    model = train(points, target, torch.zeros(2, 2, dtype=torch.float64)).requires_grad_(True)
    torch.nn.functional.cross_entropy(model(points), target).backward()
    assert max(float(p.grad.abs().max()) for p in model.parameters()) < 1e-7
    torch.testing.assert_close(model.weight[0], -model.weight[1])


def test_loss_and_post_hoc_adjustment_find_the_same_separator(numbers):
    names = ("post-hoc adjustment, tau = 1", "logit-adjusted loss")
    a, b = (torch.tensor(numbers["methods"][name]["separator"]) for name in names)
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CONSISTENT)
def test_consistent_methods_reach_the_bayes_error(numbers, name):
    exact = errors_of(numbers, name, "exact")
    assert (exact >= BAYES).all()
    assert exact.mean() - BAYES < CLOSE
    # On test rows, beside the Bayes rule on the same rows. An excess of CLOSE is a shift of the separator by
    # t = sqrt(2 CLOSE / (sqrt(2) phi)), phi the density sqrt(2) away from a mean; the two then disagree on a
    # share of phi t of each class, which is the variance of a row's difference. The other class has 19 times
    # as many rows.
    phi = stats.norm.pdf(math.sqrt(2))
    disagree = phi * math.sqrt(2 * CLOSE / (math.sqrt(2) * phi))
    rare = FREQUENCY * numbers["rows"] * TRIALS
    sampling = 0.5 * math.sqrt(disagree / rare + disagree / (19 * rare))
    paired = (errors_of(numbers, name, "test") - errors_of(numbers, "Bayes rule", "test")).mean()
    assert abs(paired) < CLOSE + 4 * sampling


@pytest.mark.parametrize("name", INCONSISTENT)
def test_inconsistent_methods_do_not(numbers, name):
    assert (errors_of(numbers, name, "exact") - BAYES > CLOSE).all()


def test_weight_normalization_scales_the_bias_and_changes_nothing(numbers):
    """Both weights have the same norm: equation 3 divides both scores by one number."""
    assert errors_of(numbers, "weight normalization, tau = 1", "exact").tolist() == pytest.approx(
        errors_of(numbers, "cross-entropy", "exact").tolist(), abs=1e-6
    )


def test_error_against_tau_is_that_of_the_moved_separator():
    """By the posterior: at tau the separator is that of ``2 w x + b - tau (log pi_1 - log pi_0)``."""
    figure = load_figure("two_gaussians_tau")
    found = figure.measure(trials=3, frequency=0.05, tau_max=2, steps=4)
    assert found["tau"] == [0, 0.5, 1, 1.5, 2]
    curves = []
    for trial in range(3):
        generator = torch.Generator().manual_seed(trial)
        points, target = draw_two_gaussians(10_000, rare_prior=0.05, generator=generator)
        w1, w2, b = separator(train(points, target, torch.zeros(2, 2, dtype=torch.float64))).tolist()
        share = float(target.double().mean())
        norm, log_odds = math.hypot(w1, w2), math.log(share / (1 - share))
        errors = []
        for offset in [b - tau * log_odds for tau in found["tau"]]:
            ends = ((offset - w1 - w2) / norm, (-offset - w1 - w2) / norm)
            errors.append(sum(stats.norm.cdf(end) for end in ends) / 2)
        curves.append(errors)
    means = [fmean(column) for column in zip(*curves, strict=True)]
    curve = found["techniques"]["logit_adjustment"]["value"]
    assert curve == pytest.approx(means, rel=1e-9)
    assert curve[2] - BAYES < CLOSE and min(curve) == curve[2]
    scaled, kept = (found["techniques"][name]["value"] for name in ("weight_normalization", "offset_kept"))
    assert scaled == pytest.approx([scaled[0]] * 5, abs=1e-6) and kept[2] > scaled[2] + 0.05
    assert figure.options()["trials"] == 100
    (axes,) = figure.draw(found).axes
    assert list(axes.get_lines()[0].get_ydata()) == pytest.approx([100 * value for value in curve])


@pytest.mark.slow
def test_all_frequencies():
    """The experiment as published: 20 trials at each of five frequencies."""
    numbers = measure(trials=20)
    frequencies = numbers["frequencies"]
    assert frequencies == [0.01, 0.05, 0.1, 0.2, 0.4]
    for name in CONSISTENT:
        for errors in numbers["methods"][name]["exact"]:
            assert fmean(errors) - BAYES < CLOSE
    for name in ("cross-entropy", "weight normalization, tau = 1"):
        for frequency, errors in zip(frequencies, numbers["methods"][name]["exact"], strict=True):
            assert fmean(errors) - BAYES > CLOSE or frequency == 0.4


def test_at_40_percent_no_amount_of_data_takes_cross_entropy_further_away():
    """Its limit is the posterior's rule, a threshold moved by log(0.4 / 0.6): 0.21 points above."""
    line = torch.tensor([2.0, 2.0, math.log(0.4 / 0.6)], dtype=torch.float64)
    assert float(exact_error(line)) - BAYES == pytest.approx(0.0021, abs=5e-5)


def test_test_error_is_within_sampling_error_of_the_exact_one(numbers):
    for name in numbers["methods"]:
        rare = FREQUENCY * numbers["rows"] * TRIALS  # the other class adds little: 19 times as many rows
        sampling = 0.5 * math.sqrt(0.25 / rare + 0.25 / (19 * rare))
        test, exact = (errors_of(numbers, name, kind).mean() for kind in ("test", "exact"))
        assert abs(test - exact) < 4 * sampling, name


@pytest.mark.slow
def test_script_prints_and_draws(tmp_path):
    path = tmp_path / "figure.svg"
    command = [sys.executable, str(PATH), "--trials", "2", "--figure", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line for line in run.stdout.splitlines() if "±" in line]
    assert len(lines) == 2 * 9 and all(line.count("±") == 5 for line in lines)
    assert path.read_text().startswith("<?xml")
    assert json.loads(path.with_suffix(".json").read_text())["trials"] == 2


def test_one_trial_has_no_interval():
    run = subprocess.run([sys.executable, str(PATH), "--trials", "1"], capture_output=True, text=True)
    assert run.returncode == 2 and "--trials must be >= 2, got 1" in run.stderr


# class weights: of all points there are, by Gauss-Hermite quadrature, so that nothing is left to chance

COUNTS = torch.tensor([9500.0, 500.0], dtype=torch.float64)
PRIORS = COUNTS / COUNTS.sum()
WEIGHTS = {
    "inverse priors": 1 / PRIORS,
    "class-balanced": class_balanced_weights(COUNTS),
    "class-balanced, beta = 0.999": class_balanced_weights(COUNTS, beta=0.999),
}


def quadrature(nodes: int = 40) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Points (n, 2), classes (n,), and what each counts (n,) in an expectation, 5 % rare."""
    values, weights = numpy.polynomial.hermite_e.hermegauss(nodes)
    along, share = torch.from_numpy(values), torch.from_numpy(weights / weights.sum())
    grid = torch.cartesian_prod(along, along)
    shares = torch.outer(share, share).flatten()
    points = torch.cat([grid - 1, grid + 1])
    target = torch.arange(2).repeat_interleave(len(grid))
    return points, target, torch.cat([PRIORS[0] * shares, PRIORS[1] * shares])


def expected_minimizer(loss) -> torch.nn.Linear:
    """The affine classifier of the least expected loss."""
    points, target, chance = quadrature()
    model = torch.nn.Linear(2, 2, dtype=torch.float64)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.LBFGS(
        model.parameters(),
        max_iter=300,
        tolerance_grad=1e-10,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        value = loss(model(points), target, reduction="none") @ chance
        value.backward()
        return value

    optimizer.step(closure)
    assert max(float(p.grad.abs().max()) for p in model.parameters()) < 1e-6
    return model.requires_grad_(False)


def counted(loss, **options):
    return lambda scores, target, reduction: loss(
        scores, target, class_counts=COUNTS, reduction=reduction, **options
    )


COMBINATIONS = {
    "logit-adjusted": (logit_adjusted_loss, {"tau": 1.0}),
    "balanced cross-entropy": (balanced_ce_loss, {}),
    "two parameters (1, 1)": (two_parameter_margin_loss, {"tau_true": 1.0, "tau_others": 1.0}),
}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", COMBINATIONS)
def test_consistent_weights_leave_consistent_losses_consistent(name, weights):
    loss, options = COMBINATIONS[name]
    line = separator(expected_minimizer(counted(loss, **options, weight=WEIGHTS[weights])))
    assert abs(float(exact_error(line)) - BAYES) < CLOSE
    torch.testing.assert_close(line, torch.tensor([2.0, 2.0, 0.0], dtype=torch.float64), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_plain_weights_correct_for_the_priors_twice(name):
    """With weights 1 / pi the scores contain the prior 1 / pi: as far off as cross-entropy, the other way."""
    loss, options = COMBINATIONS[name]
    plain = counted(loss, **options, weight=1 / PRIORS, weighting="plain")
    line = separator(expected_minimizer(plain))
    assert float(exact_error(line)) == pytest.approx(0.181, abs=0.001)
    assert float(line[2]) == pytest.approx(math.log(19), abs=1e-3)  # and cross-entropy has -log 19
    line = separator(expected_minimizer(cross_entropy))
    assert float(exact_error(line)) == pytest.approx(0.181, abs=0.001)
    assert float(line[2]) == pytest.approx(-math.log(19), abs=1e-3)


@pytest.mark.parametrize(
    ("weights", "expected"), [("class-balanced", 0.157), ("class-balanced, beta = 0.999", 0.090)]
)
def test_plain_class_balanced_weights_are_off_by_their_logarithms(weights, expected):
    weight = WEIGHTS[weights]
    plain = counted(logit_adjusted_loss, weight=weight, weighting="plain")
    line = separator(expected_minimizer(plain))
    moved = torch.tensor([2.0, 2.0, math.log(weight[1] / weight[0])], dtype=torch.float64)
    torch.testing.assert_close(line, moved, rtol=0, atol=1e-3)
    assert float(exact_error(line)) - BAYES > 3 * CLOSE
    assert float(exact_error(line)) == pytest.approx(expected, abs=0.001)


def test_score_map_of_a_weighted_loss_finds_the_bayes_rule():
    """Plain weights do no harm to who knows what the scores contain."""
    loss = torch.nn.CrossEntropyLoss(weight=WEIGHTS["class-balanced"], reduction="none")
    model = expected_minimizer(lambda scores, target, reduction: loss(scores, target))
    before = float(exact_error(separator(model)))
    assert before - BAYES > 1e-4
    balanced = map_of_loss(loss, class_counts=COUNTS).under("balanced")
    model.bias.copy_(balanced(model.bias[None])[0])
    assert float(exact_error(separator(model))) == pytest.approx(BAYES, abs=1e-6)


def test_prior_divided_out_of_logit_adjusted_scores_once_more_is_refused():
    score_map = map_of_loss(LogitAdjustedLoss(class_counts=COUNTS), class_counts=COUNTS)
    divide = ScoreMap(2, contains=PriorRecord.training(COUNTS)).under("balanced")
    with pytest.raises(ValueError, match="no prior is applied twice"):
        score_map.then(divide)
    balanced = score_map.under("balanced")
    scores = torch.tensor([[0.3, -0.2]])
    assert torch.equal(balanced(scores), scores)
