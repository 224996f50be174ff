"""Exact intervals of shares, macro means over parents, and the measured part of promises."""

import numpy as np
import pytest
import torch
from scipy import stats

from shortlist.class_table import ClassTable
from shortlist.coverage_law import chance_of_hits
from shortlist.metrics import Estimate, clopper_pearson, effective_rows, evaluate
from shortlist.metrics.names import check_metric, larger_is_better, predictor_of, size_of
from shortlist.predictors import Conformal, Promise, TopK
from shortlist.sentences import promise_words


def test_exact_intervals_are_those_of_scipy():
    for rows in (1, 2, 5, 40, 1341):
        for hits in {0, 1, rows // 3, rows - 1, rows}:
            for level in (0.9, 0.95):
                want = stats.binomtest(hits, rows).proportion_ci(level, method="exact")
                found = clopper_pearson(hits, rows, level=level)
                assert found == pytest.approx((want.low, want.high), abs=1e-9)


@pytest.mark.errors
def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"hits must be <= the number of rows \(5\), got 6"):
        clopper_pearson(6, 5)
    with pytest.raises(ValueError, match="class_rows must have a class with rows and a weight"):
        effective_rows([0, 0])


def test_effective_rows_have_the_variance_of_the_mean():
    rows, weights = [3, 10, 50], [0.2, 0.5, 0.3]
    variance = sum(w**2 / n for w, n in zip(weights, rows, strict=True))  # of shares with variance 1 a row
    assert effective_rows(rows, weights) == pytest.approx(1 / variance)
    assert effective_rows(rows, rows) == pytest.approx(63)  # the mean over rows
    assert effective_rows(rows, [2 * w for w in weights]) == pytest.approx(1 / variance)


@pytest.mark.slow
def test_intervals_of_macro_shares_without_spread_hold_the_truth():
    """Classes of 2 and 30 rows, all hits by chance: the interval must still hold the true macro share."""
    generator = torch.Generator().manual_seed(0)
    missed = degenerate = 0
    for _ in range(4000):
        true = 0.97
        hits = [int((torch.rand(n, generator=generator) < true).sum()) for n in (2, 30)]
        if hits == [2, 30]:
            degenerate += 1
            number = effective_rows([2, 30])
            missed += clopper_pearson(number, number)[0] > true
    assert degenerate > 1000 and missed == 0


TABLE = ClassTable(
    names=tuple("abcdef"),
    counts=(200, 90, 50, 30, 9, 4),
    parents={"genus": ("x", "x", "x", "y", "y", "z"), "family": ("p", "p", "p", "p", "p", "q")},
)


def some_rows(n=120, seed=0, classes=5):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(classes, (n,), generator=generator)
    scores = torch.randn(n, 6, generator=generator)
    scores[torch.arange(n), target] += 1.0
    return scores, target


def macro_by_parent(hits, target, parents):
    """Loops: the mean over parents of the mean over their classes of the classes' own shares."""
    by_parent = {}
    for index, parent in enumerate(parents):
        own = [hit for hit, true in zip(hits, target, strict=True) if true == index]
        if own:
            by_parent.setdefault(parent, []).append(np.mean(own))
    return np.mean([np.mean(shares) for shares in by_parent.values()])


def test_coverage_by_parents_is_that_of_loops():
    scores, target = some_rows()
    hits = TopK(2)(scores).gather(1, target[:, None]).squeeze(1).tolist()
    generator = torch.Generator().manual_seed(5)
    results = evaluate(scores, target, {"top2": TopK(2)}, TABLE, num_resamples=100, generator=generator)
    found = results.sets["top2"].coverage_by
    assert set(found) == {"genus", "family"}
    draws = torch.randint(120, (100, 120), generator=torch.Generator().manual_seed(5))
    for level, parents in TABLE.parents.items():
        want = macro_by_parent(hits, target.tolist(), parents)
        assert found[level].value == pytest.approx(want, abs=1e-12)
        again = [macro_by_parent(np.array(hits)[d], target[d].tolist(), parents) for d in draws.numpy()]
        ends = np.quantile(again, [0.025, 0.975])
        assert (found[level].low, found[level].high) == pytest.approx(ends, abs=1e-9)
        assert results.metrics()[f"sets.top2.coverage_by.{level}"] == found[level]


def test_the_worst_class_has_its_own_exact_interval_and_its_rows():
    scores, target = some_rows()
    results = evaluate(scores, target, {"top2": TopK(2)}, TABLE, num_resamples=0)
    sets = results.sets["top2"]
    shares = [
        hits / rows if rows else 2.0 for hits, rows in zip(sets.class_hits, results.class_rows, strict=True)
    ]
    worst = int(np.argmin(shares))
    assert sets.worst_classes[0] == worst and sets.worst_rows[0] == results.class_rows[worst]
    want = stats.binomtest(sets.class_hits[worst], results.class_rows[worst]).proportion_ci(
        0.95, method="exact"
    )
    first = sets.worst_coverage[0]
    assert (first.value, first.low, first.high) == pytest.approx(
        (shares[worst], want.low, want.high), abs=1e-9
    )
    assert results.metrics()["sets.top2.worst_class"] == first
    assert len(sets.worst_rows) == len(sets.worst_coverage) == 5  # class f has no rows


def test_names_of_the_new_metrics():
    check_metric("sets.top2.coverage_by.genus", ["top2"])
    check_metric("sets.top2.worst_class", ["top2"])
    with pytest.raises(ValueError, match="metrics must be such as"):
        check_metric("sets.other.coverage_by.genus", ["top2"])
    assert predictor_of("sets.top2.coverage_by.genus") == predictor_of("sets.top2.worst_class") == "top2"
    assert larger_is_better("sets.top2.worst_class") and larger_is_better("sets.top2.coverage_by.genus")
    assert size_of("sets.top2.coverage_by.genus") is None


def test_five_rows_that_all_hit_are_not_sure_of_anything():
    scores, target = 9 * torch.eye(6)[:5], torch.arange(5)
    results = evaluate(scores, target, {"top1": TopK(1)}, TABLE, num_resamples=100)
    coverage = results.sets["top1"].coverage
    assert (coverage.micro.value, coverage.micro.high) == (1.0, 1.0)
    assert coverage.micro.low == pytest.approx(0.025 ** (1 / 5))
    assert coverage.macro.low == pytest.approx(0.025 ** (1 / 5))  # five classes of one row each
    assert results.sets["top1"].coverage_by["genus"].low == pytest.approx(
        0.025 ** (1 / effective_rows([1] * 5, [1 / 6] * 3 + [1 / 4] * 2))
    )
    assert results.sets["top1"].size.micro == Estimate(1.0, 1.0, 1.0)


def test_what_came_of_promises():
    scores, target = some_rows(400, seed=1)
    held_out, true = some_rows(300, seed=2)
    lac = Conformal(coverage=0.9).calibrate(scores, target)
    by_class = Conformal(coverage=0.8, rule="class_conditional")
    with pytest.warns(UserWarning, match="too few rows for thresholds of their own: 1 class "):
        by_class.calibrate(scores, target)
    predictors = {"lac": lac, "by_class": by_class, "top2": TopK(2), "plain": lambda rows: rows > 0}
    results = evaluate(held_out, true, predictors, TABLE, num_resamples=50)
    assert results.sets["plain"].promise is None
    hits = sum(results.sets["lac"].class_hits)
    promise = results.sets["lac"].promise
    assert promise.with_measured(None) == lac.promise
    want = stats.binomtest(hits, 300).proportion_ci(0.95, method="exact")
    assert (promise.measured.rows, promise.measured.coverage) == (300, hits / 300)
    assert (promise.measured.low, promise.measured.high) == pytest.approx((want.low, want.high), abs=1e-9)
    assert promise.measured.mean_size == results.sets["lac"].size.micro.value
    assert promise.measured.p_value == pytest.approx(float(stats.betabinom.cdf(hits, 300, 361, 40)))
    each = results.sets["by_class"]
    chances = [
        chance_of_hits(
            each.class_hits[c], results.class_rows[c], rows=by_class.report.class_rows[c], coverage=0.8
        )
        for c in range(5)
    ]
    assert each.promise.measured.p_value == pytest.approx(min(1.0, 5 * min(chances)))
    top = results.sets["top2"].promise
    assert top.about == "nothing" and top.measured.p_value is None
    assert (results.sets["top2"].under_covered, results.sets["lac"].under_covered) == (
        None,
        pytest.approx(
            np.mean(
                [
                    h / n < 0.9
                    for h, n in zip(results.sets["lac"].class_hits, results.class_rows, strict=True)
                    if n
                ]
            )
        ),
    )


def test_scores_that_moved_are_below_the_promise():
    scores, target = some_rows(400, seed=1)
    lac = Conformal(coverage=0.9).calibrate(scores, target)
    moved, true = some_rows(300, seed=2)
    moved[torch.arange(300), true] -= 2.0
    promise = evaluate(moved, true, {"lac": lac}, TABLE, num_resamples=0).sets["lac"].promise
    assert promise.is_below and "That is below the promise" in promise_words(promise)


def test_a_promise_about_the_average_class_is_measured_over_classes():
    scores, target = some_rows()

    class Macro:
        promise = Promise("average class", level=0.9, asked=0.9, rows=100)

        def __call__(self, rows):
            return TopK(2)(rows)

    sets = evaluate(scores, target, {"macro": Macro()}, TABLE, num_resamples=50).sets["macro"]
    found, macro = sets.promise.measured, sets.coverage.macro
    assert (found.coverage, found.low, found.high) == (macro.value, macro.low, macro.high)
    assert found.p_value is None


@pytest.mark.errors
def test_promises_that_are_none():
    class Odd:
        promise = "surely"

        def __call__(self, rows):
            return rows > 0

    scores, target = some_rows()
    with pytest.raises(ValueError, match=r"predictors\['odd'\].promise must be a Promise or None, got str"):
        evaluate(scores, target, {"odd": Odd()}, TABLE, num_resamples=0)


def test_the_mean_size_at_a_place_counts_rows_as_its_classes_occur():
    generator = torch.Generator().manual_seed(0)
    scores = 1.5 * torch.randn(900, 5, generator=generator)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    weights, priors = torch.tensor([0.0, 0.7, 0.2, 0.1, 0.0]).double(), torch.full((5,), 0.2).double()
    predictor = Conformal(0.9).at(weights, priors=priors).calibrate(scores[:400], target[:400])
    measured = evaluate(scores[400:], target[400:], {"there": predictor}).sets["there"].promise.measured
    sets, labels = predictor(scores[400:]), target[400:]
    hits, sizes = sets[torch.arange(500), labels].double(), sets.sum(1).double()
    means = [(float(hits[labels == j].mean()), float(sizes[labels == j].mean())) for j in range(5)]
    assert measured.coverage == pytest.approx(
        sum(w * hit for w, (hit, _) in zip(weights, means, strict=True))
    )
    assert measured.mean_size == pytest.approx(
        sum(w * size for w, (_, size) in zip(weights, means, strict=True))
    )
    assert measured.mean_size != pytest.approx(float(sizes.mean()), abs=0.01)
    assert measured.rows == int((weights[labels] > 0).sum())
