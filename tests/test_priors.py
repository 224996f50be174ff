import math

import pytest
import torch

from shortlist.priors import class_balanced_weights, class_priors, margins_from_counts
from tests.conftest import tensor

COUNTS = torch.tensor([400, 100, 30, 9, 1])


def test_golden_class_balanced_weights(golden):
    cases = [case for case in golden("longtail").cases if case["kind"] == "class_balanced_weights"]
    assert len(cases) == 4
    for case in cases:
        counts = torch.tensor(case["params"]["cls_num_list"], dtype=torch.float64)
        weights = class_balanced_weights(counts, beta=case["params"]["beta"])
        torch.testing.assert_close(weights, tensor(case["weights"]), rtol=1e-9, atol=0)


def test_priors_and_weights():
    torch.testing.assert_close(class_priors(COUNTS).sum(), torch.tensor(1.0))
    floored = class_priors(torch.tensor([3, 0]), zero_counts="floor")
    assert floored.tolist() == pytest.approx([0.75, 0.25])
    assert class_balanced_weights(torch.tensor([5, 5, 5])).tolist() == pytest.approx([1, 1, 1])
    assert class_balanced_weights(COUNTS, beta=0.0).tolist() == pytest.approx([1] * 5)


def test_half_precision_counts_give_float32_priors():
    counts = torch.tensor([1.0] + [60_000.0] * 1000, dtype=torch.float16)
    priors = class_priors(counts)
    assert priors.dtype == torch.float32
    assert priors[0].log().item() == pytest.approx(math.log(1 / (float(counts[1]) * 1000 + 1)), rel=1e-6)
    assert class_balanced_weights(counts).dtype == torch.float32
    assert margins_from_counts(counts, max_margin=0.5).dtype == torch.float32


@pytest.mark.errors
def test_no_counts_at_all():
    with pytest.raises(ValueError, match="class_counts must have at least one entry, got none"):
        class_priors(torch.tensor([]))


@pytest.mark.errors
def test_bad_counts():
    with pytest.raises(ValueError, match="class_counts must be >= 1, got 0 for class 1; zero_counts='floor'"):
        class_priors(torch.tensor([3, 0]))
    with pytest.raises(ValueError, match="class_counts must be finite and >= 0, got -2"):
        class_priors(torch.tensor([3, -2]), zero_counts="floor")
    with pytest.raises(ValueError, match=r"beta must be < 1, got 1\.0"):
        class_balanced_weights(COUNTS, beta=1.0)
    with pytest.raises(ValueError, match="zero_counts must be one of error, floor, got 'drop'"):
        class_priors(COUNTS, zero_counts="drop")
    with pytest.raises(ValueError, match="class_counts must be >= 1, got 0 for class 1"):
        margins_from_counts(torch.tensor([3, 0]), max_margin=0.3)
    with pytest.raises(ValueError, match="max_margin must be > 0, got 0"):
        margins_from_counts(torch.tensor([3, 2]), max_margin=0)
