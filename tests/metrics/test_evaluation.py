"""From scores to one file of metrics, with intervals, and over several runs."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn.functional import cross_entropy

from shortlist.class_table import ClassTable
from shortlist.metrics import (
    Estimate,
    Results,
    aggregate,
    balanced_error,
    bootstrap,
    calibration_error,
    calibration_sums,
    clopper_pearson,
    coverage_shortfall,
    evaluate,
    rank_histogram,
    rows as row_numbers,
    set_coverage,
    set_size,
    set_sums,
    size_quantiles,
    topk_accuracy,
    topk_curve,
    topk_curve_area,
    under_covered_share,
    worst_classes,
)
from shortlist.metrics.aggregation import student_t_quantile
from shortlist.sentences import promise_words

C = 9
TABLE = ClassTable(names="abcdefghi", counts=(500, 300, 101, 100, 60, 20, 19, 3, 0))


class Above:
    """A predictor: classes whose score is above a threshold."""

    def __init__(self, threshold, coverage=None):
        self.threshold = threshold
        if coverage is not None:
            self.coverage = coverage

    def __call__(self, scores):
        return scores > self.threshold


PREDICTORS = {"loose": Above(-0.5, 0.9), "tight": Above(1.6)}


def rows_of(n=80, seed=0):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(C - 1, (n,), generator=generator)  # the last class has no rows
    scores = torch.randn(n, C, dtype=torch.float64, generator=generator)
    scores[torch.arange(n), target] += 1.0
    return scores, target


def close(metric, value):
    return metric.value == pytest.approx(float(value), abs=1e-12)


@pytest.mark.parametrize("num_resamples", [0, 50])
def test_bins_of_training_counts_take_the_place_of_the_three_groups(num_resamples):
    scores, target = rows_of()
    bins = {"up_to_3": "hi", "up_to_20": "fg", "up_to_300": "bcde", "up_to_1000": "a", "over_1000": ""}
    options = {"count_bins": [3, 20, 300, 1000], "ks": (2,), "num_resamples": num_resamples}
    results = evaluate(scores, target, PREDICTORS, TABLE, **options)
    assert list(results.groups) == list(bins)
    assert [group.classes for group in results.groups.values()] == [len(names) for names in bins.values()]
    hits = (scores.argsort(1, descending=True)[:, :2] == target[:, None]).any(1)
    for name, members in bins.items():
        means = [float(hits[target == TABLE.names.index(m)].double().mean()) for m in members if m != "i"]
        metric = results.metrics()[f"top2.{name}"]
        assert metric.value == (pytest.approx(sum(means) / len(means)) if means else None)
        assert (metric.low is None) == (num_resamples == 0 or not means)
    assert set(results.scores.topk) == {2}
    assert Results.from_json(results.to_json()) == results
    with pytest.raises(ValueError, match=r"count_bins must rise, got \[5, 5\]"):
        evaluate(scores, target, PREDICTORS, TABLE, count_bins=[5, 5])


@pytest.mark.parametrize("ties", ["against", "expected"])
def test_values_are_those_of_the_functions(ties):
    scores, target = rows_of()
    scores = scores.round(decimals=1)
    results = evaluate(scores, target, PREDICTORS, TABLE, ties=ties, num_resamples=0, curve_max=4)
    of_scores = results.scores
    assert list(of_scores.topk) == [1, 3, 5]  # 10 is more than there are classes
    groups = TABLE.groups()
    for k, averages in of_scores.topk.items():
        options = {"k": k, "ties": ties}
        assert close(averages.micro, topk_accuracy(scores, target, **options))
        assert close(averages.macro, topk_accuracy(scores, target, average="macro", **options))
        by_group = topk_accuracy(scores, target, average="group", groups=groups, **options)
        assert [averages.groups[name].value for name in ("few", "medium", "many")] == pytest.approx(
            by_group.tolist()
        )
        own = topk_accuracy(scores, target, average="none", **options)[: C - 1]
        rows = np.array(results.class_rows)[: C - 1]
        assert np.array(of_scores.class_hits[k])[: C - 1] / rows == pytest.approx(own.numpy())
    assert close(of_scores.balanced_error, balanced_error(scores, target, ties=ties))
    assert close(of_scores.topk_area, topk_curve_area(scores, target, ties=ties))
    curve = topk_curve(rank_histogram(scores, target, ties=ties), k_max=4)
    assert of_scores.topk_curve == pytest.approx(curve.tolist())
    assert close(of_scores.calibration_error, calibration_error(scores, target, ties=ties))
    assert close(of_scores.nll, cross_entropy(scores, target))
    bins = calibration_sums(scores, target, ties=ties)
    assert of_scores.reliability.rows == tuple(bins.counts.tolist())
    full = int(bins.counts.argmax())
    want = float(bins.confidence[full] / bins.counts[full])
    assert of_scores.reliability.confidence[full] == pytest.approx(want)
    assert (results.rows, results.ignored_rows, results.nan_rows, results.absent_classes) == (80, 0, 0, 1)
    assert results.class_rows == tuple(torch.bincount(target, minlength=C).tolist())
    few = results.groups["few"]
    assert (few.classes, few.present, few.rows) == (3, 2, int((target >= 6).sum()))


def test_sets_are_those_of_the_functions():
    scores, target = rows_of()
    results = evaluate(scores, target, PREDICTORS, TABLE, num_resamples=0, num_worst=3)
    for name, predictor in PREDICTORS.items():
        sets, got = predictor(scores), results.sets[name]
        sums = set_sums(sets, target)
        for averages, function in ((got.coverage, set_coverage), (got.size, set_size)):
            assert close(averages.micro, function(sets, target))
            assert close(averages.macro, function(sets, target, average="macro"))
            by_group = function(sets, target, average="group", groups=TABLE.groups())
            assert averages.groups["medium"].value == pytest.approx(float(by_group[1]))
        assert close(got.empty_share, (~sets.any(1)).double().mean())
        largest = len(got.size_histogram)
        assert got.size_histogram == tuple(sums.histogram[:largest].tolist())
        assert got.size_histogram[-1] > 0 and sum(got.size_histogram) == 80
        assert list(got.size_quantiles.values()) == size_quantiles(sums.histogram).tolist()
        few = sets.sum(1)[TABLE.groups()[target] == 0].tolist()
        want = np.quantile(few, [0.05, 0.25, 0.5, 0.75, 0.95], method="inverted_cdf")
        assert list(got.group_size_quantiles["few"].values()) == want.tolist()
        index, coverage = worst_classes(sums.hits, sums.counts, num_worst=3)
        assert got.worst_classes == tuple(index.tolist())
        assert [found.value for found in got.worst_coverage] == coverage.tolist()
        assert got.class_hits == tuple(sums.hits.tolist())
        assert got.class_sizes == tuple(sums.sizes.tolist())
    loose, tight = results.sets["loose"], results.sets["tight"]
    assert tight.empty_share.value > 0.1
    assert (tight.promise, tight.under_covered, tight.shortfall) == (None, None, None)
    sums = set_sums(PREDICTORS["loose"](scores), target)
    assert loose.promise.level == loose.promise.asked == 0.9 and loose.promise.about == "rows"
    assert loose.under_covered == float(under_covered_share(sums.hits, sums.counts, coverage=0.9)) > 0
    assert loose.shortfall == float(coverage_shortfall(sums.hits, sums.counts, coverage=0.9))


def test_intervals_are_percentiles_of_rows_drawn_again():
    scores, target = rows_of(40)
    generator = torch.Generator().manual_seed(3)
    results = evaluate(scores, target, PREDICTORS, TABLE, num_resamples=200, generator=generator)
    draws = torch.randint(40, (200, 40), generator=torch.Generator().manual_seed(3))
    groups = TABLE.groups()
    again: dict[str, list[float]] = {}
    for rows in draws:
        s, t = scores[rows], target[rows]
        sets = PREDICTORS["tight"](s)
        metrics = {
            "top3.macro": topk_accuracy(s, t, k=3, average="macro"),
            "top3.few": topk_accuracy(s, t, k=3, average="group", groups=groups)[0],
            "balanced_error": balanced_error(s, t),
            "topk_area": topk_curve_area(s, t),
            "nll": cross_entropy(s, t),
            "sets.tight.coverage.macro": set_coverage(sets, t, average="macro"),
            "sets.tight.size.many": set_size(sets, t, average="group", groups=groups)[2],
            "sets.tight.size.micro": set_size(sets, t),
        }
        for name, value in metrics.items():
            again.setdefault(name, []).append(float(value))
    for name, values in again.items():
        low, high = np.nanquantile(values, [0.025, 0.975])
        metric = results.metrics()[name]
        assert (metric.low, metric.high) == pytest.approx((low, high), abs=1e-9), name
        assert low < high
    assert results.level == 0.95 and results.num_resamples == 200
    same = evaluate(scores, target, PREDICTORS, TABLE, num_resamples=50)
    assert same == evaluate(scores, target, PREDICTORS, TABLE, num_resamples=50)


def test_intervals_of_shares_of_rows_are_exact_and_those_of_the_promises():
    scores, target = rows_of(40)
    results = evaluate(scores, target, PREDICTORS, TABLE, num_resamples=20)
    shares = {
        "top1.micro": float(topk_accuracy(scores, target, k=1)),
        "top3.micro": float(topk_accuracy(scores, target, k=3)),
        "sets.loose.coverage.micro": float(set_coverage(PREDICTORS["loose"](scores), target)),
        "sets.tight.empty_share": float((~PREDICTORS["tight"](scores).any(1)).double().mean()),
    }
    for name, share in shares.items():
        want = stats.binomtest(round(40 * share), 40).proportion_ci(0.95, method="exact")
        metric = results.metrics()[name]
        assert 0 < share < 1
        assert (metric.value, metric.low, metric.high) == pytest.approx(
            (share, want.low, want.high), abs=1e-9
        ), name
    told, shown = results.sets["loose"].promise.measured, results.sets["loose"].coverage.micro
    assert (told.coverage, told.low, told.high) == (shown.value, shown.low, shown.high)
    none = evaluate(scores, target, PREDICTORS, TABLE, num_resamples=0).metrics()["top1.micro"]
    assert none == Estimate(shares["top1.micro"])  # asked for without intervals


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say():
    inside, exact, trials = 0, 0, 250
    for seed in range(trials):
        generator = torch.Generator().manual_seed(seed)
        right = torch.rand(200, generator=generator) < 0.7
        scores = torch.stack([right.float(), 1 - right.float()], dim=1).mul(2)
        table = ClassTable(names="ab")
        target = torch.zeros(200, dtype=torch.int64)
        found = evaluate(scores, target, {}, table, num_resamples=400, generator=generator).scores.topk[1]
        inside += found.macro.low <= 0.7 <= found.macro.high
        exact += found.micro.low <= 0.7 <= found.micro.high
    # 0.95 within 4 standard errors, 0.014 each, and a little less for the percentile method at 200 rows
    assert 0.90 <= inside / trials <= 0.99
    assert exact / trials >= 0.93


def test_blocks_of_any_size_find_the_same(monkeypatch):
    scores, target = rows_of()
    target[::7] = -100
    whole = evaluate(scores, target, PREDICTORS, TABLE, num_resamples=30)
    monkeypatch.setattr(row_numbers, "_BLOCK", 7 * C)
    monkeypatch.setattr(bootstrap, "_BLOCK", 80)
    seen = []

    def watch(rows):
        seen.append(len(rows))
        return PREDICTORS["tight"](rows)

    parts = evaluate(scores, target, PREDICTORS | {"tight": watch}, TABLE, num_resamples=30)
    assert seen == [6] * 11 + [2]
    ours, theirs = parts.metrics(), whole.metrics()
    assert ours.keys() == theirs.keys()
    for name, metric in ours.items():
        assert metric.value == pytest.approx(theirs[name].value, rel=1e-12), name
    assert parts.class_rows == whole.class_rows


def test_ignored_rows_nan_and_infinity():
    scores, target = rows_of()
    plain = evaluate(scores[:60], target[:60], PREDICTORS, TABLE, num_resamples=20)
    target[60:] = -100
    padded = evaluate(scores, target, PREDICTORS, TABLE, num_resamples=20)
    assert padded == dataclasses.replace(plain, ignored_rows=20)
    scores[0, target[0]] = torch.nan
    scores[1, (target[1] + 1) % C] = torch.nan

    def everything(rows):
        return torch.ones_like(rows, dtype=torch.bool)

    got = evaluate(scores, target, {"all": everything}, TABLE, num_resamples=20, ks=[1, C])
    assert got.nan_rows == 2
    assert got.scores.topk[C].micro.value == pytest.approx(59 / 60)
    assert got.sets["all"].coverage.micro.value == pytest.approx(59 / 60)
    assert close(got.scores.nll, cross_entropy(scores[2:60], target[2:60]))
    assert got.scores.nll.low < got.scores.nll.value < got.scores.nll.high
    assert close(got.scores.calibration_error, calibration_error(scores[2:60], target[2:60]))
    scores[5, target[5]] = -torch.inf
    got = evaluate(scores, target, {}, TABLE, num_resamples=20)
    assert got.scores.nll == Estimate(math.inf)
    assert Results.from_json(got.to_json()) == got


def test_activations():
    scores, target = rows_of()
    by_softmax = evaluate(scores, target, {}, TABLE, num_resamples=0).scores
    by_none = evaluate(scores.softmax(1), target, {}, TABLE, num_resamples=0, activation="none").scores
    assert by_none.nll.value == pytest.approx(by_softmax.nll.value)
    assert by_none.calibration_error.value == pytest.approx(by_softmax.calibration_error.value)
    by_sigmoid = evaluate(scores, target, {}, TABLE, num_resamples=9, activation="sigmoid").scores
    assert by_sigmoid.nll == Estimate(None)
    assert close(by_sigmoid.calibration_error, calibration_error(scores, target, activation="sigmoid"))


def test_without_counts_there_are_no_groups_and_an_empty_group_has_no_metric():
    scores, target = rows_of()
    results = evaluate(scores, target, PREDICTORS, ClassTable(names=TABLE.names), num_resamples=5)
    assert results.groups == {} and results.scores.topk[1].groups == {}
    results = evaluate(scores, target, PREDICTORS, TABLE, num_resamples=5, few_below=1, many_above=1)
    assert results.scores.topk[1].groups["few"] == Estimate(None)  # the one class without training examples
    assert results.scores.topk[1].groups["many"] == results.scores.topk[1].macro
    assert results.groups["medium"].classes == 0


def test_json_and_files(tmp_path):
    scores, target = rows_of()
    results = evaluate(scores, target, PREDICTORS, TABLE, num_resamples=20)

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    content = json.loads(results.to_json(), parse_constant=refuse)
    assert content["scores"]["topk"]["5"]["macro"]["value"] == results.scores.topk[5].macro.value
    assert Results.from_json(results.to_json()) == results
    results.save(tmp_path / "new" / "results.json")
    assert Results.load(tmp_path / "new" / "results.json") == results
    with pytest.raises(dataclasses.FrozenInstanceError):
        results.rows = 3


@pytest.mark.parametrize("degrees", [*range(1, 12), 29, 30, 200])
def test_quantiles_of_t(degrees):
    for q in (0.5, 0.75, 0.95, 0.975, 0.9999):
        want = stats.t.ppf(q, degrees)
        assert student_t_quantile(q, degrees) == pytest.approx(want, rel=1e-9, abs=1e-12)


def test_mean_over_runs():
    runs = [evaluate(*rows_of(seed=seed), PREDICTORS, TABLE, num_resamples=0) for seed in range(4)]
    together = aggregate(runs)
    assert together.runs == 4 and together.level == 0.95
    assert list(together.metrics) == list(runs[0].metrics())
    for name in ("top1.macro", "sets.loose.under_covered", "sets.tight.size.few", "nll"):
        values = [run.metrics()[name].value for run in runs]
        interval = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
        metric = together.metrics[name]
        assert metric.value == pytest.approx(np.mean(values))
        assert (metric.low, metric.high) == pytest.approx(interval)
    one = aggregate(runs[:1]).metrics["top1.micro"]
    assert one == Estimate(runs[0].scores.topk[1].micro.value)
    lost = evaluate(*rows_of(), PREDICTORS, TABLE, num_resamples=0, few_below=1, many_above=1)
    assert aggregate([runs[0], lost]).metrics["top1.few"] == Estimate(None)


def test_runs_that_agree_on_few_rows_are_not_taken_for_certain():
    target = torch.arange(9) % C
    scores = 9 * torch.nn.functional.one_hot(target, C).double()
    one = evaluate(scores, target, {}, TABLE, num_resamples=50)
    metric = aggregate([one, one, one]).metrics["top1.micro"]
    assert metric == one.scores.topk[1].micro == Estimate(1.0, *clopper_pearson(9, 9))
    lengths = aggregate([one, one], level=0.9).metrics["top1.micro"]
    assert (lengths.low, lengths.high) == (1.0, 1.0)  # of another level the runs have no interval


@pytest.mark.errors
def test_bad_input(tmp_path):
    scores, target = rows_of()
    with pytest.raises(ValueError, match=r"class_table must have one entry per class \(9\), got 2"):
        evaluate(scores, target, {}, ClassTable(names="ab"))
    with pytest.raises(ValueError, match="num_resamples must be an integer >= 0, got -1"):
        evaluate(scores, target, {}, TABLE, num_resamples=-1)
    with pytest.raises(ValueError, match="target must have at least one row that is not ignored, got 0"):
        evaluate(scores, torch.full_like(target, -100), {}, TABLE)
    with pytest.raises(ValueError, match=r"predictors\['odd'\] must return bool sets \(80, 9\), got torch.f"):
        evaluate(scores, target, {"odd": lambda rows: rows}, TABLE)
    with pytest.raises(ValueError, match=r"predictors\['loose'\].coverage must be a number or None, got 'x'"):
        evaluate(scores, target, {"loose": Above(0, "x")}, TABLE)
    with pytest.raises(ValueError, match="k must be an integer >= 1, got 0"):
        evaluate(scores, target, {}, TABLE, ks=[0])
    with pytest.raises(ValueError, match="curve_max must be an integer >= 1, got 0"):
        evaluate(scores, target, {}, TABLE, curve_max=0)
    with pytest.raises(ValueError, match="results must have at least one run, got 0"):
        aggregate([])
    runs = [evaluate(scores, target, p, TABLE, num_resamples=0) for p in (PREDICTORS, {})]
    with pytest.raises(ValueError, match=r"same metrics, got 'sets.loose.class_gap' in only some of them"):
        aggregate(runs)
    with pytest.raises(ValueError, match="level must be < 1, got 95"):
        aggregate(runs[:1], level=95)
    with pytest.raises(ValueError, match="not a file of results written by shortlist"):
        Results.from_json('{"format": "another"}')
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken.json is not a file of results"):
        Results.load(tmp_path / "broken.json")


def test_intervals_of_shares_without_spread_are_exact_ones():
    """Weights of a macro mean add up to one but for rounding: no accuracy above 1, no error below 0."""
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(C, (197,), generator=generator)
    scores = 9 * torch.nn.functional.one_hot(target, C).double()
    results = evaluate(scores, target, PREDICTORS, TABLE, num_resamples=200)
    metrics = results.metrics()
    rows = np.array(results.class_rows)
    of_few = rows[TABLE.groups().numpy() == 0]
    for name, number in (
        ("top1.micro", 197),
        ("top1.macro", C**2 / (1 / rows).sum()),
        ("top1.few", len(of_few) ** 2 / (1 / of_few).sum()),
        ("sets.loose.coverage.macro", C**2 / (1 / rows).sum()),
    ):
        # all of n are hits: the lower end p has p^n = 0.025
        assert (metrics[name].value, metrics[name].high) == (1.0, 1.0)
        assert metrics[name].low == pytest.approx(0.025 ** (1 / number), abs=1e-12), name
    assert metrics["balanced_error"] == Estimate(0.0, 0.0, 1 - metrics["top1.macro"].low)
    assert metrics["sets.loose.empty_share"].high == pytest.approx(1 - 0.025 ** (1 / 197), abs=1e-12)
    assert (
        metrics["sets.loose.size.micro"].low == metrics["sets.loose.size.micro"].high
    )  # no share: a constant


@pytest.mark.errors
def test_results_of_an_earlier_format_are_refused_by_name():
    text = evaluate(*rows_of(), {}, TABLE, num_resamples=0).to_json()
    with pytest.raises(ValueError, match="its format is 'shortlist results 1', not 'shortlist results 3'"):
        Results.from_json(text.replace("shortlist results 3", "shortlist results 1"))


def test_a_promise_about_an_average_is_measured_by_that_average():
    """A genus of one class against one of four, and an importance: by hand, from the hits of each class."""
    from shortlist.predictors import Conformal
    from shortlist.predictors.thresholds import Macro

    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(900, 5, generator=generator)
    target = torch.multinomial((2 * scores).softmax(1), 1, generator=generator).squeeze(1)
    table = ClassTable(names=tuple("abcde"), parents={"genus": ("A", "A", "A", "A", "B")})
    rules = {"genus": Macro.over(table, "genus"), "given": Macro(importance=[0, 1, 1, 1, 5]), "same": Macro()}
    weights = {"genus": [0.125] * 4 + [0.5], "given": [0, 0.125, 0.125, 0.125, 0.625], "same": [0.2] * 5}
    known = (torch.arange(900) < 400) & (target != 3)
    for absent, seen in ((None, torch.arange(900) < 400), (3, known)):
        for name, rule in rules.items():
            predictor = Conformal(coverage=0.8, rule=rule, score="lac")
            if absent is None:
                predictor.calibrate(scores[seen], target[seen])
            else:
                with pytest.warns(UserWarning, match="no rows: 1 class"):
                    predictor.calibrate(scores[seen], target[seen])
            new, classes = scores[400:], target[400:]
            found = evaluate(new, classes, {"sets": predictor}, table).sets["sets"].promise.measured
            hits = predictor(new).gather(1, classes[:, None]).squeeze(1)
            own = [float(hits[classes == index].double().mean()) for index in range(5)]
            weight = [0.0 if index == absent else w for index, w in enumerate(weights[name])]
            if absent is not None and name == "genus":
                weight = [1 / 6, 1 / 6, 1 / 6, 0.0, 0.5]  # a genus of three classes now
            want = sum(w * share for w, share in zip(weight, own, strict=True)) / sum(weight)
            assert found.coverage == pytest.approx(want, abs=1e-12)
            assert found.low < want < found.high and found.p_value is None


def test_the_promise_of_a_vote_is_not_measured_by_votes():
    from shortlist.predictors import Conformal

    scores = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
    predictor = Conformal(coverage=0.8).calibrate(scores, scores.softmax(1))
    table = ClassTable(names=tuple("abcde"))
    promise = evaluate(scores, scores.argmax(1), {"sets": predictor}, table).sets["sets"].promise
    assert promise.about == "vote" and promise.measured.p_value is None
    assert "Measured on 300 photos, by their classes and not by votes: 100 of 100" in promise_words(promise)


@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
def test_what_is_left_out_of_a_promise_is_not_measured():
    """Classes without thresholds of their own say nothing about a promise that does not extend to them."""
    from shortlist.predictors import Conformal

    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(800, 5, generator=generator)
    target = torch.multinomial((scores - 2 * torch.arange(5)).softmax(1), 1, generator=generator).squeeze(1)
    table = ClassTable(names=tuple("abcde"))
    predictor = Conformal(rule="class_conditional").calibrate(scores[:300], target[:300])
    own = torch.tensor(predictor.report.class_rows) > 0
    assert 0 < int(own.sum()) < 5
    promise = evaluate(scores[300:], target[300:], {"sets": predictor}, table).sets["sets"].promise
    kept = own[target[300:]]
    hits = predictor(scores[300:]).gather(1, target[300:, None]).squeeze(1)[kept]
    assert (promise.measured.rows, promise.measured.coverage) == (
        int(kept.sum()),
        float(hits.double().mean()),
    )
    assert f"Measured on {len(hits)} photos of the other classes: " in promise_words(promise)
    rare = ~kept
    nothing = evaluate(scores[300:][rare], target[300:][rare], {"sets": predictor}, table).sets["sets"]
    assert nothing.promise.measured is None
