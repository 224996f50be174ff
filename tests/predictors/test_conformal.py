import math

import pytest
import torch

from shortlist.coverage_law import conformal_rank, rows_needed
from shortlist.predictors import AverageError, CalibrationWarning, Conformal, PointwiseError
from shortlist.predictors.conformity import (
    APS,
    CONFORMITY_SCORES,
    LAC,
    RAPS,
    SAPS,
    OrderedScore,
    class_scores,
    sets_within,
    true_class_scores,
)
from shortlist.predictors.thresholds import (
    THRESHOLD_RULES,
    ClassConditional,
    Clustered,
    Interpolated,
    conformal_threshold,
    grouped_thresholds,
)

PRIORS = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.05, 0.05], dtype=torch.float64)


def make(score, **options):
    priors = PRIORS if score == "prevalence_adjusted" else None
    return Conformal(score=score, priors=priors, **{"rule": "marginal"} | options)


def slow_score(name, probabilities, j):
    """One class of one row, with python loops over sorted lists."""
    p = probabilities.tolist()
    order = sorted(range(len(p)), key=lambda i: -p[i])
    rank = order.index(j) + 1
    before = sum(p[i] for i in order[: rank - 1])
    return {
        "lac": 1 - p[j],
        "aps": before,
        "raps": before + 0.01 * max(0, rank - 5),
        "saps": 0 if rank == 1 else p[order[0]] + (rank - 2) * 0.1,
        "prevalence_adjusted": -p[j] / float(PRIORS[j % 6]),
    }[name]


@pytest.mark.parametrize("name", CONFORMITY_SCORES)
def test_scores_quantiles_and_sets_against_loops(name):
    logits = torch.randn(60, 6, dtype=torch.float64)
    target = torch.randint(6, (60,))
    predictor = make(name, coverage=0.8).calibrate(logits, target)
    probabilities = logits.softmax(1)
    scores = sorted(slow_score(name, row, int(y)) for row, y in zip(probabilities, target, strict=True))
    q = scores[49 - 1]  # ceil(61 * 0.8) = 49
    if name != "saps":  # whose scores of one rank differ by p_max alone: no ties either, but steps
        assert float(predictor.threshold) == pytest.approx(q, abs=1e-12)
    fresh = torch.randn(30, 6, dtype=torch.float64)
    expected = [
        [slow_score(name, row, j) <= float(predictor.threshold) for j in range(6)] for row in fresh.softmax(1)
    ]
    assert predictor(fresh).tolist() == expected


@pytest.mark.parametrize("name", CONFORMITY_SCORES)
def test_pure_functions_against_loops_and_as_calibration_sees_them(name):
    probs = torch.randn(40, 6, dtype=torch.float64).softmax(1)
    given = probs / PRIORS if name == "prevalence_adjusted" else probs
    found = class_scores(CONFORMITY_SCORES[name](), given)
    expected = [[slow_score(name, row, j) for j in range(6)] for row in probs]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)
    target = torch.randint(6, (40,))
    of_true = true_class_scores(CONFORMITY_SCORES[name](), given, target)
    torch.testing.assert_close(of_true, found.gather(1, target[:, None])[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["aps", "raps", "saps"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_thresholds_of_sums_are_not_rounded(name, dtype):
    """The rank's score is a sum of float32 probabilities: to the last digits of float64."""
    logits, target = torch.randn(400, 200, dtype=dtype) * 2, torch.randint(200, (400,))
    predictor = make(name, coverage=0.6).calibrate(logits, target)
    scores = sorted(slow_score(name, row, int(y)) for row, y in zip(logits.softmax(1), target, strict=True))
    assert float(predictor.threshold) == pytest.approx(scores[241 - 1], abs=1e-13)  # ceil(401 * 0.6) = 241
    assert predictor.threshold.dtype == torch.float64


def test_without_draws_the_first_class_is_in_every_set_and_coverage_is_as_promised():
    logits = 4 * torch.randn(8000, 30)
    target = torch.multinomial(logits.softmax(1), 1).squeeze(1)
    for name in ("aps", "raps", "saps"):
        predictor = make(name, coverage=0.9).calibrate(logits[:4000], target[:4000])
        sets = predictor(logits[4000:])
        assert sets.gather(1, logits[4000:].argmax(1, keepdim=True)).all()
        covered = float(sets.gather(1, target[4000:, None]).double().mean())
        assert covered == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 2000))


@pytest.mark.parametrize("rows", [1, 8, 9, 10, 57])
def test_the_threshold_is_the_score_of_the_rank(rows):
    scores = torch.rand(rows, dtype=torch.float64)
    rank = math.ceil((rows + 1) * 0.9 - 1e-9)
    expected = sorted(scores.tolist())[rank - 1] if rank <= rows else math.inf
    assert float(conformal_threshold(scores, coverage=0.9)) == expected


@pytest.mark.parametrize("spread", [0.3, 3.0, 30.0])
@pytest.mark.parametrize(
    ("score", "randomized"),
    [(APS(), False), (APS(), True), (RAPS(penalty=1e-4, k_reg=9), True), (SAPS(step=1e-3), False)],
)
def test_sets_of_very_many_classes_are_found_around_their_ends(score, randomized, spread):
    """From 16,384 classes on, a sample of them tells where to look."""
    logits = torch.randn(15, 20_000, dtype=torch.float64) * spread
    logits[:6] = logits[:6].round()  # with ties
    logits[6] = 0.0
    logits[7, 300:] = -math.inf
    probs, uniform = logits.softmax(1), torch.rand(15, 1, dtype=torch.float64) if randomized else None
    scores = class_scores(score, probs, uniform=uniform)
    for share in (1e-6, 0.3, 0.9, 0.999):
        threshold = scores.quantile(share, dim=1).median()
        expected = scores <= threshold
        found = sets_within(score, probs, threshold, uniform=uniform)
        near = (scores - threshold).abs() < 1e-12  # sums that round one way or the other
        assert torch.equal(found | near, expected | near)


@pytest.mark.parametrize("score", [APS(), RAPS(penalty=0.05, k_reg=1), SAPS(step=0.02)])
@pytest.mark.parametrize("spread", [0.5, 9.0])
def test_the_leading_places_are_enough_or_all_are_sorted(score, spread):
    logits = torch.randn(50, 5000) * spread
    target = torch.multinomial(logits.softmax(1), 1).squeeze(1)
    predictor = Conformal(coverage=0.9, score=score).calibrate(logits, target)
    sets = predictor(logits)
    assert torch.equal(sets, class_scores(score, logits.softmax(1)) <= predictor.threshold)
    assert (int(sets.sum(1).max()) > 64) == (spread == 0.5)


@pytest.mark.parametrize("name", CONFORMITY_SCORES)
@pytest.mark.parametrize("rule", THRESHOLD_RULES)
def test_streaming_and_merging_give_the_same_bits(name, rule):
    logits, target = torch.randn(2000, 6) * 2, torch.randint(6, (2000,))
    randomized = issubclass(CONFORMITY_SCORES[name], OrderedScore)

    def predictor():
        generator = torch.Generator().manual_seed(5) if randomized else None
        return make(name, rule=rule, randomized=randomized, generator=generator)

    whole = predictor().calibrate(logits, target)
    pieces = predictor()
    for rows, classes in zip(logits.split(77), target.split(77), strict=True):
        pieces.update(rows, classes)
    pieces.finish()
    assert torch.equal(pieces.threshold, whole.threshold) and pieces.report == whole.report
    if not randomized:
        left, right = predictor(), predictor()
        left.update(logits[:500], target[:500])
        right.update(logits[500:], target[500:])
        left.merge(right)
        assert torch.equal(left.finish().threshold, whole.threshold)


def test_randomized_sets_cover_less_than_fixed_ones_and_enough():
    logits = torch.randn(20_000, 10)
    target = torch.multinomial(logits.softmax(1), 1).squeeze(1)
    calibration, test = slice(0, 10_000), slice(10_000, None)
    fixed = Conformal(coverage=0.8, score="aps").calibrate(logits[calibration], target[calibration])
    drawn = Conformal(coverage=0.8, score="aps", randomized=True, generator=torch.Generator().manual_seed(0))
    drawn.calibrate(logits[calibration], target[calibration])
    # both cover 80 %: calibration sees to it; the draws let go of the last class now and then
    for predictor in (fixed, drawn):
        hits = predictor(logits[test]).gather(1, target[test, None]).double().mean()
        assert float(hits) == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / 10_000) * math.sqrt(2))
    assert float(drawn.threshold) == pytest.approx(0.8, abs=0.02)  # the score of a true model is uniform
    assert not torch.equal(drawn(logits[test]), drawn(logits[test]))


def test_ties_with_the_true_class_count_against_it():
    uniform = torch.zeros(50, 8)
    target = torch.randint(8, (50,))
    predictor = Conformal(coverage=0.9, score="aps")
    with pytest.warns(CalibrationWarning, match="more scores equal the threshold"):
        predictor.calibrate(uniform, target)
    assert predictor(uniform).all()  # and not just the class that sorts first


def test_cumulative_probabilities_that_round_below_one_are_not_lost():
    """The last class of a row has the score 1, give or take rounding that differs between the two passes."""
    logits = torch.randn(4000, 300, dtype=torch.float64) * 0.5
    target = torch.where(torch.rand(4000) < 0.5, logits.argmin(1), logits.argmax(1))
    predictor = Conformal(coverage=0.9, score="aps")
    with pytest.warns(CalibrationWarning, match="more scores equal the threshold"):
        predictor.update(logits[:2000], target[:2000], uniform=torch.ones(2000))
        predictor.finish()
    hits = predictor(logits[2000:], uniform=torch.ones(2000, 1)).gather(1, target[2000:, None])
    assert hits.all() and predictor.report.coverage == 1.0


def test_the_rank_of_the_threshold():
    assert conformal_rank(9, 0.9) == 9 and conformal_rank(10, 0.9) == 10 and conformal_rank(99, 0.99) == 99
    assert conformal_rank(99, 0.29) == 29  # 100 * 0.29 is 28.999999999999996
    assert rows_needed(0.9) == 9 and rows_needed(0.95) == 19 and rows_needed(0.5) == 1
    for coverage in (0.3, 0.75, 0.8, 0.99, 0.999):
        n = rows_needed(coverage)
        assert conformal_rank(n, coverage) <= n and (n == 1 or conformal_rank(n - 1, coverage) > n - 1)


def test_too_few_rows_give_full_sets_and_say_so():
    logits = torch.randn(8, 5)
    predictor = Conformal(coverage=0.9)
    with pytest.warns(CalibrationWarning, match=r"coverage=0.9 needs at least 9 calibration rows, got 8"):
        predictor.calibrate(logits, torch.randint(5, (8,)))
    assert predictor(torch.randn(4, 5)).all()


def test_grouped_thresholds_against_a_loop():
    scores, groups = torch.rand(300, dtype=torch.float64), torch.randint(7, (300,))
    groups[groups == 4] = 3  # an empty one
    found = grouped_thresholds(scores, groups, 7, coverage=0.9)
    for g in range(7):
        own = sorted(scores[groups == g].tolist())
        rank = math.ceil((len(own) + 1) * 0.9 - 1e-9)
        assert float(found[g]) == (own[rank - 1] if rank <= len(own) else math.inf)


def rare_class_problem():
    target = torch.cat([torch.randint(5, (600,)), torch.full((4,), 5)])
    return torch.randn(604, 6), target


def test_class_conditional_thresholds_and_their_fallback():
    logits, target = rare_class_problem()
    scores = 1 - logits.softmax(1).gather(1, target[:, None]).squeeze(1)
    marginal = float(scores.sort().values[math.ceil(605 * 0.9) - 1])
    with pytest.warns(CalibrationWarning, match=r"too few rows for thresholds.*: 1 class \(5\)"):
        predictor = Conformal(rule="class_conditional").calibrate(logits, target)
    assert predictor.report.fallback_classes == (5,)
    assert float(predictor.threshold[5]) == marginal
    for j in range(5):
        own = scores[target == j].sort().values
        assert float(predictor.threshold[j]) == float(own[math.ceil((len(own) + 1) * 0.9) - 1])
    with pytest.warns(CalibrationWarning, match="too few rows"):
        full = Conformal(rule=ClassConditional(fallback="full")).calibrate(logits, target)
    assert full(logits)[:, 5].all()


def test_thresholds_by_class_with_an_ordered_score():
    logits, target = torch.randn(900, 6, dtype=torch.float64), torch.randint(6, (900,))
    predictor = Conformal(score="aps", rule="class_conditional").calibrate(logits, target)
    fresh = torch.randn(20, 6, dtype=torch.float64)
    expected = [
        [slow_score("aps", row, j) <= float(predictor.threshold[j]) for j in range(6)]
        for row in fresh.softmax(1)
    ]
    assert predictor(fresh).tolist() == expected


def test_clusters_find_two_kinds_of_classes():
    """Ten classes that are easy, ten that are hard: two clusters, each with one threshold."""
    generator = torch.Generator().manual_seed(0)
    target = torch.arange(20).repeat(200)
    hard = target >= 10
    scores = torch.rand(4000, generator=generator) * 0.2 + 0.7 * hard
    found = Clustered(num_clusters=2, share=0.3)(scores, target, 20, 0.9)
    values = found.values
    assert values[:10].unique().numel() == 1 and values[10:].unique().numel() == 1
    assert float(values[0]) == pytest.approx(0.18, abs=0.01)
    assert float(values[10]) == pytest.approx(0.88, abs=0.01)
    assert found.fallback_classes == ()


def test_rare_classes_are_in_no_cluster():
    target = torch.cat([torch.arange(4).repeat(100), torch.full((3,), 4)])
    scores = torch.rand(403)
    found = Clustered(num_clusters=2, share=0.5)(scores, target, 6, 0.9)
    marginal = scores.sort().values[math.ceil(404 * 0.9) - 1]
    assert found.fallback_classes == (4, 5)
    assert found.values[4] == found.values[5] == marginal


def test_rows_to_leave_out():
    logits = torch.randn(200, 6) * 2
    target = torch.multinomial(logits.softmax(1), 1).squeeze(1)
    padded = torch.cat([target[:150], torch.full((50,), -100)])
    a = Conformal(score="aps").calibrate(logits, padded)
    b = Conformal(score="aps").calibrate(logits[:150], target[:150])
    assert torch.equal(a.threshold, b.threshold) and a.report == b.report


def test_pointwise_error_takes_the_fewest_classes():
    for c, spread in ((7, 1.0), (300, 0.3), (300, 5.0)):
        logits = torch.randn(50, c, dtype=torch.float64) * spread
        sets = PointwiseError(coverage=0.85)(logits)
        for row, chosen in zip(logits.softmax(1).tolist(), sets, strict=True):
            total, expected = 0.0, 0
            for p in sorted(row, reverse=True):
                if total >= 0.85:
                    break
                total, expected = total + p, expected + 1
            assert int(chosen.sum()) == expected
            assert min(row[j] for j in range(c) if chosen[j]) >= max(
                [row[j] for j in range(c) if not chosen[j]] + [0]
            )


def test_average_error_reaches_the_mass_and_no_more():
    logits = torch.randn(4000, 60) * 2
    probabilities = logits.softmax(1)
    predictor = AverageError(coverage=0.9).calibrate(logits)
    sets = predictor(logits)
    mass = float((probabilities * sets).double().sum()) / 4000
    smallest = float(probabilities[sets].min())
    assert 0.9 <= mass + 1e-9 < 0.9 + smallest / 4000 + 1e-9
    assert float(predictor.threshold) == smallest
    assert predictor.report.average_size == int(sets.sum()) / 4000
    pieces = AverageError(coverage=0.9)
    for batch in logits.split(300):
        pieces.update(batch)
    assert torch.equal(pieces.finish().threshold, predictor.threshold)
    left, right = AverageError(coverage=0.9), AverageError(coverage=0.9)
    left.update(logits[:1000])
    right.update(logits[1000:])
    left.merge(right)
    assert torch.equal(left.finish().threshold, predictor.threshold)


def test_average_error_with_rows_in_the_worst_order():
    sure, unsure = torch.randn(1500, 300) * 20, torch.randn(1500, 300) * 0.1
    logits = torch.cat([sure, unsure])
    at_once = AverageError(coverage=0.9).calibrate(logits)
    mixed = AverageError(coverage=0.9).calibrate(logits[torch.randperm(3000)])
    assert torch.equal(at_once.threshold, mixed.threshold)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: Conformal(coverage=1.0), "coverage must be < 1, got 1.0"),
        (lambda: Conformal(score="naps"), "score must be one of lac, aps"),
        (lambda: Conformal(rule="none"), "rule must be one of marginal"),
        (
            lambda: Conformal(score="prevalence_adjusted"),
            "priors must be given for the score 'prevalence_adj",
        ),
        (lambda: Conformal(score="lac", priors=PRIORS), "priors must be None for the score 'lac'"),
        (lambda: Conformal(rule="macro"), "priors must be given .* which the rule 'macro' has unless"),
        (lambda: Conformal(randomized=True), "nothing to randomize"),
        (lambda: Conformal().calibrate(torch.randn(20, 3)), "calibrated with labels: target must be given"),
        (lambda: Conformal().calibrate(torch.randn(20, 3), torch.full((20,), -100)), "at least 1 row"),
        (lambda: Conformal().calibrate(torch.randn(20, 3), torch.full((20,), 3)), r"in \[0, 3\)"),
        (lambda: Conformal().calibrate(torch.randn(20, 3), torch.zeros(19).long()), r"shape \(20,\)"),
        (lambda: RAPS(penalty=-1.0), "penalty must be >= 0"),
        (lambda: SAPS(step=0.0), "step must be > 0"),
        (lambda: Interpolated(weight=1.5), "weight must be"),
        (lambda: Clustered(num_clusters=0), "num_clusters must be an integer >= 1"),
        (lambda: PointwiseError(activation="sigmoid"), "activation must be one of softmax, none"),
        (lambda: AverageError(coverage=0.0), "coverage must be > 0"),
    ],
)
def test_bad_input(make_it, message):
    with pytest.raises(ValueError, match=message):
        make_it()


def test_an_own_score_can_be_given():
    class Margin(LAC):
        def __call__(self, probs):
            return -probs.log()

    logits, target = torch.randn(100, 4), torch.randint(4, (100,))
    own = Conformal(score=Margin()).calibrate(logits, target)
    assert torch.equal(own(logits), Conformal(score="lac").calibrate(logits, target)(logits))


def test_given_draws_of_rows_that_are_left_out_are_left_out_too():
    logits, draws = torch.randn(200, 6, dtype=torch.float64) * 2, torch.rand(200, dtype=torch.float64)
    target = torch.multinomial(logits.softmax(1), 1).squeeze(1)
    kept = torch.rand(200) < 0.7
    a, b = Conformal(score="aps"), Conformal(score="aps")
    a.update(logits, target.where(kept, -100), uniform=draws)
    b.update(logits[kept], target[kept], uniform=draws[kept])
    assert torch.equal(a.finish().threshold, b.finish().threshold)


def test_given_draws_count_in_a_second_calibration_too():
    logits, draws = torch.randn(300, 6), torch.zeros(300)
    target = torch.multinomial(logits.softmax(1), 1).squeeze(1)
    predictor = Conformal(score="aps", randomized=True)
    predictor.update(logits, target, uniform=draws)
    first = predictor.finish().threshold.clone()
    predictor.update(logits, target, uniform=draws)
    assert torch.equal(predictor.finish().threshold, first)


@pytest.mark.errors
def test_draws_of_the_wrong_kind():
    logits = torch.randn(300, 6)
    target = torch.multinomial(logits.softmax(1), 1).squeeze(1)
    predictor = Conformal(score="aps")
    for draws in (torch.rand(300, 1), torch.rand(299), torch.full((300,), 1.5), torch.full((300,), math.nan)):
        with pytest.raises(ValueError, match=r"uniform must be .*in \[0, 1\].*\(300,\)"):
            predictor.update(logits, target, uniform=draws)
    predictor.calibrate(logits, target)
    for draws in (torch.rand(300), torch.rand(300, 5), torch.full((300, 1), -1.0), [0.5] * 300):
        with pytest.raises(ValueError, match=r"uniform must be .*in \[0, 1\].*\(300, 1\) or \(300, 6\)"):
            predictor(logits, uniform=draws)


@pytest.mark.errors
def test_a_score_that_is_a_class_and_not_an_instance():
    with pytest.raises(ValueError, match="score must be a name or a ConformityScore, got"):
        Conformal(score=LAC)
    with pytest.raises(ValueError, match="rule must be a name or a ThresholdRule, got 3"):
        Conformal(rule=3)


@pytest.mark.parametrize("score", ["aps", "raps", "saps"])
def test_equal_probabilities_are_in_or_out_together_with_thresholds_by_class(score):
    logits = torch.randn(2000, 6)
    target = torch.multinomial(logits.softmax(1), 1).squeeze(1)
    predictor = Conformal(coverage=0.6, score=score, rule=Interpolated(weight=0.0))
    marginal = Conformal(coverage=0.6, score=score).calibrate(logits, target)
    predictor.calibrate(logits, target)
    tied = (torch.randn(500, 6) * 2).round()
    assert torch.equal(predictor(tied), marginal(tied))
    order = torch.randperm(6)
    assert torch.equal(predictor(tied[:, order]), predictor(tied)[:, order])


def test_the_smallest_coverage_is_one_score():
    logits, target = torch.randn(50, 3), torch.randint(3, (50,))
    predictor = Conformal(coverage=1e-12).calibrate(logits, target)
    assert float(predictor.threshold) == float((1 - logits.softmax(1).gather(1, target[:, None])).min())
    assert (
        float(grouped_thresholds(torch.tensor([3.0, 1.0]), torch.tensor([1, 1]), 2, coverage=1e-12)[1]) == 1.0
    )


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("name", CONFORMITY_SCORES)
def test_interpolated_thresholds_take_the_largest_score_for_rare_classes(name, weight):
    logits, target = rare_class_problem()
    logits[torch.arange(604), target] += 2  # or some scores by rank would be equal: those of the last class
    supremum = {"lac": 1, "aps": 1, "raps": 1 + 0.01, "saps": 1 + 5 * 0.1, "prevalence_adjusted": 0}[name]
    marginal, full = make(name).calibrate(logits, target), ClassConditional(fallback="full")
    with pytest.warns(CalibrationWarning, match="too few rows"):
        own = make(name, rule=full).calibrate(logits, target)
    with pytest.warns(
        CalibrationWarning, match=r"1 class \(5\), for which the largest possible score stands"
    ):
        mixed = make(name, rule=Interpolated(weight=weight)).calibrate(logits, target)
    own.threshold[5] = supremum
    expected = weight * own.threshold + (1 - weight) * marginal.threshold
    assert torch.allclose(mixed.threshold, expected, rtol=1e-5)
    assert bool(mixed(logits)[:, 5].all()) == (weight == 1)


def test_no_score_exceeds_its_supremum():
    probs = torch.cat([torch.randn(200, 9).mul(4), torch.zeros(1, 9), 100 * torch.eye(9)]).softmax(1)
    for kind in CONFORMITY_SCORES.values():
        supremum = kind().supremum(9)
        largest = float(class_scores(kind(), probs, uniform=torch.ones(len(probs), 1)).max())
        assert supremum - 0.1 <= largest <= supremum + 1e-5


def test_interpolated_thresholds_with_too_few_rows_for_any():
    scores, target = torch.tensor([0.5, 0.25]), torch.tensor([0, 1])
    for weight, expected in ((0.0, math.inf), (0.5, math.inf), (1.0, 1.0)):
        with pytest.warns(CalibrationWarning, match="needs at least 9"):
            found = Interpolated(weight=weight)(scores, target, 2, 0.9, 1.0).values
        assert found.tolist() == [expected, expected]


@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
def test_interpolated_thresholds_of_values_that_are_no_probabilities():
    logits, target = rare_class_problem()
    scores = 1 - logits.gather(1, target[:, None]).squeeze(1)
    found = Interpolated(weight=1.0)(scores, target, 6, 0.9, 1.0)
    assert float(found.values[5]) == float(scores.max())
