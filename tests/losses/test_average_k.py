import math

import numpy
import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy

from shortlist.losses import AverageKLoss, _global_batch, average_k_loss
from tests.losses.batches import heads


def average_k_by_loops(scores, proposals, target, k, alpha):
    """The formula, entry by entry."""
    n, c = scores.shape
    chances = proposals.detach().softmax(1)
    entries = [(float(chances[i, j]), i, j) for i in range(n) for j in range(c) if j != int(target[i])]
    entries = [entry for entry in entries if entry[0] > 0]  # not those that are masked
    chosen = {(i, j) for _, i, j in sorted(entries, reverse=True)[: round((k - 1) * n)]}
    total = cross_entropy(proposals, target, reduction="sum")
    for i in range(n):
        for j in range(c):
            chance = torch.sigmoid(scores[i, j])
            if j == int(target[i]):
                total = total - torch.log(chance)
            elif (i, j) in chosen:
                total = total - alpha / (k - 1) * torch.log(chance)
            else:
                total = total - alpha / (c - k) * torch.log(1 - chance)
    return total / n


@pytest.mark.parametrize("k", [1.0, 1.01, 2.0, 2.5, 5.0, 7.9])
@pytest.mark.parametrize("alpha", [0.3, 5.0])
def test_equals_a_loop(k, alpha):
    scores, proposals, target = heads()
    scores.requires_grad_()
    proposals.requires_grad_()
    got = average_k_loss(scores, proposals, target, k=k, alpha=alpha)
    want = average_k_by_loops(scores, proposals, target, k, alpha)
    torch.testing.assert_close(got, want)
    ours = torch.autograd.grad(got, (scores, proposals))
    theirs = torch.autograd.grad(want, (scores, proposals))
    torch.testing.assert_close(ours, theirs)
    # through the choice no gradient flows: the proposals get that of cross-entropy alone
    (plain,) = torch.autograd.grad(cross_entropy(proposals, target), proposals)
    torch.testing.assert_close(ours[1], plain)


def test_a_batch_of_one_has_k_minus_1_pseudo_positives():
    scores, proposals, target = heads(n=1)
    for k in (1, 2, 4):
        gradient = torch.autograd.grad(
            average_k_loss(scores.requires_grad_(), proposals, target, k=float(k)), scores
        )[0]
        assert int((gradient < 0).sum()) == k  # the true class and k - 1 others are pushed up


@pytest.mark.parametrize("k", [2.5, 6.5, 7.9])
def test_masked_classes_and_true_classes_are_never_pseudo_positives(k):
    """Three of 8 classes are masked: k = 6.5 wants 33 of the 24 that are left."""
    scores, proposals, target = heads()
    target[target > 4] = 1
    proposals[:, 5:] = -math.inf
    scores.requires_grad_()
    got = average_k_loss(scores, proposals, target, k=k, alpha=0.7)
    want = average_k_by_loops(scores, proposals, target, k, 0.7)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(torch.autograd.grad(got, scores), torch.autograd.grad(want, scores))
    # nor are classes of ignored rows
    more = torch.cat([target, torch.tensor([-100, -100])])
    longer = [
        torch.cat([part.detach(), torch.randn(2, 8, dtype=torch.float64)]) for part in (scores, proposals)
    ]
    rows = average_k_loss(*longer, more, k=k, alpha=0.7, reduction="none")
    torch.testing.assert_close(rows[:6].mean(), want.detach())
    assert (rows[6:] == 0).all()


@pytest.mark.parametrize("k", [1.0, 1.2, 2.5, 6.5])
def test_without_looking_at_values_the_choice_is_the_same(k, monkeypatch):
    """As on an accelerator, where the number of pseudo-positives is not known before they are chosen."""
    scores, proposals, target = heads(n=20)
    target[[3, 11, 12]] = -100
    proposals[4, :7], target[4] = -math.inf, 7
    results = []
    for readable in (True, False):
        monkeypatch.setattr(_global_batch, "can_read_values", lambda tensor, readable=readable: readable)
        leaf = scores.clone().requires_grad_()
        loss = average_k_loss(leaf, proposals, target, k=k)
        results.append((loss.detach(), *torch.autograd.grad(loss, leaf)))
    torch.testing.assert_close(*results)


def test_gradcheck_and_reductions():
    scores, proposals, target = heads()
    scores.requires_grad_()
    assert gradcheck(lambda s: average_k_loss(s, proposals, target, k=2.5), (scores,))
    rows = average_k_loss(scores, proposals, target, k=2.5, reduction="none")
    torch.testing.assert_close(rows.sum(), average_k_loss(scores, proposals, target, k=2.5, reduction="sum"))
    torch.testing.assert_close(rows.mean(), average_k_loss(scores, proposals, target, k=2.5))


def test_ignores_rows_and_weighs_classes():
    scores, proposals, target = heads()
    shorter = average_k_loss(scores[:4], proposals[:4], target[:4], k=3.0, reduction="none")
    target[4:] = -100
    rows = average_k_loss(scores, proposals, target, k=3.0, reduction="none")
    torch.testing.assert_close(rows[:4], shorter)
    assert (rows[4:] == 0).all()
    weight = torch.rand(8, dtype=torch.float64)
    weighted = average_k_loss(scores, proposals, target, k=3.0, weight=weight)
    row_weight = weight[target[:4]]
    torch.testing.assert_close(weighted, (shorter * row_weight).sum() / row_weight.sum())


@pytest.mark.compiled
def test_compiles_for_batches_of_any_size():
    loss = AverageKLoss(k=2.5)
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=True)
    for n in (4, 7, 9):
        scores, proposals, target = (
            torch.randn(n, 6, requires_grad=True),
            torch.randn(n, 6),
            torch.arange(n) % 6,
        )
        target[0], proposals[1, 2:] = -100, -math.inf
        results = []
        for run in (loss, compiled):
            value = run((scores, proposals), target)
            results.append((value.detach(), *torch.autograd.grad(value, scores)))
        torch.testing.assert_close(*results)
    torch._dynamo.reset()


def test_float32_keeps_its_digits_where_all_is_learned():
    """True scores far up, others far down: losses near 0 that the sum of all terms would drown."""
    scores = torch.full((1, 1000), -12.0)
    scores[0, 0], target = 12.0, torch.tensor([0])

    def loss(scores):
        return average_k_loss(scores, torch.zeros_like(scores), target, k=1.0) - math.log(1000)

    # log 1000 is added and taken off: it has an error of 5e-7 of its own
    assert loss(scores).item() == pytest.approx(loss(scores.double()).item(), rel=1e-4, abs=6e-7)
    leaf = scores.requires_grad_()
    average_k_loss(leaf, torch.zeros_like(scores), target, k=1.0).backward()
    assert leaf.grad[0, 0].item() == pytest.approx(-1 / (1 + math.exp(12)), rel=1e-5)


@pytest.mark.errors  # of types, to a checker of these: floats are annotated
def test_numpy_numbers_are_numbers():
    scores, proposals, target = heads()
    for k in (numpy.float32(2.5), numpy.float64(2.5)):
        assert AverageKLoss(k=k)((scores, proposals), target) == AverageKLoss(k=2.5)(
            (scores, proposals), target
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    scores, proposals, target = heads(dtype=dtype)
    leaf = (20 * scores).requires_grad_()
    loss = AverageKLoss(k=2.5)((leaf, proposals), target)
    loss.backward()
    assert loss.dtype == torch.float32 and torch.isfinite(loss) and torch.isfinite(leaf.grad).all()


def test_nan_and_extreme_scores():
    scores, proposals, target = heads()
    scores[0, 0] = torch.nan
    assert average_k_loss(scores, proposals, target, k=2.0).isnan()
    scores, proposals, target = heads()
    leaf = (1e4 * scores).requires_grad_()
    average_k_loss(leaf, 1e4 * proposals, target, k=2.0).backward()
    assert torch.isfinite(leaf.grad).all()
    proposals[0, 3] = torch.nan
    assert average_k_loss(heads()[0], proposals, target, k=2.0).isnan()


@pytest.mark.errors
def test_bad_input():
    scores, proposals, target = heads()
    for k in (0.5, float("nan")):
        with pytest.raises(ValueError, match="k must be"):
            average_k_loss(scores, proposals, target, k=k)
        with pytest.raises(ValueError, match="k must be"):
            AverageKLoss(k=k)
    with pytest.raises(ValueError, match=r"k must be < the number of classes \(8\), got 8.0"):
        average_k_loss(scores, proposals, target, k=8.0)
    with pytest.raises(ValueError, match="alpha must be > 0, got 0"):
        average_k_loss(scores, proposals, target, alpha=0)
    with pytest.raises(ValueError, match=r"must have one shape, got \(6, 8\) and \(6, 7\)"):
        average_k_loss(scores, proposals[:, :7], target)
    with pytest.raises(
        ValueError, match=r"logits must be the pair \(set_logits, proposal_logits\), got Tensor"
    ):
        AverageKLoss()(scores, target)
    with pytest.raises(ValueError, match=r"target must be in \[0, 8\) or -100, got"):
        average_k_loss(scores, proposals, target + 9)
