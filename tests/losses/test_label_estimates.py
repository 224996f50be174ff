import copy
import math
import pickle

import pytest
import torch

from shortlist.losses import LabelEstimates, RoleLoss, RowSGD, role_loss


def test_start_look_up_and_learn():
    target = torch.tensor([2, 0, 1, 2, 1])
    estimates = LabelEstimates(target, num_classes=4, generator=torch.Generator().manual_seed(0))
    chance = torch.sigmoid(estimates.table.detach())
    observed = torch.zeros(5, 4, dtype=torch.bool).scatter(1, target[:, None], True)
    torch.testing.assert_close(chance[observed], torch.full((5,), 0.995))
    assert (chance[~observed] >= 0.4).all() and (chance[~observed] <= 0.6).all()
    assert len(set(chance[~observed].tolist())) > 10
    loss = RoleLoss(estimates=estimates, k=1.5)
    model = torch.nn.Linear(3, 4)
    optimizer = torch.optim.SGD([{"params": model.parameters()}, estimates.parameter_group(lr=0.1)], lr=0.1)
    assert optimizer.param_groups[1]["lr"] == pytest.approx(1.0)
    ids = torch.tensor([3, 1])
    before = estimates.table.detach().clone()
    loss(model(torch.randn(2, 3)), target[ids], ids).backward()
    assert estimates.table.grad.is_sparse
    optimizer.step()
    moved = (estimates.table.detach() != before).any(1)
    assert moved.tolist() == [False, True, False, True, False]
    twin = pickle.loads(pickle.dumps(loss))
    torch.testing.assert_close(twin.estimates.table, estimates.table)


def test_parameter_group_takes_no_momentum_from_the_model():
    target = torch.randint(5, (60,))
    estimates, model = LabelEstimates(target, num_classes=5), torch.nn.Linear(4, 5)
    twin = copy.deepcopy(estimates)
    groups = [{"params": model.parameters()}, estimates.parameter_group(lr=0.1)]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)
    loss = RoleLoss(estimates=estimates, k=2.0)
    for rows in torch.arange(60).repeat(3).split(20):
        optimizer.zero_grad()
        logits = model(torch.randn(20, 4))
        loss(logits, target[rows], rows).backward()
        before = estimates.table.detach().clone()
        optimizer.step()
        (gradient,) = torch.autograd.grad(
            role_loss(logits.detach(), twin(rows), target[rows], k=2.0), twin.table
        )
        torch.testing.assert_close(estimates.table.detach(), before - 1.0 * gradient.to_dense())
        twin.load_state_dict(estimates.state_dict())
    assert optimizer.state[estimates.table].get("momentum_buffer") is None
    assert optimizer.state[model.weight]["momentum_buffer"] is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_row_sgd_is_sgd(dtype):
    target = torch.randint(5, (9,))
    tables = [
        LabelEstimates(target, num_classes=5, dtype=dtype, generator=torch.Generator().manual_seed(0))
        for _ in range(2)
    ]
    optimizers = [
        make([table.parameter_group(lr=0.2)])
        for make, table in zip((RowSGD, torch.optim.SGD), tables, strict=True)
    ]
    for ids in (torch.tensor([3, 1, 3]), torch.tensor([8, 0, 1])):  # an id may come twice
        for table, optimizer in zip(tables, optimizers, strict=True):
            optimizer.zero_grad()
            (table(ids) ** 2).sum().backward()
            optimizer.step()
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
        optimizer = make([table.parameter_group(lr=0.1)])
        for _ in range(steps):
            optimizer.zero_grad()
            (table(ids).float() * pull).sum().backward()
            optimizer.step()
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
        optimizer = RowSGD([table.parameter_group(lr=1e-3)], seed=seed)
        if state is not None:
            optimizer.load_state_dict(state)
        for _ in range(steps):
            optimizer.zero_grad()
            table(torch.arange(6)).float().sum().backward()
            optimizer.step()
        return table, optimizer

    whole, _ = run(6)
    assert whole.table.equal(run(6)[0].table) and not whole.table.equal(run(6, seed=1)[0].table)
    half, optimizer = run(3)
    state = pickle.loads(pickle.dumps(optimizer.state_dict()))
    assert run(3, state=state, table=half)[0].table.equal(whole.table)


def test_not_finite_entries_stay_what_they_are():
    table = LabelEstimates(torch.tensor([0]), num_classes=3, dtype=torch.bfloat16)
    table.table.data.copy_(torch.tensor([[math.inf, -math.inf, math.nan]]))
    optimizer = RowSGD([table.parameter_group(lr=1.0)])
    table(torch.tensor([0])).sum().backward()
    optimizer.step()
    assert table.table[0].tolist()[:2] == [math.inf, -math.inf] and table.table[0, 2].isnan()


def test_half_storage_halves_the_memory():
    target = torch.zeros(1000, dtype=torch.int64)
    full, half = (LabelEstimates(target, num_classes=1081, dtype=d) for d in (torch.float32, torch.bfloat16))
    assert full.nbytes == 1000 * 1081 * 4 and half.nbytes == full.nbytes // 2
    assert half.nbytes * 240 < 600e6  # 240,000 x 1,081
    loss = RoleLoss(estimates=half, k=2.0)(torch.randn(3, 1081), target[:3], torch.arange(3))
    loss.backward()
    assert loss.dtype == torch.float32 and half.table.grad.dtype == torch.bfloat16
    # gradient and optimizer hold the batch's rows, and no second table
    assert half.table.grad._values().numel() == 3 * 1081
    optimizer = RowSGD([half.parameter_group(lr=0.1)])
    optimizer.step()
    assert not optimizer.state


@pytest.mark.errors
def test_bad_tables_and_sample_ids():
    target = torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match=r"target must be in \[0, 3\), got 0 to 3"):
        LabelEstimates(torch.tensor([0, 3]), num_classes=3)
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
