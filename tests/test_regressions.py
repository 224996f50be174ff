"""Cases that were once wrong, each kept small."""

import math
import shutil
import warnings

import pytest
import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import (
    AverageKLoss,
    NoisedTopKLoss,
    RankedTopKLoss,
    SmoothTopKLoss,
    convex_topk_hinge_loss,
    imbalanced_noised_topk_loss,
    noised_topk_loss,
    ranked_topk_loss,
    smooth_topk_loss,
    sparse_top_loss,
    topk_hinge_loss,
)
from shortlist.ops import log_esp_ratio, perturbed_topk, relaxed_topk, sparse_top
from shortlist.ops.networks import NETWORKS, comparator_layers, network_depth, wire_layers
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
    assert noised_topk_loss(scores, torch.tensor([0]), k=2, num_samples=num_samples) == 0


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
        lambda s: smooth_topk_loss(s, torch.arange(4), k=2),
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


def test_sparse_top_loss_of_large_scores():
    for lead in (1e4, 1e5):
        scores, labels = torch.tensor([[lead] * 3 + [0.5, 0.4, 0.0]]), torch.tensor([[1, 1, 1, 1, 0, 0]])
        want = sparse_top_loss(scores.double(), labels).item()
        assert sparse_top_loss(scores, labels).item() == pytest.approx(want, abs=1e-6)


def test_the_true_class_is_not_among_the_others():
    scores, target = torch.tensor([[5.0, 1.0, -INF, -INF]]), torch.tensor([0])
    assert topk_hinge_loss(scores, target, k=3) == 0
    got = ranked_topk_loss(scores, target, distribution=[1.0], candidates=4)
    torch.testing.assert_close(got, cross_entropy(scores, target))


def test_neuralsort_keeps_its_digits_in_float32():
    scores = torch.randn(2, 10_000)
    got = relaxed_topk(scores, k=5, method="neuralsort", steepness=10.0)
    want = relaxed_topk(scores.double(), k=5, method="neuralsort", steepness=10.0)
    assert (got - want).abs().max() < 1e-4


def test_smooth_with_masked_classes():
    scores = torch.randn(2, 6)
    scores[1, 0] = -INF
    leaf = scores.requires_grad_()
    smooth_topk_loss(leaf, torch.tensor([2, -100]), k=2).backward()
    assert (leaf.grad[1] == 0).all() and torch.isfinite(leaf.grad).all()
    few = torch.tensor([[1.0, 2.0, 3.0] + [-INF] * 7])
    for k in (3, 4, 6):
        assert smooth_topk_loss(few, torch.tensor([0]), k=k) == 0
        assert log_esp_ratio(few, k=k + 1) == -INF
    assert smooth_topk_loss(few, torch.tensor([5]), k=2) == INF  # as cross-entropy


@pytest.mark.compiled
@pytest.mark.parametrize("method", ["odd_even", "bitonic", "splitter"])
def test_networks_compile_before_they_ever_ran(method):
    comparator_layers.cache_clear()
    wire_layers.cache_clear()
    loss, logits, target = RankedTopKLoss(method=method), torch.randn(4, 20), torch.arange(4)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)(logits, target)
    torch.testing.assert_close(compiled, loss(logits, target))
    torch._dynamo.reset()


@pytest.mark.compiled
@pytest.mark.parametrize(
    "loss", [NoisedTopKLoss(k=2), NoisedTopKLoss(k=2, num_samples=None), SmoothTopKLoss(k=2)]
)
def test_batches_of_another_size_compile(loss):
    compiled = torch.compile(loss, backend="aot_eager")
    for n in (4, 7, 9):
        leaf = torch.randn(n, 20, requires_grad=True)
        compiled(leaf, torch.zeros(n, dtype=torch.int64)).backward()
        assert torch.isfinite(leaf.grad).all()
    torch._dynamo.reset()


@pytest.mark.compiled
def test_average_k_compiles_for_batches_of_any_size():
    loss = AverageKLoss(k=2.5)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=True)
    for n in (4, 7, 9):
        scores, proposals, target = (
            torch.randn(n, 6, requires_grad=True),
            torch.randn(n, 6),
            torch.arange(n) % 6,
        )
        target[0], proposals[1, 2:] = -100, -INF
        results = []
        for run in (loss, compiled):
            value = run((scores, proposals), target)
            results.append((value.detach(), *torch.autograd.grad(value, scores)))
        torch.testing.assert_close(*results)
    torch._dynamo.reset()


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


def test_margins_of_another_type():
    loss = imbalanced_noised_topk_loss(
        torch.rand(2, 5), torch.tensor([0, 1]), margins=torch.ones(5, dtype=torch.float64), k=2
    )
    assert loss.dtype == torch.float32


@pytest.mark.errors
def test_bounds_that_were_missing():
    scores = torch.randn(2, 5)
    with pytest.raises(ValueError, match=r"tolerance must be < 0\.5, got 1\.0"):
        perturbed_topk(scores, k=2, noise_std=1.0, tolerance=1.0)
    with pytest.raises(ValueError, match=r"art_lambda must be < 1, got 5\.0"):
        relaxed_topk(scores, k=2, art_lambda=5.0)


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a compiler")
def test_ranked_loss_with_candidates_compiles_without_a_gradient():
    scores, target = torch.randn(32, 50), torch.randint(50, (32,))
    compiled = torch.compile(lambda s, y: ranked_topk_loss(s, y, candidates=8))
    torch.testing.assert_close(compiled(scores, target), ranked_topk_loss(scores, target, candidates=8))
    torch._dynamo.reset()


@pytest.mark.parametrize("options", [{"method": "softsort"}, {"method": "softsort", "candidates": 8}])
def test_transforms_of_losses_that_select(options):
    scores, target = torch.randn(4, 20), torch.randint(20, (4,))

    def losses(row, true):
        return (
            ranked_topk_loss(row[None], true[None], **options)
            + convex_topk_hinge_loss(row[None], true[None], k=3)
            + topk_hinge_loss(row[None], true[None], k=3)
        )

    want = torch.stack([losses(row, true) for row, true in zip(scores, target, strict=True)])
    torch.testing.assert_close(torch.func.vmap(losses)(scores, target), want)
    leaf = scores.clone().requires_grad_()
    sum(losses(row, true) for row, true in zip(leaf, target, strict=True)).backward()
    gradients = torch.func.vmap(torch.func.grad(losses))(scores, target)
    torch.testing.assert_close(gradients, leaf.grad)


def test_a_trace_selects_anew():
    first, second = torch.randn(2, 4, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tracing itself, and of the checks
        traced = torch.jit.trace(lambda s: relaxed_topk(s, k=3, method="softsort"), first)
    torch.testing.assert_close(traced(second), relaxed_topk(second, k=3, method="softsort"))


@pytest.mark.parametrize("method", ["splitter", "bitonic", "odd_even"])
@pytest.mark.parametrize("top1", ["softmax", "softmax_ce", "sort"])
def test_classes_masked_by_a_large_number(method, top1):
    scores, target = torch.randn(5, 12), torch.randint(6, (5,))
    results = []
    least = [torch.finfo(dtype).min for dtype in (torch.float32, torch.bfloat16, torch.float16)]
    for mask in (-INF, -1e5, -1e9, *least):
        leaf = scores.clone()
        leaf[:, 6:9] = mask
        leaf.requires_grad_()
        loss = ranked_topk_loss(leaf, target, distribution=[0.2, 0.3, 0.5], method=method, top1=top1)
        results.append((loss.detach(), torch.autograd.grad(loss, leaf)[0]))
    for loss, gradient in results[1:]:
        torch.testing.assert_close(loss, results[0][0])
        torch.testing.assert_close(gradient, results[0][1])


def test_a_distribution_is_a_constant():
    scores, target = torch.randn(3, 8, requires_grad=True), torch.tensor([0, 1, 2])
    chances = torch.tensor([0.5, 0.5], requires_grad=True)
    module = RankedTopKLoss(distribution=chances)
    ranked_topk_loss(scores, target, distribution=chances).backward()
    assert chances.grad is None
    assert not ranked_topk_loss(scores.detach(), target, distribution=chances).requires_grad
    with torch.no_grad():
        chances.zero_()
    assert module.distribution.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("method", ["softsort", "splitter"])
def test_inference_leaves_nothing_that_training_cannot_use(method):
    scores, target = torch.randn(3, 8), torch.tensor([0, 1, 2])
    options = {"distribution": [0.3, 0.3, 0.4], "steepness": 1.7, "method": method}
    with torch.inference_mode():
        want = ranked_topk_loss(scores.clone(), target, **options)
    leaf = scores.clone().requires_grad_()
    loss = ranked_topk_loss(leaf, target, **options)
    loss.backward()
    torch.testing.assert_close(loss.detach(), want.clone())


def test_kth_of_one_row():
    row = torch.randn(10)
    assert kth_largest_index(row, 3).shape == kth_largest(row, 3).shape == ()
    assert kth_largest(row, 3) == row.sort(descending=True).values[2] == row[kth_largest_index(row, 3)]
