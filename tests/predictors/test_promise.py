"""The law of coverage given the calibration rows, and what predictors promise."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from scipy import stats

from shortlist import ClassTable
from shortlist._beta import beta_binomial_cdf, beta_cdf, beta_quantile
from shortlist.coverage_law import chance_of_hits, clopper_pearson, conformal_rank
from shortlist.predictors import (
    PREDICTORS,
    AverageError,
    AverageK,
    CalibrationRows,
    Conformal,
    Measured,
    PointwiseError,
    Population,
    Promise,
    TopK,
    coverage_range,
    rows_for,
)
from shortlist.predictors.thresholds import THRESHOLD_RULES, ClassConditional, Interpolated, Macro, Marginal
from shortlist.promise import Scope
from shortlist.sentences import promise_brief, promise_in_short, promise_numbers, promise_words
from shortlist.taxonomy import Taxonomy


@pytest.mark.parametrize("a", [0.1, 1, 7.5, 77, 5000, 1e6])
@pytest.mark.parametrize("b", [0.1, 1, 8, 333.3, 1e5])
def test_the_beta_law_is_that_of_scipy(a, b):
    law = stats.beta(a, b)
    for q in (1e-6, 0.025, 0.5, 0.975):
        x = float(law.ppf(q))
        assert beta_quantile(q, a, b) == pytest.approx(x, abs=1e-11)
        assert beta_cdf(x, a, b) == pytest.approx(float(law.cdf(x)), abs=1e-8)
    assert (beta_cdf(0.0, a, b), beta_cdf(1.0, a, b)) == (0.0, 1.0)


def test_the_beta_binomial_law_is_that_of_scipy():
    for rows, a, b in itertools.product((1, 9, 400, 5000), (1, 77, 1800), (1, 8, 201)):
        for hits in {0, rows // 2, int(0.85 * rows), rows - 1, rows}:
            want = float(stats.betabinom.cdf(hits, rows, a, b))
            assert beta_binomial_cdf(hits, rows, a, b) == pytest.approx(want, rel=1e-7, abs=1e-13)
    assert beta_binomial_cdf(-1, 5, 2, 3) == 0.0


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95, 0.99])
def test_ranges_of_coverage(coverage):
    for rows in (100, 1000, 10_000):
        k = conformal_rank(rows, coverage)
        want = stats.beta(k, rows + 1 - k).ppf([0.025, 0.975])
        assert coverage_range(rows, coverage) == pytest.approx(want, abs=1e-10)
    low, high = coverage_range(84, 0.9)
    assert (int(100 * low), -int(-100 * high // 1)) == (83, 96)  # as the issue says
    assert coverage_range(8, 0.9) == (1.0, 1.0)  # too few: all classes


@pytest.mark.parametrize(
    ("coverage", "within"), [(0.9, 0.05), (0.9, 0.021), (0.95, 0.03), (0.5, 0.1), (0.99, 0.3)]
)
def test_the_fewest_rows_within_a_distance(coverage, within):
    def is_within(rows):
        k = conformal_rank(rows, coverage)
        if k > rows:
            return False
        low, high = stats.beta(k, rows + 1 - k).ppf([0.025, 0.975])
        return coverage - low <= within and high - coverage <= within

    assert rows_for(coverage, within=within) == next(rows for rows in itertools.count(1) if is_within(rows))


@pytest.mark.errors
def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="within must be > 0, got 0"):
        rows_for(0.9, within=0)
    with pytest.raises(ValueError, match="coverage must be < 1, got 1"):
        coverage_range(10, 1.0)
    with pytest.raises(ValueError, match="rows must be an integer >= 1, got 0"):
        coverage_range(0, 0.9)
    with pytest.raises(ValueError, match=r"about must be one of rows, .*, got 'luck'"):
        Promise("luck")  # pyright: ignore
    with pytest.raises(ValueError, match="level must be None for a promise about size"):
        Promise("size", level=0.9)


def calibrated(rule="marginal", *, rows=200, classes=5, coverage=0.9, seed=0, **more):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, classes, generator=generator)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    return Conformal(coverage=coverage, rule=rule, **more).calibrate(scores, target), target


@pytest.mark.slow
@pytest.mark.parametrize("rows", [30, 84])
def test_calibrations_draw_their_coverage_from_the_law(rows):
    """4,000 calibrations on continuous scores, whose true coverage is known: the threshold itself."""
    generator = torch.Generator().manual_seed(1)
    uniform = torch.rand(4000, rows, generator=generator, dtype=torch.float64)
    rule = Marginal()
    target = torch.zeros(rows, dtype=torch.int64)
    drawn = [float(rule(one, target, 1, 0.9).values) for one in uniform]
    k = conformal_rank(rows, 0.9)
    assert stats.kstest(drawn, stats.beta(k, rows + 1 - k).cdf).pvalue > 0.001
    low, high = coverage_range(rows, 0.9)
    inside = sum(low <= value <= high for value in drawn) / len(drawn)
    assert abs(inside - 0.95) < 4 * (0.95 * 0.05 / 4000) ** 0.5


@pytest.mark.slow
def test_below_the_promise_is_said_of_one_kept_promise_in_forty():
    """The chance of so few hits is below 2.5 % in at most 2.5 % of cases; an interval alone says far more."""
    generator = torch.Generator().manual_seed(2)
    rows, new, trials = 84, 400, 4000
    scores = torch.rand(trials, rows, generator=generator, dtype=torch.float64)
    k = conformal_rank(rows, 0.9)
    thresholds = scores.kthvalue(k, dim=1).values
    hits = (torch.rand(trials, new, generator=generator, dtype=torch.float64) <= thresholds[:, None]).sum(1)
    chances = [chance_of_hits(int(one), new, rows=rows, coverage=0.9) for one in hits]
    said = sum(chance < 0.025 for chance in chances) / trials
    assert 0.01 < said <= 0.025 + 4 * (0.025 * 0.975 / trials) ** 0.5
    alone = sum(float(stats.beta.ppf(0.975, int(one) + 1, new - int(one))) < 0.9 for one in hits) / trials
    assert alone > 0.12  # a test that forgets the calibration rows


def test_every_predictor_and_rule_tells_its_promise():
    tree = Taxonomy(("a", "b", "all classes"), ("class", "class", "root"), (2, 2, -1))
    first = {"topk": [3], "average_k": [3], "taxonomy_nodes": [tree]}
    for name, make in PREDICTORS.items():
        predictor = make(*first.get(name, []))
        promise = predictor.promise
        assert promise.asked == getattr(predictor, "coverage", None)
        assert promise.size == getattr(predictor, "k", None)
        assert Promise.from_dict(json.loads(json.dumps(promise.to_dict()))) == promise
        assert promise_words(promise).endswith(".")
    assert all(rule.about != "nothing" for rule in THRESHOLD_RULES.values())


def test_half_of_the_rows_asked_for_is_no_promise_of_an_interpolated_rule():
    for coverage in (0.5, 0.3):
        promise = Conformal(coverage=coverage, rule="interpolated").promise
        assert (promise.about, promise.level, promise.asked) == ("nothing", None, coverage)
        said = f"Nothing is promised about the right class. Asked for were {100 * coverage:g} of 100."
        assert promise_words(promise) == said and promise_brief(promise) == f"asked for {100 * coverage:g}"
    assert Conformal(coverage=0.6, rule="interpolated").promise.level == pytest.approx(0.2)


def test_numbers_of_a_promise_are_those_that_it_tells():
    promise = Promise(
        "rows", level=0.9, asked=0.9, rows=84, has_law=True, measured=Measured(50, 0.86, 0.7, 0.9, 2)
    )
    low, high = promise.spread
    assert json.loads(json.dumps(promise_numbers(promise))) == {
        "about": "rows",
        "level": 0.9,
        "holds": True,
        "calibration_rows": 84,
        "spread": [low, high],
        "measured": {"coverage": 0.86, "rows": 50},
    }
    assert 0.83 < low < 0.84 and 0.95 < high < 0.96


def test_one_is_said_as_one_and_100_is_said_of_all():
    def said(about="nothing", **options) -> str:
        return promise_words(Promise(about, **options))

    assert said(size=1) == "Such lists have 1 class. Nothing is promised about the right class."
    assert said("size", size=1).startswith("Such lists have 1 class on average. ")
    one = said("place", level=0.9, asked=0.9, rows=30, place="the Alps", classes=1)
    assert "for photos of 1 class of the Alps. Nothing is promised" in one
    photos = Scope(photos=2)
    assert "Of 1 object for calibration, 100 of 100" in said(size=2, rows=1, share=1.0, scope=photos)
    assert "calibrated on 1 object." in said("size", size=2, rows=1, scope=photos)
    shares = {0.9957: "99.5", 0.99999: "99.9", 0.994: "99", 1.0: "100", 1 - 1e-12: "100"}
    for share, percent in shares.items():
        assert f", {percent} of 100 have" in said(size=5, rows=390, share=share)
    assert ", 99.9 of 100 have" in said(size=5, rows=3900, share=0.99996)


def test_what_is_measured_says_of_what():
    leaves = Scope(photos=3, column="organ", value="leaf")
    place = {"rows": 80, "share": 0.9, "place": "the Alps", "classes": 12}
    average = promise_words(Promise("size", size=3, scope=leaves, **place))
    assert (
        "For the Alps, 90 of 100 such lists contain the right class (95 % interval 81 to 96). "
        "That is measured on 80 objects with 3 photos that all have organ: leaf, not promised."
    ) in average
    missing = Promise("average class", level=0.9, asked=0.9, rows=80, left_out=2, scope=Scope(photos=3))
    said = promise_words(missing)
    assert "2 classes have no objects with 3 photos for calibration: nothing is promised for them." in said
    said = promise_words(Promise("size", size=3, scope=Scope(macro=True), rows=80, share=0.9))
    assert (
        "For the average class, 90 of 100 such lists contain the right class (95 % interval 81 to 96)."
        in said
    )
    said = promise_words(Promise("size", size=3, scope=Scope(macro=True), **place))
    assert "For the average class of the Alps, 90 of 100" in said and "measured on 80 photos, not" in said
    assert "A list has at most 6 classes." in promise_words(Promise("size", size=3, at_most=6, rows=80))
    assert "at most" not in promise_words(Promise("size", size=3, at_most=12, **place))  # of the 12 there
    few = Promise("place", level=0.9, asked=0.9, rows=3, lists_all=True, place="the Alps", classes=12)
    assert promise_words(few).endswith("That is too few: every list has all classes of the Alps.")
    assert promise_in_short(few).startswith("Every list has all classes of the Alps: there are too few")


def test_a_measured_share_has_its_exact_interval():
    """72 of 80: the ends solve the binomial tails, by bisection; half of the weight on 20 rows of 80."""
    assert Promise("nothing", size=3, rows=80, share=0.9).share_range == pytest.approx(
        (0.812435, 0.955829), abs=1e-6
    )
    target, priors = torch.tensor([0] * 60 + [1] * 20), torch.tensor([0.5, 0.5])
    rows = CalibrationRows.of_rows(9 * torch.eye(2)[target], target, priors=priors)
    even = Population(rows, rows.objects(), importance=torch.tensor([0.5, 0.5]).double())
    assert Population(rows, rows.objects()).effective_size == 80
    assert even.effective_size == pytest.approx(1 / (0.25 / 60 + 0.25 / 20))
    fewer = Promise("nothing", size=3, rows=80, share=0.9, share_rows=60.0).share_range
    assert fewer == pytest.approx(clopper_pearson(54, 60))


def test_promises_without_coverage():
    scores = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    said = "Such lists have 3 classes. Nothing is promised about the right class."
    assert promise_words(TopK(3).promise) == said
    average = AverageK(2.5).calibrate(scores).promise
    assert average == Promise("size", size=2.5, rows=50)
    assert promise_words(average) == (
        "Such lists have 2.5 classes on average. Nothing is promised about the right class. "
        "The lists were calibrated on 50 photos."
    )
    for trusting in (PointwiseError(coverage=0.8), AverageError(coverage=0.8).calibrate(scores)):
        promise = trusting.promise
        assert (promise.level, promise.asked, promise.spread, promise.is_below) == (None, 0.8, None, False)
        said = "If the model's probabilities are right, 80 of 100 such lists contain the right class."
        assert promise_words(promise).startswith(f"Nothing is promised. {said}")
        assert promise_brief(promise) == "asked for 80"


def test_the_marginal_promise_is_about_all_rows():
    predictor, _ = calibrated(rows=84)
    promise = predictor.promise
    assert (promise.about, promise.level, promise.rows, promise.left_out) == ("rows", 0.9, 84, 0)
    assert promise.spread == coverage_range(84, 0.9)
    assert promise_words(promise) == (
        "90 of 100 such lists contain the right class. "
        "The promise is for all photos together, not for each class. "
        "The lists were calibrated on 84 photos, so the true share is probably between 83 and 96 %."
    )
    many = Promise("rows", level=0.9, asked=0.9, rows=5000, has_law=True)
    assert "between 89.1 and 90.9 " in promise_words(many)  # rounded outwards
    with pytest.warns(UserWarning, match="needs at least 9"):
        few, _ = calibrated(rows=5)
    assert promise_words(few.promise).endswith("That is too few: every list has all classes.")


@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
def test_promises_about_classes_and_clusters():
    predictor, target = calibrated("class_conditional", rows=300)
    counts = target.bincount(minlength=5).tolist()
    promise = predictor.promise
    assert promise.about == "each class" and predictor.report.class_rows == tuple(counts)
    assert promise.class_rows == (sorted(counts)[0], sorted(counts)[2])
    assert promise.spread == coverage_range(min(counts), 0.9)
    assert f"The smallest class has {min(counts)} of these photos" in promise_words(promise)
    assert "for each class" in promise_words(promise) and "for the smallest class." in promise_words(promise)

    few, target = calibrated("class_conditional", rows=90, classes=12)
    enough = [n for n in target.bincount(minlength=12).tolist() if n >= 9]
    assert few.promise.left_out == 12 - len(enough) == len(few.report.fallback_classes) in range(2, 12)
    said = f"{12 - len(enough)} classes have too few photos: nothing is promised for them."
    assert said in promise_words(few.promise)
    full, _ = calibrated(ClassConditional(fallback="full"), rows=40, classes=12)
    assert full.promise.left_out == 0
    none, _ = calibrated("class_conditional", rows=20, classes=12)
    assert none.promise.class_rows is None and none.promise.spread is None
    assert promise_words(none.promise).endswith(
        "on 20 photos. That is too few for each class: nothing is promised."
    )
    all_in, _ = calibrated(ClassConditional(fallback="full"), rows=20, classes=12)
    assert promise_words(all_in.promise).endswith("too few for each class: every list has all classes.")
    one = Promise("each class", level=0.9, asked=0.9, rows=99, class_rows=(9, 30), left_out=1, has_law=True)
    assert "1 class has too few photos: nothing is promised for it." in promise_words(one)
    average = Promise("average class", level=0.9, asked=0.9, rows=99, left_out=2)
    assert "2 classes have no photos for calibration: nothing is promised for them." in promise_words(average)

    clustered, _ = calibrated("clustered", rows=2000)
    assert clustered.promise.about == "each cluster" and clustered.promise.class_rows is not None
    assert sum(set(clustered.report.class_rows)) < 2000  # the other rows found the clusters
    between, _ = calibrated(Interpolated(weight=0.5), rows=300)
    assert (between.promise.level, between.promise.asked) == (0.8, 0.9)  # the union of two misses
    assert between.promise.spread is None
    words = promise_words(between.promise)
    assert words.startswith("80 of 100 such lists contain") and "Asked for were 90, which this rule" in words
    assert "How far the true share is from the promise is not known." in words


def test_a_promise_of_the_average_class_has_a_bound_and_no_law():
    promise = Promise("average class", level=0.9, asked=0.9, rows=500)
    assert promise.spread is None and promise_brief(promise) == "promised 90 for the average class"
    low = promise.with_measured(Measured(1000, 0.7, 0.6, 0.8, 3.0))
    assert not low.is_below and "below the promise" not in promise_words(low)


def test_an_average_of_genera_or_by_importance_is_not_called_that_of_the_classes(tmp_path):
    from shortlist.predictors import load, save

    table = ClassTable(names=tuple("abcde"), parents={"genus": ("A", "A", "A", "A", "B")})
    genus, _ = calibrated(Macro.over(table, "genus"), score="lac")
    assert (genus.promise.about, genus.promise.group) == ("average group", "genus")
    said = "90 of 100 such lists contain the right class, for the average genus: "
    assert promise_words(genus.promise).startswith(said)
    assert promise_brief(genus.promise) == "promised 90 for the average genus"
    unnamed, _ = calibrated(Macro(groups=[0, 0, 0, 0, 1]), score="lac")
    assert "for the average group of classes: " in promise_words(unnamed.promise)
    given, _ = calibrated(Macro(importance=[1, 1, 1, 1, 9]), score="lac")
    assert given.promise.about == "weighted classes"
    assert "Classes count by the importance that was given to them." in promise_words(given.promise)
    for predictor in (genus, unnamed, given):
        save(predictor, tmp_path / "one")
        assert load(tmp_path / "one").promise == predictor.promise
    assert Macro().about == "average class"  # the rule itself has not changed


def test_below_the_promise_is_said_only_where_chance_does_not_explain_it():
    promise = Promise("rows", level=0.9, asked=0.9, rows=84, has_law=True)

    def measured(hits, rows):
        chance = chance_of_hits(hits, rows, rows=84, coverage=0.9)
        return promise.with_measured(Measured(rows, hits / rows, 0.8, 0.99, 2.61, chance))

    assert "below" not in promise_words(measured(1200, 1341))
    near = measured(1167, 1341)  # 87.0: far outside of the interval of the test rows alone
    assert not near.is_below and "less than promised, but chance can explain it." in promise_words(near)
    assert "Measured on 1,341 photos: 87.0 of 100" in promise_words(near)
    assert "with 2.6 classes on average" in promise_words(near)
    far = measured(1073, 1341)  # 80.0
    said = "That is below the promise: chance alone does not explain it."
    assert far.is_below and said in promise_words(far)
    of_classes = Promise("each class", level=0.9, asked=0.9, rows=84, class_rows=(20, 30), has_law=True)
    words = promise_words(of_classes.with_measured(far.measured))
    assert "Some class is below the promise" in words
    assert "Measured on 30 photos: 90 of 100 (95 % interval 80 to 99)" in promise_words(measured(27, 30))
    assert Promise.from_dict(json.loads(json.dumps(far.to_dict()))) == far


def test_what_else_the_rows_served_for_is_kept_and_said(tmp_path):
    from dataclasses import replace

    from shortlist.predictors import load, save

    predictor, _ = calibrated("class_conditional", rows=300)
    predictor.report = replace(predictor.report, rows_also="chose the epoch")
    save(predictor, tmp_path / "one")
    again = load(tmp_path / "one")
    assert again.report == predictor.report and again.promise == predictor.promise
    assert "These photos also chose the epoch, so the promise is not exact." in promise_words(again.promise)


def test_the_table_of_the_docs_is_that_of_the_function():
    page = (Path(__file__).parents[2] / "docs/guides/promise_words.md").read_text(encoding="utf-8")
    lines = page.partition("## How many calibration rows")[2].partition("| ---: ")[2].splitlines()[1:9]
    assert len(lines) == 8
    for line in lines:
        rows, *ranges = [cell.strip() for cell in line.strip("|").split("|")]
        for coverage, said in zip((0.8, 0.9, 0.95, 0.99), ranges, strict=True):
            low, high = coverage_range(int(rows.replace(",", "")), coverage)
            every = "all classes in every set"
            assert said == (every if low == 1 else f"{100 * low:.1f} to {100 * high:.1f}")
    assert rows_for(0.9, within=0.02) == 866 and rows_for(0.9, within=0.01) == 3457
