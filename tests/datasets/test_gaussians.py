import math

import pytest
import torch
from scipy import stats

from shortlist.datasets.gaussians import (
    TWO_GAUSSIANS_BALANCED_ERROR,
    draw_two_gaussians,
    gaussian_genera,
    two_gaussians,
)


@pytest.fixture(scope="module")
def genera():
    return gaussian_genera(
        num_classes=12, num_genera=4, dim=3, num_rows=500, class_spread=1.0, genus_spread=3.0
    )


def test_posterior_is_that_of_the_densities(genera):
    x = genera.test.inputs[:50].double()
    densities = torch.stack(
        [
            prior * torch.tensor(stats.multivariate_normal(mean.numpy()).pdf(x.numpy()))
            for prior, mean in zip(genera.priors, genera.means, strict=True)
        ],
        dim=1,
    )
    expected = densities / densities.sum(1, keepdim=True)
    torch.testing.assert_close(genera.log_posterior(x).exp(), expected)


def test_sizes_counts_and_priors(genera):
    assert [len(part) for part in (genera.train, genera.val, genera.test)] == [500, 4000, 10_000]
    assert genera.class_table.class_counts.tolist() == genera.train.targets.bincount(minlength=12).tolist()
    ranks = torch.arange(1, 13, dtype=torch.float64)
    expected = (1 / ranks) / (1 / ranks).sum()
    torch.testing.assert_close(genera.priors.sort(descending=True).values, expected)
    assert genera.class_table.parents["genus"].count("genus 0") == 3
    assert len(set(genera.class_table.parents["genus"])) == 4


def test_rows_follow_the_distribution(genera):
    rows, target = genera.draw(40_000, generator=torch.Generator().manual_seed(1))
    frequencies = target.bincount(minlength=12) / len(target)
    spread = (genera.priors * (1 - genera.priors) / len(target)).sqrt()
    assert ((frequencies - genera.priors).abs() < 5 * spread).all()
    for c in range(12):
        own = rows[target == c]
        assert ((own.mean(0) - genera.means[c]).abs() < 5 / len(own) ** 0.5).all()
        assert ((own.var(0) - 1).abs() < 5 * (2 / len(own)) ** 0.5).all()


def check_against_labels(splits, *, k: int, n: int, num_samples: int):
    """Accuracy of the optimal rules, spelled out, on drawn labels."""
    limits = splits.bayes_accuracy(k=k, num_samples=num_samples)
    generator = torch.Generator().manual_seed(123)
    hits = {name: [] for name in ("topk", "average_k", "macro_topk", "macro_average_k")}
    per_class = torch.zeros(len(splits.priors), dtype=torch.float64)
    hit_per_class = {name: torch.zeros_like(per_class) for name in ("macro_topk", "macro_average_k")}
    tune, _ = splits.draw(100_000, generator=generator)
    p = splits.log_posterior(tune).exp()
    cut = float(p.flatten().sort(descending=True).values[k * len(tune) - 1])
    ratio = p / splits.priors
    ratio_cut = float(ratio.flatten().sort(descending=True).values[k * len(tune) - 1])
    for _ in range(n // 50_000):
        rows, target = splits.draw(50_000, generator=generator)
        p = splits.log_posterior(rows).exp()
        own = p.gather(1, target[:, None])
        hits["topk"].append(((p > own).sum(1) < k).double())
        hits["average_k"].append((own[:, 0] >= cut).double())
        rows, target = splits.draw(50_000, generator=generator, balanced=True)
        ratio = splits.log_posterior(rows).exp() / splits.priors
        own = ratio.gather(1, target[:, None])
        per_class += target.bincount(minlength=len(per_class))
        for name, hit in (
            ("macro_topk", ((ratio > own).sum(1) < k)),
            ("macro_average_k", own[:, 0] >= ratio_cut),
        ):
            hit_per_class[name] += torch.bincount(target, hit.double(), minlength=len(per_class))
    for name in ("topk", "average_k"):
        simulated = torch.cat(hits[name]).mean()
        assert_same(getattr(limits, name), float(simulated), n)
    for name, hit in hit_per_class.items():
        assert_same(getattr(limits, name), float((hit / per_class).mean()), n)
    return limits


def assert_same(estimate, simulated: float, n: int):
    error = math.hypot(estimate.standard_error, (simulated * (1 - simulated) / n) ** 0.5)
    # the threshold of the simulation is itself estimated, on 100,000 rows: a little room for it
    assert abs(estimate.value - simulated) < 4 * error + 0.001
    assert estimate.standard_error < 0.003


def test_bayes_metrics_agree_with_drawn_labels(genera):
    limits = check_against_labels(genera, k=2, n=100_000, num_samples=20_000)
    assert limits.average_k.value > limits.topk.value


@pytest.mark.slow
def test_bayes_metrics_of_the_default_set_agree_with_a_million_labels():
    limits = check_against_labels(gaussian_genera(), k=2, n=1_000_000, num_samples=50_000)
    assert limits.topk.value == pytest.approx(0.878, abs=0.005)
    assert limits.average_k.value == pytest.approx(0.923, abs=0.005)


def test_stated_errors_are_the_spread_over_seeds(genera):
    values = [genera.bayes_accuracy(k=2, num_samples=2000, seed=seed) for seed in range(40)]
    for name in ("topk", "average_k", "macro_topk", "macro_average_k"):
        estimates = torch.tensor([getattr(value, name) for value in values], dtype=torch.float64)
        ratio = float(estimates[:, 0].std() / estimates[:, 1].mean())
        assert 0.7 < ratio < 1.4, (name, ratio)  # a standard deviation of 40 is known to 11 %


def test_average_size_need_not_be_whole(genera):
    limits = [genera.bayes_accuracy(k=k, num_samples=5000) for k in (1, 1.5, 2)]
    assert limits[1].topk is None and limits[1].macro_topk is None
    values = [limit.average_k.value for limit in limits]
    assert values == sorted(values)
    assert genera.bayes_accuracy(k=12, num_samples=100).average_k.value == pytest.approx(1)


def test_macro_rule_is_the_plain_one_when_priors_are_equal():
    splits = gaussian_genera(num_classes=6, num_genera=2, dim=2, num_rows=50, zipf_exponent=0.0)
    limits = splits.bayes_accuracy(k=2, num_samples=20_000)
    for plain, macro in ((limits.topk, limits.macro_topk), (limits.average_k, limits.macro_average_k)):
        assert abs(plain.value - macro.value) < 5 * math.hypot(plain.standard_error, macro.standard_error)


def test_default_set_is_reproducible_and_has_all_classes():
    a, b = gaussian_genera(), gaussian_genera()
    assert torch.equal(a.train.inputs, b.train.inputs) and torch.equal(a.test.targets, b.test.targets)
    assert not torch.equal(a.train.inputs, gaussian_genera(seed=1).train.inputs)
    assert len(a.class_table) == 200 and int(a.class_table.class_counts.min()) >= 1


def test_two_gaussians_reach_their_balanced_error():
    assert pytest.approx(stats.norm.cdf(-math.sqrt(2)), abs=1e-12) == TWO_GAUSSIANS_BALANCED_ERROR
    splits = two_gaussians(rare_prior=0.2)
    limits = splits.bayes_accuracy(k=1, num_samples=50_000)
    gap = abs(1 - limits.macro_topk.value - TWO_GAUSSIANS_BALANCED_ERROR)
    assert gap < 4 * limits.macro_topk.standard_error
    assert splits.class_table.class_counts.tolist()[1] == pytest.approx(2000, abs=200)


def test_drawn_rows_of_two_gaussians():
    rows, target = draw_two_gaussians(20_000, rare_prior=0.3, generator=torch.Generator().manual_seed(0))
    assert target.double().mean() == pytest.approx(0.3, abs=0.02)
    for c, center in ((0, -1.0), (1, 1.0)):
        torch.testing.assert_close(
            rows[target == c].mean(0), torch.full((2,), center, dtype=torch.float64), rtol=0, atol=0.06
        )


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 0}, "num_classes must be an integer >= 1, got 0"),
        ({"num_genera": 300}, r"num_genera must be <= the number of classes \(200\), got 300"),
        ({"class_spread": -1.0}, "class_spread must be >= 0, got -1.0"),
        ({"num_val_rows": 0}, "num_val_rows must be an integer >= 1, got 0"),
        ({"zipf_exponent": math.nan}, "zipf_exponent must be a finite number >= 0, got nan"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        gaussian_genera(**options)


@pytest.mark.errors
def test_bad_sizes(genera):
    with pytest.raises(ValueError, match=r"k must be <= the number of classes \(12\), got 13"):
        genera.bayes_accuracy(k=13)
    with pytest.raises(ValueError, match=r"k must be >= 1, got 0\.5"):
        genera.bayes_accuracy(k=0.5)
    with pytest.raises(ValueError, match="num_samples must be >= 2, got 1"):
        genera.bayes_accuracy(k=1, num_samples=1)
    with pytest.raises(ValueError, match=r"rare_prior must be < 1, got 1\.0"):
        two_gaussians(rare_prior=1.0)
