"""Predictors for a place: the golden numbers through them, their promises, files and errors."""

import math

import pytest
import torch

from shortlist import ClassTable, Place
from shortlist.predictors import AverageError, AverageK, Conformal, TopK, load, save, sizes
from shortlist.sentences import promise_words

NAMES = ("oak", "ash", "elm", "fir", "yew", "box")
PRIORS = torch.tensor([0.4, 0.25, 0.15, 0.1, 0.06, 0.04], dtype=torch.float64)
WEIGHTS = torch.tensor([0.0, 0.1, 0.2, 0.0, 0.3, 0.4], dtype=torch.float64)


def rows(n=400, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    target = torch.multinomial(PRIORS, n, replacement=True, generator=generator)
    scores = torch.randn(n, 6, generator=generator, dtype=torch.float64) + PRIORS.log()
    scores[torch.arange(n), target] += 2
    return scores.to(dtype), target


def posterior_by_hand(scores):
    """Bayes' rule, row by row."""
    p = scores.double().softmax(1)
    return torch.stack([row * WEIGHTS / PRIORS / float((row * WEIGHTS / PRIORS).sum()) for row in p])


def lists(sets):
    return [row.nonzero().squeeze(1).tolist() for row in sets]


def test_golden_thresholds_and_sets_in_double_precision(golden):
    shared = golden("places").shared
    cases = [case for case in golden("places").cases if case["kind"] == "place"]
    assert len(cases) == 10
    for case in cases:
        weights = torch.tensor(case["params"]["weights"], dtype=torch.float64)
        predictor = Conformal(1 - case["params"]["alpha"]).at(weights, priors=shared["priors"])
        predictor.calibrate(shared["cal_logits"], shared["cal_labels"])
        wanted = [value for value in case["thresholds"] if value is not None]
        assert predictor.threshold[weights > 0].tolist() == pytest.approx(wanted, abs=1e-12)
        first = torch.tensor(case["test_posteriors"], dtype=torch.float64)
        found = predictor.values(shared["test_logits"])[: len(first)]
        assert torch.allclose(found, first, rtol=0, atol=1e-12)
        assert lists(predictor(shared["test_logits"])) == case["sets"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_k_is_the_best_of_the_place(dtype):
    scores, _ = rows(dtype=dtype)
    best = posterior_by_hand(scores).argsort(1, descending=True)[:, :2]
    wanted = torch.zeros(len(scores), 6, dtype=torch.bool).scatter(1, best, True)
    predictor = TopK(2).at(WEIGHTS, priors=PRIORS)
    assert torch.equal(predictor(scores), wanted)
    assert predictor.promise.classes == 4


def weighted_average_by_loops(scores, target, k, at_least, at_most):
    """Return the threshold: add up the weights of all values from the largest down."""
    u, inside = posterior_by_hand(scores), [1, 2, 4, 5]
    counts = {c: int((target == c).sum()) for c in inside}
    pairs = []
    for row, y in zip(u, target.tolist(), strict=True):
        if y in inside:
            ranked = sorted((float(row[c]) for c in inside), reverse=True)[at_least:at_most]
            pairs += [(value, y, float(WEIGHTS[y]) / counts[y]) for value in ranked]
    pairs.sort(key=lambda pair: -pair[0])
    reached, number = 0.0, 0
    while number < len(pairs) and reached + pairs[number][2] <= k - at_least + 1e-9:
        reached, number = reached + pairs[number][2], number + 1
    return (pairs[number - 1][0] + pairs[number][0]) / 2, at_least + reached


@pytest.mark.parametrize("bounds", [{}, {"at_least": 1}, {"at_least": 1, "at_most": 3}])
def test_average_k_weighs_the_rows_as_classes_occur(bounds):
    scores, target = rows()
    target[:20] = -100
    predictor = AverageK(2, **bounds).at(WEIGHTS, priors=PRIORS).calibrate(scores, target)
    at_least, at_most = bounds.get("at_least", 0), bounds.get("at_most", 4)
    threshold, average = weighted_average_by_loops(scores, target, 2, at_least, at_most)
    assert float(predictor.threshold) == pytest.approx(threshold, abs=1e-12)
    assert predictor.report.average_size == pytest.approx(average, abs=1e-9)
    inside = (WEIGHTS > 0)[target.clamp_min(0)] & (target != -100)
    assert predictor.report.rows == int(inside.sum())
    size, weight = sizes(predictor(scores)).double(), (WEIGHTS / target[inside].bincount(minlength=6))
    assert float((size * weight[target.clamp_min(0)])[inside].sum()) == pytest.approx(average, abs=1e-9)
    assert not predictor(scores)[:, WEIGHTS == 0].any()
    assert int(size.min()) >= at_least and int(size.max()) <= at_most


MAKERS = {
    "conformal": lambda: Conformal(0.8),
    "aps": lambda: Conformal(0.8, score="aps"),
    "average_k": lambda: AverageK(1.5),
    "bounded": lambda: AverageK(1.5, at_least=1, at_most=3),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batches_parts_and_files_give_the_same_bits(name, dtype, tmp_path):
    scores, target = rows(dtype=dtype)
    whole = MAKERS[name]().at(WEIGHTS, priors=PRIORS).calibrate(scores, target)
    parts = [MAKERS[name]().at(WEIGHTS, priors=PRIORS) for _ in range(2)]
    for number, some in enumerate(torch.arange(400).split(90)):
        parts[number % 2].update(scores[some], target[some])
    save(parts[0], tmp_path / "part")  # unfinished
    parts[1].merge(load(tmp_path / "part"))
    found = parts[1].finish()
    assert torch.equal(found.threshold, whole.threshold) and found.report == whole.report
    save(whole, tmp_path / "whole")
    again = load(tmp_path / "whole")
    assert torch.equal(again(scores), whole(scores)) and again.promise == whole.promise
    assert repr(again) == repr(whole)
    # calibrated again, it is at the same place
    assert torch.equal(again.calibrate(scores, target).threshold, whole.threshold)


def test_top_k_of_a_place_in_a_file(tmp_path):
    predictor = TopK(2).at(Place({"ash": 3, "yew": 1}, name="garden"), priors=PRIORS, class_table=TABLE)
    save(predictor, tmp_path / "top")
    again = load(tmp_path / "top")
    assert torch.equal(again(rows()[0]), predictor(rows()[0])) and again.place_name == "garden"


TABLE = ClassTable(names=NAMES)


def test_a_named_place_and_its_promise():
    scores, target = rows()
    target = target.where(target != 5, 0)  # no rows of box
    place = Place({"ash": 1, "elm": 2, "yew": 3, "box": 4}, name="garden")
    predictor = Conformal(0.8).at(place, priors=PRIORS, class_table=TABLE)
    with pytest.warns(UserWarning, match=r"no rows: 1 class \(5\), to which the promise does not extend"):
        predictor.calibrate(scores, target)
    promise = predictor.promise
    assert (promise.about, promise.level, promise.place, promise.classes) == ("place", 0.8, "garden", 4)
    there = (target == 1) | (target == 2) | (target == 4)
    assert promise.left_out == 1 and promise.rows == int(there.sum())
    assert "80 of 100 such lists contain the right class, for photos of the 4 classes of garden." in (
        promise_words(promise)
    )
    assert "at garden of 4 classes" in repr(predictor)
    assert promise.from_dict(promise.to_dict()) == promise


def test_a_promise_is_kept_where_the_cut_list_breaks_it():
    """Rare classes at a place: the threshold of all rows holds them too seldom."""
    generator = torch.Generator().manual_seed(1)
    means = 1.3 * torch.randn(12, 4, generator=generator)
    priors = 1 / torch.arange(1, 13, dtype=torch.float64)
    priors /= priors.sum()
    weights = torch.tensor([0.0] * 6 + [1.0] * 6)

    def draw(n, frequencies):
        y = torch.multinomial(frequencies, n, replacement=True, generator=generator)
        x = means[y] + torch.randn(n, 4, generator=generator)
        return priors.log() - torch.cdist(x, means).square().double() / 2, y

    cut, ours = [], []
    for _ in range(40):
        scores, target = draw(400, priors)
        plain = Conformal(0.9).calibrate(scores, target)
        placed = Conformal(0.9).at(weights, priors=priors).calibrate(scores, target)
        new, classes = draw(400, weights)
        held = (plain(new) & (weights > 0)).gather(1, classes[:, None]).double().mean()
        cut.append(float(held))
        ours.append(float(placed(new).gather(1, classes[:, None]).double().mean()))
    mean = torch.tensor(ours).mean()
    error = torch.tensor(ours).std() / math.sqrt(40)
    assert mean > 0.9 - 3 * error and mean < 0.95
    assert sum(cut) / 40 < 0.85


def test_rows_that_rule_the_whole_place_out():
    scores, target = rows()
    predictor = Conformal(0.8).at(WEIGHTS, priors=PRIORS).calibrate(scores, target)
    ruled_out = scores[:1].masked_fill(WEIGHTS > 0, -math.inf)
    assert not predictor(ruled_out).any() and not TopK(1).at(WEIGHTS, priors=PRIORS)(ruled_out).any()


def test_too_few_rows_list_everything_of_the_place():
    scores, target = rows(3)
    predictor = Conformal(0.99).at(torch.ones(6), priors=PRIORS)
    with pytest.warns(UserWarning, match="too few rows"):
        predictor.calibrate(scores, target)
    assert predictor(scores).all()
    placed = Conformal(0.99).at(WEIGHTS, priors=PRIORS)
    with pytest.warns(UserWarning, match="too few rows"):
        placed.calibrate(scores, torch.tensor([1, 2, 4]))
    assert torch.equal(placed(scores), (WEIGHTS > 0).expand(3, 6))


@pytest.mark.errors
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopK(2).at([0.0] * 6, priors=PRIORS), "place must be above 0 for some class, got 0 for all"),
        (lambda: TopK(2).at([1.0, -1.0], priors=PRIORS[:2] * 2), r"place must be finite and >= 0, got -1"),
        (lambda: TopK(2).at([math.nan] * 6, priors=PRIORS), r"place must be finite and >= 0, got nan"),
        (lambda: TopK(2).at([1.0] * 5, priors=PRIORS), r"priors must have one entry per class \(5\), got 6"),
        (lambda: TopK(5).at(WEIGHTS, priors=PRIORS), r"classes of the place \(4\), got 5"),
        (lambda: AverageK(5).at(WEIGHTS, priors=PRIORS), r"classes of the place \(4\), got 5"),
        (lambda: TopK(1).at(Place.even(), priors=PRIORS), "class_table must be given for a Place"),
        (lambda: AverageError(0.9).at(WEIGHTS, priors=PRIORS), "AverageError cannot be made for a place"),
        (lambda: TopK(2, priors=PRIORS).at(WEIGHTS, priors=PRIORS), "a TopK without priors and place"),
        (
            lambda: TopK(2).at(WEIGHTS, priors=PRIORS).at(WEIGHTS, priors=PRIORS),
            "without priors and place, got one with a place",
        ),
        (lambda: TopK(2, activation="none").at(WEIGHTS, priors=PRIORS), "activation must be 'softmax' at"),
        (
            lambda: Conformal(0.9, rule="class_conditional").at(WEIGHTS, priors=PRIORS),
            r"rule must be 'marginal' for at\(\), .* got 'class_conditional'",
        ),
        (
            lambda: AverageK(2).at(WEIGHTS, priors=PRIORS).calibrate(rows()[0]),
            "AverageK is calibrated with labels: target must be given",
        ),
        (
            lambda: Conformal(0.9).at(WEIGHTS, priors=PRIORS).calibrate(rows(9)[0], torch.zeros(9).long()),
            "needs at least 1 row that is not left out, got 0",
        ),
    ],
)
def test_bad_places_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
