"""Average-K accuracy with thresholds from the rows themselves, beside a sort of all probabilities."""

import pytest
import torch

from shortlist.metrics import AverageKAccuracy


@pytest.mark.parametrize("k", [1.0, 2.5])
def test_accuracy_is_that_of_the_largest_probabilities_of_all_rows(k):
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.randn(41, 7, generator=generator), torch.arange(41) % 5
    target[::9] = -100
    metric = AverageKAccuracy({"average": k}, num_classes=7, max_rows=41)
    for rows in (slice(0, 15), slice(15, 41)):
        metric.update(scores[rows], target[rows])
    counted = target != -100
    probabilities, true = scores[counted].softmax(1), target[counted]
    kept = set(probabilities.flatten().argsort(descending=True)[: int(k * len(true))].tolist())
    hits = [int(row * 7 + label) in kept for row, label in enumerate(true)]
    by_class = [[hit for hit, label in zip(hits, true, strict=True) if label == c] for c in range(5)]
    metrics = metric.compute()
    assert float(metrics["average"]) == pytest.approx(sum(hits) / len(hits))
    assert float(metrics["macro_average"]) == pytest.approx(sum(sum(h) / len(h) for h in by_class) / 5)
    metric.reset()
    metric.update(scores, target)
    assert metric.compute() == metrics


def test_without_sizes_there_is_nothing_to_compute():
    metric = AverageKAccuracy({}, num_classes=3, max_rows=1)
    metric.update(torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64))
    assert metric.compute() == {}
