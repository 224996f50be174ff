import importlib.util
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from scipy import integrate, stats

PATH = Path(__file__).parents[1] / "examples" / "two_gaussians.py"
TRIALS = 5
FREQUENCY = 0.05
CONSISTENT = (
    "post-hoc adjustment, tau = 1",
    "post-hoc, tau of least held-out error",
    "post-hoc, likeliest tau and temperature",
    "logit-adjusted loss",
)
INCONSISTENT = (
    "cross-entropy",
    "weight normalisation, tau = 1",
    "adaptive margin (LDAM)",
    "equalised margin",
)
CLOSE = 0.003  # what counts as reaching the Bayes error


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("two_gaussians", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def numbers(example):
    return example.compute(trials=TRIALS, frequencies=(FREQUENCY,))


def test_every_method_is_there(numbers):
    assert set(numbers.test) == set(numbers.exact) == {*CONSISTENT, *INCONSISTENT, "Bayes rule"}
    assert set(numbers.separators) == set(numbers.test)


def test_bayes_error_is_the_integral_of_the_smaller_density(example):
    along = stats.norm(-math.sqrt(2)), stats.norm(math.sqrt(2))  # across it, the classes are the same
    smaller, _ = integrate.quad(lambda t: min(along[0].pdf(t), along[1].pdf(t)), -12, 12, points=[0])
    assert example.BAYES == pytest.approx(smaller / 2, abs=1e-9)
    assert example.BAYES == pytest.approx(0.0786, abs=5e-5)


def test_exact_error_is_that_of_many_draws(example):
    line = torch.tensor([1.5, 0.5, -1.0], dtype=torch.float64)
    n = 200_000
    noise = torch.randn(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    missed = ((noise + 1) @ line[:2] + line[2] <= 0).double().mean()
    alarms = ((noise - 1) @ line[:2] + line[2] > 0).double().mean()
    expected = float(example.exact_error(line))
    assert float(missed + alarms) / 2 == pytest.approx(expected, abs=5 * 0.5 / math.sqrt(n))


def test_training_converges(example):
    points, target = example.draw_rows(FREQUENCY, torch.Generator().manual_seed(0))
    model = example.train(points, target, torch.zeros(2, 2, dtype=torch.float64)).requires_grad_(True)
    torch.nn.functional.cross_entropy(model(points), target).backward()
    assert max(float(p.grad.abs().max()) for p in model.parameters()) < 1e-7
    torch.testing.assert_close(model.weight[0], -model.weight[1])


def test_loss_and_post_hoc_adjustment_find_the_same_separator(numbers):
    a, b = (numbers.separators[name] for name in ("post-hoc adjustment, tau = 1", "logit-adjusted loss"))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CONSISTENT)
def test_consistent_methods_reach_the_bayes_error(example, numbers, name):
    exact = numbers.exact[name][0]
    assert (exact >= example.BAYES).all()
    assert exact.mean() - example.BAYES < CLOSE
    # On test rows, beside the Bayes rule on the same rows. An excess of CLOSE is a shift of the separator by
    # t = sqrt(2 CLOSE / (sqrt(2) phi)), phi the density sqrt(2) away from a mean; the two then disagree on a
    # share of phi t of each class, which is the variance of a row's difference. The other class has 19 times
    # as many rows.
    phi = stats.norm.pdf(math.sqrt(2))
    disagree = phi * math.sqrt(2 * CLOSE / (math.sqrt(2) * phi))
    rare = FREQUENCY * example.ROWS * TRIALS
    sampling = 0.5 * math.sqrt(disagree / rare + disagree / (19 * rare))
    paired = (numbers.test[name] - numbers.test["Bayes rule"]).mean()
    assert abs(paired) < CLOSE + 4 * sampling


@pytest.mark.parametrize("name", INCONSISTENT)
def test_inconsistent_methods_do_not(example, numbers, name):
    assert (numbers.exact[name][0] - example.BAYES > CLOSE).all()


def test_test_error_is_within_sampling_error_of_the_exact_one(example, numbers):
    for name, errors in numbers.test.items():
        rare = FREQUENCY * example.ROWS * TRIALS  # the other class adds little: 19 times as many rows
        sampling = 0.5 * math.sqrt(0.25 / rare + 0.25 / (19 * rare))
        assert abs(errors.mean() - numbers.exact[name].mean()) < 4 * sampling, name


@pytest.mark.slow
def test_script_prints_and_draws(tmp_path):
    path = tmp_path / "figure.svg"
    command = [sys.executable, str(PATH), "--trials", "2", "--figure", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line for line in run.stdout.splitlines() if "±" in line]
    assert len(lines) == 2 * 9 and all(line.count("±") == 5 for line in lines)
    assert path.read_text().startswith("<?xml")


def test_one_trial_has_no_interval():
    run = subprocess.run([sys.executable, str(PATH), "--trials", "1"], capture_output=True, text=True)
    assert run.returncode == 2 and "--trials must be >= 2, got 1" in run.stderr
