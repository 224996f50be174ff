import csv
import io
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy import stats

from shortlist._sheets import to_latex, to_markdown
from shortlist.class_table import ClassTable
from shortlist.compare import tables as compare_tables
from shortlist.compare.comparison import Comparison, compare_each, compare_runs
from shortlist.compare.same_rows import on_same_rows
from shortlist.compare.significance import (
    Pair,
    holm,
    mcnemar_test,
    one_sample_t_test,
    paired_bootstrap_test,
    paired_bootstrap_tests,
    paired_t_test,
)
from shortlist.compare.tables import comparison_sheet
from shortlist.metrics import Estimate, Results, aggregate, evaluate
from shortlist.metrics.names import format_metric, larger_is_better
from shortlist.recipes.recipe import make_recipe
from shortlist.runs.finished import read_finished
from shortlist.runs.folder import RunFolder
from shortlist.runs.groups import find_runs
from shortlist.runs.run import Run
from shortlist.runs.scoring import evaluate_run
from tests.commands import invoke, output_of
from tests.latex import check_latex
from tests.run_factory import save_scores, scored_run, seal

ROWS, CLASSES = 400, 6
TABLE = ClassTable(names=tuple("abcdef"), counts=(200, 150, 60, 30, 10, 5))
TARGET = torch.arange(ROWS) % CLASSES


def letter_run(
    path: Path, *, seed: int = 0, skill: float = 1.0, overrides: tuple[str, ...] = (), rows=ROWS
) -> Run:
    targets = dict.fromkeys(("val", "test"), TARGET[:rows])
    return scored_run(path, TABLE, targets, overrides=[f"seed={seed}", *overrides], draw=seed, skill=skill)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Three seeds each of two losses that differ clearly, of which the second is the better one."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        letter_run(folder / f"plain-{seed}", seed=seed, overrides=("name=plain",))
        letter_run(folder / f"better-{seed}", seed=seed, skill=2.0, overrides=("name=better", "loss=focal"))
    return folder


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_paired_t_test_is_scipys(n):
    first, second = torch.rand(2, n, dtype=torch.float64).tolist()
    expected = stats.ttest_rel(first, second)
    result = paired_t_test(first, second)
    assert result.p_value == pytest.approx(expected.pvalue, abs=1e-12)
    assert result.difference == pytest.approx(sum(first) / n - sum(second) / n)
    assert f"{n} seeds" in result.test


def test_paired_t_test_of_constant_differences():
    assert paired_t_test([0.5, 0.6, 0.7], [0.5, 0.6, 0.7]).p_value == 1
    # one row more in each of three seeds is no proof, though the t statistic is infinite
    assert paired_t_test([0.5, 0.6, 0.7], [0.4, 0.5, 0.6]).p_value == 1


def test_one_sample_t_test_is_scipys():
    values = [0.853, 0.861, 0.848, 0.855]
    result = one_sample_t_test(values, 0.84, rounding=0.005)
    assert result.p_value == pytest.approx(stats.ttest_1samp(values, 0.84).pvalue, abs=1e-12)
    assert result.difference == pytest.approx(sum(values) / 4 - 0.84)


def test_equal_values_differ_from_a_printed_number_that_they_are_not_rounded_to():
    assert one_sample_t_test([0.8, 0.8, 0.8], 0.29, rounding=0.005).p_value == 0
    assert one_sample_t_test([0.8049, 0.8049], 0.80, rounding=0.005).p_value == 1
    assert one_sample_t_test([0.8051, 0.8051], 0.80, rounding=0.005).p_value == 0
    with pytest.raises(ValueError, match="at least 2 finite numbers"):
        one_sample_t_test([0.8], 0.8)


@pytest.mark.errors
def test_paired_t_test_needs_pairs():
    with pytest.raises(ValueError, match=r"pairs, at least 2, got 3 and 2"):
        paired_t_test([1.0, 2.0, 3.0], [1.0, 2.0])


@pytest.mark.errors
def test_paired_t_test_needs_finite_numbers():
    with pytest.raises(ValueError, match=r"must be finite, got \[inf, 1.0, 2.0\] and"):
        paired_t_test([math.inf, 1.0, 2.0], [1.0, 1.0, 1.0])


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (5, 0), (3, 9), (40, 25), (1200, 1100)])
def test_mcnemar_is_the_exact_binomial_test(gained, lost):
    first = torch.tensor([True] * gained + [False] * lost + [True, True, False])
    second = torch.tensor([False] * gained + [True] * lost + [True, True, False])
    expected = stats.binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    result = mcnemar_test(first, second)
    assert result.p_value == pytest.approx(expected, abs=1e-12)
    assert result.difference == pytest.approx((gained - lost) / len(first))


@pytest.mark.errors
def test_mcnemar_wants_bools():
    with pytest.raises(ValueError, match="must be bool of the same shape"):
        mcnemar_test(torch.ones(3), torch.ones(3))


def test_bootstrap_over_rows_is_near_the_t_test():
    """For a mean over many rows the paired t-test of scipy is the oracle."""
    generator = torch.Generator().manual_seed(3)
    first = torch.randn(500, generator=generator, dtype=torch.float64)
    for shift in (0.0, 0.05, 0.1):
        second = first + 0.5 * torch.randn(500, generator=generator, dtype=torch.float64) - shift
        expected = stats.ttest_rel(first.numpy(), second.numpy()).pvalue
        target = torch.zeros(500, dtype=torch.int64)
        result = paired_bootstrap_test(first, second, target, num_classes=1, num_resamples=4000)
        assert result.p_value == pytest.approx(expected, abs=0.04)
        assert result.difference == pytest.approx(float((first - second).mean()))
        spread = float((first - second).std()) / math.sqrt(500)
        assert result.half_width == pytest.approx(1.96 * spread, rel=0.06)


def test_bootstrap_of_class_means_is_scipys():
    """One class rare and worse, one frequent and better: micro and macro differ in sign."""
    target = torch.tensor([0] * 180 + [1] * 20)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(200, generator=generator, dtype=torch.float64)
    first = torch.where(target == 0, 0.3, -0.9) + noise
    second = torch.zeros(200, dtype=torch.float64)
    both = torch.ones(2, dtype=torch.bool)
    micro = paired_bootstrap_test(first, second, target, num_classes=2)
    macro = paired_bootstrap_test(first, second, target, num_classes=2, classes=both)
    rare = paired_bootstrap_test(first, second, target, num_classes=2, classes=torch.tensor([False, True]))
    means = [float(first[target == c].mean()) for c in (0, 1)]
    assert micro.difference == pytest.approx(float(first.mean()))
    assert macro.difference == pytest.approx(sum(means) / 2)
    assert rare.difference == pytest.approx(means[1])
    assert micro.difference > 0 > macro.difference
    deviations = [float(first[target == c].std()) / math.sqrt(n) for c, n in ((0, 180), (1, 20))]
    z = macro.difference / (0.5 * math.hypot(*deviations))
    assert macro.half_width == pytest.approx(1.96 * 0.5 * math.hypot(*deviations), rel=0.08)
    assert macro.p_value == pytest.approx(2 * stats.norm.cdf(z), abs=0.03)
    assert rare.p_value == pytest.approx(2 * stats.norm.cdf(means[1] / deviations[1]), abs=0.03)
    assert paired_bootstrap_test(first, first, target, num_classes=2).p_value == 1


def test_several_bootstraps_are_each_of_them_alone():
    generator = torch.Generator().manual_seed(2)
    target = torch.randint(CLASSES, (153,), generator=generator)
    some = torch.arange(CLASSES) < 2
    pairs = [
        Pair(*torch.rand(2, 153, generator=generator).round(decimals=1).double(), classes)
        for classes in (None, torch.ones(CLASSES, dtype=torch.bool), some, ~some)
    ]
    pairs.append(Pair(pairs[0].first, pairs[0].first, None))
    together = paired_bootstrap_tests(pairs, target, num_classes=CLASSES)
    for (first, second, classes), found in zip(pairs, together, strict=True):
        assert found == paired_bootstrap_test(first, second, target, classes=classes, num_classes=CLASSES)
    assert len({found.p_value for found in together}) > 2
    assert paired_bootstrap_tests([], target, num_classes=CLASSES) == []


def test_means_and_intervals_are_scipys(runs):
    found = compare_runs([runs])
    assert [row.label for row in found.rows] == ["better", "plain"]
    assert [row.seeds for row in found.rows] == [(0, 1, 2), (0, 1, 2)]
    for row in found.rows:
        for name in ("top1.micro", "top5.macro", "sets.two.coverage.micro", "nll"):
            results = [Results.load(runs / f"{row.label}-{seed}" / "results.json") for seed in range(3)]
            values = [result.metrics()[name].value for result in results]
            mean, error = sum(values) / 3, stats.sem(values)
            low, high = stats.t.interval(0.95, 2, mean, error)
            metric = row.metrics[name]
            assert (metric.value, metric.low, metric.high) == pytest.approx((mean, low, high))


def test_best_is_significant_by_the_test_over_seeds(runs):
    found = compare_runs([runs], ["top1.micro", "nll"])
    for name in ("top1.micro", "nll"):
        values = [
            [
                Results.load(runs / f"{label}-{seed}" / "results.json").metrics()[name].value
                for seed in range(3)
            ]
            for label in ("better", "plain")
        ]
        expected = stats.ttest_rel(*values).pvalue
        best = found.best[name]
        assert (best.row, best.second, best.significant) == ("better", "plain", True)
        assert best.p_value == pytest.approx(expected)
        assert best.test == "paired t-test over 3 seeds"


def test_holm_by_hand():
    # 3 x 0.01, then 2 x 0.03, then 0.04 which may not fall below 0.06; 1 is the most
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
    values = torch.rand(20, generator=torch.Generator().manual_seed(0)).pow(3).tolist()
    for i, p in enumerate(values):  # the closed form: the largest of (m - rank + 1) p over smaller ones
        ranked = sorted(values)
        expected = max(min(1.0, (20 - j) * ranked[j]) for j in range(ranked.index(p) + 1))
        assert holm(values)[i] == pytest.approx(expected)


def test_differences_to_a_baseline_are_scipys(runs, tmp_path):
    for seed in range(3):
        letter_run(tmp_path / f"near-{seed}", seed=seed, skill=1.05, overrides=("name=near", "epochs=3"))
    found = compare_runs([runs, tmp_path], ["top1.micro", "sets.two.coverage.micro"], baseline="plain")
    assert found.differences.keys() == {"top1.micro", "sets.two.coverage.micro"}  # not the size

    def values(name: str, metric: str) -> list[float]:
        folder = tmp_path if name == "near" else runs
        return [
            read_finished(folder / f"{name}-{s}").results.metrics()[metric].value or 0.0 for s in range(3)
        ]

    for metric, column in found.differences.items():
        assert column.keys() == {"better", "near"}
        tests = {name: stats.ttest_rel(values(name, metric), values("plain", metric)) for name in column}
        small, large = sorted(tests, key=lambda name: tests[name].pvalue)
        p_values = {small: min(1, 2 * tests[small].pvalue)}
        p_values[large] = max(p_values[small], tests[large].pvalue)
        for name, one in column.items():
            low, high = tests[name].confidence_interval()
            assert (one.value, one.half_width) == pytest.approx(((low + high) / 2, (high - low) / 2))
            assert one.p_value == pytest.approx(p_values[name])
            assert one.significant == (p_values[name] < 0.05)
    shown = found.differences["top1.micro"]["better"]
    text = f"{100 * shown.value:+.1f} ± {100 * shown.half_width:.1f}"
    markdown = to_markdown(comparison_sheet(found))
    assert f"| better - plain |  | **{text}** |" in markdown
    assert (
        "differences to plain: mean of pairs, bold if p < 0.05 after Holm's correction for the 2" in markdown
    )
    assert f"better - plain & & $\\mathbf{{{text.replace('±', chr(92) + 'pm')}}}$" in to_latex(
        comparison_sheet(found, words=True)
    ).replace("&  &", "& &")
    assert compare_tables.to_json(found)["differences"]["top1.micro"]["better"]["p_value"] == shown.p_value


def test_differences_of_single_runs_have_an_interval_over_rows(runs):
    found = compare_runs([runs / "better-0", runs / "plain-0"], ["top1.micro"], baseline="plain")
    one = found.differences["top1.micro"]["better"]
    first, second = (
        (Run.open(runs / name).load_scores("test")[0].argmax(1) == TARGET).double()
        for name in ("better-0", "plain-0")
    )
    spread = (first - second).std(correction=0)
    assert one.half_width == pytest.approx(1.959964 * float(spread) / ROWS**0.5, rel=1e-5)
    assert one.test == f"McNemar's test over {ROWS} test rows"
    assert one.value == pytest.approx(
        found.rows[0].metrics["top1.micro"].value - found.rows[1].metrics["top1.micro"].value
    )


@pytest.mark.errors
def test_unknown_baseline(runs):
    with pytest.raises(ValueError, match=r"baseline must be one of the methods \(better, plain\), got 'x'"):
        compare_runs([runs], baseline="x")


def test_single_runs_are_tested_over_rows(runs):
    found = compare_runs(
        [runs / "better-0", runs / "plain-0"], ["top1.micro", "top1.macro", "balanced_error", "nll"]
    )
    hits = []
    for name in ("better-0", "plain-0"):
        scores, target = Run.open(runs / name).load_scores("test")
        hits.append(scores.argmax(1) == target)
    gained, lost = int((hits[0] & ~hits[1]).sum()), int((hits[1] & ~hits[0]).sum())
    best = found.best["top1.micro"]
    assert best.p_value == pytest.approx(stats.binomtest(gained, gained + lost).pvalue, abs=1e-12)
    assert best.test == f"McNemar's test over {ROWS} test rows"
    for name in ("top1.macro", "balanced_error", "nll"):
        best = found.best[name]
        assert (best.row, best.test) == ("better", f"paired bootstrap over {ROWS} test rows")
        assert best.significant
        values = [row.metrics[name].value for row in found.rows]
        assert best.difference == pytest.approx(values[0] - values[1])


def test_close_runs_are_not_bold(runs, tmp_path):
    letter_run(tmp_path / "near", seed=0, skill=1.001, overrides=("name=near", "epochs=3"))
    found = compare_runs([tmp_path / "near", runs / "plain-0"], ["top1.micro"])
    assert not found.best["top1.micro"].significant
    assert "**" not in to_markdown(comparison_sheet(found))


def test_rows_level_with_the_best_share_its_place(runs, tmp_path):
    """The same scores at another temperature: the test is against the next that differs."""
    letter_run(tmp_path / "hot", skill=2.0, overrides=("name=hot", "loss=focal", "adjust.temperature=2.0"))
    found = compare_runs([runs / "plain-0", runs / "better-0", tmp_path / "hot"], ["top1.micro", "nll"])
    best = found.best["top1.micro"]
    assert (best.row, best.level, best.second, best.significant) == ("better", ("hot",), "plain", True)
    assert best.test == f"McNemar's test over {ROWS} test rows"
    assert found.best["nll"].level == ()
    lines = to_markdown(comparison_sheet(found)).splitlines()
    assert [line.split(" | ")[2].startswith("**") for line in lines[2:5]] == [False, True, True]
    assert any(line.startswith("- top1.micro: better, hot before plain, p = ") for line in lines)
    alone = compare_runs([runs / "better-0", tmp_path / "hot"], ["top1.micro"]).best["top1.micro"]
    assert (alone.second, alone.level, alone.p_value, alone.significant) == ("hot", (), 1.0, False)


def test_other_test_rows_are_not_compared(runs, tmp_path):
    letter_run(tmp_path / "short", rows=200, overrides=("name=short",))
    found = compare_runs([tmp_path / "short", runs / "better-0"], ["top1.micro"])
    assert found.best["top1.micro"].test == "no test: not the same test rows"
    assert not found.best["top1.micro"].significant


def test_coverage_comes_with_sizes_that_are_never_best(runs):
    found = compare_runs([runs], ["sets.two.coverage.few"])
    assert found.metrics == ("sets.two.coverage.few", "sets.two.size.few")
    assert set(found.best) == {"sets.two.coverage.few"}
    assert found.rows[0].metrics["sets.two.size.few"].value == 2


def test_sets_that_promise_coverage_have_no_best(tmp_path):
    for i, skill in enumerate((1.0, 2.0)):
        more = (f"epochs={i + 1}", "predictors.c={name: conformal, coverage: 0.9}")
        letter_run(tmp_path / str(i), skill=skill, overrides=more)
    found = compare_runs([tmp_path], ["sets.c.coverage.micro", "top1.micro"])
    assert set(found.best) == {"top1.micro"}


def test_groups_of_one_name_are_told_apart(runs, tmp_path):
    letter_run(tmp_path / "a", overrides=("loss.label_smoothing=0.1", "optimizer.lr=0.2", "name=plain"))
    letter_run(tmp_path / "b", overrides=("loss=focal", "name=plain"))
    found = compare_runs([runs / "plain-0", runs / "plain-1", tmp_path / "a", tmp_path / "b"])
    assert [(row.label, len(row.runs)) for row in found.rows] == [
        ("cross_entropy, label_smoothing 0.0", 2),
        ("cross_entropy, label_smoothing 0.1", 1),
        ("focal", 1),
    ]


def test_what_cannot_be_read_is_named_and_left_out(runs, tmp_path):
    for name in ("version", "started", "lost", "garbled", "yaml"):
        shutil.copytree(runs / "plain-0", tmp_path / name)
    info = json.loads((tmp_path / "version" / "run.json").read_text())
    (tmp_path / "version" / "run.json").write_text(json.dumps(info | {"format": "shortlist run 99"}))
    RunFolder(tmp_path / "started").set_state("started")
    (tmp_path / "lost" / "results.json").unlink()
    (tmp_path / "garbled" / "results.json").write_text('{"format": "shortlist resul')
    (tmp_path / "yaml" / "recipe.yaml").write_text("data: {name: nowhere}")
    paths = [tmp_path / name for name in ("version", "started", "lost", "garbled", "yaml", "missing")]
    found = compare_runs([runs / "plain-0", *paths])
    assert len(found.rows) == 1
    reasons = {Path(path).name: reason for path, reason in found.left_out.items()}
    assert "another version" in reasons["version"]
    assert "its state is 'started'" in reasons["started"]
    assert "lacks results.json" in reasons["lost"]
    assert "results.json is damaged or was changed" in reasons["garbled"]
    assert "recipe.yaml is damaged or was changed" in reasons["yaml"]
    assert "no such folder" in reasons["missing"]
    assert "left out: " in output_of("compare", runs / "plain-0", tmp_path / "lost")


def test_runs_of_a_recipe_that_were_evaluated_otherwise_are_left_out(runs, tmp_path):
    shutil.copytree(runs / "plain-0", tmp_path / "other")
    results = Results.load(tmp_path / "other" / "results.json")
    fewer = replace(results.scores, topk={1: results.scores.topk[1]})
    RunFolder(tmp_path / "other").save_results(replace(results, scores=fewer))
    found = compare_runs([runs, tmp_path / "other"], ["top1.micro"])
    assert [len(row.runs) for row in found.rows] == [3, 3]
    assert "has other metrics than" in found.left_out[str(tmp_path / "other")]


@pytest.mark.parametrize("count", [1, 3])
def test_infinite_metrics_are_not_tested(runs, tmp_path, count):
    """A model that gives the true class no chance at all has an infinite likelihood loss."""
    for name in [f"{label}-{seed}" for label in ("plain", "better") for seed in range(count)]:
        shutil.copytree(runs / name, tmp_path / name)
        run = Run.open(tmp_path / name)
        scores, target = run.load_scores("test")
        scores[0, target[0]] = -math.inf
        save_scores(run, "test", scores, target)
        seal(run)
        evaluate_run(Run.open(run.path))
    found = compare_runs([tmp_path], ["nll", "top1.micro"], baseline="plain")
    assert found.rows[0].metrics["nll"].value == math.inf
    assert found.best["nll"].test.startswith("no test: not a")
    assert found.differences["nll"]["better"].value is None
    assert found.best["top1.micro"].significant
    assert "| better - plain |  | - | **" in to_markdown(comparison_sheet(found))


def test_a_copy_of_a_run_is_no_other_seed(runs, tmp_path):
    """It would halve the spread."""
    shutil.copytree(runs / "plain-1", tmp_path / "copy")
    found = compare_runs([runs, tmp_path / "copy"], ["top1.micro"])
    assert found.rows == compare_runs([runs], ["top1.micro"]).rows
    assert list(found.left_out.values()) == [
        f"{tmp_path / 'copy'} has the recipe and the seed of {runs / 'plain-1'}"
    ]


def test_seeds_that_say_the_opposite_are_no_proof(runs, tmp_path):
    """The best by its mean over all seeds is clearly worse in the seeds that both have."""
    for seed in range(3):
        letter_run(tmp_path / f"mixed-{seed}", seed=seed, skill=0.5, overrides=("name=mixed", "epochs=3"))
    for seed in range(3, 12):
        letter_run(tmp_path / f"mixed-{seed}", seed=seed, skill=3.0, overrides=("name=mixed", "epochs=3"))
    plain = [runs / f"plain-{seed}" for seed in range(3)]
    best = compare_runs([tmp_path, *plain], ["top1.micro"]).best["top1.micro"]
    assert (best.row, best.test) == ("mixed", "paired t-test over 3 seeds")
    assert best.difference < 0
    assert best.p_value < 0.05
    assert not best.significant


@pytest.mark.parametrize("baseline", [None, "plain"])
def test_groups_without_test_rows_have_no_difference(runs, tmp_path, baseline):
    for name in ("plain-0", "better-0"):
        shutil.copytree(runs / name, tmp_path / name)
        run = Run.open(tmp_path / name)
        scores, target = run.load_scores("test")
        save_scores(run, "test", scores[target < 4], target[target < 4])  # none of "few"
        seal(run)
        evaluate_run(Run.open(run.path))
    found = compare_runs([tmp_path], ["top1.few", "top1.medium"], baseline=baseline)
    assert "top1.few" not in found.best
    assert found.best["top1.medium"].significant
    if baseline is not None:
        assert found.differences["top1.few"]["better"].value is None
        assert found.differences["top1.few"]["better"].test == "no test: no test rows of these classes"
        assert "nan" not in to_markdown(comparison_sheet(found))


def test_groups_of_other_classes_are_not_compared(runs, tmp_path):
    shutil.copytree(runs / "better-0", tmp_path / "better-0")
    run = Run.open(tmp_path / "better-0")
    ClassTable(names=TABLE.names, counts=(5, 10, 30, 60, 150, 200)).save(run.model_path / "class_table.json")
    seal(run)
    evaluate_run(Run.open(run.path))
    found = compare_runs([tmp_path / "better-0", runs / "plain-0"], ["top1.few", "top1.macro"])
    assert found.best["top1.few"].test == "no test: not the same classes are few"
    assert found.best["top1.macro"].significant


def test_groups_of_a_run_are_those_of_its_recipe(tmp_path):
    bins = ("evaluation.count_bins=[10, 150]", "evaluation.ks=[1, 4]")
    letter_run(tmp_path / "plain", overrides=("name=plain", *bins))
    letter_run(tmp_path / "better", skill=2.0, overrides=("name=better", "loss=focal", *bins))
    found = compare_runs([tmp_path], ["top1.up_to_10", "top4.micro", "sets.two.coverage.over_150"])
    scores, target = Run.open(tmp_path / "better").load_scores("test")
    small = [c for c, count in enumerate(TABLE.counts) if count <= 10]
    means = [float((scores.argmax(1) == c)[target == c].double().mean()) for c in small]
    (better,) = [row for row in found.rows if row.label == "better"]
    assert better.metrics["top1.up_to_10"].value == pytest.approx(sum(means) / len(means))
    assert found.best["top1.up_to_10"].test.startswith("paired bootstrap")
    assert found.best["sets.two.coverage.over_150"].test.startswith("paired bootstrap")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("run.json", "[]"),
        ("model/score_map.json", "[]"),
        ("model/score_map.json", "{}"),
        ("model/score_map.json", None),
        ("scores/test.safetensors", "[]"),
        ("model/predictors/two.json", "3"),
        ("model/predictors/two.json", None),
        ("model/class_table.json", None),
        ("scores/test.safetensors", None),
    ],
)
def test_any_damage_is_reported_and_not_fatal(runs, tmp_path, file, content):
    shutil.copytree(runs / "better-0", tmp_path / "bad")
    if content is None:
        (tmp_path / "bad" / file).unlink()
    else:
        (tmp_path / "bad" / file).write_text(content)
    found = compare_runs([runs / "plain-0", tmp_path / "bad"], ["top1.micro", "sets.two.coverage.micro"])
    assert str(tmp_path / "bad") in found.left_out[str(tmp_path / "bad")]
    assert [row.label for row in found.rows] == ["plain"]
    assert "**" not in to_markdown(comparison_sheet(found))


def test_few_seeds_are_compared_where_both_have_them(tmp_path):
    """The same scores at another temperature differ in nothing but the seeds that only one of them has."""
    paths = [letter_run(tmp_path / f"a{seed}", seed=seed, overrides=("name=a",)).path for seed in (0, 1)]
    hot = ("name=b", "adjust.temperature=2.0")
    paths += [letter_run(tmp_path / f"b{seed}", seed=seed, overrides=hot).path for seed in (1, 2)]
    found = compare_runs(paths, ["top1.micro"], baseline="a")
    difference = found.differences["top1.micro"]["b"]
    assert (difference.value, difference.p_value) == (0, 1)
    assert difference.test == f"McNemar's test over {ROWS} test rows"  # of one run each
    apart = compare_runs([paths[0], paths[3]], ["top1.micro"], baseline="a").differences["top1.micro"]["b"]
    assert apart.test == f"McNemar's test over {ROWS} test rows, runs with other seeds"
    hits = [Run.open(path).load_scores("test")[0].argmax(1) == TARGET for path in (paths[3], paths[0])]
    assert apart.value == pytest.approx(float(hits[0].float().mean() - hits[1].float().mean()))


@pytest.mark.parametrize(
    ("data", "alike"),
    [
        (("data.seed=1",), False),
        (("data.max_classes=50",), False),
        (("data=gaussian_genera",), False),
        (("data.label_noise=0.2", "data.max_per_class=9"), True),  # of the training rows
        (("data.seed=0",), True),  # as it is anyway
    ],
)
def test_rows_of_other_data_are_no_pairs(runs, tmp_path, data, alike):
    """As many rows of each class as in the others, but not the same ones."""
    for seed in range(3):
        letter_run(tmp_path / str(seed), seed=seed, skill=2.0, overrides=("name=other", "loss=focal", *data))
    both = compare_runs([runs / "plain-0", tmp_path / "0"], ["top1.micro"]).best["top1.micro"]
    seeds = [*(runs / f"plain-{seed}" for seed in range(3)), tmp_path]
    every = compare_runs(seeds, ["top1.micro"]).best["top1.micro"]
    assert (both.significant, every.significant) == (alike, alike)
    if not alike:
        assert both.test == every.test == "no test: not the same data"


def test_published_data_are_known_by_name():
    first, second = (make_recipe({"data": {"name": "cifar100", "root": root}}) for root in ("/a", "/b"))
    assert on_same_rows(first, second)
    own = [make_recipe({"data": {"name": "image_folder", "root": root}}) for root in ("/a", "/b")]
    assert not on_same_rows(*own) and not on_same_rows(first, own[0])


def test_what_does_not_change_numbers_makes_no_other_method(runs, tmp_path):
    others = ("name=plain", "workers=3", "loggers=[]", "accelerator=cpu")
    letter_run(tmp_path / "d", seed=7, overrides=others)
    (row,) = compare_runs([runs / "plain-0", tmp_path / "d"], ["top1.micro"]).rows
    assert (row.label, row.seeds) == ("plain", (0, 7))


def test_json_is_strict_where_a_metric_is_infinite(runs, tmp_path):
    shutil.copytree(runs / "plain-0", tmp_path / "plain")
    results = Results.load(tmp_path / "plain" / "results.json")
    endless = replace(results.scores, nll=Estimate(math.inf))
    RunFolder(tmp_path / "plain").save_results(replace(results, scores=endless))
    text = output_of("compare", tmp_path / "plain", "--metrics", "nll", "--json")
    content = json.loads(text, parse_constant=pytest.fail)
    assert content["rows"][0]["metrics"]["nll"]["value"] == "inf"


@pytest.mark.errors
def test_metrics_must_be_named():
    result = invoke("compare", "run", "--metrics", " , ")
    assert "--metrics must name at least one" in str(result.exception)


def test_a_table_that_is_none_of_a_suite_is_not_taken(runs, tmp_path):
    shutil.copytree(runs / "plain-0", tmp_path / "plain-0")
    (tmp_path / "suite.yaml").touch()
    for content in (b"method,seed\nplain,0\n", b"\xff\xfe\x00run"):
        (tmp_path / "results.csv").write_bytes(content)
        assert find_runs(tmp_path) == [tmp_path / "plain-0"]


@pytest.mark.errors
def test_nothing_left_to_compare(tmp_path, runs):
    with pytest.raises(ValueError, match=r"at least one finished run, got none: .*no such folder"):
        compare_runs([tmp_path / "missing"])
    with pytest.raises(
        ValueError, match=r"that the runs have, got 'top7.micro'; the nearest .*top1.micro"
    ) as no:
        compare_runs([runs], ["top7.micro"])
    assert len(str(no.value)) < 400  # and not all names
    result = invoke("compare", runs, "--json", "--latex")
    assert "only one of --markdown, --latex, --csv, --html and --json" in str(result.exception)


def test_runs_on_several_splits_of_a_data_set_are_averaged(tmp_path):
    """One seed, three draws of the splits with other numbers of test rows: pairs are of the same split."""
    for split in range(3):
        for name, skill in (("plain", 1.0), ("better", 2.0)):
            overrides = (f"name={name}", f"data.seed={split}", f"loss={'focal' if skill > 1 else 'ldam'}")
            rows = ROWS - 6 * split
            letter_run(tmp_path / f"{name}-{split}", skill=skill + split / 50, overrides=overrides, rows=rows)
    apart = compare_runs([tmp_path], ["top1.micro"])
    assert [len(row.runs) for row in apart.rows] == [1] * 6
    found = compare_runs([tmp_path], ["top1.micro"], baseline="plain", over=["data.seed"])
    assert {row.label: len(row.runs) for row in found.rows} == {"better": 3, "plain": 3}
    values = {
        name: [
            Results.load(tmp_path / f"{name}-{split}" / "results.json").metrics()["top1.micro"].value
            for split in range(3)
        ]
        for name in ("plain", "better")
    }
    for row in found.rows:
        assert row.metrics["top1.micro"].value == pytest.approx(sum(values[row.label]) / 3)
    expected = stats.ttest_rel(values["better"], values["plain"])
    assert found.differences["top1.micro"]["better"].p_value == pytest.approx(expected.pvalue, abs=1e-12)
    assert "method,runs" in output_of("compare", tmp_path, "--over", "data.seed", "--csv")
    shutil.rmtree(tmp_path / "plain-2")
    two = compare_runs([tmp_path], ["top1.micro"], over=["data.seed"])
    assert two.best["top1.micro"].test == "no test: fewer than 3 pairs of runs on the same data"
    with pytest.raises(ValueError, match=r"over must be a key of a recipe, .* got 'data.sed'"):
        compare_runs([tmp_path], over=["data.sed"])


def test_values_of_an_axis_have_tables_of_their_own(runs, tmp_path):
    """No row of one noise level is ranked against one of another."""
    suite = tmp_path / "suite"
    for noise in ("0.0", "0.1"):
        for seed in (0, 1, 2):
            for name, skill in (("plain", 1.0), ("better", 2.0 if noise == "0.0" else 1.2)):
                place = suite / f"data.label_noise={noise}" / name / f"seed-{seed}"
                loss = "focal" if name == "better" else "cross_entropy"
                overrides = (f"name={name}", f"loss={loss}", f"data.label_noise={noise}")
                letter_run(place, seed=seed, skill=skill, overrides=overrides)
    (suite / "suite.yaml").touch()
    tables = compare_each([suite], ["top1.micro"], baseline="plain")
    assert list(tables) == ["data.label_noise 0.0", "data.label_noise 0.1"]
    for comparison in tables.values():
        assert [row.label for row in comparison.rows] == ["better", "plain"]
        assert comparison.best["top1.micro"].rows == ("better",)
        assert comparison.differences["top1.micro"].keys() == {"better"}
    named = compare_each([suite], ["top1.micro"], by=["data.label_noise"])
    assert {title: entry.rows for title, entry in named.items()} == {
        title: entry.rows for title, entry in tables.items()
    }
    lines = list(csv.DictReader(io.StringIO(output_of("compare", suite, "--csv", "--metrics", "top1.micro"))))
    assert [line["table"] for line in lines] == [title for title in tables for _ in range(2)]
    latex = output_of("compare", suite, "--latex", "--metrics", "top1.micro")
    assert latex.count(r"\begin{tabular}") == 2 and r"\caption{data.label\_noise 0.1}" in latex
    for part in latex.split("\n\n"):
        check_latex(part)
    content = json.loads(output_of("compare", suite, "--json", "--by", "data.label_noise"))
    assert [table["title"] for table in content["tables"]] == list(tables)
    with pytest.raises(ValueError, match=r"baseline must be one of the methods \(better, plain\), got 'x'"):
        compare_each([suite], baseline="x")
    with pytest.raises(ValueError, match=r"by must be a key of all recipes, .* got 'data.noises'"):
        compare_each([suite], by=["data.noises"])


def test_folders_of_suites_give_the_runs_that_count(runs, tmp_path):
    for name in ("plain-0", "better-0"):
        shutil.copytree(runs / name, tmp_path / name)
    assert find_runs(tmp_path) == [tmp_path / "better-0", tmp_path / "plain-0"]
    (tmp_path / "suite.yaml").touch()
    with (tmp_path / "results.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["method", "run"], ["plain", "plain-0"]])
    assert find_runs(tmp_path) == [tmp_path / "plain-0"]
    assert read_finished(tmp_path / "plain-0").recipe.name == "plain"


def test_command_prints_tables(runs):
    content = json.loads(
        output_of("compare", runs, "--json", "--metrics", "top1.micro, sets.two.coverage.micro")
    )
    assert content["metrics"] == ["top1.micro", "sets.two.coverage.micro", "sets.two.size.micro"]
    assert [row["label"] for row in content["rows"]] == ["better", "plain"]
    results = [Results.load(runs / f"better-{seed}" / "results.json") for seed in range(3)]
    expected = aggregate(results).metrics["top1.micro"]
    metric = content["rows"][0]["metrics"]["top1.micro"]
    assert (metric["value"], metric["low"], metric["high"]) == (expected.value, expected.low, expected.high)
    assert content["best"]["top1.micro"]["significant"]
    text = format_metric("top1.micro", expected)
    assert f"| better | 3 | **{text}** |" in output_of(
        "compare", runs, "--markdown", "--metrics", "top1.micro"
    )
    latex = output_of("compare", runs, "--latex", "--metrics", "top1.micro")
    assert rf"better & $3$ & $\mathbf{{{text.replace('±', chr(92) + 'pm')}}}$ \\" in latex
    assert r"top-1 (\%)" in latex and "top1.micro" not in latex.partition("tabular")[2]
    latex = output_of("compare", runs, "--latex", "--metrics", "sets.two.coverage.macro")
    assert r"two: macro coverage (\%) & two: macro size" in latex
    printed = output_of("compare", runs, "--csv", "--metrics", "top1.micro", "--baseline", "plain")
    lines = {line["method"]: line for line in csv.DictReader(io.StringIO(printed))}
    assert list(lines) == ["better", "plain"] and lines["better"]["runs"] == "3"
    ends = [float(lines["better"][f"top1.micro{end}"]) for end in ("", ".low", ".high")]
    assert ends == [expected.value, expected.low, expected.high]
    difference = expected.value - float(lines["plain"]["top1.micro"])
    assert float(lines["better"]["top1.micro.difference"]) == pytest.approx(difference)
    assert float(lines["better"]["top1.micro.p"]) < 0.05 and lines["plain"]["top1.micro.p"] == ""
    plain = output_of("compare", runs, "--metrics", "top1.micro")
    assert text in plain
    assert "top1.micro: better before plain, p = " in plain
    assert "sets.two" not in plain


def test_missing_metrics_are_dashes():
    scores = 5 * torch.eye(6)
    results = evaluate(scores, torch.arange(6), {}, TABLE, num_resamples=0)
    assert results.metrics()["top1.many"].value == 1
    assert format_metric("top1.micro", Estimate(None)) == "-"
    assert format_metric("nll", Estimate(1.234)) == "1.23"
    assert format_metric("sets.x.size.micro", Estimate(5.0, 4.9, 5.1)) == "5.00 ± 0.10"
    empty = Comparison(("top1.micro",), (), {})
    assert compare_tables.to_json(empty)["rows"] == []


def test_directions():
    better = {name: larger_is_better(name) for name in ("top1.few", "topk_area", "sets.a.coverage.macro")}
    assert all(better.values())
    for name in ("nll", "balanced_error", "calibration_error", "sets.a.size.micro", "sets.a.empty_share"):
        assert not larger_is_better(name)


def test_notes_tell_promises(tmp_path):
    overrides = ("predictors.lac={name: conformal, coverage: 0.8}",)
    for seed in (0, 1):
        letter_run(tmp_path / f"a-{seed}", seed=seed, overrides=overrides)
    letter_run(tmp_path / "b", overrides=(*overrides, "loss=focal"), skill=2.0)
    found = compare_runs([tmp_path])
    notes = compare_tables.footnotes(found)
    (note,) = [note for note in notes if note.startswith("lac: ")]
    assert "80 of 100 such lists contain the right class." in note
    assert "calibrated on 400 photos, so the true share is probably between" in note
    promises = [promise for row in found.rows for promise in row.promises["lac"]]
    assert len(promises) == 3 and not any(promise.is_below for promise in promises)
    reached = all(promise.measured.coverage >= 0.8 for promise in promises)
    assert note.endswith("All reach the promise." if reached else "calibration and test rows explains it.")
    plain = compare_tables.to_json(found)["rows"][0]["promises"]
    assert set(plain) == {"lac"} and plain["lac"][0]["level"] == 0.8  # of top-K there is nothing to promise
    only = compare_tables.footnotes(compare_runs([tmp_path], ["top1.micro"]))
    assert not any(note.startswith("lac: ") for note in only)


def test_coverage_by_parents_and_of_the_worst_class_can_be_compared(tmp_path):
    letter_run(tmp_path / "a")
    letter_run(tmp_path / "b", overrides=("loss=focal",), skill=2.0)
    found = compare_runs([tmp_path], ["sets.two.worst_class"])
    assert found.metrics == ("sets.two.worst_class",)
    assert found.best["sets.two.worst_class"].test == "no test: not a mean over test rows"


def test_where_mistakes_lie_has_no_best_but_a_difference(tmp_path):
    table = replace(TABLE, parents={"genus": tuple("xxyyzz")})
    for seed in range(3):
        for name, skill in (("a", 1.0), ("b", 2.0)):
            run = letter_run(
                tmp_path / f"{name}-{seed}", seed=seed, skill=skill, overrides=(f"epochs={skill:g}",)
            )
            table.save(run.model_path / "class_table.json")
            seal(run)
            evaluate_run(Run.open(run.path))
    found = compare_runs([tmp_path], ["confused_within.genus"], baseline="cross_entropy, epochs 1")
    assert found.best == {}
    values = {}
    for row in found.rows:
        shares = []
        for path in row.runs:
            scores, target = Run.open(Path(path)).scored("test")
            pairs = [(int(guess), int(true)) for guess, true in zip(scores.argmax(1), target, strict=True)]
            wrong = [(guess, true) for guess, true in pairs if guess != true]
            shares.append(sum(guess // 2 == true // 2 for guess, true in wrong) / len(wrong))
        assert row.metrics["confused_within.genus"].value == pytest.approx(sum(shares) / 3)
        values[row.label] = shares
    (difference,) = found.differences["confused_within.genus"].values()
    first, second = values.values()
    assert difference.p_value == pytest.approx(stats.ttest_rel(second, first).pvalue)
