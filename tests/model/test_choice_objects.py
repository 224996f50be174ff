"""Lists of several photos and of groups, against a slow oracle in NumPy, and what is promised about them."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from shortlist import ClassTable, Model, Place
from shortlist._row_facts import RowFacts
from shortlist.model import Choice
from shortlist.predictors import AverageK, CalibrationRows, Conformal
from shortlist.promise import Scope
from shortlist.scores import PriorRecord, ScoreMap
from shortlist.sentences import promise_in_short, promise_words, why_not

COUNTS = (50, 20, 15, 8, 5, 2)
TABLE = ClassTable([f"class {i}" for i in range(6)], counts=COUNTS)
PRIORS = np.array(COUNTS) / 100
ORGANS = ("leaf", "flower", "bark")


class Data:
    """Objects of up to three photos: a leaf, a flower and a bark; those of few are all the same photo."""

    def __init__(self, threes: int, ones: int, *, ids: bool = True, bark: int | None = None) -> None:
        random = np.random.default_rng(3)
        own = random.normal(size=(threes + ones, 1, 6)) * 1.5
        noise = random.normal(size=(threes + ones, 3, 6)) * (threes >= 9)
        self.target = np.array([random.choice(6, p=softmax(row)) for row in own[:, 0]])
        self.photos = np.repeat([3, 1], [threes, ones])
        self.log_p = np.log(softmax(own + noise))
        kept = np.arange(3) < self.photos[:, None]
        observation = np.broadcast_to(np.arange(len(own))[:, None], kept.shape)[kept]
        organ = np.broadcast_to(np.array(ORGANS), kept.shape).copy()
        organ[slice(bark, None) if bark is not None else slice(0, 0), 2] = ""
        columns = {"organ": list(organ[kept])} | ({"observation": list(observation)} if ids else {})
        self.rows = CalibrationRows.of_rows(
            torch.from_numpy(self.log_p[kept]),
            torch.from_numpy(np.broadcast_to(self.target[:, None], kept.shape)[kept].copy()),
            priors=torch.from_numpy(PRIORS),
            facts=RowFacts.of_columns(columns),
            dtype=torch.float64,
        )

    @property
    def model(self) -> Model:
        return self.model_with({})

    def model_with(self, predictors: dict) -> Model:
        score_map = ScoreMap(6, contains=PriorRecord.training(TABLE.class_counts))
        parts = {"score_map": score_map, "calibration_rows": self.rows, "predictors": predictors}
        return Model.from_parts(nn.Identity(), TABLE, **parts)

    def true(self, photos) -> tuple[np.ndarray, np.ndarray]:
        """Return the posteriors and classes of objects, by the numbers of the photos that count."""
        objects = self.photos > max(photos)
        return softmax(self.log_p[objects][:, photos].mean(1)), self.target[objects]


def softmax(scores):
    return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)


def oracle(posterior, target, new, level, at_most=6):
    """Return the sets (k, 6) of new posteriors by the conformal rank of those of calibration objects."""
    true = []
    for row, label in zip(posterior, target, strict=True):
        within = (row >= row[label]).sum() <= at_most
        true.append(1 - row[label] if within else 2.0)
    limit = sorted(true)[math.ceil((len(true) + 1) * level - 1e-9) - 1]
    best = (new[:, :, None] <= new[:, None, :]).sum(2) <= at_most
    return (1 - new <= limit) & best


def new_scores(photos: int) -> torch.Tensor:
    return 1.5 * torch.randn(40 * photos, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def made(model: Model, choice: Choice):
    """Return the sets (40, 6) of a choice, the posteriors they are of, and the promise."""
    scores = new_scores(choice.photos)
    lists = model.lists(scores, choice)
    sets = np.zeros((40, 6), dtype=bool)
    for row, listed in zip(sets, lists, strict=True):
        row[list(listed.members)] = True
    fused = np.log(softmax(scores.numpy())).reshape(40, choice.photos, 6).mean(1)
    return sets, softmax(fused), lists[0].promise


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9])
def test_three_photos_have_the_threshold_of_objects_with_three(level):
    data = Data(60, 40)
    sets, new, promise = made(data.model, Choice(coverage=level, photos=3))
    assert np.array_equal(sets, oracle(*data.true([0, 1, 2]), new, level))
    assert promise.holds and why_not(promise) is None and promise.has_law
    assert (promise.rows, promise.level, promise.scope) == (60, level, Scope(photos=3))
    said = promise_words(promise)
    assert (
        "The promise is for objects with 3 photos, not for each class. The lists were calibrated on 60"
        in said
    )


def test_too_few_objects_of_three_photos_take_the_threshold_of_fewer():
    data = Data(8, 60)  # 9 are needed
    sets, new, promise = made(data.model, Choice(coverage=0.9, photos=3))
    assert np.array_equal(sets, oracle(*data.true([0]), new, 0.9))
    assert (promise.rows, promise.void, promise.holds) == (68, "few photos", False)
    assert promise.scope == Scope(photos=3, calibrated_photos=1)
    assert why_not(promise).startswith("too few calibration objects have so many photos.")
    less = made(data.model, Choice(coverage=0.8, photos=3))  # 4 are
    assert np.array_equal(less[0], oracle(*data.true([0, 1, 2]), new, 0.8))
    assert less[2].holds and less[2].rows == 8


def test_without_observations_nothing_is_promised_of_several_photos():
    data = Data(0, 70, ids=False)
    sets, new, promise = made(data.model, Choice(coverage=0.9, photos=2))
    assert np.array_equal(sets, oracle(*data.true([0]), new, 0.9))
    assert (promise.rows, promise.void, promise.holds) == (70, "photos", False)
    assert why_not(promise) == "there are several photos, and the promise is for one"
    assert data.model.resolve(Choice(coverage=0.9))[1].holds


@pytest.mark.parametrize("organ", ORGANS)
def test_a_group_has_its_own_threshold(organ):
    data = Data(60, 40)
    sets, new, promise = made(data.model, Choice(coverage=0.9, group=("organ", organ)))
    assert np.array_equal(sets, oracle(*data.true([ORGANS.index(organ)]), new, 0.9))
    assert promise.holds and promise.rows == (100 if organ == "leaf" else 60)
    assert promise.scope == Scope(column="organ", value=organ)
    assert f"The promise is for photos with organ: {organ}, not for each class." in promise_words(promise)


def test_a_group_of_too_few_rows_joins_the_others():
    data = Data(8, 60, bark=5)
    choice = Choice(coverage=0.9, group=("organ", "bark"))
    sets, new, promise = made(data.model, choice)
    assert np.array_equal(sets, oracle(*data.true([0]), new, 0.9))
    assert promise.holds and promise.rows == 68
    assert promise.scope == Scope(column="organ", value="bark", joined=True)
    said = "Too few calibration photos have organ: bark, so all photos count together."
    assert said in promise_words(promise)
    for few in (Choice(average=2, group=choice.group), Choice(top=2, group=choice.group)):
        measured = made(data.model, few)[2]  # a size is not measured on a handful of rows either
        assert measured.rows == 68 and measured.scope.joined and said in promise_words(measured)
    many = made(Data(20, 40).model, Choice(average=2, group=choice.group, photos=2))[2]
    assert many.rows == 20 and not many.scope.joined
    with pytest.raises(ValueError, match=r"group must be one of bark, flower, leaf \(organ\), got 'root'"):
        data.model.resolve(Choice(coverage=0.9, group=("organ", "root")))


def test_why_a_list_is_not_as_sure():
    """Too few classes are the reason before too few photos; a group is not a place."""
    data = Data(8, 60)
    promise = made(data.model, Choice(coverage=0.9, photos=3, at_most=1))[2]
    assert promise.void == "at most" and promise_words(promise).startswith("It cannot be promised that lists")
    raps = Conformal(0.8, score="raps").calibrate(data.rows.log_p, data.rows.target)
    said = why_not(data.model_with({"raps": raps}).resolve(Choice("raps", group=("organ", "leaf")))[1])
    assert said == "its predictor was calibrated for all photos together, not for photos that show this"


def test_a_predictor_for_other_objects_says_what_its_rows_also_did():
    data = Data(60, 40)
    predictors = {"size": AverageK(2), "auto": Conformal(0.8)}
    for predictor, also in zip(predictors.values(), ("chose the epoch", "chose the coverage"), strict=True):
        predictor.calibrate(data.rows.log_p, data.rows.target)
        predictor.report = replace(predictor.report, rows_also=also)
    model = data.model_with(predictors)
    for choice in (Choice("auto", photos=3), Choice("auto", place=Place.of(["class 1", "class 2"]))):
        assert "These photos also chose the coverage" in promise_words(model.resolve(choice)[1])
    assert "also chose the epoch" in promise_words(model.resolve(Choice(coverage=0.8))[1])


def test_a_predictor_for_other_objects_keeps_its_bounds():
    data = Data(60, 40)
    posterior, target = data.true([0])
    rows = torch.from_numpy(posterior).log()
    predictors = {
        "capped": Conformal(0.6, at_most=2),
        "filled": Conformal(0.2, at_least=2),
    }
    for predictor in predictors.values():
        predictor.calibrate(rows, torch.from_numpy(target))
    model = data.model_with(predictors)
    sets, new, promise = made(model, Choice(predictor="capped", photos=3))
    assert np.array_equal(sets, oracle(*data.true([0, 1, 2]), new, 0.6, 2))
    assert promise.holds and promise.at_most == 2 and sets.sum(1).max() == 2
    sets, new, _ = made(model, Choice(predictor="capped", photos=3, at_most=5))
    assert np.array_equal(sets, oracle(*data.true([0, 1, 2]), new, 0.6, 5))
    sets, new, promise = made(model, Choice(predictor="filled", photos=3))
    assert promise.holds and promise.at_least == 2
    best = (new[:, :, None] <= new[:, None, :]).sum(2) <= 2
    assert np.array_equal(sets, oracle(*data.true([0, 1, 2]), new, 0.2) | best) and sets.sum(1).min() == 2


def test_a_place_of_three_photos_counts_by_its_weights():
    data = Data(60, 40)
    weights = np.array([0.0, 0.2, 0.3, 0.5, 0.0, 0.0])
    place = Place({f"class {i}": weights[i] for i in (1, 2, 3)}, name="here")
    sets, new, promise = made(data.model, Choice(coverage=0.6, photos=3, place=place))
    posterior, target = data.true([0, 1, 2])
    here = [values * weights / PRIORS for values in (posterior, new)]
    here = [values / values.sum(1, keepdims=True) for values in here]
    counts = np.bincount(target, minlength=6)
    share = weights[target] / counts[target]
    true = 1 - here[0][np.arange(len(target)), target]
    expected = np.zeros((40, 6), dtype=bool)
    for c in (1, 2, 3):
        reached = [s for s in sorted(true) if share[true <= s].sum() >= 0.6 + weights[c] / counts[c] - 1e-12]
        expected[:, c] = 1 - here[1][:, c] <= reached[0]
    assert np.array_equal(sets, expected)
    assert promise.holds and (promise.about, promise.classes, promise.scope.photos) == ("place", 3, 3)
    assert promise.rows == (weights[target] > 0).sum()


def test_lists_too_short_for_their_coverage_say_nothing_of_a_promise():
    """Neither whom it is for, nor that it is not exact; a share of 100 does not say that 99 cannot be."""
    data = Data(60, 0)
    chosen = Conformal(0.9).calibrate(data.rows.log_p, data.rows.target)
    chosen.report = replace(chosen.report, rows_also="chose the epoch")
    model = data.model_with({"conformal": chosen})
    place = Place({"class 0": 3, "class 1": 2, "class 5": 1, "yeti": 1}, name="the wood")
    for macro, photos, level in itertools.product((False, True), (1, 3), (0.8, 0.999)):
        choice = Choice(coverage=level, at_most=1, macro=macro, photos=photos, place=place)
        promise = made(model, choice)[2]
        assert promise.void == "at most" and promise.rows_also == "chose the epoch"
        said = promise_words(promise)
        assert said.startswith("It cannot be promised that lists of at most 1 class contain the right class ")
        assert "The promise is" not in said and "nothing is promised" not in said and "exact" not in said
        assert "the wood" in said and "That is measured on" in said and "not promised." in said


@pytest.mark.parametrize("photos", [1, 3])
def test_a_largest_size_is_reached_or_said_not_to_be(photos):
    data = Data(60, 0)
    group = ("organ", "leaf") if photos == 1 else None
    posterior, target = data.true([0, 1, 2][:photos])
    true = posterior[np.arange(60), target]
    within = {k: ((posterior >= true[:, None]).sum(1) <= k).mean() for k in range(1, 7)}
    level = 0.7
    kept = []
    for at_most in range(1, 6):
        choice = Choice(coverage=level, photos=photos, group=group, at_most=at_most)
        sets, new, promise = made(data.model, choice)
        assert np.array_equal(sets, oracle(posterior, target, new, level, at_most)), at_most
        assert promise.at_most == at_most and sets.sum(1).max() <= at_most
        kept.append(promise.holds)
        said, most = promise_words(promise), f"at most {at_most} class{'es'[: 2 * (at_most > 1)]}"
        if promise.holds:
            assert promise.share is None and f"A list has {most}." in said
            continue
        start = f"It cannot be promised that lists of {most} contain the right class 70 times in 100. Of 60 "
        assert said.startswith(start) and "The promise is" not in said
        assert "70 of 100" not in said and "true share" not in said
        assert promise_in_short(promise) == said.split(" The lists were calibrated")[0]
        assert promise.void == "at most" and promise.share == pytest.approx(within[at_most])
        assert why_not(promise) == "so much cannot be promised with so few classes"
        counted = "60 photos with organ: leaf" if photos == 1 else "60 objects with 3 photos"
        assert f"Of {counted} for calibration, {100 * within[at_most]:.0f} of 100" in promise_words(promise)
    assert kept == [within[k] * 60 >= math.ceil(61 * level) for k in range(1, 6)]
    assert kept[0] is False and kept[-1] is True
