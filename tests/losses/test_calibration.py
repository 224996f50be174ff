"""Which losses are calibrated: exact minimizers of the expected loss over grids of class probabilities.

The hinges are piecewise linear with breaks where differences of scores are integers. So the least expected
loss, over all scores or over a closed set of orders, is reached at small integers: all are tried.
"""

import itertools

import pytest
import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import (
    assume_negative_loss,
    calibrated_topk_hinge_loss,
    convex_topk_hinge_loss,
    topk_hinge_loss,
)
from shortlist.predictors import AverageK

CASES = [(3, 1), (3, 2), (4, 1), (4, 2), (4, 3)]


def simplex(c: int, parts: int) -> torch.Tensor:
    counts = [p for p in itertools.product(range(parts + 1), repeat=c) if sum(p) == parts]
    return torch.tensor(counts, dtype=torch.float64) / parts


def preserves(scores: torch.Tensor, shares: torch.Tensor, k: int) -> torch.Tensor:
    """Whether scores (m, 1, c) rank every class surely among the k likeliest first, and no other."""
    kth, following = (shares.topk(k + 1)[0][..., i : i + 1] for i in (k - 1, k))
    kth_score, next_score = (scores.topk(k + 1)[0][..., i : i + 1] for i in (k - 1, k))
    inside = (shares <= following) | (scores > next_score)
    outside = (shares >= kth) | (scores < kth_score)
    return (inside & outside).all(-1)


def excess_of_wrong_orders(loss, c: int, k: int) -> torch.Tensor:
    """By how much the best scores of a wrong order lose to the best of all, for each distribution."""
    scores = torch.tensor(list(itertools.product(range(c + 1), repeat=c)), dtype=torch.float64)
    shares = simplex(c, 7)
    table = torch.stack(
        [loss(scores, torch.full((len(scores),), y), k=k, reduction="none") for y in range(c)], 1
    )
    risk = table @ shares.T  # (scores, distributions)
    wrong = ~preserves(scores[:, None], shares[None], k)
    known = wrong.any(0)  # not all classes alike
    return (torch.where(wrong, risk, torch.inf).amin(0) - risk.amin(0))[known]


@pytest.mark.parametrize(("c", "k"), CASES)
def test_the_calibrated_hinge_is_topk_calibrated(c, k):
    excess = excess_of_wrong_orders(calibrated_topk_hinge_loss, c, k)
    assert len(excess) > 10 and excess.min() > 1e-9


@pytest.mark.parametrize("loss", [topk_hinge_loss, convex_topk_hinge_loss])
@pytest.mark.parametrize(("c", "k"), [(3, 1), (4, 1), (4, 2)])
def test_the_plain_hinges_are_not(loss, c, k):
    excess = excess_of_wrong_orders(loss, c, k)
    assert excess.min() <= 1e-9  # for some distribution a wrong order is as good as any
    assert excess.max() > 1e-2  # but not for all


def fitted(loss, shares: torch.Tensor) -> torch.Tensor:
    """Scores (n, c) that minimize the expected loss of each row."""
    scores = torch.zeros_like(shares).requires_grad_()
    optimizer = torch.optim.LBFGS([scores], max_iter=500, tolerance_grad=1e-10, tolerance_change=1e-14)

    def closure():
        optimizer.zero_grad()
        total = loss(scores, shares)
        total.backward()
        return total

    optimizer.step(closure)
    return scores.detach()


def average_k_error(scores: torch.Tensor, shares: torch.Tensor, k: float, activation: str) -> float:
    """Expected error of sets of k classes on average, made from scores of each row and class."""
    predictor = AverageK(k, activation=activation)
    sets = predictor.calibrate(scores)(scores)
    assert float(sets.sum()) == k * len(shares)
    return 1 - float((shares * sets).sum(1).mean())


@pytest.mark.parametrize("k", [1.5, 2.0])
def test_average_k_sets_of_proper_losses_are_optimal(k):
    """Rows whose probabilities differ: a loss must say how sure it is, not only which class comes first."""
    shares = simplex(4, 17)
    shares = shares[(shares > 0).all(1)][torch.randperm(560)[:40]] + 1e-3 * torch.rand(40, 4)
    shares = shares / shares.sum(1, keepdim=True)
    best = 1 - float(shares.flatten().topk(int(40 * k))[0].sum()) / 40  # the most probable pairs of all
    softmax = fitted(lambda s, p: cross_entropy(s, p, reduction="sum"), shares)
    sigmoid = fitted(lambda s, p: assume_negative_loss(s, p, reduction="sum"), shares)
    assert average_k_error(softmax, shares, k, "softmax") == pytest.approx(best, abs=1e-9)
    assert average_k_error(sigmoid, shares, k, "sigmoid") == pytest.approx(best, abs=1e-9)


def test_average_k_sets_of_the_calibrated_hinge_are_not():
    """Its minimizers say which classes come first, and nothing of how sure that is."""
    shares = torch.tensor([[0.96, 0.02, 0.01, 0.01], [0.3, 0.28, 0.22, 0.2]], dtype=torch.float64)
    scores = torch.tensor(list(itertools.product(range(5), repeat=4)), dtype=torch.float64)
    every = [torch.full((len(scores),), y) for y in range(4)]
    table = torch.stack([calibrated_topk_hinge_loss(scores, y, k=2, reduction="none") for y in every], 1)
    minimizers = scores[(table @ shares.T).argmin(0)]
    gaps = minimizers.topk(2)[0] - minimizers.amin(1, keepdim=True)
    assert torch.equal(gaps[0], gaps[1])  # the same for the sure and for the unsure row
