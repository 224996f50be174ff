"""Metrics that papers quote, against loops: violations by size and class, slices, single classes, Brier."""

import json
import math

import pytest
import torch
from hypothesis import given, strategies as st

from shortlist.metrics import (
    Results,
    brier_score,
    class_coverage_gap,
    evaluate,
    set_sums,
    singleton_hit_rate,
    size_violation,
    worst_slice_coverage,
)
from shortlist.metrics.modules import BrierScore, SetCoverage
from shortlist.metrics.names import is_share, larger_is_better, predictor_of
from shortlist.predictors import Conformal


def make_sets(n, c, seed, share=0.4):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, c, generator=generator) < share, torch.randint(c, (n,), generator=generator)


def slow_violation(sets, target, coverage, strata):
    gaps = []
    for low, high in strata:
        hits = [
            bool(row[y])
            for row, y in zip(sets, target.tolist(), strict=True)
            if low <= int(row.sum()) <= high
        ]
        gaps += [abs(sum(hits) / len(hits) - coverage)] if hits else []
    return max(gaps)


def slow_gap(sets, target, coverage):
    gaps = []
    for c in set(target.tolist()):
        hits = [bool(row[c]) for row, y in zip(sets, target.tolist(), strict=True) if y == c]
        gaps.append(abs(sum(hits) / len(hits) - coverage))
    return sum(gaps) / len(gaps)


@given(n=st.integers(1, 50), c=st.integers(1, 9), seed=st.integers(0, 99), share=st.floats(0, 1))
def test_sets_against_loops(n, c, seed, share):
    sets, target = make_sets(n, c, seed, share)
    by_default = ((0, 1), (2, 3), (4, 10))
    assert float(size_violation(sets, target, coverage=0.9)) == pytest.approx(
        slow_violation(sets, target, 0.9, by_default)
    )
    assert float(size_violation(sets, target, coverage=0.7, bounds=(0, 2))) == pytest.approx(
        slow_violation(sets, target, 0.7, ((0, 0), (1, 2), (3, c)))
    )
    sums = set_sums(sets, target)
    gap = slow_gap(sets, target, 0.9)
    assert float(class_coverage_gap(sums.hits, sums.counts, coverage=0.9)) == pytest.approx(gap)
    single = [int(row.sum()) == 1 and bool(row[y]) for row, y in zip(sets, target.tolist(), strict=True)]
    assert float(singleton_hit_rate(sets, target)) == pytest.approx(sum(single) / n)
    module = SetCoverage(num_classes=c, coverage=0.9)
    for part, classes in zip(sets.split(7), target.split(7), strict=True):
        module.update(part, classes)
    metrics = module.compute()
    assert float(metrics["class_coverage_gap"]) == pytest.approx(gap)
    assert float(metrics["size_violation"]) == pytest.approx(slow_violation(sets, target, 0.9, by_default))
    assert float(metrics["singleton_hit_rate"]) == pytest.approx(sum(single) / n)


def test_ignored_rows_do_not_count():
    sets, target = make_sets(40, 5, 0)
    more = torch.cat([sets, torch.ones(3, 5, dtype=torch.bool), torch.eye(5, dtype=torch.bool)])
    labels = torch.cat([target, torch.full((8,), -100)])
    assert singleton_hit_rate(more, labels) == singleton_hit_rate(sets, target)
    assert size_violation(more, labels, coverage=0.8) == size_violation(sets, target, coverage=0.8)
    scores = torch.randn(48, 5)
    assert brier_score(scores, labels) == brier_score(scores[:40], target)
    assert singleton_hit_rate(sets[:0], target[:0]).isnan()
    assert size_violation(sets[:0], target[:0], coverage=0.8).isnan()


@pytest.mark.errors
@pytest.mark.parametrize("bounds", [(), (3, 1), (1, 1), (-1, 2)])
def test_bounds_of_sizes_must_increase(bounds):
    with pytest.raises(ValueError, match="bounds must be increasing sizes >= 0, got"):
        size_violation(*make_sets(4, 3, 0), coverage=0.9, bounds=bounds)


def slow_brier(probs, target):
    rows = [
        sum((p - (j == y)) ** 2 for j, p in enumerate(row))
        for row, y in zip(probs.tolist(), target.tolist(), strict=True)
        if not any(map(math.isnan, row))
    ]
    return sum(rows) / len(rows)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_brier_against_a_loop(dtype):
    scores, target = 3 * torch.randn(60, 7, dtype=torch.float64), torch.randint(7, (60,))
    scores = scores.to(dtype)
    scores[5, 2] = math.nan
    wanted = slow_brier(scores.double().softmax(1), target)
    assert float(brier_score(scores, target)) == pytest.approx(wanted, abs=1e-6)
    probs = scores.double().softmax(1)
    assert float(brier_score(probs, target, activation="none")) == pytest.approx(wanted, abs=1e-12)
    module = BrierScore()
    for part, classes in zip(scores.split(11), target.split(11), strict=True):
        module.update(part, classes)
    assert float(module.compute()["brier_score"]) == pytest.approx(wanted, abs=1e-6)
    assert int(module.compute()["brier_nan_rows"]) == 1
    assert brier_score(scores, target, activation="sigmoid").isnan()


def slow_slice(features, hits, direction, least):
    """The worst of all intervals with at least as many rows."""
    places = sorted(zip((features @ direction).tolist(), hits, strict=True))
    worst = (math.inf, 0.0, 0.0)
    for start in range(len(places)):
        for end in range(start + least, len(places) + 1):
            inside = places[start:end]
            mean = sum(hit for _, hit in inside) / len(inside)
            if mean < worst[0] - 1e-12:
                worst = (mean, inside[0][0], inside[-1][0])
    return worst


@pytest.mark.parametrize("seed", range(4))
def test_the_worst_slice_against_all_slices(seed):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(90, 3, generator=generator, dtype=torch.float64)
    sets, target = make_sets(90, 4, seed, 0.7)
    options = {"min_share": 0.2, "num_directions": 6}
    value = worst_slice_coverage(
        features, sets, target, **options, generator=torch.Generator().manual_seed(seed)
    )
    again = torch.Generator().manual_seed(seed)
    directions = torch.randn(3, 6, generator=again, dtype=torch.float64)
    order = torch.randperm(90, generator=again).tolist()
    hits = [bool(sets[i, target[i]]) for i in range(90)]
    first, second = order[:45], order[45:]
    slices = [slow_slice(features[first], [hits[i] for i in first], d, 9) for d in directions.T]
    lowest = min(mean for mean, *_ in slices)
    possible = []
    for d, (mean, low, high) in zip(directions.T, slices, strict=True):
        if mean == pytest.approx(lowest):
            inside = [hits[i] for i in second if low <= float(features[i] @ d) <= high]
            possible.append(sum(inside) / len(inside) if inside else math.nan)
    assert len(possible) > 1 or float(value) == pytest.approx(possible[0], nan_ok=True)


def test_a_slice_without_coverage_is_found_and_even_coverage_is_not_called_low():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2000, 2, generator=generator)
    target = torch.zeros(2000, dtype=torch.int64)
    missing = (features[:, 0] > 1)[:, None].expand(-1, 2)
    assert float(worst_slice_coverage(features, ~missing, target)) < 0.1
    even = (torch.rand(2000, 1, generator=generator) < 0.9).expand(-1, 2)
    assert 0.8 < float(worst_slice_coverage(features, even, target)) < 0.97


@pytest.mark.errors
def test_features_that_do_not_fit():
    sets, target = make_sets(10, 3, 0)
    with pytest.raises(ValueError, match=r"features must be \(n, d\) with n = 10 >= 2, got \(9, 2\)"):
        worst_slice_coverage(torch.randn(9, 2), sets, target)
    with pytest.raises(ValueError, match=r"min_share must be"):
        worst_slice_coverage(torch.randn(10, 2), sets, target, min_share=0.0)


def is_between(estimate):
    return estimate.low < estimate.value < estimate.high


def test_evaluate_has_them_with_the_same_values():
    generator = torch.Generator().manual_seed(0)
    scores = 2 * torch.randn(600, 8, generator=generator)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    predictor = Conformal(coverage=0.8).calibrate(scores[:300], target[:300])
    scores, target = scores[300:], target[300:]
    results = evaluate(scores, target, {"lac": predictor}, num_resamples=200)
    sets, metrics = predictor(scores), results.metrics()
    assert metrics["brier"].value == pytest.approx(slow_brier(scores.softmax(1), target), abs=1e-6)
    assert is_between(metrics["brier"])
    strata = ((0, 1), (2, 3), (4, 8))
    wanted = slow_violation(sets, target, 0.8, strata)
    assert metrics["sets.lac.size_violation"].value == pytest.approx(wanted)
    assert metrics["sets.lac.class_gap"].value == pytest.approx(slow_gap(sets, target, 0.8))
    single = metrics["sets.lac.singleton_hits"]
    assert single.value == pytest.approx(float(singleton_hit_rate(sets, target)))
    assert is_between(single)
    assert Results.from_json(results.to_json()) == results
    assert json.loads(results.to_json())["scores"]["brier"]["value"] == metrics["brier"].value
    names = ("sets.lac.size_violation", "sets.lac.class_gap", "sets.lac.singleton_hits")
    assert [larger_is_better(name) for name in (*names, "brier")] == [False, False, True, False]
    assert [is_share(name) for name in (*names, "brier")] == [True, True, True, False]
    assert {predictor_of(name) for name in names} == {"lac"}
    without = evaluate(scores, target, {"all": lambda rows: rows > 0}, num_resamples=0).metrics()
    assert "sets.all.class_gap" not in without and "sets.all.singleton_hits" in without
