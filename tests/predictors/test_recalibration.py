"""Thresholds that learn from confirmed lists: published sequences, resuming, merging, and what is refused."""

import json
import math
import random

import pytest

from shortlist._beta import binomial_tail, rank_with_tail
from shortlist.predictors import AdaptingThreshold, ShrinkingThreshold


def seen(rule, score):
    """What a person's reply tells: the score if the class was in the list."""
    return score if score <= rule.threshold else None


def test_published_shrinking_thresholds(golden):
    scores = golden("semi_bandit").shared["scores"].tolist()
    cases = [case for case in golden("semi_bandit").cases if case["kind"] == "shrinking"]
    assert len(cases) == 3
    for case in cases:
        rule, found, confirmed = ShrinkingThreshold(**case["params"]), [], 0
        for score in scores:
            before = rule.updates
            reply = seen(rule, score)
            confirmed += reply is not None
            rule.observe(reply)
            if rule.updates > before:
                found.append((rule.rounds, rule.updates, rule.threshold, confirmed))
        wanted = [(u["rounds"], u["update"], u["threshold"], u["confirmed"]) for u in case["updates"]]
        assert found == wanted
        for update in case["updates"]:
            tail = case["params"]["delta"] / (update["update"] * (update["update"] + 1))
            assert rank_with_tail(update["rounds"], case["params"]["coverage"], tail) == update["rank"]


def test_published_adapting_thresholds(golden):
    scores = golden("semi_bandit").shared["scores"].tolist()
    [case] = [case for case in golden("semi_bandit").cases if case["kind"] == "aci"]
    options = case["params"]
    rule = AdaptingThreshold(coverage=1 - options["alpha"], step=options["gamma"], start=options["start"])
    found = []
    for score in scores:
        rule.observe(hit=score <= rule.threshold)
        if rule.rounds % 25 == 0:
            found.append(rule.threshold)
    assert found == pytest.approx(case["thresholds"], abs=1e-12)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.999])
def test_the_tail_is_scipys(share):
    stats = pytest.importorskip("scipy.stats")
    for rounds in (1, 2, 29, 563, 20_000, 1_000_000):
        middle = int(rounds * share)
        for k in {0, 1, middle // 2, middle, middle + 1, middle + int(3 * rounds**0.5), rounds, rounds + 1}:
            assert binomial_tail(rounds, share, k) == pytest.approx(
                stats.binom.sf(k - 1, rounds, share), rel=1e-8, abs=1e-300
            )
        for tail in (0.3, 0.05, 1e-5):
            k = rank_with_tail(rounds, share, tail)
            assert stats.binom.sf(k - 1, rounds, share) <= tail
            assert stats.binom.sf(k - 2, rounds, share) > tail


def all_kept(coverage, delta, growth, scores):
    """The rule as written, with every score in memory."""
    q, known, j, due = math.inf, [], 0, math.ceil(math.log(delta / 2) / math.log(coverage))
    for t, score in enumerate(scores, 1):
        known.append(score if score <= q else math.inf)
        if t == due:
            j, due = j + 1, math.ceil(growth * t)
            k = rank_with_tail(t, coverage, delta / (j * (j + 1)))
            q = min([q, *sorted(known)[k - 1 : k]])
    return q


def test_few_scores_are_enough():
    random.seed(1)
    scores = [random.random() ** 2 for _ in range(30_000)]
    rule = ShrinkingThreshold(capacity=300)
    for score in scores:
        rule.observe(seen(rule, score))
    assert rule.threshold == all_kept(0.9, 0.1, 1.25, scores)
    assert len(rule.to_dict()["scores"]) <= 300


def test_too_few_scores_are_on_the_safe_side():
    random.seed(2)
    scores = [random.random() for _ in range(3000)]
    full, small = ShrinkingThreshold(), ShrinkingThreshold(capacity=5)
    for score in scores:
        full.observe(seen(full, score))
        small.observe(seen(small, score))
        assert small.threshold >= full.threshold
    assert small.threshold < math.inf


@pytest.mark.parametrize("travel", ["dict", "file"])
def test_it_goes_on_where_it_was(travel, tmp_path):
    random.seed(3)
    scores = [random.random() for _ in range(400)]
    whole, part = ShrinkingThreshold(), ShrinkingThreshold()
    adapting, resumed = AdaptingThreshold(), AdaptingThreshold()
    for i, score in enumerate(scores):
        for rule in (whole, part):
            rule.observe(seen(rule, score))
        for rule in (adapting, resumed):
            rule.observe(hit=score <= rule.threshold)
        if i in (0, 28, 29, 200):
            if travel == "dict":
                part = ShrinkingThreshold.from_dict(json.loads(json.dumps(part.to_dict())))
                resumed = AdaptingThreshold.from_dict(json.loads(json.dumps(resumed.to_dict())))
            else:
                part.save(tmp_path / "shrinking.json")
                resumed.save(tmp_path / "adapting.json")
                part = ShrinkingThreshold.load(tmp_path / "shrinking.json")
                resumed = AdaptingThreshold.load(tmp_path / "adapting.json")
    assert part.to_dict() == whole.to_dict() and whole.updates > 5
    assert resumed.to_dict() == adapting.to_dict()


def test_collectors_merge_to_what_one_rule_would_have_found():
    random.seed(4)
    scores = [random.random() for _ in range(29)]
    whole, parts = ShrinkingThreshold(), ShrinkingThreshold()
    first, second = parts.collector(), parts.collector()
    for i, score in enumerate(scores):
        whole.observe(score)
        (first if i % 3 else second).observe(score)
    parts.merge(second)
    assert parts.threshold == math.inf  # not yet enough
    parts.merge(first)
    assert parts.to_dict() == whole.to_dict() and parts.threshold == max(scores)


def test_a_collector_that_lags_behind_is_merged_right():
    """What it saw above the threshold of now counts as a reply, and not among the scores."""
    rule = ShrinkingThreshold(coverage=0.5, delta=0.5)
    late = rule.collector()
    for score in (0.1, 0.4):
        rule.observe(score)
    assert rule.threshold == 0.4
    for score in (0.2, 0.9, None):
        late.observe(score)
    rule.merge(late)
    # 5 replies: at most 0.5 / 6 of the chances are with 5 of 5, 1 / 32, and 6 / 32 with 4
    assert rule.rounds == 5 and rule.updates == 2 and rule.threshold == 0.4
    assert rule.to_dict()["scores"] == [0.1, 0.2, 0.4]


def test_collectors_that_only_counted_scores_are_merged_on_the_safe_side():
    random.seed(5)
    for seed in range(20):
        random.seed(seed)
        exact, small = ShrinkingThreshold(), ShrinkingThreshold(capacity=20)
        for _ in range(30):
            collectors = exact.collector(), small.collector()
            for _ in range(40):
                score = random.random()
                for collector in collectors:
                    collector.observe(seen(collector, score))
            exact.merge(collectors[0])
            small.merge(collectors[1])
            assert small.threshold >= exact.threshold


@pytest.mark.errors
def test_what_cannot_be_merged_is_refused():
    rule, other = ShrinkingThreshold(coverage=0.5, delta=0.5), ShrinkingThreshold(coverage=0.5, delta=0.5)
    for score in (0.1, 0.4):
        other.observe(score)
    with pytest.raises(ValueError, match=r"other must not have set its own threshold, it did 1 times"):
        rule.merge(other)
    with pytest.raises(ValueError, match=r"lists by a threshold >= inf, got 0\.4"):
        rule.merge(other.collector())
    with pytest.raises(ValueError, match=r"same options .*0\.5.* got .*0\.8"):
        rule.merge(ShrinkingThreshold(coverage=0.8))
    with pytest.raises(ValueError, match="another ShrinkingThreshold"):
        rule.merge(rule)
    with pytest.raises(ValueError, match="AdaptingThreshold cannot be merged"):
        AdaptingThreshold().merge(AdaptingThreshold())


@pytest.mark.errors
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ShrinkingThreshold(coverage=1.0), "coverage must be < 1, got 1.0"),
        (lambda: ShrinkingThreshold(growth=1.0), "growth must be > 1, got 1.0"),
        (lambda: ShrinkingThreshold(start=math.nan), "start must be .* got nan"),
        (lambda: ShrinkingThreshold().observe(math.nan), "score must be .* got nan"),
        (lambda: ShrinkingThreshold.from_dict({"coverage": 0.9}), "content must be that of"),
        (lambda: AdaptingThreshold(start=1.5), "start must be .* got 1.5"),
        (lambda: AdaptingThreshold().observe(hit=None), "hit must be True or False, got None"),
        (lambda: AdaptingThreshold.from_dict({}), "content must be that of"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.errors
def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "rule.json"
    ShrinkingThreshold().save(path)
    with pytest.raises(ValueError, match=r"rule.json was written by another version: its format is"):
        AdaptingThreshold.load(path)
    path.write_text(path.read_text().replace('"rounds": 0', '"rounds": 7'))
    with pytest.raises(ValueError, match=r"rule.json was changed"):
        ShrinkingThreshold.load(path)
