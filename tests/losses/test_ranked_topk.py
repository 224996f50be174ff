import itertools
import math
import shutil

import pytest
import torch
from torch.nn.functional import cross_entropy

from shortlist.losses import RankedTopKLoss, ranked_topk_loss
from shortlist.ops import relaxed_topk
from shortlist.ops.networks import comparator_layers, pair_layers
from tests import references
from tests.conftest import tensor
from tests.losses.batches import assert_transforms_agree_with_rows

TOP1 = {"sm": "softmax", "smce": "softmax_ce", "sort": "sort"}


def test_golden(golden):
    reference = golden("diffsort_loss")
    assert len(reference.cases) == 54
    for case in reference.cases:
        inputs, params = reference.inputs(case), case["params"]
        scores = inputs["x"].requires_grad_()
        rows = ranked_topk_loss(
            scores,
            inputs["y"],
            distribution=[float(p) for p in params["p_k"]],
            candidates=params["m"],
            top1=TOP1[params["top1_mode"]],
            method=params["method"].removesuffix("__non_sparse"),
            steepness=params["inverse_temperature"],
            comparator=params["distribution"] or "cauchy",
            reduction="none",
        )
        rows.mean().backward()
        torch.testing.assert_close(rows.detach(), tensor(case["per_sample"]), rtol=0, atol=1e-7)
        torch.testing.assert_close(scores.grad, tensor(case["grad_of_mean"]), rtol=0, atol=1e-7)


@pytest.mark.parametrize("top1", TOP1.values())
@pytest.mark.parametrize("method", ["splitter", "softsort", "sinkhorn"])
def test_equals_the_formula(top1, method):
    scores, target = torch.randn(4, 7, dtype=torch.float64), torch.randint(7, (4,))
    chances = [0.3, 0.1, 0.6]
    ranks = relaxed_topk(scores, k=3, method=method, steepness=2.0)
    want = torch.stack(
        [
            references.ranked_topk(ranks[i], scores[i].softmax(0), int(target[i]), chances, top1)
            for i in range(4)
        ]
    )
    options = {"distribution": chances, "top1": top1, "method": method, "steepness": 2.0, "reduction": "none"}
    torch.testing.assert_close(ranked_topk_loss(scores, target, **options), want, rtol=1e-10, atol=1e-10)
    shares = torch.rand(4, 7, dtype=torch.float64).softmax(1)
    table = torch.stack([ranked_topk_loss(scores, torch.full((4,), j), **options) for j in range(7)], dim=1)
    torch.testing.assert_close(ranked_topk_loss(scores, shares, **options), (shares * table).sum(1))


@pytest.mark.parametrize("top1", ["softmax", "softmax_ce"])
def test_all_weight_on_1_is_cross_entropy(top1):
    scores, target = 8 * torch.randn(30, 15), torch.randint(15, (30,))
    got = ranked_topk_loss(scores, target, distribution=[1.0], top1=top1)
    torch.testing.assert_close(got, cross_entropy(scores, target))


def test_one_distribution_per_class_or_row():
    scores, target = torch.randn(5, 6), torch.tensor([0, 1, 2, 1, 5])
    per_class = torch.rand(6, 3).softmax(1)
    want = [
        ranked_topk_loss(scores[i : i + 1], target[i : i + 1], distribution=per_class[target[i]])
        for i in range(5)
    ]
    got = ranked_topk_loss(scores, target, distribution=per_class, per="class", reduction="none")
    torch.testing.assert_close(got, torch.stack(want))
    per_row = per_class[target]
    got = ranked_topk_loss(scores, target, distribution=per_row, per="row", reduction="none")
    torch.testing.assert_close(got, torch.stack(want))
    module = RankedTopKLoss(per="row", reduction="none")
    torch.testing.assert_close(module(scores, target, per_row), torch.stack(want))
    module = RankedTopKLoss(per="class", distribution=per_class, reduction="none")
    torch.testing.assert_close(module(scores, target), torch.stack(want))


def test_candidates_hold_the_true_class_and_the_largest_others():
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0, 1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    options = {"distribution": [0.5, 0.5], "steepness": 1.0}
    got = ranked_topk_loss(scores, torch.tensor([4]), candidates=3, **options)
    got.backward()
    assert (scores.grad != 0)[0].tolist() == [True, True, False, False, True, False]
    kept = scores.detach()[:, [4, 0, 1]]
    want = ranked_topk_loss(kept, torch.tensor([0]), **options)
    torch.testing.assert_close(got.detach(), want)


def test_all_classes_as_candidates_only_reorder_a_sort():
    scores, target = torch.randn(4, 8), torch.randint(8, (4,))
    for method, top1 in itertools.product(["neuralsort", "softsort"], TOP1.values()):
        options = {"method": method, "top1": top1}
        torch.testing.assert_close(
            ranked_topk_loss(scores, target, candidates=8, **options),
            ranked_topk_loss(scores, target, **options),
        )


def test_a_later_batch_leaves_the_results_of_an_earlier_one_alone():
    """They share a workspace."""
    scores, target = torch.randn(2, 9, 30), torch.randint(30, (2, 9))
    leaves = [part.clone().requires_grad_() for part in scores]
    losses = [ranked_topk_loss(leaf, y, candidates=8) for leaf, y in zip(leaves, target, strict=True)]
    with torch.inference_mode():
        ranked_topk_loss(scores[0].clone(), target[1], candidates=8)
    sum(losses).backward()
    for part, leaf, y, loss in zip(scores, leaves, target, losses, strict=True):
        alone = part.double().requires_grad_()
        want = ranked_topk_loss(alone, y, candidates=8)
        want.backward()
        torch.testing.assert_close(loss.double(), want, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(leaf.grad.double(), alone.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.errors
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"distribution": [0.5, 0.4]}, r"distribution must be >= 0 and add up to 1, .* sum 0\.9"),
        ({"distribution": [1.5, -0.5]}, r"distribution must be >= 0 and add up to 1, got least entry -0\.5"),
        ({"distribution": [float("nan"), 0.5]}, "distribution must be >= 0 and add up to 1"),
        (
            {"distribution": [0.25] * 4},
            r"length of distribution must be < the number of classes \(4\), got 4",
        ),
        ({"distribution": torch.ones(3, 1), "per": "class"}, r"shape \(c, K\) for per='class', got \(3, 1\)"),
        ({"distribution": [1.0], "per": "row"}, r"shape \(n, K\) for per='row', got \(1,\)"),
        ({"candidates": 5}, r"candidates must be <= the number of classes \(4\), got 5"),
        ({"candidates": 1}, r"length of distribution must be <= the number of classes \(1\), got 2"),
        ({"top1": "hard"}, "top1 must be one of softmax, softmax_ce, sort, got 'hard'"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        ranked_topk_loss(torch.zeros(2, 4), torch.tensor([0, 1]), **{"distribution": [0.5, 0.5], **arguments})


@pytest.mark.errors
def test_probability_targets_need_all_classes():
    with pytest.raises(ValueError, match="target must be int64 class indices"):
        ranked_topk_loss(torch.zeros(2, 8), torch.full((2, 8), 0.125), candidates=6)
    with pytest.raises(ValueError, match="distribution must be given to the call iff per='row'"):
        RankedTopKLoss()(torch.zeros(2, 8), torch.tensor([0, 1]), torch.ones(2, 1))


@pytest.mark.compiled
@pytest.mark.parametrize("method", ["odd_even", "bitonic", "splitter"])
def test_networks_compile_before_they_ever_ran(method):
    comparator_layers.cache_clear()
    pair_layers.cache_clear()
    loss, logits, target = RankedTopKLoss(method=method), torch.randn(4, 20), torch.arange(4)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)(logits, target)
    torch.testing.assert_close(compiled, loss(logits, target))
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.compiled
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a compiler")
def test_ranked_loss_with_candidates_compiles_without_a_gradient():
    scores, target = torch.randn(32, 50), torch.randint(50, (32,))
    compiled = torch.compile(lambda s, y: ranked_topk_loss(s, y, candidates=8))
    torch.testing.assert_close(compiled(scores, target), ranked_topk_loss(scores, target, candidates=8))
    torch._dynamo.reset()


@pytest.mark.parametrize("method", ["splitter", "bitonic", "odd_even"])
@pytest.mark.parametrize("top1", ["softmax", "softmax_ce", "sort"])
def test_classes_masked_by_a_large_number(method, top1):
    scores, target = torch.randn(5, 12), torch.randint(6, (5,))
    results = []
    least = [torch.finfo(dtype).min for dtype in (torch.float32, torch.bfloat16, torch.float16)]
    for mask in (-math.inf, -1e5, -1e9, *least):
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


def test_the_true_class_is_not_among_the_others():
    scores, target = torch.tensor([[5.0, 1.0, -math.inf, -math.inf]]), torch.tensor([0])
    got = ranked_topk_loss(scores, target, distribution=[1.0], candidates=4)
    torch.testing.assert_close(got, cross_entropy(scores, target))


@pytest.mark.parametrize("options", [{"method": "softsort"}, {"method": "softsort", "candidates": 8}])
def test_transforms(options):
    assert_transforms_agree_with_rows(lambda scores, target: ranked_topk_loss(scores, target, **options))


@pytest.mark.parametrize(
    ("method", "steepness"),
    [("splitter", 1), ("bitonic", 1), ("softsort", 0.3), ("neuralsort", 0.3), ("sinkhorn", 30)],
)
def test_each_relaxation_has_its_own_steepness(method, steepness):
    scores, target = torch.randn(3, 20), torch.tensor([0, 7, 19])
    options = {"method": method, "candidates": 16}
    own = RankedTopKLoss(**options)(scores, target)
    assert own == ranked_topk_loss(scores, target, steepness=steepness, **options)
    assert own != ranked_topk_loss(scores, target, steepness=2 * steepness, **options)
