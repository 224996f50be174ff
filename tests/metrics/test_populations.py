"""Coverage and size by number of photos, by group and at a place, against plain NumPy."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import beta

from shortlist._row_facts import RowFacts
from shortlist.metrics import measure_place, measure_populations
from shortlist.metrics.populations import photos_of_objects
from shortlist.predictors import CalibrationRows

CLASSES = 7
ORGANS = ("leaf", "flower", None)


def draw(objects: int, seed: int, most: int = 4):
    """Photos of objects: what is the object's own, and noise of each photo; leaves are the hardest."""
    rng = np.random.default_rng(seed)
    number = rng.integers(1, most + 1, objects)
    label = rng.choice(CLASSES, objects, p=np.arange(CLASSES, 0, -1) / 28)
    of = np.repeat(np.arange(objects), number)
    target, organ = label[of], rng.integers(3, size=len(of))
    own = rng.standard_normal((objects, CLASSES))[of]
    scores = own + rng.standard_normal((len(of), CLASSES)) * np.array([2.0, 0.8, 1.0])[organ, None]
    scores[np.arange(len(of)), target] += 2.2
    shuffled = rng.permutation(len(of))
    observation = torch.from_numpy(1000 + of[shuffled])
    return (
        torch.from_numpy(scores[shuffled]),
        torch.from_numpy(target[shuffled]),
        observation,
        [ORGANS[i] for i in organ[shuffled]],
    )


PRIORS = torch.arange(CLASSES, 0, -1) / 28


@pytest.fixture(scope="module")
def rows():
    scores, target, observation, organs = draw(400, seed=1)
    return CalibrationRows.of_rows(
        scores,
        target,
        priors=PRIORS,
        facts=facts_of(observation, organs),
        dtype=torch.float64,
    )


def facts_of(observation: torch.Tensor | None, organs: list | None = None, **more: list) -> RowFacts:
    columns = {"organ": organs, **more} if organs else more
    groups = RowFacts.of_columns(columns)
    return RowFacts(observation, {} if groups is None else groups.groups)


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def fused(log_p: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """The posterior of objects from the mean of the log-posteriors of their photos (k, photos)."""
    return softmax(np.stack([log_p[row].mean(0) for row in chosen]))


def threshold(posterior: np.ndarray, labels: np.ndarray, level: float) -> float:
    scores = np.sort([1 - p[y] for p, y in zip(posterior, labels, strict=True)])
    rank = math.ceil((len(scores) + 1) * level - 1e-9)
    return np.inf if rank > len(scores) else scores[rank - 1]


def measured(posterior: np.ndarray, labels: np.ndarray, limit: float) -> tuple[float, float]:
    sets = 1 - posterior <= limit
    return float(np.mean([s[y] for s, y in zip(sets, labels, strict=True)])), float(sets.sum(1).mean())


def exact_interval(hits: float, number: float) -> tuple[float, float]:
    high = 1.0 if hits == number else beta.ppf(0.975, hits + 1, number - hits)
    return beta.ppf(0.025, hits, number - hits + 1), high


def assert_numbers(found, expected: tuple[float, float], objects: int) -> None:
    assert (found.coverage.value, found.size) == pytest.approx(expected, abs=1e-12)
    bounds = exact_interval(expected[0] * objects, objects)
    assert (found.coverage.low, found.coverage.high) == pytest.approx(bounds, abs=1e-8)


@pytest.mark.parametrize("level", [0.7, 0.9])
def test_photos_have_the_numbers_of_plain_numpy(rows, level):
    scores, target, observation, _ = draw(300, seed=2)
    found = measure_populations(rows, scores, target, facts=facts_of(observation), coverage=level)
    assert found.level == level and list(found.photos) == ["1", "2", "3", "4"] and not found.groups
    kept, kept_target = rows.log_p.numpy(), rows.target.numpy()
    test = np.log(softmax(scores.numpy()))
    single = rows.objects(1).numpy()
    common = threshold(fused(kept, single), kept_target[single[:, 0]], level)
    for photos in range(1, 5):
        calibration = rows.objects(photos).numpy()
        own = threshold(fused(kept, calibration), kept_target[calibration[:, 0]], level)
        chosen = photos_of_objects(observation, photos).numpy()
        posterior, labels = fused(test, chosen), target.numpy()[chosen[:, 0]]
        line = found.photos[str(photos)]
        assert (line.objects, line.calibration) == (len(chosen), len(calibration))
        assert_numbers(line.own, measured(posterior, labels, own), len(chosen))
        assert_numbers(line.common, measured(posterior, labels, common), len(chosen))
    # what it is for: with a threshold of their own, lists from several photos are shorter
    assert found.photos["4"].own.size < min(found.photos["4"].common.size, found.photos["1"].own.size)


def test_photos_are_those_of_one_object_and_a_prefix_of_one_order():
    _, target, observation, organs = draw(300, seed=2)
    before = None
    for photos in range(1, 5):
        chosen = photos_of_objects(observation, photos)
        _, counts = np.unique(observation.numpy(), return_counts=True)
        assert len(chosen) == (counts >= photos).sum()
        assert all(len(set(row)) == photos for row in chosen.tolist())
        assert bool((observation[chosen] == observation[chosen[:, :1]]).all())
        assert bool((target[chosen] == target[chosen[:, :1]]).all())
        if before is not None:
            of = {int(observation[row[0]]): row for row in before.tolist()}
            assert all(of[int(observation[row[0]])] == row[:-1] for row in chosen.tolist())
        before = chosen
    leaves = torch.tensor([organ == "leaf" for organ in organs])
    assert bool(leaves[photos_of_objects(observation, 1, leaves)].all())


def test_photos_are_the_same_however_objects_are_mixed():
    _, _, observation, _ = draw(300, seed=2)
    together = observation.argsort(stable=True)  # the photos of each object stay in their order
    for photos in range(1, 5):
        chosen = together[photos_of_objects(observation[together], photos)]
        assert torch.equal(chosen, photos_of_objects(observation, photos))


def test_groups_have_the_numbers_of_plain_numpy(rows):
    scores, target, observation, organs = draw(300, seed=2)
    facts = facts_of(observation, organs, camera=["x"] * len(organs))
    found = measure_populations(rows, scores, target, facts=facts)
    assert {column: list(lines) for column, lines in found.groups.items()} == {
        "organ": ["flower", "leaf"],
        "camera": ["x"],
    }
    kept, kept_target = rows.log_p.numpy(), rows.target.numpy()
    single = rows.objects(1).numpy()
    common = threshold(fused(kept, single), kept_target[single[:, 0]], 0.9)
    test = np.log(softmax(scores.numpy()))
    for value in ("flower", "leaf"):
        codes, names = rows.facts.groups["organ"]
        member = codes == names.index(value)
        calibration = rows.objects(1, member).numpy()
        assert bool(member[calibration[:, 0]].all())
        own = threshold(fused(kept, calibration), kept_target[calibration[:, 0]], 0.9)
        chosen = photos_of_objects(observation, 1, torch.tensor([o == value for o in organs])).numpy()
        posterior, labels = fused(test, chosen), target.numpy()[chosen[:, 0]]
        line = found.groups["organ"][value]
        assert_numbers(line.own, measured(posterior, labels, own), len(chosen))
        assert_numbers(line.common, measured(posterior, labels, common), len(chosen))
    # one threshold for all gives flowers too much and leaves too little
    organ = found.groups["organ"]
    assert organ["flower"].common.coverage.value > 0.93 and organ["leaf"].common.coverage.value < 0.87
    assert found.groups["camera"]["x"].own is None  # the calibration rows do not say it


def test_a_place_has_the_numbers_of_plain_numpy(rows):
    scores, target, observation, _ = draw(300, seed=2)
    weights = torch.tensor([0.0, 0.1, 0.0, 0.3, 0.2, 0.4, 0.0], dtype=torch.float64)
    found = measure_place(rows, scores, target, weights, facts=facts_of(observation), coverage=0.8)
    kept, kept_target = rows.log_p.numpy(), rows.target.numpy()
    single = rows.objects(1).numpy()
    v, pi = weights.numpy(), PRIORS.double().numpy()

    def posterior(log_p: np.ndarray) -> np.ndarray:
        values = softmax(log_p) * v / pi
        return values / values.sum(1, keepdims=True)

    inside = single[v[kept_target[single[:, 0]]] > 0][:, 0]
    u, y = posterior(kept[inside]), kept_target[inside]
    counts = np.bincount(y, minlength=CLASSES)
    score = 1 - u[np.arange(len(y)), y]
    order = np.argsort(score)
    reached = np.cumsum((v[y] / counts[y])[order])
    limit = np.full(CLASSES, np.inf)
    for c in np.flatnonzero(v):
        above = np.flatnonzero(reached >= 0.8 + v[c] / counts[c] - 1e-9)
        limit[c] = score[order][above[0]] if len(above) else np.inf
    chosen = photos_of_objects(observation, 1, weights[target] > 0).numpy()[:, 0]
    labels = target.numpy()[chosen]
    number = np.bincount(labels, minlength=CLASSES)
    weight = v[labels] / number[labels]
    sets = (1 - posterior(scores.numpy()[chosen]) <= limit) & (v > 0)
    plain = softmax(scores.numpy()[chosen])
    base = threshold(fused(kept, single), kept_target[single[:, 0]], 0.8)
    cut = (1 - plain <= base) & (v > 0)
    for lists, wanted in ((found.own, sets), (found.common, cut)):
        hits = wanted[np.arange(len(labels)), labels]
        assert lists.coverage.value == pytest.approx((hits * weight).sum() / weight.sum(), abs=1e-12)
        assert lists.size == pytest.approx((wanted.sum(1) * weight).sum() / weight.sum(), abs=1e-12)
    assert (found.objects, found.calibration) == (len(chosen), len(inside))
    effective = 1 / sum(v[c] ** 2 / number[c] for c in np.flatnonzero(v))
    bounds = exact_interval(found.own.coverage.value * effective, effective)
    assert (found.own.coverage.low, found.own.coverage.high) == pytest.approx(bounds, abs=1e-8)


def test_without_observations_each_row_is_an_object(rows):
    scores, target, _, organs = draw(60, seed=3)
    found = measure_populations(rows, scores, target, facts=facts_of(None, organs))
    assert not found.photos  # nothing to compare
    assert sum(line.objects for line in found.groups["organ"].values()) == sum(o is not None for o in organs)


def test_too_few_calibration_objects_have_no_lists_of_their_own():
    scores, target, observation, _ = draw(300, seed=2)
    few, few_target, few_observation, _ = draw(20, seed=5)  # a handful has four photos
    rows = CalibrationRows.of_rows(few, few_target, facts=facts_of(few_observation))
    found = measure_populations(rows, scores, target, facts=facts_of(observation), coverage=0.95)
    assert found.photos["4"].own is None and found.photos["4"].common.size > 0


@pytest.mark.errors
def test_a_place_without_test_rows_is_refused(rows):
    scores, target, _, _ = draw(30, seed=3)
    weights = torch.zeros(CLASSES, dtype=torch.float64)
    weights[0] = 1.0
    with pytest.raises(ValueError, match="test rows must have a class of the place, got none"):
        measure_place(rows, scores[target != 0], target[target != 0], weights)
