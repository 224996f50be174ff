"""Populations of calibration rows against slow loops in NumPy, and against the predictors."""

import hashlib
import math
import warnings
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from shortlist._row_facts import RowFacts, observation_number
from shortlist.predictors import (
    AverageK,
    CalibrationWarning,
    Conformal,
    _pool as pool_module,
    calibration_rows as rows_module,
    pool_memory,
    population as population_module,
)
from shortlist.predictors.calibration_rows import CalibrationRows
from shortlist.predictors.population import Population

LEVELS = (0.05, 0.29, 0.5, 0.8, 0.9, 0.95, 0.99)
SIZES = (1, 1.5, 2, 3)
PRIORS = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.06, 0.04], dtype=torch.float64)


def draw(seed: int, n: int, c: int = 6, *, tied: bool = False):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(n, c, generator=generator, dtype=torch.float64)
    scores = (2 * scores).round() / 2 if tied else scores
    return scores, torch.multinomial(scores.softmax(1), 1, generator=generator).squeeze(1)


def exact(scores, target, **options):
    return CalibrationRows.of_rows(scores, target, dtype=torch.float64, **options)


def facts_of(observation, **groups):
    columns = {} if observation is None else {"observation": list(observation)}
    return RowFacts.of_columns(columns | groups)


@given(st.integers(0, 10**6), st.integers(1, 60), st.booleans())
def test_sets_of_every_level_are_those_of_the_predictors(seed, n, tied):
    scores, target = draw(seed, n, tied=tied)
    new, _ = draw(seed + 1, 20, tied=tied)
    rows = exact(scores, target)
    population = Population(rows, rows.objects())
    values, where = population.values(new), np.indices((20, 6)).reshape(2, -1)
    coverages, sizes = population.enters_at(values, tuple(where))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        for level in LEVELS:
            predictor = Conformal(coverage=level, rule="marginal", score="lac").calibrate(scores, target)
            sets = population.sets_of_coverage(values, level)
            assert np.array_equal(sets, predictor(new).numpy()), level
            # what the page does
            assert np.array_equal((np.array(coverages) < level).reshape(20, 6), sets)
            assert population.size_at(level) == pytest.approx(float(predictor(scores).sum(1).double().mean()))
        for size in SIZES:
            predictor = AverageK(size).calibrate(scores)
            sets = population.sets_of_size(values, size)
            assert np.array_equal(sets, predictor(new).numpy()), size
            entered = np.array([from_size is not None and from_size <= size for from_size in sizes])
            assert np.array_equal(entered.reshape(20, 6), sets)
            hits = predictor(scores).gather(1, target[:, None]).double().mean()
            assert population.coverage_at(size) == pytest.approx(float(hits))


@given(st.integers(0, 10**6), st.integers(1, 12), st.sampled_from(["rows", "even", "weights"]))
def test_a_class_enters_where_its_set_begins_also_at_a_step(seed, each, kind):
    """The same number of rows of each class: steps of the weights are at round numbers, such as 0.9."""
    target = torch.arange(6).repeat(each)
    scores, new = draw(seed, len(target))[0], draw(seed + 1, 10)[0]
    weights = {"rows": None, "even": torch.ones(6), "weights": torch.arange(6)}[kind]
    weights = None if weights is None else weights.double() / weights.sum()
    rows = exact(scores, target, priors=PRIORS)
    population = Population(rows, rows.objects(), importance=weights, frequency=weights)
    values, shape = population.values(new), (10, 6)
    coverages, sizes = population.enters_at(values, tuple(np.indices(shape).reshape(2, -1)))
    enters = np.array(coverages).reshape(shape)
    from_size = np.array([math.inf if size is None else size for size in sizes]).reshape(shape)
    occurs = np.ones(6, dtype=bool) if weights is None else (weights > 0).numpy()
    n = population.size
    for level in {*LEVELS, *(i / n for i in range(1, n)), *(i / (n + 1) for i in range(1, n + 1))}:
        assert np.array_equal((enters < level) & occurs, population.sets_of_coverage(values, level)), level
    for size in {1, 1.5, 2, 2.5, *(i / n for i in range(1, 4 * n)), *(i / n / 2 for i in range(2, 4 * n))}:
        if size <= population.max_size:
            assert np.array_equal((from_size <= size) & occurs, population.sets_of_size(values, size)), size


@given(st.integers(0, 10**6), st.integers(1, 60))
def test_sizes_with_even_importance_are_those_of_average_k_with_priors(seed, n):
    scores, target = draw(seed, n)
    new, _ = draw(seed + 1, 20)
    own = torch.tensor([0.1, 0.1, 0.2, 0.2, 0.2, 0.2], dtype=torch.float64)  # in the scores
    rows = exact(scores, target, priors=own, frequencies=PRIORS)
    population = Population(rows, rows.objects(), importance=torch.full((6,), 1 / 6, dtype=torch.float64))
    for size in SIZES:
        predictor = AverageK(size, priors=PRIORS, scores_priors=own).calibrate(scores)
        sets = population.sets_of_size(population.values(new), size)
        assert np.array_equal(sets, predictor(new).numpy()), size


def slow_posterior(log_p, weights, priors):
    with np.errstate(divide="ignore"):
        total = np.exp(log_p) * weights / priors
    return total / total.sum()


def slow_thresholds(scores, target, weights, coverage):
    """By the definition: of each class that occurs, the smallest score at which the rows weigh enough."""
    counts = np.bincount(target, minlength=len(weights))
    present = (counts > 0) & (weights > 0)
    importance = np.where(present, weights, 0) / weights[present].sum()
    found = {}
    for c in np.flatnonzero(present):
        need, total = coverage + importance[c] / counts[c], 0.0
        found[c] = math.inf
        for s, y in sorted(zip(scores, target, strict=True)):
            total += importance[y] / counts[y] if present[y] else 0.0
            if total >= need - 1e-12:
                found[c] = s
                break
    largest = max(found.values())
    return {c: found.get(c, largest) for c in np.flatnonzero(weights)}


@pytest.mark.parametrize("photos", [1, 2, 3])
@pytest.mark.parametrize("group", [None, "leaf"])
@pytest.mark.parametrize("seed", range(4))
def test_places_photos_and_groups_by_loops(seed, group, photos):
    scores, target = draw(seed, 240)
    random = np.random.default_rng(seed)
    observation = np.repeat(np.arange(80), 3)
    target = target[::3].repeat_interleave(3)  # photos of an observation are of one class
    organ = random.choice(["leaf", "flower", ""], 240)
    shuffled = torch.from_numpy(random.permutation(240))
    scores, target, observation, organ = (
        scores[shuffled],
        target[shuffled],
        observation[shuffled],
        organ[shuffled],
    )
    weights = np.array([0.0, 0.3, 0.3, 0.2, 0.1, 0.1])
    rows = exact(scores, target, priors=PRIORS, facts=facts_of(observation, organ=organ))
    members = None if group is None else rows.members("organ", group)
    vector = torch.from_numpy(weights)
    place = Population(rows, rows.objects(photos, members), importance=vector, frequency=vector)

    by_observation = defaultdict(list)  # in the order of the kept rows, which is the order of photos
    for i in range(len(rows)):
        row = (scores.log_softmax(1) == rows.log_p[i]).all(1).nonzero().item()
        if group is None or organ[row] == group:
            by_observation[int(rows.facts.observation[i])].append(i)
    true, classes = [], []
    for members in by_observation.values():
        label = int(rows.target[members[0]])
        if len(members) >= photos and weights[label]:
            mean = rows.log_p[members[:photos]].numpy().mean(0)
            true.append(1 - slow_posterior(mean, weights, PRIORS.numpy())[label])
            classes.append(label)
    assert place.size == len(true)
    new, _ = draw(seed + 100, 30)
    new = new[: 30 - 30 % photos]
    fused = new.log_softmax(1).unflatten(0, (-1, photos)).mean(1).numpy()
    posteriors = np.stack([slow_posterior(row, weights, PRIORS.numpy()) for row in fused])
    for level in (0.5, 0.8, 0.9):
        limits = slow_thresholds(true, classes, weights, level)
        expected = np.zeros(posteriors.shape, dtype=bool)
        for c, limit in limits.items():
            expected[:, c] = 1 - posteriors[:, c] <= limit
        assert np.array_equal(place.sets_of_coverage(place.values(new), level), expected)


@pytest.mark.parametrize("macro", [False, True])
def test_average_size_at_a_place_is_that_of_its_objects(macro):
    """Rows weigh as their class at the place. If classes count evenly, values are over its weights."""
    scores, target = draw(3, 4000)
    weights = np.array([0.0, 0.5, 0.2, 0.1, 0.1, 0.1])
    even = (weights > 0) / 5
    vector = torch.from_numpy(weights)
    rows = exact(scores, target, priors=PRIORS)
    importance = torch.from_numpy(even) if macro else vector
    place = Population(rows, rows.objects(), importance=importance, frequency=vector)
    log_p, priors = scores.log_softmax(1).numpy(), PRIORS.numpy()
    posteriors = np.stack([slow_posterior(row, weights, priors) for row in log_p])
    values = (
        np.divide(posteriors * even, weights, out=np.zeros_like(posteriors), where=weights > 0)
        if macro
        else posteriors
    )
    counts = np.bincount(target, minlength=6)
    by_row = (weights / counts)[target]
    for size, at_least, at_most in ((2, 0, None), (1.5, 1, 3), (3, 2, 4), (1, 1, 3)):
        sets = place.sets_of_size(place.values(scores), size, at_least=at_least, at_most=at_most)
        assert sets[:, 0].sum() == 0
        counted = sets[by_row > 0].sum(1)
        assert counted.min() >= at_least and counted.max() <= (at_most or 5)
        mean = (sets.sum(1) * by_row).sum() / by_row.sum()
        assert size - 0.01 <= mean <= size + 1e-9
        inside = np.where(sets, values, np.inf)
        order = np.sort(values, axis=1)[:, ::-1]
        # no class that is out, at a rank that counts, has a larger value than one that is in beyond at_least
        rank = (values[:, :, None] < values[:, None, :]).sum(2)
        free = (rank >= at_least) & (rank < (at_most or 6)) & (weights > 0)
        assert inside[free & sets].min(initial=np.inf) >= values[free & ~sets].max(initial=0)
        assert order.shape == values.shape


def test_a_pool_keeps_what_the_largest_size_needs_and_no_more(monkeypatch):
    """Strangers choose places: of all values of all rows, only the largest may stay in memory."""
    monkeypatch.setattr(population_module, "MAX_SIZE", 3)
    monkeypatch.setattr(pool_module, "_SPARE", 50)
    scores, target = draw(3, 400, 30)
    weights = torch.linspace(0.1, 1, 30, dtype=torch.float64)
    weights[::7] = 0
    vector = weights / weights.sum()
    rows = exact(scores, target, priors=torch.full((30,), 1 / 30))
    monkeypatch.setattr(population_module, "chunk_rows", lambda _: 16)
    place = Population(rows, rows.objects(), importance=vector, frequency=vector)
    values, counts = place.values(scores).fit, np.bincount(target, minlength=30)
    by_row = (weights / torch.from_numpy(counts)).numpy()[target]
    inside = by_row > 0
    heavy = np.repeat((by_row / by_row.sum() * inside.sum())[inside], 30)
    order = np.argsort(-values[inside].ravel(), kind="stable")
    pool, reached = place._pool(0, None), heavy[order].cumsum()
    kept = int((reached <= 3 * place.size).sum()) + 1
    assert len(pool.values) == kept < 0.5 * place.size * 25
    assert np.array_equal(pool.values, values[inside].ravel()[order[:kept]])
    assert pool.reached == pytest.approx(reached[:kept])
    for size in (0.5, 1, 2, 2.9):
        sets = place.sets_of_size(place.values(scores), size)
        assert (sets.sum(1) * by_row).sum() / by_row.sum() == pytest.approx(size, abs=0.02)


def test_pools_of_all_populations_are_bounded_in_bytes(monkeypatch):
    scores, target = draw(3, 200, 30)
    rows = exact(scores, target, priors=torch.full((30,), 1 / 30))
    monkeypatch.setattr(population_module, "_POOL_BYTES", 200_000)
    memory = pool_memory()
    for number in range(20):
        vector = torch.ones(30, dtype=torch.float64).scatter(0, torch.tensor([number]), 0.0) / 29
        place = Population(rows, rows.objects(), importance=vector, frequency=vector, pools=memory)
        for at_most in (None, 5, 9):
            place.coverage_at(2, at_most=at_most)
    kept = [pool.nbytes for pool in memory._values.values()]
    assert 2 <= len(kept) < 20 and sum(kept) == memory._bytes <= 200_000


@pytest.mark.parametrize("width", [2, 4, 8])
def test_cut_rows_do_the_same_to_new_rows(width):
    scores, target = draw(5, 300, 20)
    priors = torch.arange(1, 21).double() / 210
    rows = CalibrationRows.of_rows(scores, target, priors=priors, max_bytes=300 * 4 * width)
    assert rows.width == width and rows.log_p.dtype == torch.half and rows.classes.dtype == torch.int16
    again = rows.kept(scores)
    order = torch.arange(300)  # without observations rows stay in order
    assert torch.equal(again.log_p, rows.log_p) and torch.equal(again.classes, rows.classes)
    log_p = scores.float().log_softmax(1).half().float()
    for i in order.tolist():
        by_p = log_p[i].argsort(descending=True, stable=True)[: width - width // 2].tolist()
        rest = (log_p[i] - priors.log().float()).clone()
        rest[by_p] = -math.inf
        expected = sorted([*by_p, *rest.argsort(descending=True, stable=True)[: width // 2].tolist()])
        assert rows.classes[i].tolist() == expected
    population = Population(rows, rows.objects())
    values = population.values(scores)
    assert ((values.fit > 0).sum(1) <= width).all()
    kept = rows.classes.eq(target[:, None]).any(1)
    assert (values.fit[~kept.numpy(), target[~kept].numpy()] == 0).all()  # the score of such a class is 1
    for level in (0.3, 0.5, 0.7):
        hits = population.sets_of_coverage(values, level)[np.arange(300), target.numpy()]
        assert hits.sum() >= math.ceil(301 * level)


def test_equal_classes_are_cut_by_the_row_alone():
    """Whatever rows are beside it, and where a row is ruled out almost everywhere."""
    scores = torch.zeros(40, 12)
    scores[::2, 3:] = -math.inf
    rows = CalibrationRows.of_rows(
        scores, torch.zeros(40, dtype=torch.int64), priors=torch.full((12,), 1 / 12), max_bytes=40 * 4 * 5
    )
    assert rows.width == 5 and (rows.classes == torch.arange(5)).all()
    alone = rows.kept(scores[1:2])
    assert torch.equal(alone.log_p[0], rows.log_p[1]) and torch.equal(alone.classes[0], rows.classes[1])


def test_a_largest_size_is_part_of_the_score():
    scores, target = draw(7, 500, 20)
    rows = exact(scores, target)
    population = Population(rows, rows.objects())
    p = scores.softmax(1).numpy()
    true = p[np.arange(500), target.numpy()]
    ranks = (p >= true[:, None]).sum(1)
    for level, at_most in ((0.8, 5), (0.8, 8), (0.6, 3)):
        own = np.sort(np.where(ranks <= at_most, 1 - true, 2.0))[math.ceil(501 * level) - 1]
        sets = population.sets_of_coverage(population.values(scores), level, at_most=at_most)
        places = (p[:, :, None] <= p[:, None, :]).sum(2)
        assert np.array_equal(sets, (1 - p <= own) & (places <= at_most))
        assert population.reaches(level, at_most) == (own < 2)
    assert not population.reaches(0.99, 2)
    assert population.coverage_of_top(2) == pytest.approx((ranks <= 2).mean())
    never_empty = population.sets_of_coverage(population.values(scores), 0.2, at_least=1)
    bare = population.sets_of_coverage(population.values(scores), 0.2)
    assert (never_empty.sum(1) == np.maximum(bare.sum(1), 1)).all() and (never_empty >= bare).all()


def test_top_shares_are_counted():
    scores = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [3.0, 3.0, 1.0]])
    rows = CalibrationRows.of_rows(scores, torch.tensor([0, 2, 0]))
    population = Population(rows, rows.objects())
    shares = [population.coverage_of_top(k) for k in (1, 2, 3)]
    assert shares == [1 / 3, 2 / 3, 1.0]  # of equal ones, the last place; to the last bit


def test_rows_are_left_out_by_their_target():
    scores, target = draw(0, 40, 5)
    more = CalibrationRows.of_rows(
        torch.cat([scores, scores[:3]]), torch.cat([target, torch.full((3,), -100)])
    )
    rows = CalibrationRows.of_rows(scores, target)
    assert torch.equal(more.log_p, rows.log_p) and torch.equal(more.target, rows.target)


def test_of_very_many_rows_some_are_drawn_without_a_look_at_them(monkeypatch):
    monkeypatch.setattr(rows_module, "MAX_ROWS", 100)
    scores, target = draw(0, 300, 5)
    rows, other = exact(scores, target), exact(-scores, target)
    assert len(rows) == 100 == len(other)
    index = [(scores.log_softmax(1) == row).all(1).nonzero().item() for row in rows.log_p]
    assert torch.equal(other.log_p, (-scores[index]).log_softmax(1))  # the same rows, whatever their values
    observation = [f"o{i // 3}" for i in range(300)]
    target = target[::3].repeat_interleave(3)
    whole = exact(scores, target, facts=facts_of(observation))
    assert len(whole) == 99  # 33 of 100 observations, with all their photos
    found = [(scores.log_softmax(1) == row).all(1).nonzero().item() for row in whole.log_p]
    assert sorted(i // 3 for i in found) == sorted(3 * [*{i // 3 for i in found}])
    assert [i // 3 for i in found[::3]] == [i // 3 for i in found[2::3]]  # the photos of one are together
    first = [i % 3 for i in found[::3]]
    assert min(first.count(i) for i in range(3)) >= 4  # and come in no order


def test_photos_are_a_prefix_of_one_order():
    scores, target = draw(1, 90, 5)
    target = target[::3].repeat_interleave(3)
    rows = exact(scores, target, facts=facts_of(np.arange(90) // 3))
    three, two, one = (rows.objects(photos) for photos in (3, 2, 1))
    assert torch.equal(three[:, :2], two) and torch.equal(two[:, :1], one) and len(rows.objects(4)) == 0
    # a row without id is an observation of its own, and so is another class under the same id
    mixed = exact(scores[:4], torch.tensor([0, 0, 1, 1]), facts=facts_of(["a", "a", "a", None]))
    assert [len(mixed.objects(photos)) for photos in (1, 2)] == [3, 1]
    plain = exact(scores, target)
    assert len(plain.objects(1)) == 90 and len(plain.objects(2)) == 0


def test_photos_are_the_same_however_objects_are_mixed():
    scores, target = draw(4, 90, 5)
    target, observation = target[::3].repeat_interleave(3), np.arange(90) // 3
    random = np.random.default_rng(2)
    keys = random.random(90).reshape(30, 3)
    mixed = torch.from_numpy(np.argsort(np.sort(keys, axis=1).reshape(-1)))  # in order within each object
    assert not torch.equal(mixed, torch.arange(90))
    chosen = []
    for order in (torch.arange(90), mixed):
        facts = facts_of(observation[order.numpy()])
        rows = exact(scores[order], target[order], facts=facts)
        chosen.append(rows.log_p[rows.objects(2)])
    assert torch.equal(*chosen)
    kept = {str(i): [] for i in range(30)}
    for i, row in enumerate(scores.log_softmax(1)):
        kept[str(i // 3)].append(row)
    for name, photos in kept.items():
        number = observation_number(name)
        key = b"photos of an object"
        hashes = [
            hashlib.blake2b(f"{number} {i}".encode(), digest_size=8, key=key).digest() for i in range(3)
        ]
        first = min(range(3), key=hashes.__getitem__)
        assert (chosen[0][:, 0] == photos[first]).all(1).any()


def test_look_alikes_get_the_probability_of_a_classs_rows():
    scores, target = draw(2, 200, 8)
    rows = exact(scores, target)
    for index in range(8):
        mean = scores[target == index].softmax(1).mean(0)
        order = [i for i in mean.argsort(descending=True).tolist() if i != index][:5]
        found = rows.confused_with(index)
        assert [i for i, _ in found] == order
        assert [share for _, share in found] == pytest.approx(mean[order].tolist())
    absent = exact(scores[target != 3], target[target != 3])
    assert absent.confused_with(3) == []


def cut_rows_with_facts():
    scores, target = draw(3, 30, 40)
    return CalibrationRows.of_rows(
        scores,
        target,
        priors=torch.full((40,), 1 / 40),
        facts=facts_of(np.arange(30) // 2, organ=["leaf", "", "écorce"] * 10),
        max_bytes=30 * 4 * 10,
    )


def test_tensors_and_back():
    rows = cut_rows_with_facts()
    again = CalibrationRows.from_tensors(rows.to_tensors())
    for name in ("target", "log_p", "classes", "priors"):
        assert torch.equal(getattr(again, name), getattr(rows, name)), name
    assert again.frequencies is None and again.num_classes == 40
    assert torch.equal(again.facts.observation, rows.facts.observation)
    assert again.facts.groups["organ"][1] == ("leaf", "écorce")
    assert torch.equal(again.members("organ", "écorce"), rows.members("organ", "écorce"))


@pytest.mark.errors
def test_tensors_that_do_not_go_together_are_refused():
    tensors = cut_rows_with_facts().to_tensors()
    for broken in (
        {"target": tensors["target"][1:]},
        {"log_p": tensors["log_p"].float() + 9},
        {"classes": tensors["classes"] + 40},
    ):
        with pytest.raises(ValueError, match="calibration rows must"):
            CalibrationRows.from_tensors({**tensors, **broken})
    with pytest.raises(ValueError, match="calibration rows must have"):
        CalibrationRows.from_tensors({"target": tensors["target"]})


@pytest.mark.errors
def test_bad_input_is_named():
    scores, target = draw(0, 10, 4)
    rows = exact(scores, target, facts=facts_of(None, organ=["leaf"] * 10))
    population = Population(rows, rows.objects())
    values = population.values(scores)
    with pytest.raises(ValueError, match="coverage must be < 1, got 1"):
        population.sets_of_coverage(values, 1.0)
    with pytest.raises(ValueError, match=r"size must be from 0.1 to 3.9, got 4"):
        population.sets_of_size(values, 4)
    with pytest.raises(ValueError, match=r"size must be from 2 to 3, got 1"):
        population.sets_of_size(values, 1, at_least=2, at_most=3)
    with pytest.raises(ValueError, match="scores must have 4 classes, got 5"):
        population.values(torch.zeros(1, 5))
    with pytest.raises(ValueError, match="at least 1"):
        exact(scores, torch.full((10,), -100))
    with pytest.raises(ValueError, match=r"facts must have one entry per row \(10\), got 3"):
        exact(scores, target, facts=facts_of(["a", "b", "c"]))
    with pytest.raises(
        ValueError, match=r"group must be of a column of the calibration rows \(organ\), got 'x'"
    ):
        rows.members("x", "leaf")
    with pytest.raises(ValueError, match=r"group must be one of leaf \(organ\), got 'root'"):
        rows.members("organ", "root")
    with pytest.raises(ValueError, match="place must not be given: nobody knows which priors"):
        Population(rows, rows.objects(), importance=torch.full((4,), 0.25))
