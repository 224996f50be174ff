"""Sets of k classes on average, never below one size and never above another."""

import math
import warnings

import pytest
import torch
from hypothesis import given, strategies as st

from shortlist.predictors import AverageK, CalibrationWarning, Conformal, TopK, load, make, save, sizes
from shortlist.predictors.kept import KeptCalibration, KeptRows, NotKeptError
from shortlist.sentences import promise_words


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


def drawn(seed, n, c, scale=3.0):
    """Scores whose softmax are the true probabilities, and classes."""
    generator = torch.Generator().manual_seed(seed)
    scores = scale * torch.randn(n, c, generator=generator, dtype=torch.float64)
    return scores, torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)


def capped_by_loops(score_of, p, target, coverage, most):
    """Threshold by the definition: a class beyond the cap has a score beyond all others."""
    scores = []
    for row, y in zip(p.tolist(), target.tolist(), strict=True):
        rank = 1 + sum(v > row[y] for v in row)
        scores.append(score_of(row, y) if rank <= most else math.inf)
    rank = math.ceil((len(scores) + 1) * coverage - 1e-9)
    return sorted(scores)[rank - 1] if rank <= len(scores) else math.inf


def lac_of(row, y):
    return 1 - row[y]


def aps_of(row, y):
    return sum(v for v in row if v > row[y])


@pytest.mark.parametrize(("score", "score_of"), [("lac", lac_of), ("aps", aps_of)])
@pytest.mark.parametrize(("coverage", "most"), [(0.8, 4), (0.9, 8), (0.7, 3), (0.6, 2)])
def test_capped_conformal_sets_are_those_of_loops(score, score_of, coverage, most):
    scores, target = drawn(1, 300, 12)
    predictor = Conformal(coverage, score=score, at_most=most).calibrate(scores, target)
    p = scores.softmax(1)
    threshold = capped_by_loops(score_of, p, target, coverage, most)
    assert threshold < math.inf
    assert float(predictor.threshold) == pytest.approx(threshold, abs=1e-12)
    new, _ = drawn(2, 100, 12)
    q = new.softmax(1)
    wanted = [
        [score_of(row, j) <= threshold + 1e-12 and sum(v > row[j] for v in row) < most for j in range(12)]
        for row in q.tolist()
    ]
    assert torch.equal(predictor(new), torch.tensor(wanted))
    # the cap takes classes from long sets, and so the others get more
    plain = Conformal(coverage, score=score).calibrate(scores, target)
    assert predictor.threshold >= plain.threshold
    covered = float(predictor(scores)[torch.arange(300), target].double().mean())
    assert predictor.report.coverage == pytest.approx(covered) and covered >= coverage
    assert predictor.promise.level == coverage and predictor.promise.at_most == most
    assert predictor.promise.share is None


def test_a_cap_that_is_wide_enough_changes_nothing():
    scores, target = drawn(3, 200, 9)
    plain, wide = (Conformal(0.9, at_most=most).calibrate(scores, target) for most in (None, 9))
    assert torch.equal(plain.threshold, wide.threshold) and plain.report == wide.report
    assert torch.equal(plain(scores), wide(scores))


def test_what_a_cap_costs_is_measured_where_it_is_too_short():
    scores, target = drawn(4, 400, 10, scale=1.0)
    predictor = Conformal(0.9, at_least=1, at_most=2)
    with pytest.warns(CalibrationWarning, match="at most 2 classes hold the true class of .* for 0.9"):
        predictor.calibrate(scores, target)
    best = TopK(2)(scores)
    share = float(best[torch.arange(400), target].double().mean())
    assert share < 0.9 and torch.equal(predictor(scores), best)
    promise = predictor.promise
    assert promise.about == "nothing" and promise.level is None and promise.asked == 0.9
    assert promise.share == pytest.approx(share) and promise.at_most == 2 and not promise.holds
    assert f"{100 * share:.0f} of 100 have the right class in such a list" in promise_words(promise)
    assert "all classes" not in promise_words(promise)


def test_the_measured_share_of_a_cap_counts_classes_as_the_promise_does():
    scores, target = drawn(5, 400, 6, scale=1.0)
    place, priors = torch.tensor([0.0, 0.4, 0.3, 0.2, 0.1, 0.0]).double(), torch.full((6,), 1 / 6).double()
    for predictor, weights in (
        (Conformal(0.95, score="lac", rule="macro", at_most=2), torch.ones(6)),
        (Conformal(0.95, at_most=2).at(place, priors=priors), place),
    ):
        with pytest.warns(CalibrationWarning, match="at most 2 classes"):
            predictor.calibrate(scores, target)
        sets = predictor(scores)
        assert int(sizes(sets).max()) == 2 and not sets[:, weights == 0].any()
        hits = sets[torch.arange(400), target].double()
        by_class = torch.stack([hits[target == j].mean() for j in range(6)])
        wanted = float((by_class * weights).sum() / weights.sum())
        assert predictor.promise.share == pytest.approx(wanted) and predictor.promise.level is None


def test_too_few_rows_for_a_capped_set_are_told_as_such():
    scores, target = drawn(6, 5, 6)
    with pytest.warns(CalibrationWarning) as caught:
        predictor = Conformal(0.9, at_most=2).calibrate(scores, target)
    assert not any("all classes" in str(warning.message) for warning in caught)
    assert torch.equal(predictor(scores), TopK(2)(scores)) and predictor.promise.level is None


def test_votes_are_capped_too():
    scores, target = drawn(7, 300, 8)
    votes = torch.nn.functional.one_hot(target, 8).double()
    by_class, by_votes = (Conformal(0.8, at_most=3).calibrate(scores, labels) for labels in (target, votes))
    assert torch.equal(by_class.threshold, by_votes.threshold)
    two = votes.clone()
    two[torch.arange(300), scores.argmin(1)] += 1e-9  # never among the best
    assert float(Conformal(0.8, at_most=3).calibrate(scores, two).threshold) == pytest.approx(
        float(by_class.threshold), abs=0.02
    )


def test_capped_sets_keep_their_promise_on_new_rows():
    """Over 300 draws of 99 calibration rows the mean coverage is between 0.8 and 0.8 + 1 / 100."""
    shares = []
    for seed in range(300):
        scores, target = drawn(seed, 99 + 200, 8)
        predictor = Conformal(0.8, at_most=3).calibrate(scores[:99], target[:99])
        shares.append(float(predictor(scores[99:])[torch.arange(200), target[99:]].double().mean()))
    mean, error = torch.tensor(shares).mean(), torch.tensor(shares).std() / math.sqrt(300)
    assert 0.8 - 3 * error <= mean <= 0.81 + 3 * error


def test_a_capped_predictor_is_saved_and_loaded(tmp_path):
    scores, target = drawn(8, 300, 8)
    predictor = make("conformal", {"coverage": 0.8, "at_least": 1, "at_most": 3}).calibrate(scores, target)
    save(predictor, tmp_path / "capped")
    again = load(tmp_path / "capped")
    assert again.at_most == 3 and again.promise == predictor.promise and repr(again) == repr(predictor)
    assert torch.equal(again(scores), predictor(scores))


def test_kept_values_calibrate_a_capped_predictor():
    scores, target = drawn(9, 300, 12)
    p = scores.softmax(1)
    true = p[torch.arange(300), target]
    whole = Conformal(0.8, at_most=3).calibrate(scores, target)
    rows = KeptRows(p.sort(1, descending=True).values[:, :4], 12, target, true)
    calibration = KeptCalibration(Conformal(0.8, at_most=3), 300)
    calibration.update(rows)
    kept = calibration.finish()
    assert torch.equal(kept.threshold, whole.threshold) and kept.promise == whole.promise
    sets, is_whole = kept.kept_rule().sets(rows)
    assert is_whole.all() and torch.equal(sets.sum(1), sizes(whole(scores)))
    few = KeptCalibration(Conformal(0.8, at_most=3), 300)
    few.update(KeptRows(rows.probabilities[:, :2], 12, target, true))
    with pytest.raises(NotKeptError, match="score with --keep 3"):
        few.finish()


@pytest.mark.errors
@pytest.mark.parametrize("rule", ["class_conditional", "clustered", "interpolated"])
def test_a_cap_is_refused_where_each_class_has_a_promise(rule):
    with pytest.raises(ValueError, match=f"at_most goes with the rules 'marginal' and 'macro', got {rule!r}"):
        Conformal(0.9, rule=rule, at_most=3)
    with pytest.raises(ValueError, match=r"at_most must be >= at_least \(3\), got 2"):
        Conformal(0.9, at_least=3, at_most=2)
