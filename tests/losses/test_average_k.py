"""Losses for sets of k classes on average, which couple the rows of a batch."""

import pickle

import pytest
import torch
import torch.multiprocessing as mp
from torch.autograd import gradcheck
from torch.nn.functional import binary_cross_entropy, cross_entropy

from shortlist.losses import (
    AverageKLoss,
    ExpectedPositiveLoss,
    LabelEstimates,
    RoleLoss,
    assume_negative_loss,
    average_k_loss,
    expected_positive_loss,
    role_loss,
)
from shortlist.losses._global_batch import largest_in_batch
from tests.conftest import tensor


def heads(n=6, c=8, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores, proposals = torch.randn(2, n, c, generator=generator, dtype=dtype)
    return scores, 2 * proposals, torch.randint(c, (n,), generator=generator)


def average_k_by_loops(scores, proposals, target, k, alpha):
    """The formula, entry by entry."""
    n, c = scores.shape
    chances = proposals.detach().softmax(1)
    entries = [(float(chances[i, j]), i, j) for i in range(n) for j in range(c) if j != int(target[i])]
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
def test_average_k_equals_a_loop(k, alpha):
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


def test_average_k_gradcheck_and_reductions():
    scores, proposals, target = heads()
    scores.requires_grad_()
    assert gradcheck(lambda s: average_k_loss(s, proposals, target, k=2.5), (scores,))
    rows = average_k_loss(scores, proposals, target, k=2.5, reduction="none")
    torch.testing.assert_close(rows.sum(), average_k_loss(scores, proposals, target, k=2.5, reduction="sum"))
    torch.testing.assert_close(rows.mean(), average_k_loss(scores, proposals, target, k=2.5))


def test_average_k_ignores_rows_and_weighs_classes():
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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    scores, proposals, target = heads(dtype=dtype)
    leaf = (20 * scores).requires_grad_()
    loss = AverageKLoss(k=2.5)((leaf, proposals), target)
    loss.backward()
    assert loss.dtype == torch.float32 and torch.isfinite(loss) and torch.isfinite(leaf.grad).all()
    loss = expected_positive_loss(scores, target, k=2.0)
    assert loss.dtype == torch.float32 and torch.isfinite(loss)


def test_nan_and_extreme_scores():
    scores, proposals, target = heads()
    scores[0, 0] = torch.nan
    assert average_k_loss(scores, proposals, target, k=2.0).isnan()
    assert expected_positive_loss(scores, target, k=2.0).isnan()
    assert role_loss(scores, proposals, target, k=2.0).isnan()
    scores, proposals, target = heads()
    leaf = (1e4 * scores).requires_grad_()
    average_k_loss(leaf, 1e4 * proposals, target, k=2.0).backward()
    assert torch.isfinite(leaf.grad).all()
    proposals[0, 3] = torch.nan
    assert average_k_loss(heads()[0], proposals, target, k=2.0).isnan()


def test_golden_single_positive_losses(golden):
    reference, checked = golden("spml"), {}
    for case in reference.cases:
        logits = reference.shared[case["inputs"]["f_logits"]].clone().requires_grad_()
        target = reference.shared[case["inputs"]["observed"]].argmax(1)
        kind, params = case["kind"], case["params"]
        if kind in ("an", "an_ls", "wan"):
            loss = assume_negative_loss(
                logits,
                target,
                negative_weight=None if kind == "wan" else 1.0,
                label_smoothing=params["ls_coef"] or 0.0,
                normalisation="original",
            )
        elif kind == "epr":
            loss = expected_positive_loss(
                logits, target, k=params["expected_num_pos"], normalisation="original"
            )
        else:
            estimates = reference.shared[case["inputs"]["g_logits"]].clone().requires_grad_()
            loss = role_loss(logits, estimates, target, k=params["expected_num_pos"])
        loss.backward()
        assert loss.item() == pytest.approx(case["total"], abs=1e-7)
        torch.testing.assert_close(logits.grad, tensor(case["grad_f_logits"]), rtol=0, atol=1e-7)
        if kind == "role":
            torch.testing.assert_close(estimates.grad, tensor(case["grad_g_logits"]), rtol=0, atol=1e-7)
        checked[kind] = checked.get(kind, 0) + 1
    assert checked == {"an": 3, "an_ls": 3, "wan": 3, "epr": 3, "role": 3}


def test_papers_normalisation():
    scores, _, target = heads()
    chance = torch.sigmoid(scores)
    true = chance[torch.arange(6), target]
    want = -true.log().mean() + 0.7 * (chance.sum(1).mean() - 2.5) ** 2
    torch.testing.assert_close(expected_positive_loss(scores, target, k=2.5, beta=0.7), want)
    others = torch.ones_like(scores).scatter(1, target[:, None], 0)
    want = (-true.log() - (others * (1 - chance).log()).sum(1) / 7).mean()
    torch.testing.assert_close(assume_negative_loss(scores, target), want)
    labels = torch.zeros_like(scores).scatter(1, target[:, None], 1)
    plain = binary_cross_entropy(chance, labels, reduction="sum") / 6
    torch.testing.assert_close(assume_negative_loss(scores, target, negative_weight=1.0), plain)


def test_gradchecks():
    scores, estimates, target = heads()
    scores.requires_grad_()
    estimates = estimates.requires_grad_()
    assert gradcheck(lambda s: expected_positive_loss(s, target, k=2.5), (scores,))

    def sides(s, e):  # each side's gradient with the other fixed, as the loss defines it
        return role_loss(s, estimates.detach(), target, k=2.0), role_loss(scores.detach(), e, target, k=2.0)

    both = torch.autograd.grad(role_loss(scores, estimates, target, k=2.0), (scores, estimates))
    one = torch.autograd.grad(sides(scores, estimates)[0], scores)[0]
    two = torch.autograd.grad(sides(scores, estimates)[1], estimates)[0]
    torch.testing.assert_close(both, (one, two))


def test_label_estimates_start_look_up_and_learn():
    target = torch.tensor([2, 0, 1, 2, 1])
    estimates = LabelEstimates(target, num_classes=4, generator=torch.Generator().manual_seed(0))
    chance = torch.sigmoid(estimates.table.detach())
    observed = torch.zeros(5, 4, dtype=torch.bool).scatter(1, target[:, None], True)
    torch.testing.assert_close(chance[observed], torch.full((5,), 0.995))
    assert (chance[~observed] >= 0.4).all() and (chance[~observed] <= 0.6).all()
    assert len(set(chance[~observed].tolist())) > 10
    loss = RoleLoss(estimates=estimates, k=1.5)
    model = torch.nn.Linear(3, 4)
    optimiser = torch.optim.SGD([{"params": model.parameters()}, estimates.parameter_group(lr=0.1)], lr=0.1)
    assert optimiser.param_groups[1]["lr"] == pytest.approx(1.0)
    ids = torch.tensor([3, 1])
    before = estimates.table.detach().clone()
    loss(model(torch.randn(2, 3)), target[ids], ids).backward()
    assert estimates.table.grad.is_sparse
    optimiser.step()
    moved = (estimates.table.detach() != before).any(1)
    assert moved.tolist() == [False, True, False, True, False]
    twin = pickle.loads(pickle.dumps(loss))
    torch.testing.assert_close(twin.estimates.table, estimates.table)


def test_half_storage_halves_the_memory():
    target = torch.zeros(1000, dtype=torch.int64)
    full, half = (LabelEstimates(target, num_classes=1081, dtype=d) for d in (torch.float32, torch.bfloat16))
    assert full.nbytes == 1000 * 1081 * 4 and half.nbytes == full.nbytes // 2
    assert half.nbytes * 240 < 600e6  # 240,000 x 1,081
    loss = RoleLoss(estimates=half, k=2.0)(torch.randn(3, 1081), target[:3], torch.arange(3))
    loss.backward()
    assert loss.dtype == torch.float32 and half.table.grad.dtype == torch.bfloat16


N, C = 10, 7


def losses_of(model, features, target, ids, rows):
    first, second = model(features[rows])
    role = RoleLoss(estimates=estimates_of(target.clamp_min(0)), k=2.0)
    return {
        "average_k": AverageKLoss(k=2.5, alpha=0.7)((first, second), target[rows]),
        "average_k weighted": AverageKLoss(k=3.0, weight=torch.linspace(0.1, 1, C).double())(
            (first, second), target[rows]
        ),
        "expected_positive": ExpectedPositiveLoss(k=2.5, beta=0.5)(first, target[rows]),
        "role": role(first, target.clamp_min(0)[rows], ids[rows]),
    }


def estimates_of(target):
    return LabelEstimates(
        target, num_classes=C, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


class TwoLinear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.one = torch.nn.Linear(4, C, dtype=torch.float64)
        self.two = torch.nn.Linear(4, C, dtype=torch.float64)

    def forward(self, features):
        return self.one(features), self.two(features)


def gradients(name: str, rows: slice, parallel: bool) -> tuple:
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(N, 4, dtype=torch.float64, generator=generator)
    target = torch.randint(C, (N,), generator=generator)
    target[7] = -100 if "role" not in name else target[7]
    model = TwoLinear()
    wrapped = model
    if parallel:
        wrapped = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    loss = losses_of(
        wrapped, features, target.clamp_min(0) if "role" in name else target, torch.arange(N), rows
    )
    loss[name].backward()
    none = torch.zeros(C, 4, dtype=torch.float64)
    return (
        loss[name].detach(),
        model.one.weight.grad,
        none if model.two.weight.grad is None else model.two.weight.grad,
    )


CASES = ["average_k", "average_k weighted", "expected_positive", "role"]


def on_part(rank: int, store: str, results) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    assert torch.distributed.get_world_size() == 2
    for name in CASES:  # parts of unequal size
        results[rank, name] = gradients(name, slice(0, 6) if rank == 0 else slice(6, N), parallel=True)
    # tied entries: any will do, but no more than wanted in all
    results[rank, "ties"] = len(largest_in_batch(torch.zeros(3 + rank, 2), 9))
    results[rank, "few ties"] = len(largest_in_batch(torch.tensor([[3.0, 1.0, 1.0], [2.0, 1.0, rank]]), 5))
    torch.distributed.destroy_process_group()


def test_two_processes_equal_one_with_the_whole_batch(tmp_path):
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(on_part, args=(str(tmp_path / "store"), results), nprocs=2)
        assert (results[0, "ties"], results[1, "ties"]) == (6, 3)
        assert (results[0, "few ties"], results[1, "few ties"]) == (3, 2)
        for name in CASES:
            want = gradients(name, slice(0, N), parallel=False)
            for rank in (0, 1):
                got = results[rank, name]
                torch.testing.assert_close(got[0], want[0], rtol=1e-9, atol=1e-12)
                torch.testing.assert_close(got[1:], want[1:], rtol=1e-9, atol=1e-12)


@pytest.mark.errors
def test_bad_input():
    scores, proposals, target = heads()
    for k in (0.5, float("nan")):
        with pytest.raises(ValueError, match="k must be"):
            average_k_loss(scores, proposals, target, k=k)
        with pytest.raises(ValueError, match="k must be"):
            AverageKLoss(k=k)
        with pytest.raises(ValueError, match="k must be"):
            expected_positive_loss(scores, target, k=k)
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
    with pytest.raises(ValueError, match="normalisation must be one of paper, original, got 'both'"):
        expected_positive_loss(scores, target, normalisation="both")
    with pytest.raises(ValueError, match=r"target must be in \[0, 3\), got 0 to 3"):
        LabelEstimates(torch.tensor([0, 3]), num_classes=3)
    with pytest.raises(ValueError, match=r"estimates must have the logits' shape \(6, 8\), got \(5, 8\)"):
        role_loss(scores, proposals[:5], target)
