"""Losses for sets of k classes on average, which couple the rows of a batch."""

import copy
import math
import pickle

import numpy
import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import binary_cross_entropy, cross_entropy

from shortlist.losses import (
    AverageKLoss,
    ExpectedPositiveLoss,
    LabelEstimates,
    RoleLoss,
    RowSGD,
    _global_batch,
    assume_negative_loss,
    average_k_loss,
    expected_positive_loss,
    role_loss,
)
from shortlist.losses._global_batch import largest_in_batch
from tests.conftest import tensor
from tests.processes import in_two_processes


def heads(n=6, c=8, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    scores, proposals = torch.randn(2, n, c, generator=generator, dtype=dtype)
    return scores, 2 * proposals, torch.randint(c, (n,), generator=generator)


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


def test_float32_keeps_its_digits_where_all_is_learned():
    """True scores far up, others far down: losses near 0 that the sum of all terms would drown."""
    scores = torch.full((1, 1000), -12.0)
    scores[0, 0], target = 12.0, torch.tensor([0])
    one_hot = torch.zeros_like(scores).scatter(1, target[:, None], 1)
    for loss in (
        lambda s: average_k_loss(s, torch.zeros_like(s), target, k=1.0) - math.log(1000),
        lambda s: assume_negative_loss(s, target),
        lambda s: assume_negative_loss(s, one_hot.to(s)),
    ):
        # log 1000 is added and taken off: it has an error of 5e-7 of its own
        assert loss(scores).item() == pytest.approx(loss(scores.double()).item(), rel=1e-4, abs=6e-7)
    assert assume_negative_loss(scores, target).item() == pytest.approx(
        2 * math.log1p(math.exp(-12)), rel=1e-5
    )
    leaf = scores.requires_grad_()
    average_k_loss(leaf, torch.zeros_like(scores), target, k=1.0).backward()
    assert leaf.grad[0, 0].item() == pytest.approx(-1 / (1 + math.exp(12)), rel=1e-5)


def test_smoothing_leaves_masked_classes_out():
    scores, _, target = heads()
    target[target > 4] = 1
    scores[:, 5:] = -math.inf
    for target_form in (target, torch.nn.functional.one_hot(target, 8).double()):
        leaf = scores.clone().requires_grad_()
        loss = assume_negative_loss(leaf, target_form, label_smoothing=0.1, negative_weight=0.3)
        loss.backward()
        want = assume_negative_loss(
            scores[:, :5],
            target_form if target_form.ndim == 1 else target_form[:, :5],
            label_smoothing=0.1,
            negative_weight=0.3,
        )
        torch.testing.assert_close(loss.detach(), want)
        assert torch.isfinite(leaf.grad).all() and (leaf.grad[:, 5:] == 0).all()


@pytest.mark.errors  # of types, to a checker of these: floats are annotated
def test_numpy_numbers_are_numbers():
    scores, proposals, target = heads()
    for k in (numpy.float32(2.5), numpy.float64(2.5)):
        assert AverageKLoss(k=k)((scores, proposals), target) == AverageKLoss(k=2.5)(
            (scores, proposals), target
        )
        assert expected_positive_loss(scores, target, k=k) == expected_positive_loss(scores, target, k=2.5)
    assert role_loss(scores, proposals, target, k=numpy.int64(2)) == role_loss(scores, proposals, target, k=2)


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


@pytest.mark.parametrize("size_weight", [0.0, 0.3, 1.0])
def test_role_with_a_weight_of_the_size_term(size_weight):
    """By autograd, on the formula of METHODS 3; the other side of each half is fixed."""
    torch.manual_seed(0)
    leaves = [torch.randn(6, 5, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    target = torch.randint(5, (6,))
    observed = torch.eye(5, dtype=torch.float64)[target]

    def half(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        fit = -observed * (p + 1e-5).log() - q * (p + 1e-5).log() - (1 - q) * (1 - p + 1e-5).log()
        return fit.mean() + size_weight * ((p.sum(1).mean() - 2.0) / 5) ** 2

    p, q = (leaf.sigmoid() for leaf in leaves)
    expected = (half(p, q.detach()) + half(q, p.detach())) / 2
    loss = role_loss(*leaves, target, k=2.0, size_weight=size_weight)
    torch.testing.assert_close(loss, expected)
    for got, want in zip(
        torch.autograd.grad(loss, leaves), torch.autograd.grad(expected, leaves), strict=True
    ):
        torch.testing.assert_close(got, want)


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


def test_role_ignores_rows():
    scores, estimates, target = heads()
    both = [
        torch.cat([part, torch.full((2, 8), math.nan, dtype=torch.float64)]) for part in (scores, estimates)
    ]
    leaves = [part.requires_grad_() for part in both]
    loss = role_loss(*leaves, torch.cat([target, torch.tensor([-7, -7])]), k=2.0, ignore_index=-7)
    torch.testing.assert_close(loss.detach(), role_loss(scores, estimates, target, k=2.0))
    short = [part.clone().requires_grad_() for part in (scores, estimates)]
    want = torch.autograd.grad(role_loss(*short, target, k=2.0), short)
    for got, part in zip(torch.autograd.grad(loss, leaves), want, strict=True):
        torch.testing.assert_close(got[:6], part)
        assert (got[6:] == 0).all()


def test_role_has_no_second_derivative():
    scores, estimates, target = heads()
    loss = role_loss(scores.requires_grad_(), estimates, target, k=2.0)
    with pytest.raises(RuntimeError, match="role_loss has no second derivative"):
        torch.autograd.grad(loss**2, scores, create_graph=True)


def test_parameter_group_takes_no_momentum_from_the_model():
    target = torch.randint(5, (60,))
    estimates, model = LabelEstimates(target, num_classes=5), torch.nn.Linear(4, 5)
    twin = copy.deepcopy(estimates)
    groups = [{"params": model.parameters()}, estimates.parameter_group(lr=0.1)]
    optimiser = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)
    loss = RoleLoss(estimates=estimates, k=2.0)
    for rows in torch.arange(60).repeat(3).split(20):
        optimiser.zero_grad()
        logits = model(torch.randn(20, 4))
        loss(logits, target[rows], rows).backward()
        before = estimates.table.detach().clone()
        optimiser.step()
        (gradient,) = torch.autograd.grad(
            role_loss(logits.detach(), twin(rows), target[rows], k=2.0), twin.table
        )
        torch.testing.assert_close(estimates.table.detach(), before - 1.0 * gradient.to_dense())
        twin.load_state_dict(estimates.state_dict())
    assert optimiser.state[estimates.table].get("momentum_buffer") is None
    assert optimiser.state[model.weight]["momentum_buffer"] is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_sgd_is_sgd(dtype):
    target = torch.randint(5, (9,))
    tables = [
        LabelEstimates(target, num_classes=5, dtype=dtype, generator=torch.Generator().manual_seed(0))
        for _ in range(2)
    ]
    optimisers = [
        make([table.parameter_group(lr=0.2)])
        for make, table in zip((RowSGD, torch.optim.SGD), tables, strict=True)
    ]
    for ids in (torch.tensor([3, 1, 3]), torch.tensor([8, 0, 1])):  # an id may come twice
        for table, optimiser in zip(tables, optimisers, strict=True):
            optimiser.zero_grad()
            (table(ids) ** 2).sum().backward()
            optimiser.step()
    torch.testing.assert_close(tables[0].table, tables[1].table)


def test_a_bfloat16_table_follows_the_float32_one_on_average():
    """Steps far below the spacing of bfloat16, which plain SGD rounds away one and all."""
    rows, c, steps, ids = 40, 500, 60, torch.arange(40)
    target = torch.zeros(rows, dtype=torch.int64)
    start = torch.rand(rows, c, generator=torch.Generator().manual_seed(0)).bfloat16()
    pull = 1e-4 * torch.sign(torch.randn(c, generator=torch.Generator().manual_seed(1)))

    def change(dtype, make):
        table = LabelEstimates(target, num_classes=c, dtype=dtype)
        table.table.data.copy_(start)
        optimiser = make([table.parameter_group(lr=0.1)])
        for _ in range(steps):
            optimiser.zero_grad()
            (table(ids).float() * pull).sum().backward()
            optimiser.step()
        return (table.table.detach().double() - start.double()) * -pull.sign()

    want = change(torch.float32, RowSGD)
    torch.testing.assert_close(want.mean().item(), steps * 1e-4, rtol=1e-2, atol=0)
    got = change(torch.bfloat16, RowSGD)
    error = got.std().item() / math.sqrt(rows * c)
    assert abs(got.mean().item() - want.mean().item()) < 4 * error < 0.1 * want.mean().item()
    assert change(torch.bfloat16, torch.optim.SGD)[start > 0.25].abs().max() == 0  # what it is for


def test_rounding_depends_on_seed_and_step_alone_and_survives_a_resume():
    target = torch.zeros(6, dtype=torch.int64)

    def run(steps, seed=0, state=None, table=None):
        if table is None:
            generator = torch.Generator().manual_seed(0)
            table = LabelEstimates(target, num_classes=50, dtype=torch.bfloat16, generator=generator)
        optimiser = RowSGD([table.parameter_group(lr=1e-3)], seed=seed)
        if state is not None:
            optimiser.load_state_dict(state)
        for _ in range(steps):
            optimiser.zero_grad()
            table(torch.arange(6)).float().sum().backward()
            optimiser.step()
        return table, optimiser

    whole, _ = run(6)
    assert whole.table.equal(run(6)[0].table) and not whole.table.equal(run(6, seed=1)[0].table)
    half, optimiser = run(3)
    state = pickle.loads(pickle.dumps(optimiser.state_dict()))
    assert run(3, state=state, table=half)[0].table.equal(whole.table)


def test_not_finite_entries_stay_what_they_are():
    table = LabelEstimates(torch.tensor([0]), num_classes=3, dtype=torch.bfloat16)
    table.table.data.copy_(torch.tensor([[math.inf, -math.inf, math.nan]]))
    optimiser = RowSGD([table.parameter_group(lr=1.0)])
    table(torch.tensor([0])).sum().backward()
    optimiser.step()
    assert table.table[0].tolist()[:2] == [math.inf, -math.inf] and table.table[0, 2].isnan()


def test_half_storage_halves_the_memory():
    target = torch.zeros(1000, dtype=torch.int64)
    full, half = (LabelEstimates(target, num_classes=1081, dtype=d) for d in (torch.float32, torch.bfloat16))
    assert full.nbytes == 1000 * 1081 * 4 and half.nbytes == full.nbytes // 2
    assert half.nbytes * 240 < 600e6  # 240,000 x 1,081
    loss = RoleLoss(estimates=half, k=2.0)(torch.randn(3, 1081), target[:3], torch.arange(3))
    loss.backward()
    assert loss.dtype == torch.float32 and half.table.grad.dtype == torch.bfloat16
    # gradient and optimiser hold the batch's rows, and no second table
    assert half.table.grad._values().numel() == 3 * 1081
    optimiser = RowSGD([half.parameter_group(lr=0.1)])
    optimiser.step()
    assert not optimiser.state


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


class Whole(torch.nn.Module):
    """Network, table and loss in one, as DistributedDataParallel wants them."""

    def __init__(self, target, dtype):
        super().__init__()
        torch.manual_seed(3)
        self.net = torch.nn.Linear(4, C)
        generator = torch.Generator().manual_seed(1)
        estimates = LabelEstimates(target, num_classes=C, dtype=dtype, generator=generator)
        self.loss = RoleLoss(estimates=estimates, k=2.0)

    def forward(self, features, target, ids):
        return self.loss(self.net(features), target, ids)


def train_whole(rows: slice, parallel: bool, dtype=torch.float32, steps=3) -> tuple:
    generator = torch.Generator().manual_seed(5)
    features, ids = torch.randn(N, 4, generator=generator), torch.arange(N)
    target = torch.randint(C, (N,), generator=generator)
    model = Whole(target, dtype)
    wrapped = torch.nn.parallel.DistributedDataParallel(model) if parallel else model
    optimisers = [
        torch.optim.SGD(model.net.parameters(), lr=0.5, momentum=0.9),
        RowSGD([model.loss.estimates.parameter_group(lr=0.5)]),
    ]
    for _ in range(steps):
        wrapped.zero_grad()
        wrapped(features[rows], target[rows], ids[rows]).backward()
        for optimiser in optimisers:
            optimiser.step()
    return model.net.weight.detach(), model.loss.estimates.table.detach()


def masked_average_k(rows: slice) -> torch.Tensor:
    scores, proposals, target = heads(n=N, c=C)
    target[target > 3] = 2
    target[8] = -100
    proposals[:, 4:] = -math.inf
    leaf = scores.requires_grad_()
    average_k_loss(leaf[rows], proposals[rows], target[rows], k=5.5).backward()
    return leaf.grad


def on_part(rank: int) -> dict:
    part = slice(0, 6) if rank == 0 else slice(6, N)  # of unequal size
    return {name: gradients(name, part, parallel=True) for name in CASES} | {
        "whole": train_whole(part, parallel=True),
        "whole bfloat16": train_whole(part, parallel=True, dtype=torch.bfloat16),
        "masked": masked_average_k(part),
        # tied entries: any will do, but no more than wanted in all
        "ties": number_chosen(torch.zeros(3 + rank, 2), 9),
        "few ties": number_chosen(torch.tensor([[3.0, 1.0, 1.0], [2.0, 1.0, rank]]), 5),
    }


def number_chosen(scores: torch.Tensor, wanted: int) -> int:
    return len(largest_in_batch(scores, wanted=torch.tensor(wanted), most=wanted)[0])


def test_two_processes_equal_one_with_the_whole_batch(tmp_path):
    first, second = results = in_two_processes(on_part, tmp_path)
    assert (first["ties"], second["ties"]) == (6, 3)
    assert (first["few ties"], second["few ties"]) == (3, 2)
    start = train_whole(slice(0, N), parallel=False, steps=0)
    want = train_whole(slice(0, N), parallel=False)
    assert all((one - two).abs().max() > 0.02 for one, two in zip(want, start, strict=True))
    for result in results:
        torch.testing.assert_close(result["whole"], want, rtol=0, atol=1e-6)
    for one, two in zip(first["whole bfloat16"], second["whole bfloat16"], strict=True):
        assert one.equal(two)  # rounded alike
    # each process has the gradient of its rows, times 2 as they are to be averaged
    torch.testing.assert_close((first["masked"] + second["masked"]) / 2, masked_average_k(slice(0, N)))
    for name in CASES:
        want = gradients(name, slice(0, N), parallel=False)
        for result in results:
            torch.testing.assert_close(result[name], want, rtol=1e-9, atol=1e-12)


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
    with pytest.raises(ValueError, match=r"k must be < the number of classes \(8\), got 8"):
        role_loss(scores, proposals, target, k=8)
    with pytest.raises(ValueError, match=r"size_weight must be .*>= 0.*got -1"):
        role_loss(scores, proposals, target, k=2, size_weight=-1.0)
    with pytest.raises(ValueError, match=r"target must be in \[0, 8\) or -100, got -1"):
        role_loss(scores, proposals, target - target - 1)


@pytest.mark.errors
def test_bad_tables_and_sample_ids():
    target = torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match=r"dtype must be one of torch.bfloat16, .*, got torch.float16"):
        LabelEstimates(target, num_classes=3, dtype=torch.float16)
    with pytest.raises(ValueError, match="num_classes must be an integer >= 1, got 0"):
        LabelEstimates(target, num_classes=0)
    estimates = LabelEstimates(target, num_classes=3)
    loss, logits = RoleLoss(estimates=estimates, k=2.0), torch.randn(2, 3)
    for ids, message in (
        ([0, 3], r"sample_ids must be in \[0, 3\), got 3"),
        ([0, -1], r"sample_ids must be in \[0, 3\), got -1"),
        ([0.0, 1.0], r"sample_ids must be int64 or int32 of shape \(n,\), got torch.float32 \(2,\)"),
        ([[0, 1]], r"sample_ids must be int64 or int32 of shape \(n,\), got torch.int64 \(1, 2\)"),
    ):
        with pytest.raises(ValueError, match=message):
            loss(logits, target[:2], torch.tensor(ids))
    with pytest.raises(ValueError, match=r"params must be in torch.bfloat16, .*, got torch.float16"):
        RowSGD(estimates.half().parameters())
    dense = torch.nn.Parameter(torch.ones(2, 2))
    dense.sum().backward()
    with pytest.raises(ValueError, match="params must have sparse gradients, got a dense one"):
        RowSGD([dense]).step()
