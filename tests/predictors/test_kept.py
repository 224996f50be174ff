"""Sets and thresholds from the largest probabilities of each row: those of all scores, or an error."""

import pytest
import torch

from shortlist.predictors import AverageError, AverageK, Conformal, TopK
from shortlist.predictors.kept import KeptCalibration, KeptRows, NotKeptError, kept_rule

ROWS, CLASSES = 300, 40


def make_scores(seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(ROWS, CLASSES, generator=generator)
    return scores, scores.softmax(1).multinomial(1, generator=generator)[:, 0]


def keep(scores, target, m):
    probabilities = scores.softmax(1)
    kept, classes = probabilities.topk(m)
    true = probabilities.gather(1, target.clamp_min(0)[:, None])[:, 0]
    return KeptRows(kept, CLASSES, target, true), classes


@pytest.mark.parametrize(
    "make",
    [
        lambda: AverageK(3),
        lambda: AverageK(2.5, rule="strict"),
        lambda: AverageK(3, at_least=1),
        lambda: AverageK(2, at_least=2, at_most=30),
        lambda: AverageK(19.5, at_least=1, at_most=20),  # of these the dropped ones are no matter
        lambda: Conformal(coverage=0.8),
        lambda: Conformal(coverage=0.8, at_most=15),
    ],
)
@pytest.mark.parametrize("m", [20, CLASSES])
def test_thresholds_are_those_of_all_scores_in_any_order_of_the_parts(make, m):
    scores, target = make_scores()
    target[::7] = -100
    wanted = make().calibrate(scores) if not make().needs_target else make().calibrate(scores, target)
    for order in (torch.arange(ROWS), torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))):
        calibration = KeptCalibration(make(), ROWS)
        for part in order.split(77):
            calibration.update(keep(scores[part], target[part], m)[0])
        found = calibration.finish()
        assert torch.equal(found.threshold, wanted.threshold) and found.report == wanted.report


@pytest.mark.parametrize(
    "predictor",
    [
        TopK(4),
        AverageK(3),
        AverageK(2.5, rule="strict"),
        AverageK(3, at_least=1, at_most=5),
        AverageK(3, at_least=2),
        AverageK(7, at_least=1, at_most=9),
        Conformal(coverage=0.8),
        Conformal(coverage=0.95),
        Conformal(coverage=0.5, at_least=2),
        Conformal(coverage=0.8, at_least=1, at_most=10),
    ],
    ids=repr,
)
@pytest.mark.parametrize("m", [6, CLASSES])
def test_whole_sets_are_those_of_all_scores_and_the_others_are_told(predictor, m):
    scores, target = make_scores()
    predictor = predictor.calibrate(scores, target) if predictor.needs_calibration else predictor
    (rows, classes), rule = keep(scores, target, m), kept_rule(predictor)
    sets, whole = rule.sets(rows)
    dense = predictor(scores)
    assert torch.equal(whole, dense.gather(1, classes).sum(1) == dense.sum(1)) or m < CLASSES
    spread = torch.zeros_like(dense).scatter(1, classes, sets)
    assert torch.equal(spread[whole], dense[whole])
    assert bool((dense.sum(1)[~whole] >= m).all())  # what is not whole has at least all that was kept
    rank = 1 + (scores > scores.gather(1, target[:, None])).sum(1)
    assert torch.equal(rule.hits(rows, rank), dense.gather(1, target[:, None])[:, 0])
    assert int(dense.sum(1).max()) <= rule.enough(CLASSES)
    enough = min(CLASSES, rule.enough(CLASSES))
    assert bool(rule.sets(keep(scores, target, enough)[0])[1].all())


@pytest.mark.parametrize("m", [5, 7])
def test_too_few_are_an_error_that_names_enough(m):
    scores, target = make_scores()
    calibration = KeptCalibration(AverageK(6), ROWS)
    calibration.update(keep(scores, target, m)[0])
    with pytest.raises(
        NotKeptError, match=rf"AverageK with k=6 cannot be calibrated from {m} values .* --keep (\d+)"
    ) as error:
        calibration.finish()
    assert not calibration.predictor.calibrated
    enough = int(str(error.value).split("--keep ")[1])
    calibration = KeptCalibration(AverageK(6), ROWS)
    calibration.update(keep(scores, target, enough)[0])
    assert torch.equal(calibration.finish().threshold, AverageK(6).calibrate(scores).threshold)


def test_what_needs_all_scores_says_so():
    priors = torch.full((CLASSES,), 1 / CLASSES)
    for predictor in (
        Conformal(score="aps"),
        AverageK(3, priors=priors),
        AverageError(0.9),
        TopK(3, priors=priors),
    ):
        assert predictor.kept_rule() is None
    with pytest.raises(NotKeptError, match="needs the scores of all classes"):
        KeptCalibration(AverageError(0.9), 10)
