"""Coverage and size of sets, calibration of scores."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from shortlist.metrics import (
    calibration_error,
    calibration_sums,
    coverage_shortfall,
    set_coverage,
    set_size,
    set_sums,
    size_histogram,
    size_quantiles,
    under_covered_share,
    worst_classes,
)


def sets_of(n, c, *, seed=0, share=0.4):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(n, c, generator=generator) < share, torch.randint(c, (n,), generator=generator)


def test_golden_average_k(golden):
    reference, checked = golden("metrics"), 0
    for case in reference.cases:
        if case["kind"] != "average_k":
            continue
        inputs = reference.inputs(case)
        sets, target = inputs["p"] >= case["threshold"], inputs["y"]
        assert float(set_coverage(sets, target)) == pytest.approx(case["accuracy"], abs=1e-12)
        assert float(set_size(sets, target)) == pytest.approx(case["mean_size"], abs=1e-12)
        macro = set_coverage(sets, target, average="macro")
        assert float(macro) == pytest.approx(case["macro_accuracy"], abs=1e-12)
        checked += 1
    assert checked == 9


@given(n=st.integers(1, 40), c=st.integers(1, 8), seed=st.integers(0, 99), share=st.floats(0, 1))
def test_equals_a_loop(n, c, seed, share):
    sets, target = sets_of(n, c, seed=seed, share=share)
    hits = [bool(sets[i, target[i]]) for i in range(n)]
    sizes = [sum(map(bool, sets[i])) for i in range(n)]
    for function, values in ((set_coverage, hits), (set_size, sizes)):
        assert float(function(sets, target)) == pytest.approx(np.mean(values))
        own = {j: np.mean([values[i] for i in range(n) if target[i] == j]) for j in target.tolist()}
        assert float(function(sets, target, average="macro")) == pytest.approx(np.mean(list(own.values())))
        per_class = function(sets, target, average="none")
        for j in range(c):
            assert float(per_class[j]) == pytest.approx(own.get(j, np.nan), nan_ok=True)
        groups = torch.arange(c) % 3
        for g, value in enumerate(function(sets, target, average="group", groups=groups)):
            inside = [own[j] for j in own if j % 3 == g]
            assert float(value) == pytest.approx(np.mean(inside) if inside else np.nan, nan_ok=True)
    histogram = size_histogram(sets)
    assert histogram.tolist() == [sizes.count(s) for s in range(c + 1)]
    assert torch.equal(set_sums(sets, target).histogram, histogram)
    q = [0.0, 0.05, 0.1, 0.5, 0.7, 0.75, 0.9, 1.0]
    want = np.quantile(sizes, q, method="inverted_cdf")
    assert size_quantiles(histogram, q).tolist() == want.tolist()
    by_group = set_sums(sets, target, groups=groups).histogram
    for g, quantiles in enumerate(size_quantiles(by_group, q)):
        inside = [size for size, j in zip(sizes, target.tolist(), strict=True) if j % 3 == g]
        assert by_group[g].tolist() == [inside.count(s) for s in range(c + 1)]
        want = np.quantile(inside, q, method="inverted_cdf").tolist() if inside else [-1] * len(q)
        assert quantiles.tolist() == want


def test_quantiles_do_not_stumble_over_rounding():
    histogram = torch.tensor([7, 93])  # 0.07 * 100 is a little more than 7 in floating point
    assert size_quantiles(histogram, [0.07, 0.08]).tolist() == [0, 1]
    assert size_quantiles(torch.zeros(4, dtype=torch.int64)).tolist() == [-1] * 5


@given(n=st.integers(2, 30), c=st.integers(2, 9), seed=st.integers(0, 99), data=st.data())
def test_batches_add_up_and_ignored_rows_do_not_count(n, c, seed, data):
    sets, target = sets_of(n, c, seed=seed)
    cut = data.draw(st.integers(0, n))
    parts = [set_sums(sets[rows], target[rows]) for rows in (slice(cut), slice(cut, None))]
    for together, first, second in zip(set_sums(sets, target), *parts, strict=True):
        assert torch.equal(together, first + second)
    target[cut:] = -100
    for got, want in zip(set_sums(sets, target), parts[0], strict=True):
        assert torch.equal(got, want)


def test_worst_and_under_covered_classes():
    hits, counts = torch.tensor([9, 5, 0, 0, 0, 1]), torch.tensor([10, 10, 3, 0, 5, 1])
    index, coverage = worst_classes(hits, counts, num_worst=3)
    assert index.tolist() == [4, 2, 1] and coverage.tolist() == [0, 0, 0.5]
    assert worst_classes(hits, counts, num_worst=99)[0].tolist() == [4, 2, 1, 0, 5]
    assert float(under_covered_share(hits, counts, coverage=0.9)) == pytest.approx(3 / 5)
    assert float(under_covered_share(hits, counts, coverage=0.95)) == pytest.approx(4 / 5)
    a_digit_more = 7 * 0.1  # 0.7000000000000001
    assert a_digit_more > 0.7
    assert float(under_covered_share(hits[:1] - 2, counts[:1], coverage=a_digit_more)) == 0
    assert float(coverage_shortfall(hits, counts, coverage=0.9)) == pytest.approx((0.4 + 0.9 + 0.9) / 5)


def error_by_loop(probs, target, bins):
    inside = [[] for _ in range(bins)]
    for row, y in zip(probs.tolist(), target.tolist(), strict=True):
        top = max(row)
        alone = row.count(top) == 1
        inside[min(int(top * bins), bins - 1)].append((top, alone and row.index(top) == y))
    total = 0.0
    for rows in inside:
        if rows:
            confidence, right = np.mean(rows, axis=0)
            total += len(rows) * abs(confidence - right)
    return total / len(target)


@given(n=st.integers(1, 40), c=st.integers(2, 6), seed=st.integers(0, 99), bins=st.sampled_from([1, 4, 15]))
def test_calibration_error_equals_a_loop(n, c, seed, bins):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, c, dtype=torch.float64, generator=generator)
    target = torch.randint(c, (n,), generator=generator)
    for activation, probs in (("softmax", logits.softmax(1)), ("sigmoid", logits.sigmoid())):
        want = error_by_loop(probs, target, bins)
        got = calibration_error(logits, target, activation=activation, bins=bins)
        assert float(got) == pytest.approx(want, abs=1e-12)
        got = calibration_error(probs, target, activation="none", bins=bins)
        assert float(got) == pytest.approx(want, abs=1e-12)


def test_calibration_leaves_out_and_counts_nan():
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [torch.nan, 0.0], [0.0, torch.nan], [3.0, 0.0]])
    target = torch.tensor([0, 0, 1, -100, -100])
    sums = calibration_sums(logits, target)
    assert int(sums.nan_rows) == 1 and int(sums.counts.sum()) == 2
    torch.testing.assert_close(calibration_error(logits, target), calibration_error(logits[:2], target[:2]))


@pytest.mark.errors
def test_bad_input():
    sets, target = sets_of(4, 3)
    with pytest.raises(ValueError, match=r"sets must be a bool tensor of shape \(n, c\), got torch.float32"):
        set_coverage(sets.float(), target)
    with pytest.raises(ValueError, match=r"sets must be a bool tensor .* got list"):
        size_histogram([[True]])
    with pytest.raises(ValueError, match=r"q must be in \[0, 1\], got 1.5"):
        size_quantiles(size_histogram(sets), [0.5, 1.5])
    with pytest.raises(ValueError, match="coverage must be <= 1, got 90"):
        under_covered_share(target, target, coverage=90)
    with pytest.raises(ValueError, match="activation must be one of softmax, sigmoid, none, got 'relu'"):
        calibration_error(torch.zeros(4, 3), target, activation="relu")
    with pytest.raises(ValueError, match=r"scores must be probabilities in \[0, 1\] .* got 2.0"):
        calibration_error(torch.full((4, 3), 2.0), target, activation="none")
    with pytest.raises(ValueError, match="bins must be an integer >= 1, got 0"):
        calibration_error(torch.zeros(4, 3), target, bins=0)
    with pytest.raises(ValueError, match="num_worst must be an integer >= 1, got 0"):
        worst_classes(target, target, num_worst=0)
