import math
import warnings

import pytest
import torch
from hypothesis import given, strategies as st

from shortlist import ClassTable
from shortlist.predictors import (
    AverageK,
    CalibrationWarning,
    Candidate,
    EntersAt,
    RowsOutOfOrderError,
    TopK,
    sizes,
    to_lists,
)
from shortlist.predictors._largest import SPARE, LargestValues, at_least


def quiet(predictor, scores):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        return predictor.calibrate(scores)


def collected(limit):
    return LargestValues(limit, LargestValues.values)


def average_k_by_sorting(values, k, rule):
    """Sets by the definition, with one sort of everything."""
    n = len(values)
    ranked = values.double().flatten().sort(descending=True).values
    if rule == "midpoint":
        m = round(k * n)
        below = ranked[m] if m < len(ranked) else ranked[-1]
        return values.double() >= (ranked[m - 1] + below) / 2
    m = math.floor(k * n + 1e-9)
    return values.double() > ranked[m] if m < len(ranked) else torch.ones_like(values, dtype=torch.bool)


@given(
    st.integers(1, 12),
    st.integers(2, 9),
    st.sampled_from([1, 1.5, 2, 0.7]),
    st.sampled_from(["midpoint", "strict"]),
    st.booleans(),
    st.integers(0, 2**31),
)
def test_average_k_equals_one_big_sort(n, c, k, rule, coarse, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(n, c, generator=generator)
    if coarse:
        values = (values * 4).round() / 4  # ties
    if (round(k * n) if rule == "midpoint" else math.floor(k * n)) < 1 or k > c:
        return
    predictor = quiet(AverageK(k, rule=rule, activation="none"), values)
    expected = average_k_by_sorting(values, k, rule)
    assert torch.equal(predictor(values), expected)
    assert predictor.report.average_size == pytest.approx(float(expected.sum()) / n)
    if rule == "strict":
        assert int(expected.sum()) <= k * n


def test_the_midpoint_of_neighboring_floats_keeps_them_apart():
    high = torch.tensor(0.5)
    low = torch.nextafter(high, torch.tensor(0.0))
    values = torch.stack([low, high])[None]
    assert AverageK(1, activation="none").calibrate(values)(values).tolist() == [[False, True]]


def test_all_classes_when_k_is_their_number():
    scores = torch.randn(5, 4)
    for rule in ("midpoint", "strict"):
        predictor = AverageK(4, rule=rule).calibrate(scores)
        assert predictor(torch.randn(7, 4) * 100).all()


def test_streaming_gives_the_same_bits_in_any_batches():
    scores = torch.randn(3001, 37) * 3
    whole = AverageK(2.5).calibrate(scores)
    for batch in (1, 256, 999):
        pieces = AverageK(2.5)
        for part in scores.split(batch):
            pieces.update(part)
        pieces.finish()
        assert torch.equal(pieces.threshold, whole.threshold)
        assert pieces.report == whole.report


def test_streaming_drops_most_values_and_stays_exact():
    seen, everything = collected(lambda seen: 3 * seen.rows), []
    generator = torch.Generator().manual_seed(1)
    for _ in range(40):
        values = torch.rand(100, 1000, generator=generator)
        everything.append(values)
        seen.add(values)
    ranked = torch.cat(everything).flatten().sort(descending=True).values
    assert len(seen.values()) <= 2 * (SPARE + 3 * 4000) and seen.floor > 0.5  # of 4 million
    assert seen.around(12000) == (float(ranked[11999]), float(ranked[12000]))
    assert seen.count_at_least(float(ranked[500])) == 501


def test_constant_scores_take_no_memory_and_are_counted():
    seen = collected(lambda seen: 3 * seen.rows)
    for _ in range(60):
        seen.add(torch.full((100, 1000), 0.25))
    assert len(seen.values()) <= 4 * SPARE
    assert seen.around(18000) == (0.25, 0.25)
    assert seen.count_at_least(0.25) == 6_000_000


def test_rows_in_a_bad_order_are_an_error_and_max_rows_the_cure():
    generator = torch.Generator().manual_seed(0)
    first = (1 + torch.rand(200, 1000, generator=generator)) / 2
    later = torch.rand(10_000, 10, generator=generator) / 2
    later = torch.cat([later, torch.zeros(10_000, 990)], 1)
    batches = [first, *later.split(1000)]
    predictor = AverageK(8, activation="none")
    for batch in batches:
        predictor.update(batch)
    with pytest.raises(RowsOutOfOrderError, match="Shuffle the rows, or give max_rows"):
        predictor.finish()
    predictor = AverageK(8, activation="none", max_rows=10_200)
    for batch in batches:
        predictor.update(batch)
    ranked = torch.cat([first.flatten(), later.flatten()]).sort(descending=True).values
    expected = (float(ranked[8 * 10_200 - 1]) + float(ranked[8 * 10_200])) / 2
    assert float(predictor.finish().threshold) == pytest.approx(expected, abs=1e-7)
    assert torch.equal(
        AverageK(8, activation="none").calibrate(torch.cat([first, later])).threshold, predictor.threshold
    )


def test_merge_equals_one_machine_with_all_rows():
    scores = torch.randn(5000, 200) * 2
    whole = AverageK(3).calibrate(scores)
    parts = []
    for rows in (scores[:100], scores[100:3200], scores[3200:]):
        part = AverageK(3)
        for batch in rows.split(300):
            part.update(batch)
        parts.append(part)
    parts[0].merge(parts[1])
    parts[2].merge(parts[0])
    assert torch.equal(parts[2].finish().threshold, whole.threshold)
    assert parts[2].report == whole.report


def test_merge_of_different_floors_counts_ties():
    a, b = collected(lambda seen: 10), collected(lambda seen: 10)
    for _ in range(3):
        a.add(torch.full((100, 1000), 0.5))
        b.add(torch.full((100, 1000), 0.25))
    b.add(torch.full((10, 1000), 0.75))
    a.merge(b.state())
    assert a.rows == 610
    assert a.around(310_000 - 1) == (0.5, 0.5)
    assert a.count_at_least(0.5) == 310_000
    with pytest.raises(RowsOutOfOrderError):
        a.around(310_000)


@pytest.mark.errors
def test_merge_refuses_another_kind_other_options_and_finished_ones():
    with pytest.raises(ValueError, match="AverageK with the same options"):
        AverageK(3).merge(TopK(3))
    with pytest.raises(ValueError, match="same options"):
        AverageK(3).merge(AverageK(2))
    done = AverageK(1).calibrate(torch.randn(5, 3))
    with pytest.raises(ValueError, match="finished"):
        AverageK(1).merge(done)
    a, b = AverageK(1), AverageK(1)
    a.update(torch.randn(5, 3))
    b.update(torch.randn(5, 4))
    with pytest.raises(ValueError, match="must have 3 classes"):
        a.merge(b)


def test_at_least_finds_what_a_mask_finds():
    values = torch.randn(50, 77)
    for bound in (-math.inf, -1.0, 1.5, 2.9, 10.0):
        assert torch.equal(at_least(values, bound).sort().values, values[values >= bound].sort().values)


def test_topk_is_the_k_best():
    scores = torch.randn(50, 1200)
    sets = TopK(5)(scores)
    assert sizes(sets).tolist() == [5] * 50
    for row, chosen in zip(scores, sets, strict=True):
        assert float(row[chosen].min()) > float(row[~chosen].max())
    assert TopK(3)(torch.randn(2, 3)).all()


def test_priors_divide_the_probabilities():
    scores = torch.randn(200, 6, dtype=torch.float64)
    priors = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.04, 0.01], dtype=torch.float64)
    probabilities = scores.softmax(1)
    for tau in (0.0, 0.5, 1.0):
        ratio = probabilities / priors**tau
        best = ratio.argsort(1, descending=True)[:, :2]
        expected = torch.zeros(200, 6, dtype=torch.bool).scatter(1, best, True)
        assert torch.equal(TopK(2, priors=priors, tau=tau)(scores), expected)
        predictor = AverageK(2, priors=priors, tau=tau).calibrate(scores)
        assert torch.equal(predictor(scores), average_k_by_sorting(ratio, 2, "midpoint"))
        given_probabilities = AverageK(2, priors=priors, tau=tau, activation="none").calibrate(probabilities)
        assert torch.equal(given_probabilities(probabilities), predictor(scores))


def test_topk_with_priors_where_probabilities_underflow():
    scores = torch.tensor([[0.0, -200.0, -201.0]])
    priors = torch.tensor([0.5, 0.4, 0.1])
    assert TopK(2, priors=priors)(scores).tolist() == [[True, False, True]]


def test_sigmoid_scores_are_compared_as_sigmoids():
    scores = torch.randn(100, 5)
    predictor = AverageK(1.5, activation="sigmoid").calibrate(scores)
    assert torch.equal(predictor(scores), average_k_by_sorting(scores.sigmoid(), 1.5, "midpoint"))


OAKS = ClassTable(
    names=("oak", "beech", "birch"),
    ids=("1", "2", "3"),
    parents={"genus": ("Quercus", "Fagus", "Betula"), "family": ("Fagaceae", "Fagaceae", "Betulaceae")},
)


def candidate(index: int, probability: float, in_set: bool = True) -> Candidate:
    genus, family = OAKS.parents["genus"][index], OAKS.parents["family"][index]
    parents = {"genus": genus, "family": family}
    return Candidate(index, OAKS.ids[index], OAKS.names[index], parents, probability, in_set, EntersAt(0))


def without_places(lists):
    """The lists without where classes enter them, which has a test of its own."""
    return [[c._replace(enters_at=EntersAt(0)) for c in row] for row in lists]


def test_lists_are_sorted_and_named():
    sets = torch.tensor([[True, True, True], [False, False, False], [False, True, False]])
    probabilities = torch.tensor([[0.25, 0.5, 0.125], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert without_places(to_lists(sets, probabilities, OAKS)) == [
        [candidate(1, 0.5), candidate(0, 0.25), candidate(2, 0.125)],
        [],
        [candidate(1, 0.0)],
    ]
    assert to_lists(sets, probabilities, OAKS)[0][0] == Candidate(
        1, "2", "beech", {"genus": "Fagus", "family": "Fagaceae"}, 0.5, True, EntersAt(1)
    )


def test_lists_of_at_least_some_classes_hold_the_most_probable_and_the_first_of_equal_ones():
    sets = torch.tensor([[False, False, True], [False, False, False], [True, True, False]])
    probabilities = torch.tensor([[0.25, 0.5, 0.25], [0.25, 0.25, 0.25], [0.0, 0.25, 0.5]])
    assert without_places(to_lists(sets, probabilities, OAKS, at_least=2)) == [
        [candidate(1, 0.5, False), candidate(0, 0.25, False), candidate(2, 0.25)],
        [candidate(0, 0.25, False), candidate(1, 0.25, False)],
        [candidate(2, 0.5, False), candidate(1, 0.25), candidate(0, 0.0)],
    ]
    everything = to_lists(sets, probabilities, OAKS, at_least=9)
    assert [[c.index for c in row] for row in everything] == [[1, 0, 2], [0, 1, 2], [2, 1, 0]]


@pytest.mark.parametrize("classes", [7, 900])
def test_lists_agree_with_a_stable_sort(classes):
    table = ClassTable([f"class {i}" for i in range(classes)])
    probabilities = torch.randint(0, 20, (30, classes)).float() / 100  # with many ties
    sets = torch.rand(30, classes) < 0.02
    for row, listed in enumerate(to_lists(sets, probabilities, table, at_least=5)):
        order = sorted(range(classes), key=lambda i: (-float(probabilities[row, i]), i))
        wanted = [i for place, i in enumerate(order) if place < 5 or sets[row, i]]
        assert [c.index for c in listed] == wanted
        assert [c.in_set for c in listed] == [bool(sets[row, i]) for i in wanted]
        assert [c.enters_at for c in listed] == [(order.index(i) + 1, None, None) for i in wanted]


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_a_limit_keeps_the_set_first_and_impossible_classes_are_never_listed(limit):
    table = ClassTable([f"class {i}" for i in range(40)])
    scores = torch.randint(0, 20, (30, 40)).float()  # with many ties
    scores[torch.rand(30, 40) < 0.3] = -torch.inf
    sets = torch.rand(30, 40) < 0.1
    lists = to_lists(sets, None, table, order=scores, at_least=limit, limit=limit)
    for row, listed in enumerate(lists):
        order = sorted(range(40), key=lambda i: (-float(scores[row, i]), i))
        possible = [i for i in order if scores[row, i] > -torch.inf]
        kept = sorted(possible, key=lambda i: not sets[row, i])[:limit]  # stable: members first
        assert [c.index for c in listed] == sorted(kept, key=order.index)
        assert [c.enters_at.top for c in listed] == [order.index(c.index) + 1 for c in listed]


@pytest.mark.errors
@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((torch.ones(2, 3), torch.ones(2, 3)), {}, r"sets must be a bool tensor of shape \(n, c\)"),
        ((torch.ones(2, 3).bool(), torch.ones(1, 3)), {}, r"the probabilities' shape \(1, 3\), got \(2, 3\)"),
        ((torch.ones(2, 4).bool(), torch.ones(2, 4)), {}, "class_table must have 4 classes, got 3"),
        (
            (torch.ones(2, 3).bool(), torch.ones(2, 3)),
            {"at_least": -1},
            "at_least must be an integer >= 0, got -1",
        ),
        (
            (torch.ones(2, 3).bool(), torch.tensor([[0.0] * 3, [0.0, math.nan, 1.0]])),
            {},
            "probabilities must be numbers, got NaN in row 1",
        ),
        ((torch.ones(2, 3).bool(), None), {}, "order must be given where there are no probabilities"),
        ((torch.ones(2, 4).bool(), None), {"order": torch.ones(2, 4)}, "class_table must have 4 classes"),
    ],
)
def test_lists_of_bad_input(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        to_lists(*arguments, OAKS, **options)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TopK(0), "k must be an integer >= 1, got 0"),
        (lambda: TopK(3)(torch.randn(2, 2)), r"k must be <= the number of classes \(2\), got 3"),
        (lambda: AverageK(0), "k must be > 0, got 0"),
        (
            lambda: AverageK(7).calibrate(torch.randn(4, 5)),
            r"k must be <= the number of classes \(5\), got 7",
        ),
        (lambda: AverageK(1, rule="loose"), "rule must be one of midpoint, strict, got 'loose'"),
        (lambda: AverageK(1, activation="tanh"), "activation must be one of"),
        (lambda: AverageK(0.1).calibrate(torch.randn(4, 5)), "needs at least 10 rows, got 4"),
        (lambda: AverageK(1).calibrate(torch.tensor([[0.0, math.nan]])), "row 0 has the maximum nan"),
        (lambda: TopK(1)(torch.tensor([[0.0, math.inf]])), "maximum inf"),
        (lambda: TopK(1)(torch.tensor([0.0, 1.0])), r"scores must be a floating tensor of shape \(n, c\)"),
        (lambda: TopK(1, priors=torch.tensor([0.5, 0.0, 0.5])), "priors must be > 0, got 0.0 for class 1"),
        (lambda: TopK(1, priors=torch.tensor([0.5, 0.2])), "priors must add up to 1, got 0.7"),
        (lambda: TopK(1, priors=torch.tensor([0.5, 0.5]))(torch.randn(2, 3)), "must have 2 classes"),
        (lambda: AverageK(1).calibrate(torch.randn(9, 3))(torch.randn(2, 4)), "must have 3 classes.*got 4"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.errors
def test_use_before_calibration():
    with pytest.raises(RuntimeError, match=r"AverageK is not calibrated: call \.calibrate"):
        AverageK(2)(torch.randn(3, 4))
    predictor = AverageK(2)
    predictor.update(torch.randn(30, 4))
    with pytest.raises(RuntimeError, match="not calibrated"):
        predictor(torch.randn(3, 4))


def test_masked_classes_are_never_in_a_set():
    scores = torch.randn(40, 6)
    scores[:, 2] = -math.inf
    assert not AverageK(2).calibrate(scores)(scores)[:, 2].any()
    assert not TopK(3)(scores)[:, 2].any()
