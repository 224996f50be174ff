"""Sets of ordered scores, made the fast way on the CPU, have the bits of the sets of the general way."""

import math

import pytest
import torch

from shortlist._checks import values_hidden
from shortlist.predictors.conformity import APS, RAPS, SAPS, class_scores, sets_within

SCORES = [APS(), RAPS(penalty=1e-4, k_reg=9), SAPS(step=1e-3)]


def hard_rows(c: int, spread: float, dtype: torch.dtype) -> torch.Tensor:
    """Probabilities of random, tied, ruled out, flat, certain and sorted scores."""
    logits = torch.randn(12, c, generator=torch.Generator().manual_seed(c)) * spread
    logits[:2] = logits[:2].round()
    logits[2] = 0.0
    logits[3, 300:] = -math.inf
    logits[4, ::2] = -math.inf
    logits[5, 5] = 1000.0
    logits[6] = logits[6].sort().values  # a sample at regular places is then the best there is
    logits[7, :: c // 2048] -= 1.0  # and here it misleads
    logits = logits.to(dtype)
    return logits.float().softmax(1) if dtype.itemsize == 2 else logits.softmax(1)


def general(score, probs, threshold, uniform):
    with values_hidden():
        return sets_within(score, probs, threshold, uniform=uniform)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spread", [1.0, 40.0])  # with 40 most probabilities are 0
@pytest.mark.parametrize("score", SCORES)
def test_sets_of_one_threshold_are_those_of_the_general_way(score, spread, dtype):
    probs = hard_rows(20_000, spread, dtype)
    uniform = torch.rand(12, 1, generator=torch.Generator().manual_seed(0))
    for level, draws in (
        (0.0, None),
        (0.5, None),
        (0.95, uniform),
        (1.0 - 1e-4, None),
        (3.0, None),
        (math.inf, None),
    ):
        threshold = torch.tensor(level)
        expected = general(score, probs, threshold, draws)
        assert torch.equal(sets_within(score, probs, threshold, uniform=draws), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("score", SCORES)
def test_sets_of_thresholds_by_class_are_those_of_the_general_way(score, dtype):
    probs = hard_rows(2500, 2.0, dtype)
    generator = torch.Generator().manual_seed(1)
    threshold = 0.7 + 0.3 * torch.rand(2500, generator=generator, dtype=probs.dtype)
    threshold[::17] = math.inf
    by_rank = torch.rand(12, 2500, generator=generator, dtype=probs.dtype)
    for draws in (None, by_rank[:, :1], by_rank):
        found = sets_within(score, probs, threshold, uniform=draws)
        assert torch.equal(found, general(score, probs, threshold, draws))
        with values_hidden():
            expected = class_scores(score, probs, uniform=draws)
        assert torch.equal(class_scores(score, probs, uniform=draws), expected)
