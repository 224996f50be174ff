import pytest
import torch
from hypothesis import given, strategies as st

from shortlist.metrics.label_sets import label_set_metrics, measure_label_sets, top_sets


def by_loops(sets: list[set[int]], labels: list[set[int]], c: int) -> dict[str, float]:
    n = len(sets)
    pairs = list(zip(sets, labels, strict=True))
    found = {
        "precision": sum(len(s & y) / len(s) if s else 0.0 for s, y in pairs) / n,
        "recall": sum(len(s & y) / len(y) for s, y in pairs) / n,
        "f1": sum(2 * len(s & y) / (len(s) + len(y)) for s, y in pairs) / n,
        "exact": sum(s == y for s, y in pairs) / n,
    }
    of_classes = []
    for j in range(c):
        if any(j in y for y in labels):
            both = sum(j in s and j in y for s, y in pairs)
            of_classes.append(2 * both / (sum(j in s for s in sets) + sum(j in y for y in labels)))
    return found | {"macro_f1": sum(of_classes) / len(of_classes)}


@given(n=st.integers(1, 6), c=st.integers(1, 5), seed=st.integers(0, 99))
def test_equals_loops(n, c, seed):
    generator = torch.Generator().manual_seed(seed)
    sets, labels = torch.rand(2, n, c, generator=generator) < 0.5
    labels[:, 0] |= ~labels.any(1)
    as_sets = [[set(row.nonzero().flatten().tolist()) for row in of] for of in (sets, labels)]
    assert label_set_metrics(sets, labels) == pytest.approx(by_loops(*as_sets, c))


def test_top_sets_take_the_highest_scores_and_the_first_of_equal_ones():
    scores = torch.tensor([[1.0, 1.0, 1.0], [0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    sets = top_sets(scores, torch.tensor([2, 2, 0]))
    assert sets.tolist() == [[True, True, False], [False, True, True], [False, False, False]]


def test_all_ways_to_know_the_size():
    scores = torch.tensor([[3.0, 1.0, -1.0], [2.0, -1.0, 1.0]])
    labels = torch.tensor([[1, 1, 0], [1, 0, 0]])
    found = measure_label_sets(scores, labels, sizes=torch.tensor([1, 3]), threshold=0.0)
    assert found["at_true.f1"] == found["at_true.precision"] == found["at_true.exact"] == 1.0
    assert found["at_predicted.precision"] == pytest.approx((1 + 1 / 3) / 2)
    assert found["at_predicted.recall"] == pytest.approx((1 / 2 + 1) / 2)
    assert (found["size.exact"], found["size.error"]) == (0.0, 1.5)
    assert found["above_threshold.precision"] == pytest.approx((1 + 1 / 2) / 2)
    assert not any(name.startswith(("size", "above")) for name in measure_label_sets(scores, labels))


@pytest.mark.errors
def test_bad_input():
    with pytest.raises(ValueError, match="sets must be bool"):
        label_set_metrics(torch.zeros(2, 3), torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"sizes must be one for each row, \(2,\), got \(1,\)"):
        top_sets(torch.zeros(2, 3), torch.tensor([1]))
