"""The expected sum of the k largest and the soft mask, against integrals over all subsets of classes."""

import itertools

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch.autograd import gradcheck

from shortlist.ops import perturbed_topk, perturbed_topk_mask, perturbed_topk_sum
from tests import references

FINE = {"tolerance": 1e-13, "num_nodes": 64}


def chance_among_the_first(row: list[float], j: int, k: int) -> float:
    """The chance of class j to be among the first k at noise 1, over all sets of k - 1 or less above it."""
    others = [u for i, u in enumerate(row) if i != j]

    def fewer_than_k_exceed(t: float) -> float:
        total = 0.0
        for size in range(k):
            for chosen in itertools.combinations(range(len(others)), size):
                part = 1.0
                for i, u in enumerate(others):
                    part *= norm.sf(t - u) if i in chosen else norm.cdf(t - u)
                total += part
        return total

    density = quad(lambda t: norm.pdf(t - row[j]) * fewer_than_k_exceed(t), row[j] - 9, row[j] + 9, limit=200)
    return float(density[0])


@pytest.mark.parametrize(("k", "spread"), [(1, 1.0), (2, 0.1), (2, 3.0), (3, 1.0)])
def test_mask_is_the_chance_to_be_among_the_first(k, spread):
    scores = spread * torch.randn(1, 4, dtype=torch.float64)
    want = torch.tensor([[chance_among_the_first(scores[0].tolist(), j, k) for j in range(4)]])
    for options, bound in (({}, 1e-4), (FINE, 1e-5)):
        # in units of the noise everything is the same
        mask = perturbed_topk_mask(0.3 * scores, k=k, noise_std=0.3, **options)
        assert (mask - want.double()).abs().sum() < bound
        assert abs(float(mask.sum()) - k) < bound


@pytest.mark.parametrize(("c", "k"), [(1, 1), (5, 1), (5, 3), (5, 5), (40, 4)])
@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_sum_is_that_of_the_expected_first_to_kth(c, k, spread):
    scores = spread * torch.randn(2, c, dtype=torch.float64)
    want = [sum(references.expected_topk(row, i, 0.7) for i in range(1, k + 1)) for row in scores]
    for options, bound in (({}, 1e-4), (FINE, 1e-5)):
        got = perturbed_topk_sum(scores, k=k, noise_std=0.7, **options)
        torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64), rtol=0, atol=bound)


def test_the_difference_of_sums_is_the_kth():
    scores = torch.randn(6, 30, dtype=torch.float64)
    sums = [perturbed_topk_sum(scores, k=k, noise_std=0.5, **FINE) for k in (4, 5)]
    kth = perturbed_topk(scores, k=5, noise_std=0.5, num_samples=None, **FINE)
    torch.testing.assert_close(sums[1] - sums[0], kth, rtol=0, atol=1e-5)


def test_gradients():
    scores = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    options = {"k": 3, "noise_std": 0.8, **FINE}
    assert gradcheck(lambda s: perturbed_topk_sum(s, **options), (scores,), atol=1e-5)
    assert gradcheck(lambda s: perturbed_topk_mask(s, **options), (scores,), atol=1e-5)
    (gradient,) = torch.autograd.grad(perturbed_topk_sum(scores, **options).sum(), scores)
    torch.testing.assert_close(gradient, perturbed_topk_mask(scores, **options).detach())


def test_properties_of_the_smoothing():
    """Convex, sqrt(k)-Lipschitz, above the plain sum, and near it for little noise (Garcin 2022)."""
    first, second = torch.randn(2, 50, 20, dtype=torch.float64)

    def at(scores):
        return perturbed_topk_sum(scores, k=4, noise_std=0.6)

    plain = first.topk(4)[0].sum(1)
    assert (at((first + second) / 2) <= (at(first) + at(second)) / 2 + 1e-4).all()
    assert ((at(first) - at(second)).abs() <= 2 * (first - second).norm(dim=1) + 1e-4).all()
    assert (at(first) >= plain - 1e-4).all()
    hard = perturbed_topk_mask(first, k=4, noise_std=1e-6)
    torch.testing.assert_close(
        hard, torch.zeros_like(first).scatter(1, first.topk(4)[1], 1.0), rtol=0, atol=1e-4
    )


def test_masked_few_and_nan_scores_and_half_precision():
    scores = torch.randn(4, 8)
    scores[0, 2:] = -torch.inf  # fewer than k are left
    scores[1, 5:] = -torch.inf
    scores[2, 1] = torch.nan
    leaf = scores.clone().requires_grad_()
    value = perturbed_topk_sum(leaf, k=3, noise_std=0.5)
    mask = perturbed_topk_mask(leaf, k=3, noise_std=0.5)
    assert value[0] == -torch.inf and value[2].isnan() and value[[1, 3]].isfinite().all()
    assert (mask[0] == 0).all() and (mask[1, 5:] == 0).all()
    torch.testing.assert_close(
        mask[1, :5], perturbed_topk_mask(scores[1:2, :5], k=3, noise_std=0.5)[0], rtol=0, atol=1e-4
    )
    (gradient,) = torch.autograd.grad((mask[[1, 3]] * torch.randn(2, 8)).sum(), leaf)
    assert gradient[[0, 1, 3]].isfinite().all() and (gradient[1, 5:] == 0).all()
    half = perturbed_topk_mask(scores[3:].bfloat16(), k=3, noise_std=0.5)
    assert half.dtype == torch.float32 and half.isfinite().all()


@pytest.mark.errors
def test_bad_input():
    scores = torch.randn(2, 5, requires_grad=True)
    with pytest.raises(ValueError, match="noise_std must be > 0, got 0"):
        perturbed_topk_mask(scores, k=2, noise_std=0)
    with pytest.raises(ValueError, match=r"k must be <= the number of classes \(5\), got 6"):
        perturbed_topk_sum(scores, k=6, noise_std=1.0)
    with pytest.raises(RuntimeError, match="perturbed_topk_mask has no second derivative"):
        mask = perturbed_topk_mask(scores, k=2, noise_std=1.0)
        torch.autograd.grad(mask.square().sum(), scores, create_graph=True)
    with pytest.raises(ValueError, match="perturbed_topk_mask must be called outside"):
        torch.func.vmap(lambda s: perturbed_topk_mask(s[None], k=2, noise_std=1.0))(scores)
