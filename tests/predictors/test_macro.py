"""Thresholds whose promise is about the average class."""

import math
import warnings
from fractions import Fraction

import pytest
import torch

from shortlist import ClassTable
from shortlist.predictors import CalibrationWarning, Conformal, conformity, load, make, save
from shortlist.predictors.thresholds import Macro, conformal_threshold


def real_thresholds(scores, target, importance, coverage):
    """By the definition, in fractions: thresholds of each class and of all, for given importance."""
    counts = [sum(y == c for y in target) for c in range(len(importance))]
    weights = [Fraction(v) / n if n else Fraction(0) for v, n in zip(importance, counts, strict=True)]

    def smallest(level):
        total = Fraction(0)
        for s, y in sorted(zip(scores, target, strict=True)):
            total += weights[y]
            if total >= level:
                return s
        return math.inf

    by_class = [smallest(Fraction(coverage) + w) for w in weights]
    largest = max(q for q, n in zip(by_class, counts, strict=True) if n)
    by_class = [q if n else largest for q, n in zip(by_class, counts, strict=True)]
    return by_class, smallest(Fraction(coverage) + max(weights))


def both(scores, target, num_classes, coverage, **options):
    found = [
        Macro(thresholds=kind, **options)(scores, target, num_classes, coverage).values
        for kind in ("by_class", "single")
    ]
    return found[0].tolist(), float(found[1])


def test_the_example_by_hand():
    scores = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.25, 0.6, 0.8], dtype=torch.float64)
    target = torch.tensor([0, 0, 0, 0, 1, 1, 2])
    assert both(scores, target, 3, 0.5) == ([0.6, 0.6, 0.8], 0.8)
    assert float(conformal_threshold(scores, coverage=0.5)) == 0.3


@pytest.mark.parametrize("coverage", [0.0625, 0.5, 0.75, 0.9375])
@pytest.mark.parametrize("classes", ["present", "all"])
@pytest.mark.parametrize("kind", ["equal", "groups", "importance"])
def test_thresholds_against_fractions(kind, classes, coverage):
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        n, c = int(torch.randint(1, 60, (), generator=generator)), 6
        target = torch.randint(c, (n,), generator=generator)
        scores = torch.rand(n, generator=generator, dtype=torch.float64)
        if seed % 2:
            scores = (scores * 8).round() / 8  # with ties
        present = [bool((target == j).any()) or classes == "all" for j in range(c)]
        groups, given = [0, 0, 0, 1, 1, 2], [1, 2, 0, 0.5, 4, 1]
        if kind == "groups":
            counted = {g for g, here in zip(groups, present, strict=True) if here}
            share = [sum(g == h and here for h, here in zip(groups, present, strict=True)) for g in groups]
            v = [
                Fraction(int(here), len(counted) * max(k, 1)) for here, k in zip(present, share, strict=True)
            ]
        else:
            raw = [
                Fraction(x if kind == "importance" else 1) * here
                for x, here in zip(given, present, strict=True)
            ]
            if not sum(raw):
                continue
            v = [x / sum(raw) for x in raw]
        options = {"groups": {"groups": groups}, "importance": {"importance": given}, "equal": {}}[kind]
        expected = real_thresholds(scores.tolist(), target.tolist(), v, coverage)
        assert both(scores, target, c, coverage, classes=classes, **options) == expected


def golden_rule(case, shared):
    weights = case["params"]["weights"]
    classes = "all" if weights == "macro" else "present"
    if weights == "group_macro":
        return {"groups": shared["genus"].tolist(), "classes": classes}
    return {"importance": list(range(1, 9)) if weights == "weighted" else None, "classes": classes}


def numbers(values):
    return torch.tensor([math.inf if v == "inf" else v for v in values], dtype=torch.float64)


def test_published_thresholds_and_sets(golden):
    shared, compared = golden("macro_coverage").shared, 0
    for case in golden("macro_coverage").cases:
        options, pas = case["params"], case["params"]["score"] == "prevalence_adjusted"
        kept = shared["cal_without_class_7"] if options["absent_class_7"] else torch.arange(74)
        probs = shared["cal_logits"][kept].softmax(1) / (shared["priors"] if pas else 1)
        target, coverage = shared["cal_labels"][kept], 1 - options["alpha"]
        score = conformity.PrevalenceAdjusted() if pas else conformity.LAC()
        scores = conformity.true_class_scores(score, probs, target)
        for kind, threshold, size in (
            ("single", [case["threshold"]], case["mean_size"]),
            ("by_class", case["own_class_thresholds"], case["own_mean_size"]),
        ):
            rule = Macro(thresholds=kind, **golden_rule(case, shared))
            found = rule(scores, target, 8, coverage)
            torch.testing.assert_close(found.values.flatten(), numbers(threshold), rtol=0, atol=1e-12)
            given = shared["priors"] if pas else None
            predictor = Conformal(coverage=coverage, score=score, rule=rule, priors=given)
            if options["weights"] in ("macro", "macro_present") or not pas:  # else the score has its weight
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", CalibrationWarning)
                    predictor.calibrate(shared["cal_logits"][kept], target)
                torch.testing.assert_close(predictor.threshold, found.values, rtol=0, atol=1e-12)
                sets = predictor(shared["test_logits"])
                assert float(sets.sum(1).double().mean()) == pytest.approx(size, abs=1e-12)
                if kind == "single" and case["sets"] is not None:
                    assert [row.nonzero()[:, 0].tolist() for row in sets] == case["sets"]
                compared += 1
    assert compared > 30


def test_published_interpolated_thresholds_and_sets(golden):
    shared, compared = golden("longtail_conformal").shared, 0
    for case in golden("longtail_conformal").cases:
        if case["kind"] != "interp_q":
            continue
        rule = {"name": "interpolated", "weight": case["params"]["weight"]}
        predictor = make("conformal", {"coverage": 1 - case["params"]["alpha"], "rule": rule})
        with pytest.warns(CalibrationWarning, match="the largest possible score stands in"):
            predictor.calibrate(shared["cal_logits"], shared["cal_labels"])
        torch.testing.assert_close(predictor.threshold, numbers(case["thresholds"]), rtol=0, atol=1e-12)
        if case["sets"] is not None:
            sets = predictor(shared["test_logits"])
            assert [row.nonzero()[:, 0].tolist() for row in sets] == case["sets"]
            compared += 1
    assert compared >= 3


def problem(n=3000, c=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    priors = torch.arange(1, c + 1, dtype=torch.float64).pow(-1)
    priors /= priors.sum()
    target = torch.multinomial(priors, n, replacement=True, generator=generator)
    target[:c] = torch.arange(c)
    logits = torch.randn(n, c, generator=generator, dtype=torch.float64) + priors.log()
    logits[torch.arange(n), target] += 2
    return logits, target, priors


def test_with_priors_the_promise_is_about_the_average_class():
    logits, target, priors = problem()
    predictor = Conformal(coverage=0.8, priors=priors)
    assert isinstance(predictor.rule, Macro) and isinstance(predictor.score, conformity.PrevalenceAdjusted)
    predictor.calibrate(logits, target)
    scores = -(logits.softmax(1) / priors).gather(1, target[:, None])[:, 0]
    by_class, _ = real_thresholds(scores.tolist(), target.tolist(), [Fraction(1, 12)] * 12, Fraction(4, 5))
    torch.testing.assert_close(predictor.threshold, torch.tensor(by_class, dtype=torch.float64))


def test_scores_that_contain_other_priors_give_the_same_sets():
    logits, target, priors = problem()
    own, balanced = (
        Conformal(priors=priors),
        Conformal(priors=priors, scores_priors=torch.full_like(priors, 1 / 12)),
    )
    without = logits.log_softmax(1) - priors.log()  # as a logit-adjusted loss learns them
    own.calibrate(logits, target)
    balanced.calibrate(without, target)
    torch.testing.assert_close(own.threshold, balanced.threshold)
    assert torch.equal(own(logits), balanced(without))


def test_the_importance_is_in_the_prevalence_adjusted_score():
    logits, target, priors = problem()
    importance = torch.arange(1.0, 13.0).double()
    rule = Macro(importance=importance, thresholds="single")
    predictor = Conformal(coverage=0.8, priors=priors, rule=rule).calibrate(logits, target)
    v = importance / importance.sum()
    scores = -(12 * v * logits.softmax(1) / priors)
    own = scores.gather(1, target[:, None])[:, 0]
    _, single = real_thresholds(
        own.tolist(), target.tolist(), [Fraction(float(x)) for x in v], Fraction(4, 5)
    )
    assert float(predictor.threshold) == pytest.approx(single, abs=1e-12)
    assert torch.equal(predictor(logits), scores <= predictor.threshold)


def test_the_importance_travels_along(tmp_path):
    logits, target, priors = problem()
    rule = Macro(importance=torch.arange(12.0), classes="all")
    predictor = Conformal(coverage=0.8, priors=priors, rule=rule).calibrate(logits, target)
    save(predictor, tmp_path / "sets")
    again = load(tmp_path / "sets")
    assert isinstance(again, Conformal) and again.rule == rule
    assert torch.equal(again(logits), predictor(logits))


def test_groups_of_a_class_table():
    table = ClassTable(names=list("abcdef"), parents={"genus": ["x", "y", "x", "x", "z", "y"]})
    rule = Macro.over(table, "genus", classes="all")
    assert rule == Macro(groups=(0, 1, 0, 0, 2, 1), level="genus", classes="all")
    expected = torch.tensor([1 / 9, 1 / 6, 1 / 9, 1 / 9, 1 / 3, 1 / 6], dtype=torch.float64)
    torch.testing.assert_close(rule.class_importance(torch.ones(6, dtype=torch.bool)), expected)
    some = torch.tensor([True, True, False, True, False, False])
    expected = torch.tensor([0.25, 0.5, 0, 0.25, 0, 0], dtype=torch.float64)
    torch.testing.assert_close(rule.class_importance(some), expected)


def test_what_is_said_about_classes_without_rows():
    logits, target, priors = problem()
    kept = target % 5 != 3
    said = {"present": "to which the promise does not extend", "all": "which count as missed"}
    for classes, words in said.items():
        predictor = Conformal(coverage=0.7, priors=priors, rule=Macro(classes=classes))
        with pytest.warns(CalibrationWarning, match=rf"no rows: 2 classes \(3, 8\), {words}"):
            predictor.calibrate(logits[kept], target[kept])
        assert predictor.report.fallback_classes == (3, 8)
        assert predictor.threshold[3] == predictor.threshold.max()
    with pytest.warns(CalibrationWarning, match=r"coverage=0.9: every set will hold all classes"):
        predictor = Conformal(priors=priors, rule=Macro(classes="all")).calibrate(logits[kept], target[kept])
    assert predictor(logits).all()


def test_a_class_with_too_few_rows_is_always_in_the_set():
    scores = torch.rand(201, dtype=torch.float64)
    target = torch.cat([torch.arange(2).repeat(100), torch.tensor([2])])
    rule = Macro(importance=[1, 1, 2])
    found = rule(scores, target, 3, 0.8)
    assert found.values.isinf().tolist() == [False, False, True] and found.fallback_classes == (2,)
    assert found.warning == "too few rows: 1 class (2), always in the set to keep the promise"
    single = Macro(importance=[1, 1, 2], thresholds="single")(scores, target, 3, 0.8)
    assert single.values.isinf() and "every set will hold all classes" in single.warning


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"thresholds": "each"}, "thresholds must be one of by_class, single, got 'each'"),
        ({"classes": "some"}, "classes must be one of present, all, got 'some'"),
        ({"groups": [0, 1], "importance": [1, 1]}, "importance must be None where groups are given"),
        ({"groups": [0, -1]}, "groups must be whole numbers >= 0, one per class, got -1"),
        ({"groups": [0.5, 1]}, "groups must be whole numbers >= 0, one per class, got 0.5"),
        ({"importance": [1, math.nan]}, "importance must be finite numbers >= 0, one per class, got nan"),
        ({"importance": []}, "importance must be .* got none"),
        ({"importance": [0, 0]}, "importance must be above 0 for some class"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        Macro(**options)


@pytest.mark.errors
def test_vectors_of_other_lengths():
    with pytest.raises(ValueError, match=r"groups must have one entry per class \(6\), got 2"):
        Conformal(priors=torch.full((6,), 1 / 6), rule=Macro(groups=[0, 1]))
    with pytest.raises(ValueError, match=r"importance must have one entry per class \(4\), got 2"):
        Conformal(score="lac", rule=Macro(importance=[1, 1])).calibrate(
            torch.randn(9, 4), torch.arange(9) % 4
        )
    with pytest.raises(
        ValueError, match=r"groups must be given for the level 'genus': Macro.over\(class_table"
    ):
        Conformal(score="lac", rule=Macro(level="genus")).calibrate(torch.randn(9, 4), torch.arange(9) % 4)
    with pytest.raises(ValueError, match="above 0 for some class with calibration rows"):
        Macro(importance=[0, 1])(torch.rand(3), torch.zeros(3, dtype=torch.int64), 2, 0.5)


MOST_HAVE_FEW = torch.tensor([40, 20, 10, 5] + [2] * 4 + [1] * 12)
ZIPF = (5000 / (torch.arange(1, 101) * 5.187)).round().long()


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "coverage", "draws"), [(ZIPF, 0.9, 500), (MOST_HAVE_FEW, 0.85, 1500)])
def test_the_promise_holds_for_the_average_class_where_others_fail(counts, coverage, draws):
    """Scores are exponential, worse for rare classes: coverage given thresholds is known exactly."""
    generator, c = torch.Generator().manual_seed(1), len(counts)
    target = torch.repeat_interleave(torch.arange(c), counts)
    rate = 1 / (1 + torch.arange(c, dtype=torch.float64) / 2)
    covered = {"marginal": [], "uncorrected": [], "single": [], "by_class": []}
    for _ in range(draws):
        uniform = torch.rand(len(target), generator=generator, dtype=torch.float64)
        scores = -uniform.log() / rate[target]
        in_order = scores.sort()
        reached = (1 / (c * counts.double()))[target[in_order.indices]].cumsum(0)
        for name, threshold in (
            ("marginal", conformal_threshold(scores, coverage=coverage)),
            ("uncorrected", in_order.values[int(torch.searchsorted(reached, coverage - 1e-12))]),
            ("single", Macro(thresholds="single")(scores, target, c, coverage).values),
            ("by_class", Macro()(scores, target, c, coverage).values),
        ):
            covered[name].append(float((1 - (-rate * threshold).exp()).mean()))
    mean = {name: sum(values) / draws for name, values in covered.items()}
    error = {name: 4 * torch.tensor(values).std().item() / draws**0.5 for name, values in covered.items()}
    largest = 1 / (c * int(counts.min()))
    assert mean["marginal"] < coverage - 0.1  # rare classes pay for the promise about all rows
    assert coverage - error["by_class"] <= mean["by_class"] <= mean["single"] <= coverage + 3 * largest
    if counts is MOST_HAVE_FEW:  # with many rows for each class the correction is small
        assert mean["uncorrected"] < coverage - error["uncorrected"]


@pytest.mark.errors
def test_macro_without_priors_says_what_to_write():
    with pytest.raises(ValueError, match=r"priors must be given .* or write score='lac'$"):
        Conformal(0.9, rule="macro")
    assert Conformal(0.9, rule="macro", score="lac").options()["score"]["name"] == "lac"
