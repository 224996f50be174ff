"""Top-K accuracy, balanced error and the top-K curve, from the place of the true class."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.metrics import balanced_accuracy_score, top_k_accuracy_score

from shortlist.class_table import ClassTable
from shortlist.metrics import (
    average_classes,
    average_rows,
    balanced_error,
    rank_histogram,
    topk_accuracy,
    topk_curve,
    topk_curve_area,
    topk_sums,
    true_ranks,
)

TIES = ("against", "favor", "expected")


def rows_of(n, c, *, seed=0, ties=False):
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(n, c, dtype=torch.float64, generator=generator)
    return scores.round() if ties else scores, torch.randint(c, (n,), generator=generator)


def chance_of_hit(row, y, k, ties):
    """One row, class by class."""
    row = row.tolist()
    if math.isnan(row[y]):
        return 0.0
    others = [s for j, s in enumerate(row) if j != y]
    above = sum(math.isnan(s) or s > row[y] for s in others)
    tied = sum(s == row[y] for s in others)
    if ties == "against":
        return float(above + tied < k)
    if ties == "favor":
        return float(above < k)
    return sum(above + before < k for before in range(tied + 1)) / (tied + 1)


def test_golden(golden):
    reference, checked = golden("metrics"), {}
    for case in reference.cases:
        if case["kind"] == "average_k":
            continue
        inputs = reference.inputs(case)
        scores, target = inputs["p"], inputs["y"]
        k = case["params"].get("k") or case["params"]["top_k"]
        exact = not case["inputs"]["p"].endswith("_tie")

        def check(value, tolerance=1e-12, exact=exact, k=k, scores=scores, target=target, **options):
            low, high = (topk_accuracy(scores, target, k=k, ties=t, **options) for t in ("against", "favor"))
            if exact:
                torch.testing.assert_close(low, high, equal_nan=True)
            got, want = low.nan_to_num(), torch.as_tensor(value, dtype=torch.float64)
            assert ((got <= want + tolerance) & (want <= high.nan_to_num() + tolerance)).all()

        if case["kind"] == "sklearn_top_k_accuracy":
            check(case["value"])
        else:
            check(case["micro"], tolerance=1e-6)
            check(case["plain_topk_micro"])
            check(case["plain_macro_over_present"], average="macro")
            check(case["none"], tolerance=1e-6, average="none")
        checked[case["kind"], exact] = checked.get((case["kind"], exact), 0) + 1
    assert checked == {
        ("sklearn_top_k_accuracy", True): 6,
        ("torchmetrics_multiclass_accuracy", True): 6,
        ("sklearn_top_k_accuracy", False): 2,
        ("torchmetrics_multiclass_accuracy", False): 2,
    }


@pytest.mark.parametrize("ties", TIES)
@given(n=st.integers(1, 12), c=st.integers(1, 7), seed=st.integers(0, 99), nan=st.booleans())
def test_equals_a_loop(ties, n, c, seed, nan):
    scores, target = rows_of(n, c, seed=seed, ties=True)
    if nan:
        scores[scores > 2.5] = torch.nan
    ks = list(range(1, c + 1))
    hits = torch.tensor(
        [[chance_of_hit(scores[i], int(target[i]), k, ties) for i in range(n)] for k in ks]
    ).double()
    torch.testing.assert_close(topk_accuracy(scores, target, k=ks, ties=ties), hits.mean(1))
    own = [hits[:, target == j].mean(1) for j in range(c) if (target == j).any()]
    macro = topk_accuracy(scores, target, k=ks, ties=ties, average="macro")
    torch.testing.assert_close(macro, torch.stack(own).mean(0))
    histogram = rank_histogram(scores, target, ties=ties)
    torch.testing.assert_close(topk_curve(histogram), hits.mean(1))
    assert float(histogram.sum()) == pytest.approx(n)
    for k_max in (1, (c + 1) // 2, c):
        area = topk_curve_area(scores, target, k_max=k_max, ties=ties)
        torch.testing.assert_close(area, hits[:k_max].mean())
    assert int(topk_sums(scores, target, k=1, ties=ties).nan_rows) == int(scores.isnan().any(1).sum())


@given(n=st.integers(1, 30), c=st.integers(2, 9), seed=st.integers(0, 99), ties=st.booleans())
def test_grows_with_k_up_to_1(n, c, seed, ties):
    scores, target = rows_of(n, c, seed=seed, ties=ties)
    for average in ("micro", "macro"):
        curves = {t: topk_accuracy(scores, target, k=range(1, c + 1), average=average, ties=t) for t in TIES}
        for curve in curves.values():
            assert (curve.diff() >= -1e-12).all()
            assert float(curve[-1]) == pytest.approx(1)
        assert (curves["against"] <= curves["expected"] + 1e-12).all()
        assert (curves["expected"] <= curves["favor"] + 1e-12).all()


@given(n=st.integers(2, 40), c=st.integers(2, 9), seed=st.integers(0, 99))
def test_against_scikit_learn(n, c, seed):
    scores, target = rows_of(n, c, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # guesses of classes without rows, which it leaves out
        balanced = balanced_accuracy_score(target, scores.argmax(1))
    assert float(topk_accuracy(scores, target, average="macro")) == pytest.approx(balanced)
    assert float(balanced_error(scores, target)) == pytest.approx(1 - balanced)
    for k in range(1, c) if c > 2 else ():
        want = top_k_accuracy_score(target, scores, k=k, labels=range(c))
        assert float(topk_accuracy(scores, target, k=k)) == pytest.approx(want)


@pytest.mark.parametrize("ties", TIES)
@given(n=st.integers(2, 30), c=st.integers(2, 9), seed=st.integers(0, 99), data=st.data())
def test_batches_add_up_and_the_order_of_classes_does_not_matter(ties, n, c, seed, data):
    scores, target = rows_of(n, c, seed=seed, ties=True)
    scores[0, 0] = torch.nan
    cut = data.draw(st.integers(0, n))
    ks = [1, c]
    whole = topk_sums(scores, target, k=ks, ties=ties)
    parts = [
        topk_sums(scores[rows], target[rows], k=ks, ties=ties) for rows in (slice(cut), slice(cut, None))
    ]
    for together, first, second in zip(whole, *parts, strict=True):
        torch.testing.assert_close(together, first + second)
    order = torch.randperm(c, generator=torch.Generator().manual_seed(seed))
    moved = topk_sums(scores[:, order], order.argsort()[target], k=ks, ties=ties)
    torch.testing.assert_close(moved.hits, whole.hits[order])
    torch.testing.assert_close(moved.counts, whole.counts[order])


def test_by_group_and_absent_classes():
    table = ClassTable(names="abcdef", counts=(5, 150, 50, 19, 101, 0))
    scores = torch.eye(6)[[0, 1, 1, 2, 3, 4]]
    target = torch.tensor([0, 1, 1, 1, 2, 4])  # right: a, b twice, e; wrong: b once, c; none of d and f
    by_group = topk_accuracy(scores, target, average="group", groups=table.groups())
    assert by_group.tolist() == pytest.approx([1, 0, (2 / 3 + 1) / 2])
    wider = table.groups(few_below=51, many_above=149)
    by_group = topk_accuracy(scores, target, average="group", groups=wider)
    assert by_group.tolist() == pytest.approx([1 / 2, 1, 2 / 3])
    none_few = topk_accuracy(scores[1:], target[1:], average="group", groups=table.groups(few_below=6))
    assert none_few.isnan().tolist() == [True, False, False]
    assert float(topk_accuracy(scores, target, average="macro")) == pytest.approx((1 + 2 / 3 + 0 + 1) / 4)
    own = topk_accuracy(scores, target, average="none")
    assert own.isnan().tolist() == [False, False, False, True, False, True]
    several = topk_accuracy(scores, target, k=[1, 6], average="none")
    assert several.shape == (2, 6)


def test_ignored_rows_do_not_count_even_with_nan():
    scores, target = rows_of(9, 5)
    want = topk_sums(scores[:6], target[:6], k=[1, 2, 5])
    target[6:] = -100
    scores[7] = torch.nan
    for got, expected in zip(topk_sums(scores, target, k=[1, 2, 5]), want, strict=True):
        torch.testing.assert_close(got, expected)
    torch.testing.assert_close(rank_histogram(scores, target), rank_histogram(scores[:6], target[:6]))
    other = torch.where(target == -100, 3, target)
    plain = topk_accuracy(scores, other, ignore_index=3)
    torch.testing.assert_close(plain, topk_accuracy(scores[other != 3], other[other != 3]))


def test_no_rows_give_nan():
    scores, target = torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)
    assert topk_accuracy(scores, target, k=[1, 2]).isnan().all()
    assert balanced_error(scores, target).isnan() and topk_curve_area(scores, target).isnan()


def test_nan_is_a_miss_and_stands_above():
    nan = math.nan
    scores = torch.tensor([[nan, 1.0, 0.0], [nan, 1.0, 0.0], [0.0, nan, nan], [nan, nan, nan]])
    target = torch.tensor([0, 1, 0, 2])
    for ties in TIES:
        curve = topk_accuracy(scores, target, k=[1, 2, 3], ties=ties)
        assert curve.tolist() == [0, 0.25, 0.5]  # second row from place 2 on, third from place 3 on
    assert int(topk_sums(scores, target, k=1).nan_rows) == 4
    assert rank_histogram(scores, target).tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_counts_exactly(dtype):
    scores = torch.arange(2049, dtype=torch.float64).expand(3, -1).to(dtype)
    target = torch.tensor([0, 7, 2048])
    wide = true_ranks(scores.double(), target, ties="expected")
    narrow = true_ranks(scores, target, ties="expected")
    assert all(torch.equal(a, b) for a, b in zip(wide, narrow, strict=True))
    assert int(narrow.last[0]) == 2049


def test_infinite_scores_tie():
    scores = torch.tensor([[-torch.inf, -torch.inf, 0.0], [torch.inf, 1.0, 2.0]])
    ranks = true_ranks(scores, torch.tensor([0, 0]), ties="expected")
    assert ranks.first.tolist() == [2, 1] and ranks.last.tolist() == [3, 1]


def test_50_000_classes_take_little():
    c = 50_000
    scores, target = torch.randn(64, c), torch.arange(64) * 700
    sums = topk_sums(scores, target, k=range(1, 11))  # a table of classes by classes would take 20 GB
    assert sum(part.nbytes for part in sums) <= c * 11 * 8 + 8
    assert rank_histogram(scores, target).nbytes == (c + 1) * 8
    place = 1 + int((scores[5] > scores[5, 3500]).sum())
    assert int(true_ranks(scores, target).last[5]) == place


@pytest.mark.errors
def test_bad_input():
    scores, target = rows_of(4, 5)
    with pytest.raises(ValueError, match=r"k must be <= the number of classes \(5\), got 6"):
        topk_accuracy(scores, target, k=[1, 6])
    with pytest.raises(ValueError, match="k must be an integer >= 1, got 0"):
        topk_accuracy(scores, target, k=0)
    with pytest.raises(ValueError, match="k must name at least one number of guesses"):
        topk_accuracy(scores, target, k=[])
    with pytest.raises(ValueError, match="ties must be one of against, favor, expected, got 'best'"):
        topk_accuracy(scores, target, ties="best")
    with pytest.raises(ValueError, match="average must be one of micro, macro, group, none, got 'all'"):
        topk_accuracy(scores, target, average="all")
    with pytest.raises(ValueError, match="groups must give a group for each class"):
        topk_accuracy(scores, target, average="group")
    with pytest.raises(ValueError, match=r"groups must be int64 with one entry per class \(5,\), got"):
        topk_accuracy(scores, target, average="group", groups=torch.zeros(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="groups must be >= 0, got -1"):
        average_classes(target, target, average="group", groups=torch.full((4,), -1))
    with pytest.raises(ValueError, match=r"target must be in \[0, 5\) or -100, got 5"):
        topk_accuracy(scores, torch.tensor([0, 1, 2, 5]))
    with pytest.raises(ValueError, match=r"scores must be a floating tensor of shape \(n, c\)"):
        topk_accuracy(scores.long(), target)
    with pytest.raises(ValueError, match=r"k_max must be <= the number of classes \(5\), got 6"):
        topk_curve_area(scores, target, k_max=6)


@pytest.mark.errors
def test_one_k_that_is_no_integer_is_named():
    scores, target = torch.randn(5, 4), torch.randint(4, (5,))
    for k in (2.5, np.int64(2), None):
        with pytest.raises(ValueError, match="k must be an integer >= 1, got"):
            topk_accuracy(scores, target, k=k)
    with pytest.raises(ValueError, match=r"groups must be int64 .* got list"):
        topk_accuracy(scores, target, average="group", groups=[0, 0, 1, 2])


def test_averages_of_rows_against_loops():
    target = torch.tensor([0, 0, 0, 1, 3, 3])
    values = torch.tensor([1.0, 0.0, 0.5, 0.25, 1.0, 0.0], dtype=torch.float64)
    own = {c: [float(v) for v, t in zip(values, target, strict=True) if t == c] for c in range(5)}
    means = [sum(some) / len(some) if some else math.nan for some in own.values()]
    found = average_rows(values, target, num_classes=5, average="none")
    assert found.tolist() == pytest.approx(means, nan_ok=True)
    assert float(average_rows(values, target, num_classes=5)) == pytest.approx(2.75 / 6)
    assert float(average_rows(values, target, num_classes=5, average="macro")) == pytest.approx(1.25 / 3)
    groups = torch.tensor([0, 1, 1, 1, 2])
    found = average_rows(values, target, num_classes=5, average="group", groups=groups)
    assert found.tolist() == pytest.approx([0.5, 0.375, math.nan], nan_ok=True)
    assert float(average_rows(values > 0.4, target, num_classes=5)) == 0.5
    assert math.isnan(average_rows(values[:0], target[:0], num_classes=5))
