"""Sets of k classes on average, never below one size and never above another."""

import math
import warnings

import pytest
import torch
from hypothesis import given, strategies as st

from shortlist.predictors import AverageK, CalibrationWarning, Conformal, TopK, make, sizes


def bounded_by_loops(values, k, at_least, at_most, rule):
    """Sets by the definition: sort each row, pool the classes between the bounds, count down."""
    order = [sorted(range(values.shape[1]), key=lambda j, row=row: -float(row[j])) for row in values]
    pool = [
        float(values[i, j]) for i, ranked in enumerate(order) for j in ranked[at_least:at_most]
    ]  # of all rows together
    pool.sort(reverse=True)
    budget = round(k * len(values) - at_least * len(values))
    if rule == "strict":
        budget = math.floor(k * len(values) - at_least * len(values) + 1e-9)
    below = pool[budget] if budget < len(pool) else -math.inf
    if rule == "strict":
        takes = [[v > below for v in row] for row in values.tolist()]
    elif k == at_least:
        takes = [[False] * values.shape[1]] * len(values)
    else:
        takes = [[v >= (pool[budget - 1] + below) / 2 for v in row] for row in values.tolist()]
    sets = torch.zeros(values.shape, dtype=torch.bool)
    for i, ranked in enumerate(order):
        for place, j in enumerate(ranked):
            sets[i, j] = place < at_least or (place < at_most and takes[i][j])
    return sets


@given(
    st.integers(2, 12),
    st.integers(2, 9),
    st.integers(0, 3),
    st.integers(1, 9),
    st.sampled_from([0.5, 1, 1.5, 2, 2.5, 3, 5]),
    st.sampled_from(["midpoint", "strict"]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 2**31),
)
def test_sets_are_those_of_loops(n, c, at_least, at_most, k, rule, dtype, seed):
    if not at_least <= k <= min(at_most, c):
        return
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(n, c, generator=generator, dtype=dtype)
    predictor = AverageK(k, at_least=at_least, at_most=at_most, rule=rule, activation="none")
    predictor.calibrate(values)
    assert predictor.threshold.dtype == dtype
    wanted = bounded_by_loops(values, k, at_least, min(at_most, c), rule)
    assert torch.equal(predictor(values), wanted)
    assert predictor.report.average_size == pytest.approx(float(wanted.sum()) / n, abs=1e-12)
    new = torch.rand(50, c, generator=generator, dtype=dtype)
    assert int(sizes(predictor(new)).min()) >= at_least and int(sizes(predictor(new)).max()) <= at_most


def test_without_bounds_it_is_average_k_and_with_equal_ones_top_k():
    generator = torch.Generator().manual_seed(0)
    scores, new = (3 * torch.randn(n, 37, generator=generator) for n in (6000, 200))
    plain, wide = AverageK(3).calibrate(scores), AverageK(3, at_least=0, at_most=37).calibrate(scores)
    assert torch.equal(plain.threshold, wide.threshold) and plain.report == wide.report
    assert torch.equal(plain(new), wide(new))
    equal = AverageK(3, at_least=3, at_most=3).calibrate(scores)
    assert torch.equal(equal(new), TopK(3)(new)) and equal.report.average_size == 3


@pytest.mark.parametrize("bounds", [{"at_least": 1}, {"at_least": 1, "at_most": 6}, {"at_most": 4}])
def test_batches_and_parts_give_the_same_bits(bounds):
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(5000, 200, generator=generator)
    whole, parts = AverageK(3, **bounds).calibrate(scores), [AverageK(3, **bounds) for _ in range(3)]
    for rows, part in zip(scores.split(2100), parts, strict=True):
        for batch in rows.split(300):
            part.update(batch)
    parts[2].merge(parts[0])
    parts[2].merge(parts[1])
    assert torch.equal(parts[2].finish().threshold, whole.threshold) and parts[2].report == whole.report


def test_with_priors_values_over_the_priors_are_ranked():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(60, 6, generator=generator, dtype=torch.float64)
    priors = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.04, 0.01], dtype=torch.float64)
    predictor = AverageK(2, at_least=1, at_most=3, priors=priors).calibrate(scores)
    wanted = bounded_by_loops(scores.softmax(1) / priors, 2, 1, 3, "midpoint")
    assert torch.equal(predictor(scores), wanted)


def test_ties_are_counted_above_the_smallest_size():
    values = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]])
    predictor = AverageK(1.5, at_least=1, activation="none")
    with pytest.warns(CalibrationWarning, match=r"average size on the 2 calibration rows is 3 for k=1.5"):
        predictor.calibrate(values)
    assert predictor.report.ties == 4 and sizes(predictor(values)).tolist() == [3, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        capped = AverageK(1.5, at_least=1, at_most=2, activation="none").calibrate(values)
    assert sizes(capped(values)).tolist() == [2, 2]


@pytest.mark.compiled
def test_compiled_sets_are_the_same():
    scores = 3 * torch.randn(50, 9)
    predictor = AverageK(2, at_least=1, at_most=3).calibrate(scores)
    compiled = torch.compile(predictor, backend="eager", fullgraph=True)
    assert torch.equal(compiled(scores), predictor(scores))


def test_options_of_a_recipe():
    predictor = make("average_k", {"k": 5, "at_least": 1, "at_most": 10})
    assert repr(predictor) == "AverageK(k=5, at_least=1, at_most=10, not calibrated)"


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 2, "at_least": -1}, "at_least must be an integer >= 0, got -1"),
        ({"k": 2, "at_least": 1.5}, "at_least must be an integer >= 0, got 1.5"),
        ({"k": 2, "at_most": 0}, "at_most must be an integer >= 1, got 0"),
        ({"k": 2, "at_least": 3, "at_most": 2}, r"at_most must be >= at_least \(3\), got 2"),
        ({"k": 2, "at_least": 3}, r"k must be >= at_least \(3\), got 2"),
        ({"k": 4.5, "at_most": 4}, r"k must be <= at_most \(4\), got 4.5"),
    ],
)
def test_bad_bounds_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        AverageK(**options)


@pytest.mark.errors
def test_too_few_classes_or_rows_are_named():
    with pytest.raises(ValueError, match=r"k must be <= the number of classes \(3\), got 5"):
        AverageK(5, at_least=4, at_most=6).calibrate(torch.randn(20, 3))
    with pytest.raises(ValueError, match=r"k=1.1, at_least=1 needs at least 10 rows, got 2"):
        AverageK(1.1, at_least=1).calibrate(torch.randn(2, 3))
    with pytest.raises(ValueError, match="needs at least 1 row"):
        AverageK(2, at_least=2).calibrate(torch.zeros(0, 6))


@pytest.mark.parametrize(("score", "coverage"), [("lac", 0.6), ("aps", 0.9)])
def test_conformal_sets_that_are_never_empty_have_the_same_threshold(score, coverage):
    generator = torch.Generator().manual_seed(0)
    scores = 5 * torch.randn(400, 20, generator=generator)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    plain = Conformal(coverage, score=score).calibrate(scores, target)
    filled = Conformal(coverage, score=score, at_least=2).calibrate(scores, target)
    assert torch.equal(plain.threshold, filled.threshold) and plain.report == filled.report
    assert plain.promise == filled.promise
    assert torch.equal(filled(scores), plain(scores) | TopK(2)(scores))
    assert score == "aps" or int(sizes(plain(scores)).min()) == 0


def test_conformal_sets_of_a_place_are_filled_with_what_occurs_there():
    scores = torch.randn(200, 6)
    target, priors = torch.arange(200) % 6, torch.full((6,), 1 / 6)
    weights = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0, 0.0])
    placed = Conformal(0.2, at_least=2).at(weights, priors=priors).calibrate(scores, target)
    sets = placed(200 * scores)  # most probabilities are 0
    assert int(sizes(sets).min()) >= 2 and not sets[:, weights == 0].any()


@pytest.mark.errors
def test_more_classes_than_there_are_are_refused():
    with pytest.raises(ValueError, match=r"at_least must be <= the number of classes \(3\), got 4"):
        Conformal(0.5, at_least=4).calibrate(torch.randn(9, 3), torch.arange(9) % 3)
    with pytest.raises(ValueError, match=r"at_least must be <= the number of classes \(1\), got 2"):
        Conformal(0.5, at_least=2).at([0.0, 1.0], priors=torch.full((2,), 0.5))
