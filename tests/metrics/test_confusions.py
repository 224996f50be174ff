"""How many wrong first guesses stay within a parent of the true class, against a loop."""

import json

import pytest
import torch
from scipy import stats

from shortlist.class_table import ClassTable
from shortlist.metrics import Estimate, Results, aggregate, confused_within, evaluate
from shortlist.metrics.names import check_metric, has_best, is_share, predictor_of, size_of

C, ROWS = 7, 300
PARENTS = {"genus": "AABBBCC", "family": "XXXXXYY"}
TABLE = ClassTable(
    names=tuple("abcdefg"), counts=(50,) * C, parents={k: tuple(v) for k, v in PARENTS.items()}
)


def rows(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(C, (ROWS,), generator=generator)
    scores = torch.randn(ROWS, C, generator=generator)
    scores[torch.arange(ROWS), target] += 1.0
    return scores, target


def counted(scores: torch.Tensor, target: torch.Tensor, level: str) -> tuple[int, int]:
    within = mistakes = 0
    for row, true in zip(scores.tolist(), target.tolist(), strict=True):
        guess = row.index(max(row))
        if guess != true:
            mistakes += 1
            within += PARENTS[level][guess] == PARENTS[level][true]
    return within, mistakes


def test_shares_and_exact_intervals_in_a_loop():
    scores, target = rows()
    results = evaluate(scores, target, {}, TABLE)
    for level in PARENTS:
        within, mistakes = counted(scores, target, level)
        ends = stats.binomtest(within, mistakes).proportion_ci(method="exact")
        found = results.metrics()[f"confused_within.{level}"]
        assert found == results.scores.confused_within[level]
        assert (found.value, found.low, found.high) == pytest.approx((within / mistakes, ends.low, ends.high))
    without = evaluate(scores, target, {}, TABLE, num_resamples=0).scores.confused_within
    assert without["genus"] == Estimate(found_share(scores, target, "genus"))


def found_share(scores: torch.Tensor, target: torch.Tensor, level: str) -> float:
    within, mistakes = counted(scores, target, level)
    return within / mistakes


def test_ignored_rows_are_no_mistakes():
    scores, target = rows()
    ignored = target.clone()
    ignored[::3] = -100
    kept = ignored != -100
    found = evaluate(scores, ignored, {}, TABLE).scores.confused_within
    assert found == evaluate(scores[kept], target[kept], {}, TABLE).scores.confused_within


def test_without_mistakes_or_parents_there_is_no_share():
    target = torch.arange(C)
    parents = {"genus": torch.zeros(C, dtype=torch.int64)}
    assert confused_within(target, target, parents) == {"genus": Estimate(None)}
    bare = ClassTable(names=TABLE.names, counts=TABLE.counts)
    results = evaluate(3 * torch.eye(C), target, {}, bare)
    assert results.scores.confused_within == {}
    assert not [name for name in results.metrics() if name.startswith("confused")]
    perfect = evaluate(3 * torch.eye(C), target, {}, TABLE)
    assert Results.from_json(perfect.to_json()) == perfect


def test_results_are_read_as_written_and_averaged(tmp_path):
    results = [evaluate(*rows(seed), {}, TABLE) for seed in (1, 2)]
    results[0].save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == results[0]
    mean = aggregate(results).metrics["confused_within.genus"]
    assert mean.value == pytest.approx(sum(found_share(*rows(seed), "genus") for seed in (1, 2)) / 2)
    content = json.loads(results[0].to_json())
    assert content["scores"]["confused_within"]["family"]["value"] == pytest.approx(
        found_share(*rows(1), "family")
    )


def test_names():
    check_metric("confused_within.genus", [])
    with pytest.raises(ValueError, match="metrics must be such as"):
        check_metric("confused_within", [])
    assert is_share("confused_within.genus") and not has_best("confused_within.genus")
    assert predictor_of("confused_within.genus") is None and size_of("confused_within.genus") is None
    assert has_best("sets.a.coverage.micro") and not has_best("sets.a.size.few")
