"""Sets from true probabilities reach the best possible metrics."""

import math

import pytest
import torch

from shortlist.predictors import AverageK, Conformal, PointwiseError, TopK


def problem(rows, seed, classes=30, dim=6):
    """Gaussian classes with Zipf priors: features, labels, exact log posterior, priors."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(classes, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1.2
    priors = 1 / torch.arange(1, classes + 1, dtype=torch.float64) ** 1.3
    priors /= priors.sum()
    target = torch.multinomial(priors, rows, replacement=True, generator=generator)
    x = centers[target] + torch.randn(rows, dim, generator=generator, dtype=torch.float64)
    logits = priors.log() - torch.cdist(x, centers).square() / 2
    return logits.log_softmax(1), target, priors


def micro_and_macro(sets, target, classes=30):
    hits = sets.gather(1, target[:, None]).squeeze(1).double()
    counts = target.bincount(minlength=classes)
    per_class = torch.zeros(classes, dtype=torch.float64).index_add_(0, target, hits) / counts
    return float(hits.mean()), float(per_class[counts > 0].mean())


def test_the_bayes_limit_is_reached_and_macro_beats_micro_on_macro():
    calibration, _, priors = problem(40_000, 1)
    logits, target, _ = problem(40_000, 2)
    posterior = logits.exp()
    # expected accuracies of the best rules: the posterior mass that they take, by sorts
    best_top2 = float(posterior.topk(2).values.sum(1).mean())
    ranked = posterior.flatten().sort(descending=True).values
    best_average2 = float(ranked[: 2 * 40_000].sum() / 40_000)
    band = 4 * math.sqrt(0.25 / 40_000)

    top = TopK(2)
    average = AverageK(2).calibrate(calibration)
    assert micro_and_macro(top(logits), target)[0] == pytest.approx(best_top2, abs=band)
    assert micro_and_macro(average(logits), target)[0] == pytest.approx(best_average2, abs=band)
    assert best_average2 > best_top2 + 0.03

    for micro_rule, macro_rule in (
        (top, TopK(2, priors=priors)),
        (average, AverageK(2, priors=priors).calibrate(calibration)),
    ):
        micro, macro = (micro_and_macro(rule(logits), target) for rule in (micro_rule, macro_rule))
        assert macro[1] > micro[1] + 0.03
        assert macro[0] < micro[0] - 0.03


def test_average_size_on_fresh_rows_is_within_its_band():
    calibration, _, _ = problem(5000, 3)
    fresh, _, _ = problem(20_000, 4)
    for rule in ("midpoint", "strict"):
        predictor = AverageK(2.5, rule=rule).calibrate(calibration)
        sizes = predictor(fresh).sum(1).double()
        sampling = float(sizes.std()) * math.sqrt(1 / 20_000 + 1 / 5000)
        assert float(sizes.mean()) == pytest.approx(2.5, abs=4 * sampling)
        assert predictor.report.average_size <= 2.5


def test_pointwise_error_with_true_probabilities_keeps_its_error():
    logits, target, _ = problem(20_000, 5)
    for coverage in (0.7, 0.95):
        sets = PointwiseError(coverage=coverage)(logits)
        assert micro_and_macro(sets, target)[0] >= coverage - 4 * math.sqrt(
            coverage * (1 - coverage) / 20_000
        )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
@pytest.mark.parametrize("score", ["lac", "aps", "raps", "saps"])
@pytest.mark.parametrize("randomized", [False, True])
def test_conformal_coverage_is_within_its_finite_sample_band(score, randomized):
    """Mean coverage over many calibration sets lies in [1 - a, 1 - a + 1/(n + 1)], whatever the model."""
    if randomized and score == "lac":
        pytest.skip("nothing to randomize")
    n, repeats, fresh = 50, 1000, 100
    logits, target, _ = problem(repeats * (n + fresh), 6)
    logits = (0.6 * logits + 0.3 * torch.randn(logits.shape, dtype=torch.float64)).float()  # a poor model
    generator = torch.Generator().manual_seed(0)
    coverages = []
    for rows, classes in zip(logits.split(n + fresh), target.split(n + fresh), strict=True):
        predictor = Conformal(coverage=0.8, score=score, randomized=randomized, generator=generator)
        predictor.calibrate(rows[:n], classes[:n])
        coverages.append(float(predictor(rows[n:]).gather(1, classes[n:, None]).double().mean()))
    mean = sum(coverages) / repeats
    spread = torch.tensor(coverages).std().item() / math.sqrt(repeats)
    assert 0.8 - 4 * spread <= mean <= 0.8 + 1 / (n + 1) + 4 * spread


@pytest.mark.slow
def test_class_conditional_and_prevalence_adjusted_sets_raise_macro_coverage():
    logits, target, priors = problem(60_000, 7)
    calibration, fresh = slice(0, 30_000), slice(30_000, None)
    results = {}
    for name, options in {
        "marginal": {},
        "by class": {"rule": "class_conditional"},
        "prevalence": {"score": "prevalence_adjusted", "priors": priors, "rule": "marginal"},
        "macro": {"priors": priors},
        "clustered": {"rule": "clustered"},
        "between": {"rule": "interpolated"},
    }.items():
        predictor = Conformal(coverage=0.9, **options).calibrate(logits[calibration], target[calibration])
        results[name] = micro_and_macro(predictor(logits[fresh]), target[fresh])
    assert results["marginal"][0] == pytest.approx(0.9, abs=0.01)
    assert results["prevalence"][0] == pytest.approx(0.9, abs=0.01)
    assert results["by class"][1] == pytest.approx(0.9, abs=0.015)
    assert results["macro"][1] == pytest.approx(0.9, abs=0.015)
    for name in ("by class", "prevalence", "clustered", "between"):
        assert results[name][1] > results["marginal"][1] + 0.02
