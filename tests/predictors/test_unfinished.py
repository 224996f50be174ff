"""A calibration that is interrupted, copied, merged or full of ties ends as one in one go."""

import copy
import pickle

import pytest
import torch
from torch import nn

from shortlist.predictors import PREDICTORS, AverageError, AverageK, Conformal, TaxonomyNodes, load, save
from shortlist.predictors.thresholds import THRESHOLD_RULES, Macro
from shortlist.taxonomy import Taxonomy

TREE = Taxonomy(
    tuple("abcdefghGHR"), (*["class"] * 8, "genus", "genus", "root"), (8, 9, 8, 9, 8, 10, 9, 10, 10, 10, -1)
)
CASES = {
    "average_k": lambda: AverageK(2.5),
    "bounded": lambda: AverageK(2.5, at_least=1, at_most=4),
    "capped": lambda: Conformal(coverage=0.8, at_most=4),
    "capped aps": lambda: Conformal(coverage=0.8, score="aps", at_most=6),
    "strict": lambda: AverageK(2.5, rule="strict"),
    "average_error": lambda: AverageError(coverage=0.8),
    "lac": lambda: Conformal(coverage=0.8),
    "aps": lambda: Conformal(coverage=0.8, score="aps"),
    "class_conditional": lambda: Conformal(coverage=0.5, rule="class_conditional"),
    "raps": lambda: Conformal(coverage=0.8, score="raps"),
    "saps": lambda: Conformal(coverage=0.8, score="saps"),
    "clustered": lambda: Conformal(coverage=0.8, rule="clustered"),
    "interpolated": lambda: Conformal(coverage=0.8, rule="interpolated"),
    "one node": lambda: TaxonomyNodes(TREE, coverage=0.8),
    "few nodes": lambda: TaxonomyNodes(TREE, coverage=0.8, nodes=2),
    "macro": lambda: Conformal(coverage=0.8, rule="macro", score="lac"),
    "macro by genus": lambda: Conformal(coverage=0.8, rule=GENERA, priors=torch.arange(1, 9) / 36),
}
GENERA = Macro(groups=[0, 0, 0, 1, 1, 2, 2, 3], thresholds="single", classes="all")


def rows(n=1000, c=8, dtype=torch.float64, *, step=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(n, c, generator=generator, dtype=torch.float64)
    target = torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)
    if step is not None:
        scores = (scores / step).round() * step
    return scores.to(dtype), target


def by_state_dict(predictor, make, _):
    other = make()
    other.load_state_dict(predictor.state_dict())
    return other


def inside_a_model(predictor, make, _):
    model = nn.Sequential(nn.Linear(2, 2), predictor)
    other = nn.Sequential(nn.Linear(2, 2), make())
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    return other[1]


def by_pickle(predictor, *_):
    return pickle.loads(pickle.dumps(predictor))


def by_file(predictor, _, folder):
    save(predictor, folder / "unfinished.json")
    return load(folder / "unfinished.json")


@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
@pytest.mark.parametrize("travel", [by_state_dict, inside_a_model, by_pickle, by_file])
@pytest.mark.parametrize("step", [None, 0.25], ids=["spread", "ties"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_rows_that_were_taken_in_travel_along(name, dtype, step, travel, tmp_path):
    make = CASES[name]
    scores, target = rows(dtype=dtype, step=step)
    whole = make()
    whole.update(scores[:900], target[:900])
    part = make()
    part.update(scores[:900], target[:900])
    part = travel(part, make, tmp_path)
    for predictor in (whole, part):
        predictor.update(scores[900:], target[900:])
        predictor.finish()
    assert part.report.rows == 1000
    assert torch.equal(part.threshold, whole.threshold)
    assert torch.equal(part(scores), whole(scores))


@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
@pytest.mark.parametrize("travel", [by_state_dict, by_file])
def test_the_floor_of_many_float64_values_with_ties_keeps_its_digits(travel, tmp_path):
    """Rounded to float32 it lay above values that were counted as equal to it: all sets were empty."""
    scores, _ = rows(40_000, 10, step=0.1)
    part, whole = AverageK(2.0, max_rows=len(scores)), AverageK(2.0, max_rows=len(scores))
    for batch in scores[:30_000].split(1000):
        part.update(batch)
        whole.update(batch)
    part = travel(part, lambda: AverageK(2.0, max_rows=len(scores)), tmp_path)
    part.max_rows = len(scores)
    for batch in scores[30_000:].split(1000):
        part.update(batch)
        whole.update(batch)
    assert torch.equal(part.finish().threshold, whole.finish().threshold)
    assert float(part(scores).sum(1).double().mean()) == pytest.approx(part.report.average_size)


@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_order_of_a_merge_changes_no_bit(name):
    scores, target = rows(1200)
    parts = [slice(0, 300), slice(300, 700), slice(700, 1200)]
    thresholds = []
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        pieces = [CASES[name]() for _ in parts]
        for piece, part in zip(pieces, parts, strict=True):
            piece.update(scores[part], target[part])
        first, *others = (pieces[i] for i in order)
        for other in others:
            first.merge(other)
        thresholds.append(first.finish().threshold)
    at_once = CASES[name]().calibrate(scores, target).threshold
    assert all(torch.equal(threshold, at_once) for threshold in thresholds)


def test_every_rule_is_here():
    made = [make() for make in CASES.values()]
    assert {type(one.rule) for one in made if isinstance(one, Conformal)} == set(THRESHOLD_RULES.values())
    assert {type(one) for one in made} == {kind for kind in PREDICTORS.values() if kind.needs_calibration}


def real_sets(scores, threshold, score):
    """Sets by the definition: a class is in if its score, ties against it, is at most the threshold."""
    sets = torch.zeros_like(scores, dtype=torch.bool)
    for i, p in enumerate(scores.softmax(1).tolist()):
        values = {one: real_value(one, p, score) for one in set(p)}  # classes that are tied have the same
        for j in range(len(p)):
            sets[i, j] = values[p[j]] <= (threshold if threshold.ndim == 0 else threshold[j])
    return sets


def real_value(one, p, score):
    """The score of a class that has a share ``one`` of the row's probabilities ``p``."""
    rank = sum(other >= one for other in p)
    if score == "saps":
        return 0.0 if rank == 1 else max(p) + (rank - 2) * 0.1
    before = sum(other for other in p if other >= one) - one
    return before + (0.01 * max(0, rank - 5) if score == "raps" else 0.0)


@pytest.mark.filterwarnings("ignore::shortlist.predictors.CalibrationWarning")
@pytest.mark.parametrize("rule", ["marginal", "class_conditional"])
@pytest.mark.parametrize("score", ["aps", "raps", "saps"])
def test_ties_within_rows_have_one_place_in_calibration_and_prediction(score, rule):
    scores, target = rows(400, 12, step=0.5, seed=3)
    predictor = Conformal(coverage=0.9, score=score, rule=rule).calibrate(scores, target)
    sets = predictor(scores)
    assert torch.equal(sets, real_sets(scores, predictor.threshold, score))
    measured = float(sets.gather(1, target[:, None]).double().mean())
    assert predictor.report.coverage == pytest.approx(measured, abs=1e-12)


@pytest.mark.parametrize("score", ["aps", "raps"])
def test_with_ties_coverage_is_what_was_promised_and_not_more(score):
    scores, target = rows(20_000, 12, step=0.5, seed=5)
    predictor = Conformal(coverage=0.9, score=score).calibrate(scores[:10_000], target[:10_000])
    covered = predictor(scores[10_000:]).gather(1, target[10_000:, None]).double().mean()
    assert float(covered) == pytest.approx(0.9, abs=4 * (0.09 / 5000) ** 0.5)
    # to count ties against classes in calibration alone would take 4.6 classes, and cover 91.7 %
    assert float(predictor(scores[10_000:]).sum(1).double().mean()) == pytest.approx(4.2, abs=0.1)


def test_many_classes_take_the_same_sets_by_the_short_way():
    """With 4,096 classes or more the leading places are tried first."""
    scores, target = rows(300, 4096, step=1.0, seed=7)
    predictor = Conformal(coverage=0.7, score="aps").calibrate(scores + 8 * (scores > 6), target)
    few = (scores + 8 * (scores > 6))[:20]
    assert torch.equal(predictor(few), real_sets(few, predictor.threshold, "aps"))
