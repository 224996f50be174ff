"""Cases that were once wrong, each kept small."""

import math
import warnings

import pytest
import torch

from shortlist.ops import log_esp_ratio, perturbed_topk, relaxed_topk, sparse_top
from shortlist.ops.networks import NETWORKS, comparator_layers, network_depth
from shortlist.ops.selection import kth_largest, kth_largest_index
from tests import references

INF = math.inf


@pytest.mark.parametrize("num_samples", [5, None])
@pytest.mark.parametrize(("size", "noise_std"), [(1e4, 1e-5), (1e3, 1e-6), (1.0, 1e-46)])
def test_noise_below_the_spacing_of_floats(num_samples, size, noise_std):
    scores = (torch.linspace(-1, 1, 100) * size)[torch.randperm(100)][None].requires_grad_()
    value = perturbed_topk(scores, k=2, noise_std=noise_std, num_samples=num_samples)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    assert value.item() == pytest.approx(scores.topk(2).values[0, 1].item(), rel=1e-6)
    assert gradient.sum().item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("num_samples", [5, None])
def test_fewer_finite_scores_than_k(num_samples):
    scores = torch.full((1, 100), -INF)
    scores[0, 0] = 3.0
    assert perturbed_topk(scores, k=2, noise_std=0.1, num_samples=num_samples) == -INF


@pytest.mark.parametrize("num_samples", [5, None])
def test_nan_behind_classes_that_are_left_out(num_samples):
    scores = torch.arange(1000.0).flip(0)[None].clone()
    scores[0, -1] = math.nan
    assert perturbed_topk(scores, k=3, noise_std=0.5, num_samples=num_samples).isnan()


@pytest.mark.parametrize("gap", [3.0, 4.0, 6.0, 20.0])
@pytest.mark.parametrize(("c", "k", "above"), [(1000, 11, 5), (300, 26, 25), (2000, 100, 50)])
def test_error_bounds_where_some_classes_are_all_but_certain(gap, c, k, above):
    scores = torch.full((1, c), -2.0, dtype=torch.float64)
    scores[0, : k + 1] = 0
    scores[0, :above] = gap
    leaf, twin = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    usual = perturbed_topk(leaf, k=k, noise_std=1.0, num_samples=None)
    tight = perturbed_topk(twin, k=k, noise_std=1.0, num_samples=None, tolerance=1e-13, num_nodes=150)
    usual.backward()
    tight.backward()
    assert tight.item() == pytest.approx(references.expected_topk(scores[0], k, 1.0), abs=1e-9)
    assert abs(usual.item() - tight.item()) < 1e-5
    assert (leaf.grad - twin.grad).abs().sum() < 1e-4


@pytest.mark.parametrize(
    "function",
    [
        lambda s: log_esp_ratio(s, k=2).sum(),
        lambda s: perturbed_topk(s, k=2, noise_std=1.0, num_samples=None).sum(),
    ],
)
def test_second_derivatives_are_refused(function):
    scores = torch.randn(4, 6, requires_grad=True)
    with pytest.raises(RuntimeError, match="has no second derivative"):
        torch.autograd.grad(function(scores), scores, create_graph=True)


def test_sparse_top_of_large_scores():
    assert sparse_top(torch.full((1, 3000), 1e4), k=1).sum().item() == pytest.approx(1, abs=1e-3)
    weights = sparse_top(torch.tensor([[1e8] * 3 + [0.0] * 21]), k=2)
    torch.testing.assert_close(weights[0, :3], torch.full((3,), 2 / 3))
    scores = torch.randn(4, 1000)
    torch.testing.assert_close(sparse_top(scores, k=999).sum(1), torch.full((4,), 999.0), rtol=1e-6, atol=0)


def test_neuralsort_keeps_its_digits_in_float32():
    scores = torch.randn(2, 10_000)
    got = relaxed_topk(scores, k=5, method="neuralsort", steepness=10.0)
    want = relaxed_topk(scores.double(), k=5, method="neuralsort", steepness=10.0)
    assert (got - want).abs().max() < 1e-4


@pytest.mark.parametrize("network", NETWORKS)
def test_depth_is_known_without_building(network):
    for n in (1, 2, 3, 16, 50, 100):
        for k in range(1, min(n, 6) + 1):
            assert network_depth(network, n, k) == len(comparator_layers(network, n, k))


def test_scores_that_are_not_contiguous():
    scores = (5 * torch.randn(1000, 8)).T
    for num_samples in (None, 3):
        perturbed_topk(scores, k=3, noise_std=0.1, num_samples=num_samples)
    torch.testing.assert_close(sparse_top(scores, k=3), sparse_top(scores.contiguous(), k=3))


@pytest.mark.errors
def test_bounds_that_were_missing():
    scores = torch.randn(2, 5)
    with pytest.raises(ValueError, match=r"tolerance must be < 0\.5, got 1\.0"):
        perturbed_topk(scores, k=2, noise_std=1.0, tolerance=1.0)
    with pytest.raises(ValueError, match=r"art_lambda must be < 1, got 5\.0"):
        relaxed_topk(scores, k=2, art_lambda=5.0)


def test_a_trace_selects_anew():
    first, second = torch.randn(2, 4, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tracing itself, and of the checks
        traced = torch.jit.trace(lambda s: relaxed_topk(s, k=3, method="softsort"), first)
    torch.testing.assert_close(traced(second), relaxed_topk(second, k=3, method="softsort"))


def test_kth_of_one_row():
    row = torch.randn(10)
    assert kth_largest_index(row, 3).shape == kth_largest(row, 3).shape == ()
    assert kth_largest(row, 3) == row.sort(descending=True).values[2] == row[kth_largest_index(row, 3)]
