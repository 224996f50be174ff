"""Calibration on the votes of people who disagree."""

import math

import pytest
import torch

from shortlist.predictors import AverageK, CalibrationWarning, Conformal, load, save
from shortlist.predictors.conformity import CONFORMITY_SCORES, OrderedScore, class_scores
from shortlist.predictors.thresholds import vote_threshold

PRIORS = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.05, 0.05], dtype=torch.float64)


def make(name, **options):
    priors = PRIORS if name == "prevalence_adjusted" else None
    return Conformal(score=name, priors=priors, rule="marginal", **options)


def rows(n=400, dtype=torch.float64, seed=0, most=5):
    """Scores, and up to ``most`` votes of each row, drawn from its probabilities; some rows have none."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 6, generator=generator, dtype=torch.float64)
    drawn = torch.multinomial(logits.softmax(1), most, replacement=True, generator=generator)
    number = torch.randint(0, most + 1, (n, 1), generator=generator)
    votes = torch.nn.functional.one_hot(drawn, 6) * (torch.arange(most) < number)[:, :, None]
    return logits.to(dtype), votes.sum(1).to(dtype)


@pytest.mark.parametrize("name", CONFORMITY_SCORES)
def test_threshold_against_a_loop(name):
    logits, votes = rows()
    predictor = make(name, coverage=0.8).calibrate(logits, votes)
    probs = logits.softmax(1) / (PRIORS if name == "prevalence_adjusted" else 1)
    scores, counted = class_scores(CONFORMITY_SCORES[name](), probs), votes.sum(1) > 0
    pairs = sorted(
        (float(scores[i, j]), float(votes[i, j] / votes[i].sum()))
        for i in range(400)
        for j in range(6)
        if votes[i, j]
    )
    n, reached = int(counted.sum()), 0.0
    assert n < 400 and predictor.report.rows == n
    while reached < (n + 1) * 0.8 - 1e-9:
        expected, share = pairs.pop(0)
        reached += share
    assert float(predictor.threshold) == pytest.approx(expected, abs=1e-12)
    shares = votes[counted] / votes[counted].sum(1, keepdim=True)
    held = (predictor(logits)[counted] * shares).sum() / n
    assert predictor.report.coverage == pytest.approx(float(held), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_votes_in_half_precision(dtype):
    logits, votes = rows()
    logits = logits.to(dtype)
    half, whole = (make("lac", coverage=0.8).calibrate(logits, v) for v in (votes.to(dtype), votes))
    assert torch.equal(half.threshold, whole.threshold) and half.report == whole.report


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONFORMITY_SCORES)
def test_one_vote_for_each_row_is_a_label_to_the_bit(name, dtype):
    logits, _ = rows(3000, dtype)
    target = torch.multinomial(logits.softmax(1), 1).squeeze(1)
    votes = torch.nn.functional.one_hot(target, 6).to(dtype)
    votes[::7], target[::7] = 0, -100
    randomized = issubclass(CONFORMITY_SCORES[name], OrderedScore)

    def fresh():
        generator = torch.Generator().manual_seed(2) if randomized else None
        return make(name, coverage=0.85, randomized=randomized, generator=generator)

    by_label, by_vote = fresh().calibrate(logits, target), fresh().calibrate(logits, 3 * votes)
    assert torch.equal(by_label.threshold, by_vote.threshold)
    assert by_vote.report.rows == by_label.report.rows
    assert by_vote.report.coverage == pytest.approx(by_label.report.coverage, abs=1e-12)


@pytest.mark.parametrize("name", CONFORMITY_SCORES)
def test_batches_merges_files_and_labels_among_votes_change_no_bit(name, tmp_path):
    logits, votes = rows(2000, torch.float32)
    target = torch.multinomial(logits[:500].softmax(1), 1).squeeze(1)
    votes[:500] = torch.nn.functional.one_hot(target, 6)
    whole = make(name).calibrate(logits, votes)
    first, second = make(name), make(name)
    for some in range(500, 2000, 77):
        first.update(logits[some : some + 77], votes[some : some + 77])
    second.update(logits[:500], target)  # labels
    save(first, tmp_path / "first")
    for one, other in ((load(tmp_path / "first"), second), (second, first)):
        one.merge(other)
        assert torch.equal(one.finish().threshold, whole.threshold)
        assert one.report == whole.report
    again = make(name)
    again.load_state_dict(whole.state_dict())
    assert torch.equal(again(logits), whole(logits))


def test_published_thresholds_and_sets(golden):
    shared, compared = golden("votes").shared, 0
    for case in golden("votes").cases:
        number = 1 + torch.arange(40) % 4 if case["kind"] == "votes_unequal" else torch.full((40,), 5)
        one_hot = torch.nn.functional.one_hot(shared["annotators"], 8).double()
        votes = (one_hot * (torch.arange(one_hot.shape[1]) < number[:, None])[:, :, None]).sum(1)
        predictor = Conformal(coverage=1 - case["params"]["alpha"])
        if case["threshold"] == "inf":
            with pytest.warns(CalibrationWarning, match="needs at least 49 calibration rows, got 40"):
                predictor.calibrate(shared["cal_logits"], votes)
        else:
            predictor.calibrate(shared["cal_logits"], votes)
        assert float(predictor.threshold) == pytest.approx(float(case["threshold"]), abs=1e-12)
        sets = predictor(shared["test_logits"])
        assert float(sets.sum(1).double().mean()) == pytest.approx(case["mean_size"], abs=1e-12)
        if "sets" in case:
            assert [row.nonzero()[:, 0].tolist() for row in sets] == case["sets"]
            compared += 1
    assert compared == 4


def test_sums_of_many_thirds_are_exact():
    """100,000 rows of three votes: two thirds of the mass is reached at the last of the second scores."""
    n = 100_000
    scores = torch.cat([torch.full((n,), k, dtype=torch.float64) for k in (0.1, 0.2, 0.3)])
    shares = torch.full((3 * n,), 1 / 3, dtype=torch.float64)
    coverage = 2 * n / 3 / (n + 1)
    assert float(vote_threshold(scores, shares, rows=n, coverage=coverage)) == 0.2
    assert float(vote_threshold(scores, shares, rows=n, coverage=coverage + 1e-9)) == 0.3


@pytest.mark.errors
def test_votes_that_cannot_be_used():
    logits, votes = rows(50)
    predictor = Conformal()
    for bad, message in (
        (votes[:, :5], r"votes, floating and of the scores' shape \(50, 6\), got torch.float64 \(50, 5\)"),
        (votes.long(), r"votes, floating and .* got torch.int64 \(50, 6\)"),
        (votes.where(votes != 1, -1), "target must be finite votes >= 0, got -1"),
        (votes.where(votes != 1, math.nan), "target must be finite votes >= 0, got nan"),
        (torch.zeros_like(votes), "at least 1 row that is not left out"),
    ):
        with pytest.raises(ValueError, match=message):
            predictor.calibrate(logits, bad)
    for rule in ("class_conditional", "clustered", "interpolated", "macro"):
        with pytest.raises(ValueError, match=f"target must be classes .* for the rule '{rule}': a row with"):
            Conformal(score="lac", rule=rule).calibrate(logits, votes)
    with pytest.raises(ValueError, match="target must be int64"):
        AverageK(2).calibrate(logits, votes)


@pytest.mark.slow
def test_a_random_vote_is_in_the_set_as_promised_and_not_with_the_consensus():
    """100 rows of 10 votes; the coverage of a random vote is known on 1,000 rows with known shares."""
    generator = torch.Generator().manual_seed(4)
    n, draws, by_vote, by_consensus = 100, 200, [], []
    for _ in range(draws):
        logits = 1.5 * torch.randn(n + 1000, 8, generator=generator)
        probs = logits.softmax(1)
        drawn = torch.multinomial(probs[:n], 10, replacement=True, generator=generator)
        votes = torch.nn.functional.one_hot(drawn, 8).sum(1).float()
        for target, covered in ((votes, by_vote), (votes.argmax(1), by_consensus)):
            sets = Conformal(coverage=0.9).calibrate(logits[:n], target)(logits[n:])
            covered.append(float((sets * probs[n:]).sum(1).mean()))
    error = 4 * torch.tensor(by_vote).std().item() / draws**0.5
    assert sum(by_vote) / draws >= 0.9 - error
    assert sum(by_vote) / draws <= 0.9 + 1 / (n + 1) + error
    assert sum(by_consensus) / draws < 0.8
