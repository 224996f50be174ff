import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import EqualizedLoss, equalized_loss
from tests.losses.margin_family import COUNTS


def test_tau_0_is_cross_entropy():
    logits, target = torch.randn(9, 5), torch.randint(5, (9,))
    got = equalized_loss(logits, target, class_counts=COUNTS, tau=0.0)
    torch.testing.assert_close(got, cross_entropy(logits, target))


@pytest.mark.parametrize("rare_factor", [0.1, 0.05])
def test_classes_below_the_threshold_hardly_compete(rare_factor):
    """F of Tan et al., row by row: the counts 400, 100, 30, 9, 1 have two classes below 2 %."""
    logits, target = 3 * torch.randn(20, 5, dtype=torch.float64), torch.randint(5, (20,))
    shares = [count / 540 for count in (400, 100, 30, 9, 1)]
    rows = []
    for scores, y in zip(logits.tolist(), target.tolist(), strict=True):
        factors = [rare_factor if share < 0.02 else 1.0 for share in shares]
        others = sum(factors[j] * math.exp(scores[j] - scores[y]) for j in range(5) if j != y)
        rows.append(math.log(1 + others))
    options = {"threshold": 0.02, "rare_factor": rare_factor}
    got = equalized_loss(logits, target, class_counts=COUNTS, **options, reduction="none")
    torch.testing.assert_close(got, torch.tensor(rows, dtype=torch.float64))
    module = EqualizedLoss(class_counts=COUNTS, **options)
    torch.testing.assert_close(module(logits, target), got.mean())


def test_a_threshold_at_a_share_counts_it_as_frequent():
    logits, target = torch.randn(9, 2), torch.randint(2, (9,))
    got = equalized_loss(logits, target, class_counts=torch.tensor([3, 1]), threshold=0.25)
    torch.testing.assert_close(got, cross_entropy(logits, target))


def test_what_the_scores_mean_with_a_threshold():
    meaning = EqualizedLoss.score_meaning
    plain = {"tau": 1.0, "threshold": 0.1, "weighting": "consistent"}
    assert meaning(plain | {"rare_factor": 1.0}) == meaning(plain | {"tau": 0.0, "threshold": None})
    assert meaning(plain | {"rare_factor": 0.5}) == meaning(plain | {"threshold": None})


@pytest.mark.errors
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0.0}, "threshold must be > 0"),
        ({"threshold": 2.0}, "threshold must be <= 1"),
        ({"threshold": 0.1, "rare_factor": 0.0}, "rare_factor must be > 0"),
        ({"threshold": 0.1, "tau": 0.5}, "tau must be left out with a threshold, got 0.5"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        equalized_loss(torch.randn(2, 5), torch.tensor([0, 1]), class_counts=COUNTS, **options)
